"""The scenarios of the queues: what is set up, what is timed, and what is checked.

Every round takes each item out again and fails unless it gets what it put, in order:
nobody wins by losing items. Most checks are made after the clock has stopped; where an item
is looked at on the way, it is by identity, which costs less than keeping it.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import Sequence
from typing import TypeVar

from .candidates import ASYNCIO, CALL_SOON, JANUS, QUEUE, SIMPLE
from .cases import Case, Crew, Scenario, settle
from .queues import (
    Maker,
    MakesBridge,
    MakesForTasks,
    MakesForThreads,
    MakesForWorkers,
    MakesPlain,
    MakesPriority,
    TaskQueue,
    ThreadQueue,
)

_WORKERS = 10
_WORKERS_MAXSIZE = 100

MakerT = TypeVar("MakerT", bound=Maker)


def _check(got: Sequence[int], put: Sequence[int]) -> None:
    if list(got) != list(put):
        raise AssertionError(f"{len(put):,} items were put; those got are not the same, in order ({len(got):,})")


def _wrong(item: int) -> AssertionError:
    return AssertionError(f"another item than {item} came out")


class QueueCase(Case[MakerT]):
    """A case about the queues of one implementation."""

    async def _open(self) -> None:
        self._maker = self.implementation.make()

    async def _close(self) -> None:
        await super()._close()
        await self._maker.close()


class PutGetNowait(QueueCase[MakesPlain]):
    """`put_nowait` and `get_nowait` in turn; per pair."""

    most = 200_000

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.plain()

    async def _round(self) -> None:
        items = list(self._values(self.operations))
        put, get = self._queue.put_nowait, self._queue.get_nowait
        with self._stopwatch.running():
            for item in items:
                put(item)
                if get() is not item:
                    raise _wrong(item)


class PutGet(QueueCase[MakesForTasks]):
    """`await put` and `await get` in turn by one task; neither has to wait; per pair."""

    most = 100_000

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.for_tasks()

    async def _round(self) -> None:
        items = list(self._values(self.operations))
        put, get = self._queue.put, self._queue.get
        with self._stopwatch.running():
            for item in items:
                await put(item)
                if await get() is not item:
                    raise _wrong(item)


class HandOver(QueueCase[MakesForTasks]):
    """One task puts, another gets, through a queue of maxsize 1; `size` such pairs at a time; per item.

    With one pair, the loop's own rounds are a large part of it, for everybody; a hundred share them.
    """

    #: For each pair; so that it is not the making of tasks that is timed.
    least = 50

    async def _open(self) -> None:
        await super()._open()
        self._queues = [self._maker.for_tasks(1) for _ in range(self.size)]

    async def _round(self) -> None:
        items = list(self._values(self.operations))
        arrived: list[list[int]] = [[] for _ in self._queues]
        with self._stopwatch.running():
            tasks = [asyncio.create_task(self._give(queue, items)) for queue in self._queues]
            tasks += [
                asyncio.create_task(self._take(queue, items, got))
                for queue, got in zip(self._queues, arrived, strict=True)
            ]
            for task in tasks:
                await task
        for got in arrived:
            _check(got, items)

    async def _give(self, queue: TaskQueue, items: list[int]) -> None:
        put = queue.put
        for item in items:
            await put(item)

    async def _take(self, queue: TaskQueue, items: list[int], got: list[int]) -> None:
        get = queue.get
        for _ in items:
            got.append(await get())

    def divisor(self) -> int:
        return self.operations * self.size


class PingPong(QueueCase[MakesForTasks]):
    """Two tasks pass an item there and back through two queues of maxsize 1; `size` pairs at a time; per pass."""

    #: As for `HandOver`.
    least = 50

    async def _open(self) -> None:
        await super()._open()
        self._tables = [(self._maker.for_tasks(1), self._maker.for_tasks(1)) for _ in range(self.size)]

    async def _round(self) -> None:
        items = list(self._values(self.operations))
        echoed: list[list[int]] = [[] for _ in self._tables]
        with self._stopwatch.running():
            tasks = [asyncio.create_task(self._serve(there, back, items)) for there, back in self._tables]
            tasks += [
                asyncio.create_task(self._return(there, back, items, got))
                for (there, back), got in zip(self._tables, echoed, strict=True)
            ]
            for task in tasks:
                await task
        for got in echoed:
            _check(got, items)

    async def _serve(self, there: TaskQueue, back: TaskQueue, items: list[int]) -> None:
        put, get = there.put, back.get
        for item in items:
            await put(item)
            if await get() is not item:
                raise _wrong(item)

    async def _return(self, there: TaskQueue, back: TaskQueue, items: list[int], got: list[int]) -> None:
        get, put = there.get, back.put
        for _ in items:
            item = await get()
            got.append(item)
            await put(item)

    def divisor(self) -> int:
        return 2 * self.operations * self.size


class Workers(QueueCase[MakesForWorkers]):
    """One task puts, `size` tasks get and call `task_done`, then `join`; per item."""

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.for_workers(_WORKERS_MAXSIZE)
        self._taken: list[list[int]] = [[] for _ in range(self.size)]
        self._tasks = [asyncio.create_task(self._work(taken)) for taken in self._taken]
        await settle()

    async def _work(self, taken: list[int]) -> None:
        get, task_done = self._queue.get, self._queue.task_done
        while True:
            taken.append(await get())
            task_done()

    async def _round(self) -> None:
        items = list(self._values(self.operations))
        put, join = self._queue.put, self._queue.join
        with self._stopwatch.running():
            for item in items:
                await put(item)
            await join()
        _check(sorted(itertools.chain.from_iterable(self._taken)), items)
        for taken in self._taken:
            _check(taken, sorted(taken))
            taken.clear()
        await settle()


class ThreadToLoop(QueueCase[MakesBridge]):
    """One thread puts `size` items, a task of a loop gets them; per item, from the start until the last is there."""

    most = 1

    async def _open(self) -> None:
        await super()._open()
        self._bridge = self._maker.bridge()

    async def _round(self) -> None:
        items = list(self._values(self.size))
        put, get = self._bridge
        got: list[int] = []

        def produce() -> None:
            for item in items:
                put(item)

        producer = Crew([produce])
        with self._stopwatch.running():
            producer.start()
            for _ in items:
                got.append(await get())
        producer.join()
        _check(got, items)
        await settle()

    def divisor(self) -> int:
        return self.size


def _produce(queue: ThreadQueue, items: Sequence[int]) -> None:
    put = queue.put
    for item in items:
        put(item)


def _consume(queue: ThreadQueue, got: list[int], count: int) -> None:
    get = queue.get
    for _ in range(count):
        got.append(get())


class ThreadsToThreads(QueueCase[MakesForThreads]):
    """`size` threads put, as many get, through one queue; per item, from the start until the last has left."""

    #: For each producer; a round that is over before the last thread runs says nothing.
    least = 500
    most = 50_000

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.for_threads()

    async def _round(self) -> None:
        share = self.operations
        items = list(self._values(self.size * share))
        put = [items[number * share : (number + 1) * share] for number in range(self.size)]
        got: list[list[int]] = [[] for _ in range(self.size)]
        crew = Crew(
            [
                *(functools.partial(_produce, self._queue, own) for own in put),
                *(functools.partial(_consume, self._queue, own, share) for own in got),
            ]
        )
        with self._stopwatch.running():
            crew.start()
            crew.join()
        _check(sorted(itertools.chain.from_iterable(got)), items)
        # Each producer's items are ascending, and so must be those of them that one consumer got.
        for own in got:
            latest = [-1] * self.size
            for item in own:
                producer = (item - items[0]) // share
                if item < latest[producer]:
                    raise AssertionError(f"{item} was put before {latest[producer]} and came out after it")
                latest[producer] = item

    def divisor(self) -> int:
        return self.size * self.operations


class Priorities(QueueCase[MakesPriority]):
    """`size` shuffled ints are put, then got, without waiting; per item put and got."""

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.priority()
        self._shuffler = random.Random(self.size)

    async def _round(self) -> None:
        sorted_items = list(self._values(self.size))
        items = sorted_items.copy()
        self._shuffler.shuffle(items)
        put, get = self._queue.put_nowait, self._queue.get_nowait
        passes: list[list[int]] = []
        with self._stopwatch.running():
            for _ in range(self.operations):
                for item in items:
                    put(item)
                passes.append([get() for _ in items])
        for got in passes:
            _check(got, sorted_items)

    def divisor(self) -> int:
        return self.operations * self.size


class CancelInOrder(QueueCase[MakesForTasks]):
    """`size` tasks wait in `get` and are cancelled, until all have ended; per task. To make them is not timed."""

    most = 1

    async def _open(self) -> None:
        await super()._open()
        self._queue = self._maker.for_tasks()

    def _order(self, tasks: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
        return tasks

    async def _round(self) -> None:
        get, sleep = self._queue.get, asyncio.sleep
        tasks = [asyncio.create_task(get()) for _ in range(self.size)]
        await settle()
        if any(task.done() for task in tasks):
            raise AssertionError("a get ended before it was cancelled")
        order = self._order(tasks)
        done = asyncio.Task.done
        with self._stopwatch.running():
            for task in order:
                task.cancel()
            while not all(map(done, reversed(order))):
                await sleep(0)
        if not all(task.cancelled() for task in tasks):
            raise AssertionError("a get ended otherwise than cancelled")
        # None of them is left that takes an item.
        (item,) = self._values(1)
        self._queue.put_nowait(item)
        await settle()
        if self._queue.get_nowait() is not item:
            raise _wrong(item)

    def divisor(self) -> int:
        return self.size


class CancelShuffled(CancelInOrder):
    """The same in another order than that in which they wait. A `TaskGroup` and `asyncio.run` cancel out of a set."""

    def _order(self, tasks: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
        order = tasks.copy()
        random.Random(self.size).shuffle(order)
        return order


NOWAIT = "nowait"
AWAIT = "await"
HAND_OVER = "hand-over"
PING_PONG = "ping-pong"
WORKERS = "workers"
TO_LOOP = "thread-to-loop"
TO_THREADS = "threads-to-threads"
PRIORITY = "priority"
CANCEL = "cancel"
CANCEL_SHUFFLED = "cancel-shuffled"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            NOWAIT,
            "put_nowait and get_nowait",
            "pair",
            (1,),
            (1,),
            PutGetNowait,
            MakesPlain,
            (ASYNCIO, SIMPLE),
        ),
        Scenario(
            AWAIT,
            "await put and await get, never blocking",
            "pair",
            (1,),
            (1,),
            PutGet,
            MakesForTasks,
            (ASYNCIO, JANUS),
        ),
        Scenario(
            HAND_OVER,
            "one task to another through maxsize 1, {n} pairs at a time",
            "item",
            (1, 100),
            (1, 100),
            HandOver,
            MakesForTasks,
            (ASYNCIO, JANUS),
            rounds=11,
        ),
        Scenario(
            PING_PONG,
            "ping-pong through two queues of maxsize 1, {n} pairs at a time",
            "pass",
            (1, 100),
            (1, 100),
            PingPong,
            MakesForTasks,
            (ASYNCIO, JANUS),
            rounds=11,
        ),
        Scenario(
            WORKERS,
            f"one producer, {{n}} workers with task_done, join (maxsize {_WORKERS_MAXSIZE})",
            "item",
            (_WORKERS,),
            (_WORKERS,),
            Workers,
            MakesForWorkers,
            (ASYNCIO, JANUS),
        ),
        Scenario(
            TO_LOOP,
            "one thread to one loop, {n} items",
            "item",
            (100_000,),
            (10_000,),
            ThreadToLoop,
            MakesBridge,
            (JANUS, CALL_SOON),
            rounds=5,
        ),
        Scenario(
            TO_THREADS,
            "{n} threads to {n} threads",
            "item",
            (1, 2, 4),
            (1, 4),
            ThreadsToThreads,
            MakesForThreads,
            (QUEUE, SIMPLE),
            scales=True,
            rounds=15,
        ),
        Scenario(
            PRIORITY,
            "PriorityQueue of {n} ints, put then get",
            "item",
            (10_000,),
            (1_000,),
            Priorities,
            MakesPriority,
            (ASYNCIO, QUEUE),
        ),
        Scenario(
            CANCEL,
            "{n} blocked getters cancelled, in their order",
            "getter",
            (1_000, 10_000),
            (1_000,),
            CancelInOrder,
            MakesForTasks,
            (ASYNCIO, JANUS),
            flat=True,
            rounds=3,
        ),
        Scenario(
            CANCEL_SHUFFLED,
            "{n} blocked getters cancelled, in another order",
            "getter",
            (1_000, 10_000),
            (1_000,),
            CancelShuffled,
            MakesForTasks,
            (ASYNCIO, JANUS),
            flat=True,
            rounds=3,
        ),
    )
}
