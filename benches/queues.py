"""The queues under comparison, each implementation behind the same small interfaces.

What is measured calls a queue's own bound methods, so that nobody pays for a layer of
ours. Where an implementation has no method of that shape, its adapter says what it adds.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import importlib
import math
import queue
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from interlock.demo.backends import load

from .candidates import AIOLOGIC, ANYIO, ASYNCIO, CALL_SOON, CULSANS, JANUS, PURE, QUEUE, RUST, SIMPLE, Candidates


class PlainQueue(Protocol):
    """What can be done without waiting."""

    def put_nowait(self, item: int, /) -> object: ...
    def get_nowait(self) -> int: ...


class TaskQueue(PlainQueue, Protocol):
    """What tasks wait for."""

    def put(self, item: int, /) -> Coroutine[Any, Any, object]: ...
    def get(self) -> Coroutine[Any, Any, int]: ...


class WorkQueue(TaskQueue, Protocol):
    """What keeps account of the items that are being worked on."""

    def task_done(self) -> None: ...
    def join(self) -> Coroutine[Any, Any, object]: ...


class ThreadQueue(Protocol):
    """What threads wait for."""

    def put(self, item: int, /) -> object: ...
    def get(self) -> int: ...


class Bridge(NamedTuple):
    """The two ends of a queue from threads to a loop."""

    put: Callable[[int], object]
    get: Callable[[], Coroutine[Any, Any, int]]


class Maker:
    """Makes the queues of one implementation, in the event loop that runs. Its bases tell which kinds there are."""

    async def close(self) -> None:
        """Release what would complain if it were only dropped."""


class MakesPlain(Maker, abc.ABC):
    """Has a queue that can be used without waiting."""

    @abc.abstractmethod
    def plain(self) -> PlainQueue:
        """A queue without a bound."""


class MakesForTasks(Maker, abc.ABC):
    """Has a queue for the tasks of a loop."""

    @abc.abstractmethod
    def for_tasks(self, maxsize: int = 0) -> TaskQueue:
        """A queue for `maxsize` items; 0 is no bound."""


class MakesForWorkers(Maker, abc.ABC):
    """Has a queue with `task_done` and `join`."""

    @abc.abstractmethod
    def for_workers(self, maxsize: int) -> WorkQueue:
        """A queue for `maxsize` items."""


class MakesBridge(Maker, abc.ABC):
    """Has a way from a thread to a loop."""

    @abc.abstractmethod
    def bridge(self) -> Bridge:
        """One without a bound, to the loop that runs."""


class MakesForThreads(Maker, abc.ABC):
    """Has a queue for threads without a loop."""

    @abc.abstractmethod
    def for_threads(self) -> ThreadQueue:
        """A queue without a bound."""


class MakesPriority(Maker, abc.ABC):
    """Has a priority queue."""

    @abc.abstractmethod
    def priority(self) -> PlainQueue:
        """A queue without a bound that returns the lowest item first."""


class MixedQueues(MakesPlain, MakesForTasks, MakesForWorkers, MakesBridge, MakesForThreads, MakesPriority):
    """interlock, janus and culsans: the interface of `janus.Queue`, with a side for tasks and one for threads."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._made: list[Any] = []

    def _make(self, kind: str = "Queue", maxsize: int = 0) -> Any:
        made = getattr(self._module, kind)(maxsize)
        self._made.append(made)
        return made

    def plain(self) -> PlainQueue:
        return self.for_tasks()

    def for_tasks(self, maxsize: int = 0) -> TaskQueue:
        return self.for_workers(maxsize)

    def for_workers(self, maxsize: int) -> WorkQueue:
        made: WorkQueue = self._make(maxsize=maxsize).async_q
        return made

    def bridge(self) -> Bridge:
        made = self._make()
        return Bridge(made.sync_q.put, made.async_q.get)

    def for_threads(self) -> ThreadQueue:
        made: ThreadQueue = self._make().sync_q
        return made

    def priority(self) -> PlainQueue:
        made: PlainQueue = self._make("PriorityQueue").async_q
        return made

    async def close(self) -> None:
        for made in self._made:
            await made.aclose()


class AsyncioQueues(MakesPlain, MakesForTasks, MakesForWorkers, MakesPriority):
    """The standard library's for tasks."""

    def plain(self) -> PlainQueue:
        return self.for_tasks()

    def for_tasks(self, maxsize: int = 0) -> TaskQueue:
        return self.for_workers(maxsize)

    def for_workers(self, maxsize: int) -> WorkQueue:
        made: asyncio.Queue[int] = asyncio.Queue(maxsize)
        return made

    def priority(self) -> PlainQueue:
        made: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
        return made


