"""A storm on one queue: threads and loops on both sides, cancellation and time-outs throughout, an end at any moment.

Everybody notes what became of each item; at the end the notes must agree with one another and with the queue's account.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from conftest import uvloop
from queues import assert_account, make
from storm import LIMIT, new_loop, nothing_unraisable, together
from test_threads import free_threaded

# A rank, for priorities; the number of its producer; its number among that one's.
Item = tuple[int, int, int]

PRODUCERS = 8
LOOPS = 4
CONSUMERS = 3
ITEMS = 300
ENDINGS = ("graceful", "immediate", "abort", "graceful, then abort")


class Plan:
    """All that is left to chance but the scheduling, by a seed."""

    def __init__(self, kind: str, ending: str, seed: int) -> None:
        self.kind = kind
        self.ending = ending
        self.seed = seed
        chance = self.chance("plan")
        self.maxsize = chance.choice([0, 1, 3, 20])
        # How often a consumer rests: from always ahead of the producers to always behind them.
        self.rest = chance.choice([0, 0.03, 0.3])
        # So many items are got before the end, if so many are put.
        self.until = int(PRODUCERS * ITEMS * chance.random() ** 2)

    def chance(self, whose: str) -> random.Random:
        return random.Random(f"{self.kind} {self.ending} {self.seed} {whose}")

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kind} queue, maxsize={self.maxsize}, "
            f"consumers rest {self.rest:.0%} of the times, {self.ending} end after {self.until} items"
        )


LOOP_KINDS = ["plain", "debug"]
if sys.version_info >= (3, 12):
    LOOP_KINDS.append("eager")
if uvloop is not None and not free_threaded():
    # There it crashes when call_soon_threadsafe meets close.
    LOOP_KINDS.append("uvloop")


def run_loop(kind: str, main: Coroutine[Any, Any, None]) -> None:
    """As `storm.run_on`, on more kinds of loops."""
    problems: list[Any] = []
    loop = new_loop(kind)
    loop.set_exception_handler(lambda _, details: problems.append(details))
    loop.set_debug(kind == "debug")
    loop.slow_callback_duration = LIMIT
    if kind == "eager" and sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    try:
        loop.run_until_complete(asyncio.wait_for(main, LIMIT))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert problems == []


async def cancelled_at_random(chance: random.Random, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run it in a task, which is perhaps cancelled, in one of its first ticks or later; return that when it is done."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(chance.choice([0, 1, 2, 3, 4])):
        await asyncio.sleep(0)
    while chance.random() < 0.5:
        await asyncio.wait([task], timeout=chance.choice([0, 0.0005, 0.002]))
        if chance.random() < 0.5:
            task.cancel()
    await asyncio.wait([task])
    return task


def timeout(chance: random.Random) -> float | None:
    return chance.choice([None, None, 0, 0.0001, 0.002])


class Storm:
    def __init__(self, package: Any, plan: Plan) -> None:
        self.package = package
        self.plan = plan
        self.queue = make(package, plan.kind, plan.maxsize)
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.begun = threading.Barrier(PRODUCERS + LOOPS)
        self.lock = threading.Lock()
        self.producing = PRODUCERS + LOOPS
        self.accepted: list[list[Item]] = [[] for _ in range(PRODUCERS + LOOPS)]
        self.got: list[list[Item]] = [[] for _ in range(LOOPS * CONSUMERS + 1)]
        self.dropped: list[Item] = []

    def run(self) -> None:
        threads = [self.consume_in_thread, self.join_in_thread, self.end]
        threads += [functools.partial(self.produce_in_thread, number) for number in range(PRODUCERS)]
        threads += [functools.partial(self.run_loop, number) for number in range(LOOPS)]
        with nothing_unraisable():
            together(*map(self.guarded, threads))
            gc.collect()
        self.check()

    def guarded(self, function: Callable[[], None]) -> Callable[[], None]:
        """After a failure nobody waits for the rest."""

        def guarded() -> None:
            try:
                function()
            except BaseException:
                self.queue.abort()
                raise

        return guarded

    def run_loop(self, number: int) -> None:
        run_loop(LOOP_KINDS[number % len(LOOP_KINDS)], self.main(number))

    async def main(self, number: int) -> None:
        self.loops.append(asyncio.get_running_loop())
        consumers = range(number * CONSUMERS, (number + 1) * CONSUMERS)
        await asyncio.gather(
            self.produce_in_loop(PRODUCERS + number),
            *[self.consume_in_loop(consumer) for consumer in consumers],
            self.join_in_loop(number),
        )
        # Until then threads put by way of this loop.
        while self.producing:
            await asyncio.sleep(0.001)

    # Producers. Each puts its items one after another, and each item at most once.

    @contextlib.contextmanager
    def producer(self, number: int) -> Iterator[tuple[random.Random, Iterator[Item]]]:
        chance = self.plan.chance(f"producer {number}")
        self.begun.wait(LIMIT)
        try:
            yield chance, ((chance.randrange(5), number, serial) for serial in range(ITEMS))
        except (self.package.QueueShutDown, self.package.SyncQueueShutDown):
            pass
        finally:
            with self.lock:
                self.producing -= 1

    def produce_in_thread(self, number: int) -> None:
        with self.producer(number) as (chance, items):
            for item in items:
                if self.put_in_thread(item, chance):
                    self.accepted[number].append(item)

    async def produce_in_loop(self, number: int) -> None:
        with self.producer(number) as (chance, items):
            for item in items:
                if await self.put_in_loop(item, chance):
                    self.accepted[number].append(item)
                if chance.random() < 0.3:
                    await asyncio.sleep(0)

    def put_in_thread(self, item: Item, chance: random.Random) -> bool:
        """Return whether it was put."""
        way = chance.randrange(5)
        try:
            if way == 0:
                self.queue.put_nowait(item)
            elif way == 1:
                self.queue.sync_q.put(item, timeout=chance.choice([0, 0.0001, 0.002]))
            elif way == 2:
                loop = chance.choice(self.loops)
                return asyncio.run_coroutine_threadsafe(self.put_in_loop(item, chance), loop).result(LIMIT)
            else:
                self.queue.sync_q.put(item, timeout=LIMIT)
        except (self.package.QueueFull, self.package.SyncQueueFull):
            return False
        return True

    async def put_in_loop(self, item: Item, chance: random.Random) -> bool:
        """Return whether it was put."""
        if chance.random() < 0.2:
            try:
                self.queue.put_nowait(item)
            except self.package.QueueFull:
                return False
            return True
        task = await cancelled_at_random(chance, self.queue.put(item, timeout=timeout(chance)))
        if task.cancelled() or isinstance(task.exception(), asyncio.TimeoutError):
            return False
        await task
        return True

    # Consumers.

    def consume_in_thread(self) -> None:
        chance = self.plan.chance("consumer in a thread")
        while True:
            try:
                item = self.queue.sync_q.get(timeout=chance.choice([LIMIT, LIMIT, 0, 0.0001, 0.002]))
            except self.package.SyncQueueEmpty:
                time.sleep(0)
            except self.package.SyncQueueShutDown:
                return
            else:
                self.got[-1].append(item)
                if chance.random() < self.plan.rest:
                    time.sleep(0.001)
                self.queue.sync_q.task_done()

    async def consume_in_loop(self, number: int) -> None:
        """One task after another, until one is told of the shutdown."""
        chance = self.plan.chance(f"consumer {number}")
        over = False
        while not over:
            task = await cancelled_at_random(chance, self.consume(self.got[number], chance))
            over = not task.cancelled() and await task

    async def consume(self, got: list[Item], chance: random.Random) -> bool:
        """Return whether it was told of the shutdown."""
        q = self.queue
        while chance.random() < 0.9:
            way = chance.randrange(4)
            try:
                if way == 0:
                    async for item in q:
                        await self.work(item, got, chance)
                        if chance.random() < 0.3:
                            break
                    else:
                        return True
                elif way == 1:
                    await self.work(q.get_nowait(), got, chance)
                elif way == 2 and sys.version_info >= (3, 11):
                    async with asyncio.timeout(timeout(chance)):
                        # Before its next await, so that what was got is noted though the time may be up.
                        await self.work(await q.get(), got, chance)
                else:
                    await self.work(await q.get(timeout=timeout(chance)), got, chance)
            except (self.package.QueueEmpty, asyncio.TimeoutError):
                await asyncio.sleep(0)
            except self.package.QueueShutDown:
                return True
        return False

    async def work(self, item: Item, got: list[Item], chance: random.Random) -> None:
        got.append(item)
        try:
            if chance.random() < 0.3:
                await asyncio.sleep(0)
            if chance.random() < self.plan.rest:
                await asyncio.sleep(0.001)
        finally:
            self.queue.task_done()

    # Joiners.

    def join_in_thread(self) -> None:
        chance = self.plan.chance("joiner in a thread")
        while not self.is_over():
            before = self.queue.statistics().accepted
            try:
                self.queue.sync_q.join(timeout=chance.choice([LIMIT, 0.001]))
            except asyncio.TimeoutError:
                continue
            self.check_joined(before)
            time.sleep(0.001)

    async def join_in_loop(self, number: int) -> None:
        chance = self.plan.chance(f"joiner {number}")
        while not self.is_over():
            before = self.queue.statistics().accepted
            task = await cancelled_at_random(chance, self.queue.join(timeout=timeout(chance)))
            if not task.cancelled() and task.exception() is None:
                self.check_joined(before)
            await asyncio.sleep(0.001)

    def is_over(self) -> bool:
        # In this order: after the shutdown nothing is put.
        return self.queue.is_shutdown and not self.queue.statistics().unfinished

    def check_joined(self, before: int) -> None:
        """Nothing was unfinished at some moment since the call: what had been accepted by then is finished now."""
        figures = self.queue.statistics()
        assert figures.accepted - figures.unfinished >= before

    # The end.

    def end(self) -> None:
        while self.producing:
            figures = self.queue.statistics()
            assert self.plan.maxsize == 0 or figures.size <= self.plan.maxsize
            if figures.delivered >= self.plan.until:
                break
            time.sleep(0.0005)
        if self.plan.ending == "immediate":
            self.queue.shutdown(immediate=True)
            return
        if self.plan.ending != "abort":
            self.queue.shutdown()
        if self.plan.ending != "graceful":
            self.dropped = self.queue.abort()
            assert self.queue.abort() == []

    def check(self) -> None:
        accepted = [item for mine in self.accepted for item in mine]
        got = [item for mine in self.got for item in mine]
        # Each was put once; so each that was got or dropped was so once, and the rest has been dropped, too.
        lost = set(accepted).difference(got)
        assert sorted([*got, *lost]) == sorted(accepted)
        if self.plan.ending == "graceful":
            assert not lost
        elif self.plan.ending != "immediate":
            assert sorted(lost) == sorted(self.dropped)
        account = {"accepted": len(accepted), "delivered": len(got), "dropped": len(lost)}
        assert_account(self.queue, size=0, unfinished=0, getters=0, putters=0, joiners=0, **account)
        if self.plan.kind == "priority":
            assert self.dropped == sorted(self.dropped)
        elif self.plan.kind != "lifo":
            self.check_order()

    def check_order(self) -> None:
        """Each consumer has got each producer's items in their order (Q10), and what was dropped comes after them."""
        for mine in [*self.got, self.dropped]:
            last = [-1] * len(self.accepted)
            for _, producer, serial in mine:
                assert last[producer] < serial
                last[producer] = serial
        last = [-1] * len(self.accepted)
        for _, producer, serial in itertools.chain(*self.got):
            last[producer] = max(last[producer], serial)
        for _, producer, serial in self.dropped:
            assert last[producer] < serial


S = TypeVar("S")


def race(rounds: int, prepare: Callable[[], S], *contenders: Callable[[S], Any], check: Callable[..., None]) -> None:
    """Round after round, let these have at what `prepare` makes, each in a thread of its own, all at once.

    `check` is called with that, and with what each has returned or raised.
    """
    subjects: list[S] = []
    outcomes: list[Any] = [None] * len(contenders)
    checked = 0

    def between() -> None:
        nonlocal checked
        if subjects:
            check(subjects.pop(), *outcomes)
            checked += 1
        subjects.append(prepare())

    barrier = threading.Barrier(len(contenders), between)

    def contend(number: int) -> None:
        try:
            for _ in range(rounds):
                barrier.wait(LIMIT)
                try:
                    outcomes[number] = contenders[number](subjects[0])
                except Exception as error:
                    outcomes[number] = error
            barrier.wait(LIMIT)
        except threading.BrokenBarrierError:
            # The thread that ran into it has what is wrong. Or one was not woken until its time was up.
            pass

    with nothing_unraisable():
        together(*[functools.partial(contend, number) for number in range(len(contenders))])
    assert checked == rounds, "somebody was not woken"
