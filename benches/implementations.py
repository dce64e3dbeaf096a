"""What carries a changing value to many consumers, each implementation behind the same small interface.

A `Feed` carries one changing integer to any number of consumers. Its loops are
written out for each implementation, without shared helpers in the hot path, so
that nobody pays for another's shape. Whatever can, delivers `(old, new)` pairs.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import functools
import importlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ClassVar

from interlock.demo.backends import load

from .candidates import ANYIO, FREQUENZ, FUTURES, INNGEST, PURE, QUEUES, RUST, Candidates, version

Pair = tuple[int, int]

INITIAL = 0


@dataclasses.dataclass(frozen=True)
class Idle:
    """A subscription that nobody waits on."""

    pending: Callable[[], int]
    read: Callable[[], Pair]


class Feed(abc.ABC):
    """One value on its way to its consumers. Made, used and closed in one event loop."""

    #: Whether consumers get all transitions of several threads as one chain.
    ordered_across_threads: ClassVar[bool] = True

    @abc.abstractmethod
    def publish(self, value: int) -> Awaitable[None] | None:
        """Make `value` the current one. What it returns, if anything, is to be awaited."""

    def publish_all(self, values: Iterable[int]) -> Awaitable[None] | None:
        """`publish` one after the other, without letting the loop run in between."""
        for value in values:
            self.publish(value)
        return None

    @abc.abstractmethod
    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        """Wait until `value` is published; to be run as a task."""

    @property
    @abc.abstractmethod
    def waiters(self) -> int:
        """How many `wait_for` are registered."""

    @abc.abstractmethod
    async def follow(self, latest: list[int], index: int) -> None:
        """Subscribe, then write each value that arrives into `latest[index]`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release what would complain if it were only dropped."""


class BufferingFeed(Feed):
    """A feed whose subscriptions hold what was not yet read."""

    @abc.abstractmethod
    def subscribe(self) -> Idle:
        """Open a subscription."""

    @abc.abstractmethod
    async def collect(self, pairs: list[Pair], count: int) -> None:
        """Subscribe, then append `count` transitions to `pairs`."""

    @abc.abstractmethod
    def publish_from_thread(self, values: Iterable[int]) -> None:
        """As `publish_all`, from a thread other than the loop's."""


class WatcherFeed(BufferingFeed):
    """What interlock's class and Inngest's have in common: the public interface."""

    def __init__(self, watcher: Any) -> None:
        self.watcher = watcher

    def publish(self, value: int) -> None:
        self.watcher.value = value

    def publish_all(self, values: Iterable[int]) -> None:
        watcher = self.watcher
        for value in values:
            watcher.value = value

    publish_from_thread = publish_all

    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        coroutine: Coroutine[Any, Any, int] = self.watcher.wait_for(value, timeout=timeout)
        return coroutine


class InterlockFeed(WatcherFeed):
    """`interlock.ValueWatcher` over the backend of `module`."""

    def __init__(self, module: Any) -> None:
        super().__init__(module.ValueWatcher(INITIAL))

    @property
    def waiters(self) -> int:
        count: int = self.watcher.statistics().waiters
        return count

    async def follow(self, latest: list[int], index: int) -> None:
        with self.watcher.watch() as transitions:
            async for _, new in transitions:
                latest[index] = new

    def subscribe(self) -> Idle:
        subscription = self.watcher.watch()
        return Idle(lambda: int(subscription.pending), subscription.get_nowait)

    async def collect(self, pairs: list[Pair], count: int) -> None:
        with self.watcher.watch() as transitions:
            async for pair in transitions:
                pairs.append(pair)
                if len(pairs) == count:
                    return

    def close(self) -> None:
        self.watcher.close()


