"""Q1–Q4 and Q7: what a queue does for tasks of one loop."""

from __future__ import annotations

import asyncio
import contextvars
import math
from fractions import Fraction
from typing import Any

import pytest

from conftest import Run
from helpers import ticks
from queues import OPERATIONS, assert_account, assert_nobody_waits, every_kind, every_operation, make, prepared, start


@every_kind
def test_q1_each_kind_has_its_order(interlock: Any, run: Run, kind: str) -> None:
    expected = {
        "lifo": [2, 1, 3],
        "priority": [1, 2, 3],
        "hooked priority": [1, 2, 3],
    }.get(kind, [3, 1, 2])

    async def main() -> None:
        q = make(interlock, kind)
        for item in (3, 1, 2):
            q.put_nowait(item)
        assert [q.get_nowait() for _ in range(3)] == expected
        for item in (3, 1, 2):
            assert await q.put(item) is None
        assert [await q.get() for _ in range(3)] == expected
        assert_account(q, size=0, accepted=6, delivered=6, dropped=0, unfinished=6)

    run(main())


@every_kind
def test_q1_blocked_ones_are_served_in_their_order(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind, 1)
        served: list[int] = []

        async def get(number: int) -> None:
            await q.get()
            served.append(number)

        async def put(number: int) -> None:
            await q.put(number)
            served.append(number)

        for one, serve in ((get, lambda: q.put_nowait(0)), (put, q.get_nowait)):
            if one is put:
                q.put_nowait(0)
            tasks = [asyncio.create_task(one(number)) for number in range(4)]
            await ticks(2)
            for _ in tasks:
                serve()
                await ticks(3)
            assert served == [0, 1, 2, 3]
            served.clear()
        assert_nobody_waits(q)

    run(main())


@every_kind
def test_s08_a_put_nowait_may_take_the_place_of_a_blocked_put(interlock: Any, run: Run, kind: str) -> None:
    """As in the standard library. The blocked one then waits again, and is not forgotten."""

    async def main() -> None:
        q = make(interlock, kind, 1)
        q.put_nowait(1)
        blocked = asyncio.create_task(q.put(3))
        await ticks(2)
        assert q.get_nowait() == 1
        q.put_nowait(4)
        await ticks(3)
        assert not blocked.done() and q.statistics().putters == 1
        assert q.get_nowait() == 4
        await blocked
        assert q.get_nowait() == 3

    run(main())


@every_kind
def test_q1_a_get_nowait_may_take_the_item_of_a_blocked_get(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind)
        blocked = asyncio.create_task(q.get())
        await ticks(2)
        q.put_nowait(1)
        assert q.get_nowait() == 1
        await ticks(3)
        assert not blocked.done() and q.statistics().getters == 1
        q.put_nowait(2)
        assert await blocked == 2
        assert_account(q, size=0, delivered=2, getters=0)

    run(main())


@every_kind
def test_q1_one_that_need_not_wait_does_not_yield(interlock: Any, kind: str) -> None:
    """S12; and nothing happens before the first step."""
    q = make(interlock, kind, 1)
    put = q.put("item")
    assert q.empty()
    with pytest.raises(StopIteration) as stop:
        put.send(None)
    assert stop.value.value is None
    get = q.get()
    assert q.full()
    with pytest.raises(StopIteration) as stop:
        get.send(None)
    assert stop.value.value == "item"
    q.task_done()
    with pytest.raises(StopIteration) as stop:
        q.join().send(None)
    assert stop.value.value is None


@every_kind
@every_operation
def test_q2_a_wait_times_out(interlock: Any, run: Run, name: str, kind: str) -> None:
    async def main() -> None:
        q = prepared(interlock, name, kind)
        before = q.statistics()
        for timeout in (0, 0.0, 0.001, Fraction(1, 1000)):
            with pytest.raises(asyncio.TimeoutError):
                await start(name, q, timeout)  # type: ignore[arg-type]
            assert q.statistics() == before

    run(main())


@every_operation
@pytest.mark.parametrize("timeout", [None, 20, 1e10, math.inf, 10**400, True])
def test_a_timeout_that_is_not_reached_changes_nothing(interlock: Any, run: Run, name: str, timeout: Any) -> None:
    async def main() -> None:
        q = prepared(interlock, name)
        task = start(name, q, timeout)
        await ticks(2)
        assert not task.done()
        {"get": lambda: q.put_nowait(1), "put": q.get_nowait, "join": q.task_done}[name]()
        assert await task == (1 if name == "get" else None)
        assert_nobody_waits(q)

    run(main())


@every_kind
def test_a_timeout_of_0_is_one_try(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind, 1)
        await q.join(timeout=0)
        await q.put(1, timeout=0)
        assert await q.get(timeout=0) == 1
        assert_account(q, size=0, accepted=1, delivered=1, unfinished=1)

    run(main())


