"""What the benchmark compares: interlock on both backends, and what it replaces."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from interlock import ValueWatcher
from interlock.demo.backends import load

Get = Callable[[], Awaitable[Any]]
WaitFor = Callable[[int], Coroutine[Any, Any, Any]]


class Contender(Protocol):
    """A value to set, with consumers."""

    def set(self, value: int, /) -> None: ...

    def subscribe(self) -> Get:
        """A new consumer; awaiting what the result returns gives the next transition."""
        ...

    def wait_for(self, value: int, /) -> Coroutine[Any, Any, Any]: ...


class Interlock:
    def __init__(self, watcher_class: type[ValueWatcher[int]]) -> None:
        self._watcher = watcher_class(0)
        self.set: Callable[[int], None] = self._watcher.set
        self.wait_for: WaitFor = self._watcher.wait_for

    def subscribe(self) -> Get:
        return self._watcher.watch().get


class Inngest:
    """The ValueWatcher of Inngest's SDK; each of its consumers has a queue."""

    def __init__(self, watcher_class: Any) -> None:
        self._watcher = watcher_class(0)
        self.wait_for: WaitFor = self._watcher.wait_for

    def set(self, value: int) -> None:
        self._watcher.value = value

    def subscribe(self) -> Get:
        get: Get = self._watcher._watch().__enter__().get
        return get


class QueuePerConsumer:
    """What one writes by hand so that no consumer misses anything; for one thread."""

    def __init__(self) -> None:
        self._value = 0
        self._queues: dict[asyncio.Queue[tuple[int, int]], None] = {}

    def set(self, value: int) -> None:
        if value == self._value:
            return
        transition = (self._value, value)
        self._value = value
        for queue in self._queues:
            queue.put_nowait(transition)

    def subscribe(self) -> Get:
        queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._queues[queue] = None
        return queue.get

    async def wait_for(self, value: int) -> int:
        queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self._queues[queue] = None
        try:
            new = self._value
            while new != value:
                _, new = await queue.get()
            return new
        finally:
            del self._queues[queue]


class BareFutures:
    """A future for each wait and nothing else: the floor of waking with asyncio's own means."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[int]] = []

    def set(self, value: int) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.set_result(value)

    def subscribe(self) -> Get:
        return self._next

    def _next(self) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    async def wait_for(self, value: int) -> int:
        return await self._next()


def contenders() -> dict[str, Callable[[], Contender]]:
    """Those that are available here, interlock's fastest backend first."""
    found: dict[str, Callable[[], Contender]] = {}
    for backend in ("rust", "pure"):
        try:
            found[backend] = partial(Interlock, load(backend).ValueWatcher)
        except ImportError:
            pass  # not built for this interpreter
    try:
        theirs = importlib.import_module("inngest.connect._internal.value_watcher")
    except ImportError:
        pass
    else:
        found["Inngest"] = partial(Inngest, theirs.ValueWatcher)
    found["queues"] = QueuePerConsumer
    found["futures"] = BareFutures
    return found
