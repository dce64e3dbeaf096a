"""One hub per event loop: the list of who is ready, and the single handle that wakes them (X3)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Sequence
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock._pure.parker import Parker

# A forked child has copies of its parent's hubs, and shares the sockets that wake
# the parent's loops. Hubs of an older generation are dead (X12).
generation = 0


def _forget_the_parent() -> None:
    global generation
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)


class _Current(threading.local):
    """The hub whose round is under way in this thread, so that its loop is running here."""

    hub: Hub | None = None


_current = _Current()


def running_hub() -> Hub:
    """The hub of the loop that runs in this thread."""
    loop = asyncio.get_running_loop()
    current = _current.hub
    # One of an older generation was left by a fork from within its round. And a task that the
    # round has stepped may run another loop inside it.
    if current is not None and current.generation == generation and current.loop() is loop:
        return current
    hub = getattr(loop, "_interlock_pure_hub", None)
    if not isinstance(hub, Hub) or hub.generation != generation:
        hub = Hub(loop)
        try:
            loop._interlock_pure_hub = hub  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            pass  # it takes no attributes, so it gets a hub each time: still right, only slower
    return hub


class _NoLoop:
    """Stands in for a loop where a future only has to exist."""

    def get_debug(self) -> bool:
        return False


class _Ticket:
    """What the loop is given to call, once: the next round.

    A loop that is closed drops what it was to call. So if this goes without having been
    called, those who are ready there will never have their turn.
    """

    __slots__ = ("hub",)

    def __init__(self, hub: Hub) -> None:
        self.hub: Hub | None = hub

    def __call__(self) -> None:
        hub, self.hub = self.hub, None
        if hub is not None:
            hub.run()

    def __del__(self) -> None:
        if self.hub is not None:
            self.hub.abandon_if_closed(())


class Hub:
    """The parkers that are ready in one loop.

    The loop holds its hub, as an attribute, and the hub its loop only weakly: so it
    keeps no loop alive, and what waits on a loop that is gone goes with it.
    """

    __slots__ = ("_context", "_done", "_idle", "_ready", "generation", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = weakref.ref(loop)
        self._ready: deque[Parker] = deque()
        # Held while a handle is scheduled. It is only ever tried, never waited for,
        # so a signal handler or a finaliser cannot deadlock on it.
        self._idle = threading.Lock()
        # A future that is done: what a task is told it has waited for. It would ask a
        # parker for its result by name; for an `asyncio.Future` it has a short way.
        self._done: asyncio.Future[None] = asyncio.Future(loop=_NoLoop())  # type: ignore[arg-type]
        self._done.set_result(None)
        # Empty, so that a setter's context leaks to nobody (X13).
        self._context = Context()
        self.generation = generation

    def push(self, parkers: Sequence[Parker]) -> bool:
        """Wake these, from any thread, in the loop's next round; return false if there will be none."""
        if self.generation != generation:
            return False
        self._ready.extend(parkers)
        if self._idle.acquire(blocking=False):
            return self._schedule(parkers)
        # A handle is scheduled, unless the loop was closed before it ran.
        loop = self.loop()
        return (loop is not None and not loop.is_closed()) or not self.abandon_if_closed(parkers)

    def abandon_if_closed(self, but: Sequence[Parker]) -> bool:
        """Give up whoever is ready on a loop that is closed or gone, which is returned; `but` are the caller's."""
        loop = self.loop()
        if loop is not None and not loop.is_closed():
            return False
        self._let_go()
        excepted = set(but)
        while self._ready:
            try:
                parker = self._ready.popleft()
            except IndexError:
                break  # another thread does the same
            if parker not in excepted:
                parker.give_up()
        return True

    def _schedule(self, parkers: Sequence[Parker]) -> bool:
        try:
            self._call_soon()
            return True
        except BaseException as error:
            if not isinstance(error, RecursionError):
                return self._schedule_after(error, parkers)
            # A put that is done must still wake whom it is for, however deep the stack is.
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + 200)
            try:
                return self._schedule_after(error, parkers)
            finally:
                sys.setrecursionlimit(limit)

    def _schedule_after(self, error: BaseException, parkers: Sequence[Parker]) -> bool:
        # The loop is asked only now that the call has failed (X4).
        if self.abandon_if_closed(parkers):
            return False
        # An interrupt, say, that came in the middle: whether the handle got there is
        # unknown, and one too many does no harm. Nobody is forgotten: if there is none,
        # the next push schedules one.
        try:
            self._call_soon()
        except BaseException:
            self._let_go()
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        loop = self.loop()
        if loop is not None:
            details = {"message": "interlock had trouble to wake its tasks", "exception": error}
            loop.call_exception_handler(details)
        return True

    def _call_soon(self) -> None:
        loop = self.loop()
        if loop is None:
            raise RuntimeError("the loop is gone")
        ticket = _Ticket(self)
        # A task of the loop is running here, so the loop looks at its ready list before it
        # sleeps. Without one this may be a signal handler that has interrupted the loop's
        # sleep: only the thread-safe call ends that.
        try:
            if _current.hub is self:
                # The hub's own context is entered, and this handle may run within the round.
                loop.call_soon(ticket, context=Context())
            elif _get_running_loop() is loop and asyncio.current_task(loop) is not None:
                loop.call_soon(ticket, context=self._context)
            else:
                loop.call_soon_threadsafe(ticket, context=self._context)
                # It may have been closed in the middle of the call, and then it has the handle
                # all the same.
                if loop.is_closed():
                    raise RuntimeError("the loop is closed")
        except BaseException:
            ticket.hub = None
            raise

    def _let_go(self) -> None:
        try:
            self._idle.release()
        except RuntimeError:
            pass  # no handle is scheduled

    def run(self) -> None:
        self._let_go()
        ready, done = self._ready, self._done
        outer, _current.hub = _current.hub, self
        # What these wake becomes ready for the next round, so that no task starves the loop.
        remaining = len(ready)
        # A loop that may be run again inside one of its own tasks must find a handle then,
        # for those whose turn has not come.
        if remaining > 1 and hasattr(self.loop(), "_nest_patched"):
            self.push(())
        try:
            while remaining and ready:
                remaining -= 1
                ready.popleft().wake(done)
        finally:
            _current.hub = outer
            # Only KeyboardInterrupt and SystemExit get here early; the others are still to be woken.
            if remaining and ready:
                self.push(())
