"""Q10, Q4, S16, S27, S28: one queue, many threads and loops at once."""

from __future__ import annotations

import asyncio
import collections
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, in_threads, ticks
from queues import (
    assert_account,
    assert_nobody_waits,
    drain,
    every_kind,
    make,
    when_waiting,
)
from storm import kinds as loop_kinds
from storm import nothing_unraisable, run_on, together


@every_kind
def test_x1_several_live_loops_at_once(interlock: Any, kind: str) -> None:
    """S27, X2: each task is resumed in its own thread and loop, silently in debug mode (S28)."""
    q = make(interlock, kind, 2)
    problems: list[Any] = []

    def in_loop(work: Callable[[], Any]) -> Callable[[], Any]:
        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, details: problems.append(details))
            return await work()

        return lambda: asyncio.run(main(), debug=True)

    async def produce() -> None:
        home = threading.get_ident(), asyncio.get_running_loop()
        for number in range(100):
            await q.put(number, timeout=LIMIT)
            assert (threading.get_ident(), asyncio.get_running_loop()) == home

    async def consume() -> list[int]:
        home = threading.get_ident(), asyncio.get_running_loop()
        found = []
        async for item in q:
            found.append(item)
            q.task_done()
            assert (threading.get_ident(), asyncio.get_running_loop()) == home
        return found

    async def end() -> None:
        ready.wait(LIMIT)
        await q.join(timeout=LIMIT)
        q.shutdown()

    def producing() -> None:
        in_loop(produce)()
        ready.wait(LIMIT)

    ready = threading.Barrier(3)
    *_, first, second = in_threads(producing, producing, in_loop(end), in_loop(consume), in_loop(consume))
    assert sorted(first + second) == sorted([*range(100)] * 2)
    assert problems == []
    assert_account(q, size=0, unfinished=0, accepted=200, delivered=200, getters=0, putters=0, joiners=0)


@every_kind
def test_x2_every_method_from_any_thread(interlock: Any, run: Run, kind: str) -> None:
    """S28."""

    async def main() -> None:
        q = make(interlock, kind, 1)
        thread = threading.get_ident()
        resumed: list[int] = []

        async def wait(coroutine: Any) -> None:
            try:
                await coroutine
            except interlock.QueueShutDown:
                pass
            resumed.append(threading.get_ident())

        # Coroutines made in another thread, too.
        coroutines = await asyncio.to_thread(lambda: [q.get(), q.put(3), q.put(4), q.put(5), q.join()])
        tasks = [asyncio.create_task(wait(coroutine)) for coroutine in coroutines]
        await ticks(3)

        def work() -> None:
            assert q.sync_q.get(timeout=LIMIT) is not None
            assert q.sync_q.get(timeout=LIMIT) is not None
            with pytest.raises(ValueError):
                for _ in range(10):
                    q.task_done()
            assert isinstance(q.qsize(), int) and isinstance(repr(q), str) and q.statistics().accepted >= 2
            assert [q.maxsize, q.is_shutdown] == [1, False]
            q.abort()
            q.shutdown()

        await asyncio.to_thread(work)
        await asyncio.wait(tasks)
        assert resumed == [thread] * 5
        assert_nobody_waits(q)

    run(main())


@loop_kinds
@pytest.mark.parametrize("queue", ["fifo", "hooked"])
def test_q10_each_item_once_and_each_producer_in_order(interlock: Any, kind: str, queue: str) -> None:
    """S33: threads and loops on both sides, bounded; the shutdown comes when all is put (S16)."""
    q = make(interlock, queue, 5)
    count = 300

    def thread(number: int) -> Callable[[], None]:
        def work() -> None:
            for item in range(count):
                q.sync_q.put((number, item), timeout=LIMIT)

        return work

    def tasks(number: int) -> Callable[[], None]:
        async def one(mine: int) -> None:
            for item in range(count):
                await q.put((mine, item), timeout=LIMIT)

        async def main() -> None:
            await asyncio.gather(one(number), one(number + 1))

        return lambda: run_on(kind, main())

    def producers() -> None:
        try:
            together(thread(0), thread(1), tasks(2), tasks(4))
        finally:
            q.shutdown()

    found: list[list[Any]] = [[] for _ in range(6)]

    def consuming(first: int) -> Callable[[], None]:
        async def one(mine: list[Any]) -> None:
            async for item in q:
                mine.append(item)
                q.task_done()

        async def main() -> None:
            await asyncio.gather(one(found[first]), one(found[first + 1]))

        return lambda: run_on(kind, main())

    def blocking(number: int) -> Callable[[], None]:
        def work() -> None:
            for item in q.sync_q:
                found[number].append(item)
                q.sync_q.task_done()

        return work

    with nothing_unraisable():
        together(producers, consuming(0), consuming(2), blocking(4), blocking(5))
    # Each consumer sees each producer's items in their order, and all together each of them once.
    for mine in found:
        last: dict[int, int] = {}
        for number, item in mine:
            assert item > last.get(number, -1)
            last[number] = item
    assert collections.Counter(item for mine in found for item in mine) == collections.Counter(
        (number, item) for number in range(6) for item in range(count)
    )
    assert_account(q, size=0, unfinished=0, accepted=6 * count, delivered=6 * count, dropped=0)
    assert_nobody_waits(q)