@every_operation
def test_a_timeout_runs_from_the_await(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        q = prepared(interlock, name)
        loop = asyncio.get_running_loop()
        wait = OPERATIONS[name].call(q, 0.05)
        await asyncio.sleep(0.1)
        begun = loop.time()
        with pytest.raises(asyncio.TimeoutError):
            await wait
        assert loop.time() - begun > 0.04

    run(main())


@every_kind
@pytest.mark.parametrize("name", ["get", "put"])
def test_a_timeout_holds_however_often_others_come_between(interlock: Any, run: Run, kind: str, name: str) -> None:
    """Each time it is woken, and finds nothing, what is left of its time is less."""

    async def main() -> None:
        q = prepared(interlock, name, kind)
        task = start(name, q, 0.02)
        await ticks()
        while not task.done():
            if name == "get":
                q.put_nowait(0)
                q.get_nowait()
            else:
                q.get_nowait()
                q.put_nowait(0)
            await ticks()
        assert isinstance(task.exception(), asyncio.TimeoutError)
        assert_account(q, size=int(name == "put"), getters=0, putters=0)

    run(main())


@every_kind
def test_q1_a_burst_is_shared_out_in_order(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind, 4)
        gets = [asyncio.create_task(q.get()) for _ in range(4)]
        await ticks(2)
        for item in range(4):
            q.put_nowait(item)
        puts = [asyncio.create_task(q.put(item)) for item in range(4, 9)]
        first = [3, 2, 1, 0] if kind == "lifo" else [0, 1, 2, 3]
        assert await asyncio.gather(*gets) == first
        await ticks(3)
        assert [put.done() for put in puts] == [True] * 4 + [False]
        assert sorted([await q.get() for _ in range(5)]) == [4, 5, 6, 7, 8]
        await asyncio.gather(*puts)

    run(main())


@every_kind
def test_q4_join_returns_when_the_count_is_zero(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind)
        await q.join()
        for item in range(3):
            q.put_nowait(item)
        joins = [asyncio.create_task(q.join()) for _ in range(2)]
        for left in (2, 1, 0):
            await ticks(3)
            assert not any(join.done() for join in joins)
            assert_account(q, unfinished=left + 1, joiners=2)
            q.task_done()
        assert q.unfinished_tasks == 0
        # It counts what is accepted and finished, not what is got.
        assert q.qsize() == 3
        # They are released at this moment, whatever is put before they run.
        q.put_nowait(3)
        await asyncio.gather(*joins)
        again = asyncio.create_task(q.join())
        await ticks(3)
        assert not again.done()
        q.task_done()
        await again
        assert_account(q, unfinished=0, joiners=0)

    run(main())


@every_kind
def test_q4_a_task_done_too_many_is_refused(interlock: Any, kind: str) -> None:
    q = make(interlock, kind)
    with pytest.raises(ValueError, match="task_done"):
        q.task_done()
    q.put_nowait(1)
    q.task_done()
    with pytest.raises(ValueError, match="task_done"):
        q.task_done()
    assert_account(q, size=1, unfinished=0)


@every_kind
def test_q7_async_for_ends_when_the_queue_is_shut_down_and_drained(interlock: Any, run: Run, kind: str) -> None:
    """S23; by any number of consumers, one of which leaves early."""

    async def main() -> None:
        q = make(interlock, kind)
        assert aiter(q) is q
        found: list[int] = []

        async def consume() -> None:
            async for item in q:
                found.append(item)
                await ticks()
                q.task_done()

        async def leave() -> None:
            async for item in q:
                found.append(item)
                q.task_done()
                break

        consumers = [asyncio.create_task(one()) for one in (consume, leave, consume)]
        await ticks(2)
        assert_account(q, getters=3)
        for item in range(10):
            q.put_nowait(item)
        q.shutdown()
        await asyncio.gather(*consumers)
        assert sorted(found) == list(range(10))
        await q.join()
        with pytest.raises(StopAsyncIteration):
            await anext(q)
        assert [item async for item in q] == []
        assert_nobody_waits(q)

    run(main())


def test_x13_a_consumer_resumes_in_its_own_context(interlock: Any, run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nobody's")

    async def main() -> None:
        q = interlock.Queue(1)

        async def use(name: str, wait: Any) -> tuple[str, str]:
            variable.set(name)
            await wait
            return name, variable.get()

        q.put_nowait(0)
        blocked = [asyncio.create_task(use(name, wait)) for name, wait in (("a", q.put(1)), ("b", q.join()))]
        await ticks(2)
        variable.set("main's")
        q.get_nowait()
        q.task_done()
        await ticks(2)
        q.task_done()
        q.get_nowait()
        blocked.append(asyncio.create_task(use("c", q.get())))
        await ticks(2)
        await asyncio.create_task(use("d", q.put(2)))
        assert await asyncio.gather(*blocked) == [("a", "a"), ("b", "b"), ("c", "c")]
        assert variable.get() == "main's"

    run(main())
