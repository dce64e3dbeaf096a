"""Q5, Q6 (S13, S15, S19): what each method does on a queue that was shut down, and that nobody stays blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, in_threads, ticks
from queues import (
    BLOCKING,
    KINDS,
    assert_account,
    assert_nobody_waits,
    drain,
    every_kind,
    every_operation,
    in_daemon,
    make,
    prepared,
    start,
    until_waiting,
    waiters,
    when_waiting,
)

SHUTDOWNS: dict[str, Callable[[Any], Any]] = {
    "graceful": lambda q: q.shutdown(),
    "immediate": lambda q: q.shutdown(immediate=True),
    "abort": lambda q: q.abort(),
    "sync": lambda q: q.sync_q.shutdown(),
    "sync immediate": lambda q: q.sync_q.shutdown(True),
    "close": lambda q: q.close(),
}
GRACEFUL = ("graceful", "sync")
every_shutdown = pytest.mark.parametrize("how", SHUTDOWNS)
PLACES = 2


def shut_down(package: Any, kind: str, how: str, items: int) -> Any:
    q = make(package, kind, PLACES)
    for item in range(items):
        q.put_nowait(item)
    SHUTDOWNS[how](q)
    return q


@every_kind
@every_shutdown
def test_q5_every_method_after_a_shutdown(interlock: Any, run: Run, kind: str, how: str) -> None:
    """S15. A queue of its own for each, so that none sees what another has done."""

    async def after(items: int) -> None:
        left = items if how in GRACEFUL else 0
        lost = items - left

        def fresh() -> Any:
            return shut_down(interlock, kind, how, items)

        q = fresh()
        assert [q.qsize(), q.empty(), q.full()] == [left, left == 0, left == PLACES]
        assert [q.is_shutdown, q.closed, q.sync_q.is_shutdown, q.maxsize] == [True, True, True, PLACES]
        assert repr(q).endswith(" shutdown>")
        before = q.statistics()
        assert_account(q, size=left, unfinished=left, accepted=items, delivered=0, dropped=lost)

        for put in (q.put_nowait, lambda item: asyncio.run(q.put(item))):
            with pytest.raises(interlock.QueueShutDown):
                in_threads(lambda put=put: put(9))  # type: ignore[misc]
        for timeout in (None, 0, LIMIT):
            with pytest.raises(interlock.QueueShutDown):
                await q.put(9, timeout=timeout)
        for call in (q.sync_q.put_nowait, q.sync_q.put, lambda item: q.sync_q.put(item, timeout=LIMIT)):
            with pytest.raises(interlock.SyncQueueShutDown):
                call(9)
        assert q.statistics() == before

        gets: list[Callable[[Any], Any]] = [
            lambda q: q.get(),
            lambda q: q.get(timeout=0),
            lambda q: q.get(timeout=LIMIT),
            lambda q: asyncio.to_thread(q.get_nowait),
        ]
        for get in gets:
            q = fresh()
            assert sorted([await get(q) for _ in range(left)]) == list(range(left))
            with pytest.raises(interlock.QueueShutDown):
                await get(q)
            assert_account(q, size=0, delivered=left, dropped=lost, unfinished=left)
        gets = [lambda q: q.sync_q.get(), lambda q: q.sync_q.get_nowait(), lambda q: q.sync_q.get(timeout=0)]
        for get in gets:
            q = fresh()
            assert sorted(get(q) for _ in range(left)) == list(range(left))
            with pytest.raises(interlock.SyncQueueShutDown):
                get(q)
        assert sorted([item async for item in fresh()]) == list(range(left))
        assert sorted(fresh().sync_q) == list(range(left))

        # Neither of these ever raises it.
        q = fresh()
        for _ in range(left):
            with pytest.raises(asyncio.TimeoutError):
                await q.join(timeout=0)
            q.task_done()
        await q.join()
        q.sync_q.join()
        with pytest.raises(ValueError):
            q.task_done()

    async def main() -> None:
        # Empty, partly filled, and full.
        for items in range(PLACES + 1):
            await after(items)

    run(main())


@every_kind
@every_shutdown
def test_q5_a_second_shutdown(interlock: Any, kind: str, how: str) -> None:
    """Idempotent; but a graceful one may be followed by an immediate one."""
    for then, shut in SHUTDOWNS.items():
        q = shut_down(interlock, kind, how, 2)
        dropped = shut(q)
        left = 2 if how in GRACEFUL and then in GRACEFUL else 0
        assert_account(q, size=left, unfinished=left, accepted=2, dropped=2 - left)
        if then == "abort":
            assert sorted(dropped) == ([0, 1] if how in GRACEFUL else [])
        else:
            assert dropped is None
        assert q.is_shutdown


@every_kind
def test_q6_abort_returns_what_it_drops_in_the_order_of_get(interlock: Any, kind: str) -> None:
    items = [3, 1, 4, 1, 5, 9, 2, 6]
    aborted, twin = make(interlock, kind), make(interlock, kind)
    for q in (aborted, twin):
        for item in items:
            q.put_nowait(item)
        assert q.get_nowait() is not None
    assert aborted.abort() == drain(twin)
    assert aborted.abort() == []
    assert_account(aborted, size=0, accepted=8, delivered=1, dropped=7, unfinished=1)


@every_kind
@pytest.mark.parametrize("how", ["immediate", "abort"])
def test_q6_what_is_fetched_still_holds_join(interlock: Any, run: Run, kind: str, how: str) -> None:
    async def main() -> None:
        q = make(interlock, kind)
        for item in range(4):
            q.put_nowait(item)
        await q.get()
        q.get_nowait()
        joins = [asyncio.create_task(q.join()), asyncio.create_task(q.join(timeout=LIMIT))]
        await ticks(2)
        SHUTDOWNS[how](q)
        assert_account(q, unfinished=2, dropped=2)
        for _ in range(2):
            await ticks(3)
            assert not any(join.done() for join in joins)
            q.task_done()
        await asyncio.gather(*joins)
        with pytest.raises(ValueError):
            q.task_done()

    run(main())


@every_kind
def test_q6_more_dropped_than_unfinished(interlock: Any, run: Run, kind: str) -> None:
    """Items that were finished before they were got; the count does not fall below zero."""

    async def main() -> None:
        q = make(interlock, kind)
        for item in range(3):
            q.put_nowait(item)
        q.task_done()
        q.task_done()
        join = asyncio.create_task(q.join())
        await ticks(2)
        assert len(q.abort()) == 3
        await join
        assert_account(q, unfinished=0, dropped=3)

    run(main())


@every_operation
@every_shutdown
def test_q5_everybody_who_waits_is_woken(interlock: Any, run: Run, how: str, name: str) -> None:
    """S13, S19: tasks, with and without timeout, threads, and `async for` loops."""

    async def one(kind: str) -> None:
        q = prepared(interlock, name, kind)
        tasks: list[Any] = [start(name, q, timeout) for timeout in (None, LIMIT, None)]
        tasks += [in_daemon(BLOCKING[name], q, timeout) for timeout in (None, LIMIT)]
        if name == "get":
            tasks += [asyncio.ensure_future(anext(q)), in_daemon(list, q.sync_q)]
        await until_waiting(q, len(tasks))
        SHUTDOWNS[how](q)
        if name == "join" and how in GRACEFUL:
            # One that ends the intake finishes nothing.
            await ticks(3)
            assert waiters(q) == len(tasks)
            q.task_done()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        if name == "join":
            assert results == [None] * 5
        else:
            shutdown, sync = interlock.QueueShutDown, interlock.SyncQueueShutDown
            expected = [shutdown] * 3 + [sync] * 2 + ([StopAsyncIteration] if name == "get" else [])
            assert [type(result) for result in results[: len(expected)]] == expected
            assert results[len(expected) :] == ([[]] if name == "get" else [])
        assert_nobody_waits(q)
        # What the blocked ones wanted to put is nowhere.
        assert_account(q, accepted=0 if name == "get" else 1)

    async def main() -> None:
        for kind in KINDS:
            await one(kind)

    run(main())


@every_kind
def test_q3_a_put_that_was_woken_and_then_shut_out_has_not_inserted(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        for immediate in (False, True):
            q = make(interlock, kind, 1)
            q.put_nowait(1)
            put = asyncio.create_task(q.put(2))
            await ticks(2)
            assert q.get_nowait() == 1
            q.shutdown(immediate)
            with pytest.raises(interlock.QueueShutDown):
                await put
            assert_account(q, size=0, accepted=1, putters=0)

    run(main())


@every_kind
def test_q3_what_was_put_is_there_whatever_follows(interlock: Any, run: Run, kind: str) -> None:
    """A getter that has been woken gets it after a graceful shutdown, and not after an immediate one."""

    async def main() -> None:
        for immediate in (False, True):
            q = make(interlock, kind)
            get, second = asyncio.create_task(q.get()), asyncio.create_task(q.get())
            await ticks(2)
            q.put_nowait(1)
            q.shutdown(immediate)
            if immediate:
                with pytest.raises(interlock.QueueShutDown):
                    await get
            else:
                assert await get == 1
            with pytest.raises(interlock.QueueShutDown):
                await second
            assert_account(q, size=0, accepted=1, delivered=1 - immediate, dropped=int(immediate))

            q = make(interlock, kind, 1)
            put = asyncio.create_task(q.put(1))
            await ticks(2)
            q.shutdown()
            assert await put is None
            assert await q.get() == 1

    run(main())


@every_kind
@every_operation
def test_x7_cancelled_in_the_tick_of_the_shutdown(interlock: Any, run: Run, kind: str, name: str) -> None:
    async def main() -> None:
        for cancel_first in (False, True):
            q = prepared(interlock, name, kind)
            task, other = start(name, q), start(name, q)
            await ticks(2)
            if cancel_first:
                task.cancel()
            q.shutdown(immediate=True)
            task.cancel()
            await asyncio.wait([task, other])
            assert task.cancelled()
            if name == "join":
                assert other.exception() is None
            else:
                assert isinstance(other.exception(), interlock.QueueShutDown)
            assert_nobody_waits(q)

    run(main())


@every_kind
@pytest.mark.parametrize("blocked", ["get", "put"])
def test_q5_shutdown_from_another_thread(interlock: Any, run: Run, kind: str, blocked: str) -> None:
    async def main() -> None:
        q = prepared(interlock, blocked, kind)
        tasks = [start(blocked, q) for _ in range(3)]
        await asyncio.to_thread(when_waiting(q, 3, q.shutdown))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [interlock.QueueShutDown] * 3

    run(main())


@pytest.mark.parametrize("order", ["lifo", "fails"])
def test_q6_abort_of_a_subclass_takes_by_its_own_get(interlock: Any, order: str) -> None:
    """If it raises, what it has taken is accounted for, and the rest is still there."""

    class Own(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _get(self) -> Any:
            if order == "fails" and len(self._queue) == 1:
                raise LookupError("the last one")
            return self._queue.pop()

    q = Own()
    for item in range(3):
        q.put_nowait(item)
    if order == "lifo":
        assert q.abort() == [2, 1, 0]
        assert_account(q, size=0, dropped=3, unfinished=0)
    else:
        with pytest.raises(LookupError, match="the last one"):
            q.abort()
        assert q.is_shutdown
        assert_account(q, size=1, dropped=2, unfinished=1)
