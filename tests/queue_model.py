"""What a queue should do, in plain Python: one thread, one loop, no concern for speed.

As in `asyncio.queues`, whoever waits has a future of the loop in a line. Here they can also
time out, and the queue knows what has become of its items.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import Context
from typing import Any

from interlock import QueueStatistics
from interlock.errors import QueueEmpty, QueueFull, QueueShutDown

NOTIFIED, EXPIRED = "notified", "expired"

Line = list["asyncio.Future[str]"]


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is told to move, and that runs one tick at a time.

    `together`: the tasks that are woken before the first of them resumes all resume in its place. So
    interlock wakes tasks (X3); the standard library schedules each by itself.
    """

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.now = 0.0
        self.problems: list[Any] = []
        self.set_exception_handler(lambda _, details: self.problems.append(details))
        self._together = together
        self._woken: list[Callable[[], object]] = []
        self._handle: asyncio.Handle | None = None
        self._timers = 0

    @property
    def busy(self) -> bool:
        """Whether anything is ready."""
        return bool(self._ready)  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        # Equal ones in the order in which they were made; a heap does not keep that.
        self._timers += 1
        return super().call_at(when + self._timers * 1e-9, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        # The callbacks of futures are their tasks' wake-ups.
        if not self._together or not args or type(args[0]) is not asyncio.Future:
            return super().call_soon(callback, *args, context=context)
        assert context is not None
        self._woken.append(functools.partial(context.run, callback, *args))
        if self._handle is None:
            self._handle = super().call_soon(self._wake)
        return self._handle

    def _wake(self) -> None:
        woken, self._woken, self._handle = self._woken, [], None
        for wake in woken:
            wake()

    def tick(self) -> None:
        """Run what is ready, and what is due, once."""
        self.call_soon(self.stop)
        self.run_forever()


def settle(wait: asyncio.Future[str], outcome: str) -> None:
    if not wait.done():
        wait.set_result(outcome)


def wake_next(line: Line) -> None:
    """Wake the first one whose wait is not over."""
    while line:
        wait = line.pop(0)
        if not wait.done():
            wait.set_result(NOTIFIED)
            break


def wake_all(line: Line) -> None:
    while line:
        wake_next(line)


def deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


class Queue:
    def __init__(self, maxsize: int = 0) -> None:
        self.maxsize = maxsize
        self.is_shutdown = False
        self._unfinished = self._accepted = self._delivered = self._dropped = 0
        self._getters: Line = []
        self._putters: Line = []
        self._joiners: Line = []
        self._queue: list[Any] = []

    def _put(self, item: Any) -> None:
        self._queue.append(item)

    def _get(self) -> Any:
        return self._queue.pop(0)

    def qsize(self) -> int:
        return len(self._queue)

    def empty(self) -> bool:
        return not self._queue

    def full(self) -> bool:
        return 0 < self.maxsize <= len(self._queue)

    def statistics(self) -> QueueStatistics:
        account = (len(self._queue), self._unfinished, self._accepted, self._delivered, self._dropped)
        return QueueStatistics(*account, len(self._getters), len(self._putters), len(self._joiners))

    def put_nowait(self, item: Any) -> None:
        if self.is_shutdown:
            raise QueueShutDown
        if self.full():
            raise QueueFull
        self._put(item)
        self._accepted += 1
        self._unfinished += 1
        wake_next(self._getters)

    def get_nowait(self) -> Any:
        if self.empty():
            raise QueueShutDown if self.is_shutdown else QueueEmpty
        item = self._get()
        self._delivered += 1
        wake_next(self._putters)
        return item

    async def put(self, item: Any, *, timeout: float | None = None) -> None:
        await self._persist(self._putters, lambda: self.put_nowait(item), self.full, timeout)

    async def get(self, *, timeout: float | None = None) -> Any:
        return await self._persist(self._getters, self.get_nowait, self.empty, timeout)

    async def __anext__(self) -> Any:
        try:
            return await self.get()
        except QueueShutDown:
            raise StopAsyncIteration from None

    async def join(self, *, timeout: float | None = None) -> None:
        if not self._unfinished:
            return
        expired = timeout == 0 or await self._wait(self._joiners, deadline(timeout), lambda: True) == EXPIRED
        if expired and self._unfinished:
            raise asyncio.TimeoutError

    async def _persist(
        self, line: Line, attempt: Callable[[], Any], is_vain: Callable[[], bool], timeout: float | None
    ) -> Any:
        """Attempt it now, and whenever it is notified; for the last time when its time is up."""
        loop = asyncio.get_running_loop()
        outcome, until = "", deadline(timeout)
        while True:
            try:
                return attempt()
            except (QueueEmpty, QueueFull):
                if until is not None and until <= loop.time():
                    raise asyncio.TimeoutError from None
            except Exception:
                # What it was notified of is left for another.
                if outcome == NOTIFIED and not is_vain():
                    wake_next(line)
                raise
            outcome = await self._wait(line, until, is_vain)

    async def _wait(self, line: Line, until: float | None, is_vain: Callable[[], bool]) -> str:
        loop = asyncio.get_running_loop()
        wait: asyncio.Future[str] = loop.create_future()
        timer = None if until is None else loop.call_at(until, settle, wait, EXPIRED)
        line.append(wait)
        try:
            return await wait
        except asyncio.CancelledError:
            if not wait.cancelled() and wait.result() == NOTIFIED and not is_vain():
                wake_next(line)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if wait in line:
                line.remove(wait)

    def task_done(self) -> None:
        if not self._unfinished:
            raise ValueError
        self._unfinished -= 1
        self._release_joiners()

    def shutdown(self, immediate: bool = False) -> None:
        self._end(immediate)

    def abort(self) -> list[Any]:
        return self._end(True)

    def _end(self, immediate: bool) -> list[Any]:
        """Return what was dropped."""
        self.is_shutdown = True
        dropped: list[Any] = []
        try:
            while immediate and not self.empty():
                dropped.append(self._get())
                self._dropped += 1
                self._unfinished -= self._unfinished > 0
        finally:
            self._release_joiners()
            wake_all(self._getters)
            wake_all(self._putters)
        return dropped

    def _release_joiners(self) -> None:
        if not self._unfinished:
            wake_all(self._joiners)


class LifoQueue(Queue):
    def _get(self) -> Any:
        return self._queue.pop()


class PriorityQueue(Queue):
    def __init__(self, maxsize: int = 0, *, key: Callable[[Any], Any] = lambda item: item) -> None:
        super().__init__(maxsize)
        self._key = key

    def _put(self, item: Any) -> None:
        # Raises if they cannot be compared.
        sorted(map(self._key, [*self._queue, item]))
        super()._put(item)

    def _get(self) -> Any:
        # Of equal ones, `min` finds the first.
        return self._queue.pop(min(range(len(self._queue)), key=lambda place: self._key(self._queue[place])))