class CallSoonQueues(MakesBridge):
    """What is written by hand: the loop is asked to put each item into an `asyncio.Queue`."""

    def bridge(self) -> Bridge:
        made: asyncio.Queue[int] = asyncio.Queue()
        call: Any = asyncio.get_running_loop().call_soon_threadsafe
        return Bridge(functools.partial(call, made.put_nowait), made.get)


class _AiologicQueue:
    """Its queues have the methods with a flag; the flag costs a `functools.partial`."""

    def __init__(self, made: Any) -> None:
        self.put_nowait = functools.partial(made.green_put, blocking=False)
        self.get_nowait = functools.partial(made.green_get, blocking=False)
        self.put = made.async_put
        self.get = made.async_get


class _AiologicThreadQueue:
    def __init__(self, made: Any) -> None:
        self.put = made.put
        self.get = made.green_get


class AiologicQueues(MakesPlain, MakesForTasks, MakesBridge, MakesForThreads, MakesPriority):
    """aiologic: `SimpleQueue`; where there is a bound its `Queue`, which is slower."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def plain(self) -> PlainQueue:
        made = self._module.SimpleQueue()
        adapted = _AiologicQueue(made)
        # It never blocks, and here it has the method without the flag.
        adapted.put_nowait = made.put
        return adapted

    def for_tasks(self, maxsize: int = 0) -> TaskQueue:
        return _AiologicQueue(self._module.Queue(maxsize) if maxsize else self._module.SimpleQueue())

    def bridge(self) -> Bridge:
        made = self._module.SimpleQueue()
        return Bridge(made.put, made.async_get)

    def for_threads(self) -> ThreadQueue:
        return _AiologicThreadQueue(self._module.SimpleQueue())

    def priority(self) -> PlainQueue:
        return _AiologicQueue(self._module.PriorityQueue())


class _AnyioQueue:
    def __init__(self, sender: Any, receiver: Any) -> None:
        self.put_nowait = sender.send_nowait
        self.get_nowait = receiver.receive_nowait
        self.put = sender.send
        self.get = receiver.receive


class AnyioQueues(MakesPlain, MakesForTasks):
    """anyio's memory object streams. Their `send` and `receive` yield to the loop each time."""

    def __init__(self, module: Any) -> None:
        self._create = module.create_memory_object_stream
        self._streams: list[Any] = []

    def plain(self) -> PlainQueue:
        return self.for_tasks()

    def for_tasks(self, maxsize: int = 0) -> TaskQueue:
        pair = self._create(maxsize or math.inf)
        self._streams.extend(pair)
        return _AnyioQueue(*pair)

    async def close(self) -> None:
        for stream in self._streams:
            stream.close()


class ThreadQueues(MakesPlain, MakesForThreads, MakesPriority):
    """The standard library's for threads."""

    def plain(self) -> PlainQueue:
        made: queue.Queue[int] = queue.Queue()
        return made

    def for_threads(self) -> ThreadQueue:
        made: queue.Queue[int] = queue.Queue()
        return made

    def priority(self) -> PlainQueue:
        made: queue.PriorityQueue[int] = queue.PriorityQueue()
        return made


class SimpleQueues(MakesPlain, MakesForThreads):
    """The floor: `queue.SimpleQueue`, which is C, and has no bound, no account and nothing for tasks."""

    def plain(self) -> PlainQueue:
        made: queue.SimpleQueue[int] = queue.SimpleQueue()
        return made

    def for_threads(self) -> ThreadQueue:
        made: queue.SimpleQueue[int] = queue.SimpleQueue()
        return made


def _over(kind: Callable[[Any], Maker], load_module: Callable[[], Any]) -> tuple[type[Maker], Callable[[], Maker]]:
    assert isinstance(kind, type)
    return kind, functools.partial(kind, load_module())


def _imported(kind: Callable[[Any], Maker], name: str) -> Callable[[], tuple[type[Maker], Callable[[], Maker]]]:
    return functools.partial(_over, kind, functools.partial(importlib.import_module, name))


CANDIDATES: Candidates[Maker] = Candidates(
    {
        RUST: functools.partial(_over, MixedQueues, functools.partial(load, "rust")),
        PURE: functools.partial(_over, MixedQueues, functools.partial(load, "pure")),
        ASYNCIO: lambda: (AsyncioQueues, AsyncioQueues),
        JANUS: _imported(MixedQueues, "janus"),
        CULSANS: _imported(MixedQueues, "culsans"),
        AIOLOGIC: _imported(AiologicQueues, "aiologic"),
        ANYIO: _imported(AnyioQueues, "anyio"),
        CALL_SOON: lambda: (CallSoonQueues, CallSoonQueues),
        QUEUE: lambda: (ThreadQueues, ThreadQueues),
        SIMPLE: lambda: (SimpleQueues, SimpleQueues),
    }
)
