"""A consumer's place in the log."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock._pure.history import Node, Window
from interlock._pure.hub import running_hub
from interlock._pure.lock import lock
from interlock._pure.parker import EXPIRED, Parker
from interlock._pure.waiter import check_timeout, named
from interlock.errors import Lagged, WatcherClosed
from interlock.transition import Transition

if TYPE_CHECKING:
    from typing_extensions import Self

    from interlock._pure.watcher import Watcher

T = TypeVar("T")


class Cursor:
    """The last node that a subscription has passed; what the watcher knows of it."""

    __slots__ = ("last", "node", "version", "weak_node", "window")

    def __init__(self, node: Node, window: Window | None, latest: bool) -> None:
        self.window = window
        # With overflow="latest": the last value given to the reader.
        self.last: Any = node.value if latest else None
        self.node: Node | None = None
        self.move(node)

    def move(self, node: Node) -> None:
        self.version = node.version
        if self.window is None:
            self.node = node
        else:
            self.weak_node = weakref.ref(node)


class Subscription(Generic[T]):
    __slots__ = ("_closed", "_cursor", "_initial", "_latest", "_parker", "_reading", "_watcher")

    _watcher: Watcher[T]
    _latest: bool
    _closed: bool
    _reading: bool
    _parker: Parker | None
    _cursor: Cursor
    _initial: Transition[T] | None

    def __new__(cls, watcher: Watcher[T], initial: bool, maxlen: int | None, latest: bool) -> Self:
        self = super().__new__(cls)
        self._watcher = watcher
        self._latest = latest
        self._closed = False
        self._reading = False
        self._parker = None
        with lock:
            window = None
            if maxlen is not None:
                window = watcher._windows.setdefault(maxlen, Window(maxlen, watcher._tail))
            tail = watcher._tail
            self._cursor = cursor = Cursor(tail, window, latest)
            if window is not None:
                window.join(tail)
            watcher._cursors[cursor] = None
        self._initial = Transition(tail.value, tail.value) if initial else None
        return self

    def __del__(self) -> None:
        if hasattr(self, "_cursor"):
            self.close()

    # Reading.

    def _take(self) -> Transition[T] | None:
        """The next transition, or None; raises when it lagged or has ended."""
        if self._closed:
            raise self._closed_error()
        first = self._initial
        if first is not None:
            self._initial = None
            return first
        watcher, cursor = self._watcher, self._cursor
        # Read before the log: what was set before the close is in the log by now.
        ended = watcher._closed
        if cursor.window is not None:
            transition = self._take_bounded(cursor, cursor.window)
        else:
            with lock:
                # One step.
                node = cursor.node
                if node is not None and node.next is not None:
                    following = cursor.node = node.next
                    cursor.version = following.version
                else:
                    node = None
            transition = None if node is None else Transition(node.value, following.value)
        if transition is None and ended:
            raise watcher._closed_error()
        return transition

    def _take_bounded(self, cursor: Cursor, window: Window) -> Transition[T] | None:
        watcher = self._watcher
        with lock:
            tail = watcher._tail
            lag = tail.version - cursor.version
            if lag == 0:
                return None
            if lag > window.limit:
                if self._latest:
                    return self._pass(cursor, window, cursor.last, tail, tail)
                anchor = window.slide(tail)
                missed = anchor.version - cursor.version
                cursor.move(anchor)
                window.moved(anchor, tail)
                raise Lagged(missed)
            node = cursor.weak_node()
            assert node is not None and node.next is not None
            return self._pass(cursor, window, node.value, node.next, tail)

    def _pass(self, cursor: Cursor, window: Window, old: T, node: Node, tail: Node) -> Transition[T]:
        cursor.move(node)
        window.moved(node, tail)
        if self._latest:
            cursor.last = node.value
        return Transition(old, node.value)

    def _park(self) -> Parker | None:
        """Register a parker for the next transition, unless there is something to read."""
        parker = Parker()
        watcher = self._watcher
        with lock:
            # One step.
            if not watcher._closed and not self._closed and watcher._tail.version == self._cursor.version:
                watcher._parked[parker] = None
                self._parker = parker
                return parker
        return None

    def _closed_error(self) -> WatcherClosed:
        return WatcherClosed("this subscription is closed; open another one with watch()")

    def _begin(self) -> None:
        if self._closed:
            raise self._closed_error()
        # One step.
        if not self._reading:
            self._reading = True
            return
        raise RuntimeError("another reader is waiting on this subscription; open one per consumer with watch()")

    def _end_wait(self, parker: Parker) -> None:
        self._parker = None
        with lock:
            self._watcher._parked.pop(parker, None)

    async def _read(self, timeout: float | None) -> Transition[T]:
        self._begin()
        try:
            deadline = None
            while True:
                transition = self._take()
                if transition is not None:
                    return transition
                if timeout == 0:
                    raise asyncio.TimeoutError
                parker = self._park()
                if parker is None:
                    continue
                try:
                    if timeout is None:
                        # As `parker.wait`, without another coroutine.
                        if parker.park(running_hub()):
                            await parker
                    else:
                        now = asyncio.get_running_loop().time()
                        if deadline is None:
                            deadline = now + timeout
                        kind, _ = await parker.wait(max(0, deadline - now))
                        if kind is EXPIRED:
                            timeout = 0
                finally:
                    self._end_wait(parker)
        finally:
            self._reading = False

    def _block(self, timeout: float | None) -> Transition[T]:
        timeout = check_timeout(timeout)
        self._begin()
        try:
            deadline = None if timeout is None else time.monotonic() + timeout
            while True:
                transition = self._take()
                if transition is not None:
                    return transition
                if timeout == 0:
                    raise asyncio.TimeoutError
                parker = self._park()
                if parker is None:
                    continue
                if deadline is not None:
                    timeout = max(0, deadline - time.monotonic())
                try:
                    kind, _ = parker.block(timeout)
                finally:
                    self._end_wait(parker)
                if kind is EXPIRED:
                    timeout = 0
        finally:
            self._reading = False

    def get(self, timeout: float | None = None) -> Coroutine[Any, Any, Transition[T]]:
        """Wait for the next transition and return it.

        Args:
            timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
                for ever, 0 does not wait.

        Returns:
            A coroutine, to be awaited once. If it is cancelled or times out, the
            transition stays for the next read (W13).

        Raises:
            WatcherClosed: The watcher was closed and everything was delivered, or this
                subscription is closed.
            Lagged: Once per gap of a subscription with `maxlen` and `overflow="error"`.
            RuntimeError: Another reader is waiting on this subscription (W16).
        """
        return named(self._read(check_timeout(timeout)), "Subscription.get")

    async def __anext__(self) -> Transition[T]:
        try:
            return await self._read(None)
        except WatcherClosed:
            raise StopAsyncIteration from None

    def get_nowait(self) -> Transition[T]:
        """Return the next transition without waiting.

        Raises:
            asyncio.QueueEmpty: There is none now.
            WatcherClosed: As for `get`.
            Lagged: As for `get`.
        """
        transition = self._take()
        if transition is None:
            raise asyncio.QueueEmpty("no transition is pending")
        return transition

    @property
    def pending(self) -> int:
        """How many transitions can be read without waiting."""
        if self._closed:
            return 0
        cursor = self._cursor
        lag = self._watcher._tail.version - cursor.version
        if cursor.window is not None and lag > cursor.window.limit:
            lag = 1 if self._latest else cursor.window.limit
        return lag + (self._initial is not None)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Drop what is held and end; a reader that waits is woken and ends too. Idempotent."""
        watcher, cursor = self._watcher, self._cursor
        with lock:
            # One step.
            if not self._closed:
                self._closed = True
                self._initial = None
                cursor.node = None
            else:
                return
            watcher._cursors.pop(cursor, None)
            if cursor.window is not None and cursor.window.leave(cursor.version, watcher._tail):
                watcher._windows.pop(cursor.window.limit, None)
        parker = self._parker
        if parker is not None:
            waker = parker.notify()
            if waker is not None:
                waker.push((parker,))