@pytest.mark.parametrize("how", ["graceful", "immediate"])
@every_kind
def test_s16_shut_down_in_the_middle(interlock: Any, kind: str, how: str) -> None:
    """What was accepted is got or dropped; what was refused is nowhere; and everybody leaves."""
    for _ in range(10):
        q = make(interlock, kind, 3)
        accepted: list[list[int]] = [[], []]
        got: list[list[int]] = [[], []]
        dropped: list[int] = []

        def produce(number: int, q: Any = q, accepted: list[list[int]] = accepted) -> None:
            for item in range(10**9):
                try:
                    q.sync_q.put(item, timeout=LIMIT)
                except interlock.SyncQueueShutDown:
                    return
                accepted[number].append(item)

        def consume(q: Any = q, got: list[list[int]] = got) -> None:
            got[0].extend(q.sync_q)

        async def consuming(q: Any = q, got: list[list[int]] = got) -> None:
            got[1].extend([item async for item in q])

        def end(q: Any = q, dropped: list[int] = dropped) -> None:
            gone = threading.Event()
            while q.statistics().delivered < 50:
                gone.wait(0.001)
            q.shutdown() if how == "graceful" else dropped.extend(q.abort())

        together(
            functools.partial(produce, 0),
            functools.partial(produce, 1),
            consume,
            lambda consuming=consuming: asyncio.run(consuming()),  # type: ignore[misc]
            end,
        )
        puts, gets = [*accepted[0], *accepted[1]], [*got[0], *got[1]]
        assert sorted(puts) == sorted(gets + dropped)
        assert_account(q, size=0, accepted=len(puts), delivered=len(gets), dropped=len(dropped))
        assert_nobody_waits(q)


@every_kind
def test_the_account_is_right_at_every_moment(interlock: Any, kind: str) -> None:
    """Figures that belong together, within the bound, however many threads are at it; and it can be shown."""
    q = make(interlock, kind, 3)
    stop = threading.Event()

    def look() -> None:
        before = q.statistics()
        for _ in range(200):
            now = q.statistics()
            assert now.accepted == now.size + now.delivered + now.dropped, now
            assert 0 <= now.size <= 3, now
            assert now.size <= now.unfinished <= now.accepted, now
            assert before.accepted <= now.accepted and before.delivered <= now.delivered
            assert repr(q).startswith("<") and 0 <= q.qsize() <= 3
            before = now
        stop.set()

    def produce() -> None:
        while not stop.is_set():
            try:
                q.sync_q.put(1, timeout=0.001)
                q.put_nowait(2)
            except (interlock.SyncQueueFull, interlock.QueueFull):
                pass

    def consume() -> None:
        while not stop.is_set():
            try:
                q.sync_q.get(timeout=0.001)
                q.task_done()
            except interlock.SyncQueueEmpty:
                pass

    with nothing_unraisable():
        together(look, produce, produce, consume, consume)
    q.abort()
    figures = q.statistics()
    assert figures.unfinished == figures.accepted - figures.delivered - figures.dropped == 0
    assert_nobody_waits(q)


@every_kind
def test_q4_no_task_done_is_lost(interlock: Any, kind: str) -> None:
    q = make(interlock, kind)
    for item in range(800):
        q.put_nowait(item)

    def finish() -> None:
        for _ in range(200):
            q.task_done()

    together(*[finish] * 4)
    assert_account(q, unfinished=0, size=800)
    with pytest.raises(ValueError):
        q.task_done()


def test_q8_comparisons_in_many_threads_all_come_to_an_end(interlock: Any) -> None:
    """Each thread's are made in vain while another one changes the queue; all the same they get through."""

    class Item:
        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: Any) -> bool:
            return bool(self.number < other.number)

    q = interlock.PriorityQueue()
    got: list[list[int]] = [[] for _ in range(6)]

    def work(number: int) -> Callable[[], None]:
        def work() -> None:
            for item in range(100):
                q.put_nowait(Item(item * 6 + number))
                q.put_nowait(Item(-item * 6 - number - 1))
                got[number].append(q.sync_q.get(timeout=LIMIT).number)

        return work

    together(*[work(number) for number in range(6)])
    left = [item.number for item in drain(q)]
    assert left == sorted(left)
    assert sorted([*left, *(item for mine in got for item in mine)]) == list(range(-600, 600))
    assert_account(q, accepted=1200, delivered=1200)


def test_q4_join_hears_task_done_from_any_thread(interlock: Any) -> None:
    """And never returns early: the count was zero at some moment since the call."""
    q = interlock.Queue()
    done = 0

    def work() -> None:
        nonlocal done
        for _ in range(200):
            q.sync_q.get(timeout=LIMIT)
            with counting:
                done += 1
            q.task_done()

    async def joining() -> int:
        await q.join(timeout=LIMIT)
        return done

    counting = threading.Lock()
    for item in range(600):
        q.put_nowait(item)
    joins = [lambda: asyncio.run(joining()), lambda: (q.sync_q.join(LIMIT), done)[1]]
    results = in_threads(work, work, *joins, when_waiting(q, 2, work))
    assert results[2:4] == [600, 600]
    assert_account(q, unfinished=0, joiners=0)
