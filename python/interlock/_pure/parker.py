"""What a task is suspended on: one wait, the place of its outcome, and whom to wake.

Towards the task it speaks the protocol of `asyncio.Future`, without the callback
handle that a future schedules for each of its waiters. The coroutine that the caller
gets is another object, in `waiter`: whatever has `_asyncio_future_blocking` is taken
for a future by `gather`, `shield`, `wait` and `wait_for`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextvars import Context
from typing import Any

from interlock._pure.hub import Hub, running_hub

# Outcomes of a wait.
MATCHED = "matched"  # payload: the value
FAILED = "failed"  # payload: the exception
NOTIFIED = "notified"  # look again
EXPIRED = "expired"
CANCELLED = "cancelled"  # payload: the message


class Gate:
    """What a parker wakes when a thread, not a task, waits for it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def push(self, parkers: Sequence[Parker]) -> bool:
        try:
            self._lock.release()
        except RuntimeError:
            pass  # open already
        return True

    def wait(self, timeout: float | None) -> bool:
        if timeout is None:
            return self._lock.acquire()
        return self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))


class Parker:
    """One wait: the place of its outcome, and whom to wake when it is there.

    `_events` holds at most one waker and then outcomes; only the first outcome
    counts. One list, because appending to it is atomic: who appends sees in its
    order whether the waker or the outcome came first, and never waits for a lock.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_events", "_key", "_match", "_since", "_wakeup", "line")

    def __init__(self, key: int | None = None, match: Callable[[Any], object] | None = None) -> None:
        self._key = key
        self._match = match
        self._since = 0
        self._events: list[Any] = []
        self._asyncio_future_blocking = False
        self._wakeup: Callable[[Any], object] | None = None
        self._context: Context | None = None
        # Where it waits in line with others: passes on what it was notified of. Taken out by
        # who does so.
        self.line: list[Callable[[], None]] = []

    def resolve(self, kind: str, payload: Any = None) -> bool:
        """Settle the wait, from any thread; return whether the waiter gets to see this outcome.

        It does not if there is another one already, or if its loop is closed (X4).
        """
        outcome = (kind, payload)
        try:
            return self._settle(outcome)
        except BaseException:
            # A signal handler has raised in the middle: it must not leave asleep who has an
            # outcome. To wake twice does no harm.
            events = self._events
            if len(events) > 1 and events[1] is outcome and not isinstance(events[0], tuple):
                events[0].push((self,))
            raise

    def _settle(self, outcome: tuple[str, Any]) -> bool:
        events = self._events
        events.append(outcome)
        if events[0] is outcome:
            return True
        if not isinstance(events[0], tuple) and events[1] is outcome:
            return events[0].push((self,))  # type: ignore[no-any-return]
        return False

    def notify(self) -> Hub | Gate | None:
        """As `resolve(NOTIFIED)`, but leave the waking to the caller: return whom to push it to."""
        outcome = (NOTIFIED, self)  # self only to make it unlike any other outcome
        events = self._events
        events.append(outcome)
        if not isinstance(events[0], tuple) and events[1] is outcome:
            return events[0]  # type: ignore[no-any-return]
        return None

    def withdraw(self) -> bool:
        """End the wait from the waiter's side; return whether it had been notified, which then is for another."""
        self._events.append((CANCELLED, None))
        return self.outcome[0] is NOTIFIED and self._leave_line() is not None

    def give_up(self) -> None:
        """Its loop is closed: if it was notified, another may have what that was about."""
        if self.outcome[0] is NOTIFIED:
            pass_on = self._leave_line()
            if pass_on is not None:
                pass_on()

    def _leave_line(self) -> Callable[[], None] | None:
        try:
            return self.line.pop()
        except IndexError:
            return None

    def _matched(self, value: Any) -> None:
        """Settle it with the value; as an `Entry`, it has no interrupt to return."""
        self.resolve(MATCHED, value)

    def _failed(self, error: BaseException) -> None:
        self.resolve(FAILED, error)

    def park(self, waker: Hub | Gate) -> bool:
        """Name whom to wake; return false if the outcome is there already."""
        self._events.append(waker)
        return self._events[0] is waker

    @property
    def outcome(self) -> tuple[str, Any]:
        first = self._events[0]
        return first if isinstance(first, tuple) else self._events[1]

    @property
    def settled(self) -> bool:
        events = self._events
        return len(events) > 1 or (len(events) == 1 and isinstance(events[0], tuple))

    async def wait(self, timeout: float | None) -> tuple[str, Any]:
        """Suspend the running task until there is an outcome."""
        if timeout == 0:
            # Nobody is to be woken for that.
            self.resolve(EXPIRED)
            return self.outcome
        if self.settled or not self.park(hub := running_hub()):
            return self.outcome
        if timeout is None:
            await self
            return self.outcome
        loop = hub.loop()
        assert loop is not None
        timer = loop.call_later(timeout, self.resolve, EXPIRED)
        try:
            await self
        finally:
            timer.cancel()
        return self.outcome

    def block(self, timeout: float | None) -> tuple[str, Any]:
        """Block the running thread until there is an outcome."""
        gate = Gate()
        if self.park(gate) and not gate.wait(timeout):
            self.resolve(EXPIRED)
        return self.outcome

    # The future protocol, as the task uses it.

    def __await__(self) -> Generator[Parker, None, None]:
        self._asyncio_future_blocking = True
        yield self
        # Parked, so its waker is the first event.
        if len(self._events) < 2:
            raise RuntimeError("coroutine is being awaited already")

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        self._wakeup = callback
        self._context = context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        if self._wakeup != callback:
            return 0
        self._wakeup = None
        return 1

    def wake(self, done: asyncio.Future[None]) -> None:
        """Resume the task; it is told that `done` is what it waited for, unless it was cancelled."""
        wakeup, context = self._wakeup, self._context
        if wakeup is None:
            return
        self._wakeup = self._context = None
        awaited = self if self._events[1][0] is CANCELLED else done
        if context is None:
            wakeup(awaited)
        else:
            context.run(wakeup, awaited)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """Not `get_loop`, which the task would prefer: an attribute is cheaper to get than a method to call."""
        waker = self._events[0] if self._events else None
        return waker.loop() if isinstance(waker, Hub) else None

    def cancel(self, msg: Any = None) -> bool:
        if self.resolve(CANCELLED, msg):
            return True
        waker = self._events[0]
        if isinstance(waker, Hub) and self._wakeup is not None:
            # Should the hub's handle have been postponed, this is the time for it.
            waker.push(())
        return False

    def done(self) -> bool:
        return self.settled

    def cancelled(self) -> bool:
        return self.settled and self.outcome[0] is CANCELLED

    def result(self) -> None:
        if not self.settled:
            raise asyncio.InvalidStateError("the wait has no outcome yet")
        kind, payload = self.outcome
        if kind is CANCELLED:
            raise asyncio.CancelledError() if payload is None else asyncio.CancelledError(payload)

    def exception(self) -> None:
        self.result()

    def __reduce__(self) -> str:
        raise TypeError("a Parker cannot be pickled or copied")


def notify_all(parkers: Iterable[Parker], interrupts: list[BaseException]) -> None:
    """Notify these, and wake them with one call per hub."""
    ready: dict[Hub | Gate, list[Parker]] = {}
    for parker in parkers:
        waker = parker.notify()
        if waker is not None:
            ready.setdefault(waker, []).append(parker)
    for waker, woken in ready.items():
        try:
            waker.push(woken)
        except BaseException as stop:
            # The others are settled, too, and have to be woken.
            interrupts.append(stop)