class InngestFeed(WatcherFeed):
    """The `ValueWatcher` of Inngest's SDK. Its subscription is `_watch()`, a queue of pairs."""

    ordered_across_threads = False

    def __init__(self, module: Any) -> None:
        super().__init__(module.ValueWatcher(INITIAL))
        # Kept open for as long as the feed: leaving one by one is quadratic there.
        self._open: list[Any] = []

    @property
    def waiters(self) -> int:
        return len(self.watcher._watch_queues)

    async def follow(self, latest: list[int], index: int) -> None:
        with self.watcher._watch() as queue:
            while True:
                _, latest[index] = await queue.get()

    def subscribe(self) -> Idle:
        manager = self.watcher._watch()
        self._open.append(manager)
        queue = manager.__enter__()
        return Idle(queue.qsize, queue.get_nowait)

    async def collect(self, pairs: list[Pair], count: int) -> None:
        with self.watcher._watch() as queue:
            while len(pairs) < count:
                pairs.append(await queue.get())

    def close(self) -> None:
        self._open.clear()


class QueueFeed(BufferingFeed):
    """An `asyncio.Queue` per consumer, kept in a dict so that leaving is O(1)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._value = INITIAL
        self._queues: dict[asyncio.Queue[Pair], None] = {}

    def publish(self, value: int) -> None:
        pair = (self._value, value)
        self._value = value
        for queue in self._queues:
            queue.put_nowait(pair)

    def publish_from_thread(self, values: Iterable[int]) -> None:
        for value in values:
            self._loop.call_soon_threadsafe(self.publish, value)

    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        return asyncio.wait_for(self._find(value), timeout)

    async def _find(self, value: int) -> int:
        queue: asyncio.Queue[Pair] = asyncio.Queue()
        self._queues[queue] = None
        try:
            while True:
                _, new = await queue.get()
                if new == value:
                    return new
        finally:
            del self._queues[queue]

    @property
    def waiters(self) -> int:
        return len(self._queues)

    async def follow(self, latest: list[int], index: int) -> None:
        queue: asyncio.Queue[Pair] = asyncio.Queue()
        self._queues[queue] = None
        while True:
            _, latest[index] = await queue.get()

    def subscribe(self) -> Idle:
        queue: asyncio.Queue[Pair] = asyncio.Queue()
        self._queues[queue] = None
        return Idle(queue.qsize, queue.get_nowait)

    async def collect(self, pairs: list[Pair], count: int) -> None:
        queue: asyncio.Queue[Pair] = asyncio.Queue()
        self._queues[queue] = None
        while len(pairs) < count:
            pairs.append(await queue.get())

    def close(self) -> None:
        self._queues.clear()


class FutureFeed(Feed):
    """The floor: a bare `asyncio.Future` per consumer and transition, with nothing around it.

    It holds nothing for a consumer that is not waiting, so it takes part only
    where each consumer waits; for waits it is a dict from value to futures.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._value = INITIAL
        self._followers: list[asyncio.Future[Pair]] = []
        self._waiting: dict[int, list[asyncio.Future[int]]] = {}

    def publish(self, value: int) -> None:
        pair = (self._value, value)
        self._value = value
        for follower in self._followers:
            follower.set_result(pair)
        for waiter in self._waiting.pop(value, ()):
            waiter.set_result(value)

    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        future = self._loop.create_future()
        self._waiting.setdefault(value, []).append(future)
        return asyncio.wait_for(future, timeout)

    @property
    def waiters(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def follow(self, latest: list[int], index: int) -> None:
        create_future = self._loop.create_future
        followers = self._followers
        place = len(followers)
        followers.append(create_future())
        while True:
            _, latest[index] = await followers[place]
            followers[place] = create_future()

    def close(self) -> None:
        self._followers.clear()
        self._waiting.clear()


class AnyioFeed(BufferingFeed):
    """An anyio memory object stream per consumer."""

    def __init__(self, module: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._create = functools.partial(module.create_memory_object_stream, math.inf)
        self._value = INITIAL
        self._senders: dict[Any, None] = {}
        self._receivers: list[Any] = []

    def _open(self) -> tuple[Any, Any]:
        sender, receiver = self._create()
        self._senders[sender] = None
        return sender, receiver

    def publish(self, value: int) -> None:
        pair = (self._value, value)
        self._value = value
        for sender in self._senders:
            sender.send_nowait(pair)

    def publish_from_thread(self, values: Iterable[int]) -> None:
        for value in values:
            self._loop.call_soon_threadsafe(self.publish, value)

    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        return asyncio.wait_for(self._find(value), timeout)

    async def _find(self, value: int) -> int:
        sender, receiver = self._open()
        try:
            with sender, receiver:
                while True:
                    _, new = await receiver.receive()
                    if new == value:
                        return value
        finally:
            del self._senders[sender]

    @property
    def waiters(self) -> int:
        return len(self._senders)

    async def follow(self, latest: list[int], index: int) -> None:
        sender, receiver = self._open()
        with sender, receiver:
            async for _, new in receiver:
                latest[index] = new

    def subscribe(self) -> Idle:
        _, receiver = self._open()
        self._receivers.append(receiver)
        return Idle(lambda: int(receiver.statistics().current_buffer_used), receiver.receive_nowait)

    async def collect(self, pairs: list[Pair], count: int) -> None:
        sender, receiver = self._open()
        with sender, receiver:
            async for pair in receiver:
                pairs.append(pair)
                if len(pairs) == count:
                    break
        del self._senders[sender]

    def close(self) -> None:
        for stream in (*self._senders, *self._receivers):
            stream.close()
        self._senders.clear()
        self._receivers.clear()


class FrequenzFeed(BufferingFeed):
    """A broadcast channel of frequenz-channels, its receivers' limit out of reach (the default drops after 50)."""

    _LIMIT = 10_000_000

    def __init__(self, module: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._sender, first = module.BroadcastChannel(name="benchmark")
        first.close()
        self._value = INITIAL
        # The channel itself holds its receivers weakly.
        self._receivers: list[Any] = []

    async def publish(self, value: int) -> None:
        pair = (self._value, value)
        self._value = value
        await self._sender.send(pair)

    async def publish_all(self, values: Iterable[int]) -> None:
        for value in values:
            await self.publish(value)

    def publish_from_thread(self, values: Iterable[int]) -> None:
        for value in values:
            asyncio.run_coroutine_threadsafe(self.publish(value), self._loop)

    def wait_for(self, value: int, timeout: float | None) -> Coroutine[Any, Any, int]:
        return asyncio.wait_for(self._find(value), timeout)

    async def _find(self, value: int) -> int:
        receiver = self._sender.subscribe(limit=self._LIMIT)
        try:
            async for _, new in receiver:
                if new == value:
                    break
        finally:
            receiver.close()
        return value

    @property
    def waiters(self) -> int:
        return len(self._sender._channel._receivers)

    async def follow(self, latest: list[int], index: int) -> None:
        async for _, new in self._sender.subscribe(limit=self._LIMIT):
            latest[index] = new

    def subscribe(self) -> Idle:
        receiver = self._sender.subscribe(limit=self._LIMIT)
        self._receivers.append(receiver)
        return Idle(receiver.__len__, receiver.consume)

    async def collect(self, pairs: list[Pair], count: int) -> None:
        async for pair in self._sender.subscribe(limit=self._LIMIT):
            pairs.append(pair)
            if len(pairs) == count:
                return

    def close(self) -> None:
        self._receivers.clear()


def _interlock(backend: str) -> tuple[type[Feed], Callable[[], Feed]]:
    return InterlockFeed, functools.partial(InterlockFeed, load(backend))


def _inngest() -> tuple[type[Feed], Callable[[], Feed]]:
    module = importlib.import_module("inngest.connect._internal.value_watcher")
    return InngestFeed, functools.partial(InngestFeed, module)


def _anyio() -> tuple[type[Feed], Callable[[], Feed]]:
    return AnyioFeed, functools.partial(AnyioFeed, importlib.import_module("anyio"))


def _frequenz() -> tuple[type[Feed], Callable[[], Feed]]:
    if int(version("frequenz-channels").partition(".")[0]) < 1:
        raise ImportError("its interface before version 1 is another one")
    return FrequenzFeed, functools.partial(FrequenzFeed, importlib.import_module("frequenz.channels"))


CANDIDATES: Candidates[Feed] = Candidates(
    {
        RUST: functools.partial(_interlock, "rust"),
        PURE: functools.partial(_interlock, "pure"),
        INNGEST: _inngest,
        QUEUES: lambda: (QueueFeed, QueueFeed),
        FUTURES: lambda: (FutureFeed, FutureFeed),
        ANYIO: _anyio,
        FREQUENZ: _frequenz,
    }
)
