"""X7, Q2, Q3: a wait that is cancelled or times out at any tick takes nothing, puts nothing, and ends as it must."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from typing import Any

import pytest

from conftest import Run
from helpers import ticks
from queues import (
    OPERATIONS,
    assert_account,
    assert_nobody_waits,
    drain,
    every_kind,
    every_operation,
    make,
    prepared,
    start,
    waiters,
)


def assert_outcome(q: Any, name: str, task: asyncio.Task[Any], served: bool) -> None:
    """The outcome of the task is the whole of what has happened (Q2, Q3, S18)."""
    assert task.done()
    done = not task.cancelled() and task.exception() is None
    assert not done or served
    assert_nobody_waits(q)
    if name == "get":
        assert_account(q, size=int(served and not done), accepted=int(served), delivered=int(done))
        if served and not done:
            assert q.get_nowait() == 1
    elif name == "put":
        assert_account(q, accepted=1 + done, delivered=int(served), unfinished=1 + done)
        assert drain(q) == ([1] if done else [] if served else [0])
    else:
        assert_account(q, size=1, unfinished=1 - served)


@every_kind
@every_operation
def test_x7_a_task_cancelled_at_any_tick_ends_cancelled(interlock: Any, run: Run, kind: str, name: str) -> None:
    async def one(timeout: float | None, before: int, after: int, order: str) -> None:
        q = prepared(interlock, name, kind)
        task = start(name, q, timeout)
        await ticks(before)
        if order == "served first":
            OPERATIONS[name].serve(q)
            await ticks(after)
        cancelled = task.cancel()
        if order == "cancelled first":
            await ticks(after)
            OPERATIONS[name].serve(q)
        await ticks(6)
        assert task.cancelled() == cancelled
        assert_outcome(q, name, task, order != "never served")

    async def main() -> None:
        orders = ("served first", "cancelled first", "never served")
        for case in itertools.product((None, 60), range(4), range(4), orders):
            await one(*case)

    run(main())


@every_kind
@pytest.mark.parametrize("name", ["get", "put"])
def test_x7_one_that_need_not_wait_can_be_cancelled_at_any_tick(interlock: Any, run: Run, kind: str, name: str) -> None:
    """Also on a queue without bound, where a put never waits."""

    async def main() -> None:
        for maxsize in (0, 2):
            for before in range(3):
                q = make(interlock, kind, maxsize)
                q.put_nowait(0)
                task = start(name, q)
                await ticks(before)
                cancelled = task.cancel()
                await ticks(3)
                assert task.cancelled() == cancelled
                done = not cancelled
                if name == "get":
                    assert_account(q, size=1 - done, delivered=int(done))
                else:
                    assert_account(q, size=1 + done, accepted=1 + done, unfinished=1 + done)
                assert_nobody_waits(q)

    run(main())


async def until_due(after: float) -> None:
    """Until a handle has run that is due in the same round as a timer made just before."""
    loop = asyncio.get_running_loop()
    due = loop.create_future()
    loop.call_later(after, due.set_result, None)
    await due


@every_operation
@pytest.mark.parametrize("what", ["served", "cancelled", "served and cancelled"])
@pytest.mark.parametrize("way", ["timeout=", "wait_for", "asyncio.timeout"])
def test_x7_in_the_round_of_the_timeout(interlock: Any, run: Run, name: str, what: str, way: str) -> None:
    """Served, cancelled, or both, about when its time is up."""
    if way == "asyncio.timeout" and sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is of 3.11")

    async def limited(q: Any) -> Any:
        if way == "timeout=":
            return await OPERATIONS[name].call(q, 0.001)
        if way == "wait_for":
            return await asyncio.wait_for(OPERATIONS[name].call(q, None), 0.001)
        if sys.version_info >= (3, 11):
            async with asyncio.timeout(0.001):
                return await OPERATIONS[name].call(q, None)

    async def main() -> None:
        for before in range(4):
            for due_first in (False, True):
                q = prepared(interlock, name)
                task = asyncio.ensure_future(limited(q))
                await ticks(2)
                if due_first:
                    await until_due(0.001)
                else:
                    # The timer is due, but what is done now comes before it.
                    time.sleep(0.002)
                if before:
                    await ticks(before)
                if "served" in what:
                    OPERATIONS[name].serve(q)
                asked = "cancelled" in what and task.cancel()
                await asyncio.wait([task])
                await ticks(3)
                if way == "timeout=":
                    # The others answer for themselves: `wait_for` of 3.10 and 3.11 may swallow a cancellation.
                    assert task.cancelled() == asked
                if not task.cancelled():
                    assert isinstance(task.exception(), (type(None), asyncio.TimeoutError))
                assert_outcome(q, name, task, "served" in what)

    run(main())


@pytest.mark.parametrize("way", ["timeout=", "wait_for", "asyncio.timeout"])
@pytest.mark.parametrize("maxsize", [0, 1])
def test_s01_no_item_is_lost_near_the_deadline(interlock: Any, run: Run, way: str, maxsize: int) -> None:
    """The producer's interval is the consumer's timeout; what was sent is received, in order."""
    if way == "asyncio.timeout" and sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is of 3.11")
    count, interval = 250, 0.0005

    async def main() -> None:
        q = interlock.Queue(maxsize)
        received: list[int] = []

        async def get() -> int:
            item: int
            if way == "timeout=":
                item = await q.get(timeout=interval)
            elif way == "wait_for":
                item = await asyncio.wait_for(q.get(), interval)
            elif sys.version_info >= (3, 11):
                async with asyncio.timeout(interval):
                    item = await q.get()
            return item

        async def produce() -> None:
            for item in range(count):
                await asyncio.sleep(interval)
                while True:
                    try:
                        await q.put(item, timeout=interval)
                        break
                    except asyncio.TimeoutError:
                        pass
            q.shutdown()

        producer = asyncio.create_task(produce())
        while True:
            try:
                received.append(await get())
            except asyncio.TimeoutError:
                pass
            except interlock.QueueShutDown:
                break
        await producer
        assert received == list(range(count))
        assert_nobody_waits(q)

    run(main())


@every_kind
def test_x7_an_async_for_that_is_cancelled_at_any_tick(interlock: Any, run: Run, kind: str) -> None:
    """It has taken what it was given, and nothing else."""

    async def main() -> None:
        for before in range(4):
            for after in range(4):
                q = make(interlock, kind)
                found: list[int] = []

                async def consume(q: Any = q, found: list[int] = found) -> None:
                    async for item in q:
                        found.append(item)
                        await ticks()

                task = asyncio.create_task(consume())
                await ticks(before)
                for item in range(3):
                    q.put_nowait(item)
                await ticks(after)
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                assert sorted(found + drain(q)) == [0, 1, 2]
                assert_account(q, size=0, delivered=3, getters=0)

    run(main())


@every_kind
def test_s03_an_item_is_not_handed_to_one_who_is_being_cancelled(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind)
        get = asyncio.create_task(q.get())
        await ticks()
        get.cancel()
        q.put_nowait(1)
        await ticks(2)
        assert get.cancelled()
        assert q.get_nowait() == 1

    run(main())


@every_kind
def test_s04_a_put_that_raises_was_never_visible(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        for get_first in (True, False):
            q = make(interlock, kind, 1)
            q.put_nowait(1)
            put = asyncio.create_task(q.put(2))
            await ticks()
            if get_first:
                q.get_nowait()
            put.cancel()
            if not get_first:
                q.get_nowait()
            await ticks(3)
            assert put.cancelled()
            assert_account(q, size=0, accepted=1, unfinished=1)

    run(main())


@every_operation
def test_cancelled_twice_and_with_a_message(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        q = prepared(interlock, name)
        task = start(name, q)
        await ticks()
        assert task.cancel("first")
        assert task.cancel("second")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        if sys.version_info >= (3, 11):
            assert caught.value.args in (("first",), ("second",))
        assert_outcome(q, name, task, False)

    run(main())


@every_operation
def test_a_task_that_shrugs_off_cancellation_can_wait_again(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        q = prepared(interlock, name)

        async def stubborn() -> Any:
            for _ in range(3):
                with pytest.raises(asyncio.CancelledError):
                    await OPERATIONS[name].call(q, None)
            return await OPERATIONS[name].call(q, None)

        task = asyncio.create_task(stubborn())
        for _ in range(3):
            await ticks(3)
            assert waiters(q) == 1
            task.cancel()
        await ticks(3)
        OPERATIONS[name].serve(q)
        await task
        assert_outcome(q, name, task, True)

    run(main())
