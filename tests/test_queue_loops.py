"""X1, X4, S26, S30: loops one after another, and loops that are closed while tasks of theirs wait."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, in_threads, ticks
from queues import (
    BLOCKING,
    OPERATIONS,
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
)
from storm import kinds as loop_kinds
from storm import new_loop, nothing_unraisable, run_on, together
from test_threads import free_threaded


@every_kind
def test_x1_made_without_a_loop_and_used_from_one_after_another(interlock: Any, run: Run, kind: str) -> None:
    """S26; also while some of an earlier loop are still registered."""
    q = make(interlock, kind, 1)
    left: list[Any] = []

    async def use(number: int) -> None:
        get = asyncio.create_task(q.get())
        await ticks(2)
        await q.put(number)
        join = asyncio.create_task(q.join())
        assert await get == number
        puts = [asyncio.create_task(q.put(number)) for _ in range(2)]
        await ticks(3)
        for _ in puts:
            assert await q.get(timeout=LIMIT) == number
        for _ in range(3):
            q.task_done()
        await asyncio.gather(join, *puts)
        # Left behind, for the loop's end to cancel.
        left.append(asyncio.create_task(q.get()))
        await ticks(2)

    for number in range(3):
        run(use(number))
    assert_account(q, size=0, unfinished=0, accepted=9, delivered=9, getters=0, putters=0, joiners=0)


# As a program keeps its tasks.
kept: list[Any] = []


def abandoned(q: Any, name: str, kind: str, count: int = 1) -> asyncio.AbstractEventLoop:
    """A loop that was closed while tasks of it wait on `q`."""
    loop = new_loop(kind)
    before = waiters(q)
    tasks = [loop.create_task(OPERATIONS[name].call(q, None)) for _ in range(count)]
    loop.run_until_complete(ticks(2))
    assert waiters(q) == before + count
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    kept.extend(tasks)
    return loop


@loop_kinds
@every_operation
@pytest.mark.parametrize("queue", ["fifo", "hooked"])
@pytest.mark.parametrize("who", ["task", "thread"])
def test_x4_a_waiter_of_a_closed_loop_is_skipped(interlock: Any, kind: str, queue: str, name: str, who: str) -> None:
    """The next one is served in its place."""
    q = prepared(interlock, name, queue)
    loops = [abandoned(q, name, kind, 2), abandoned(q, name, kind)]

    async def main() -> None:
        waiting = start(name, q) if who == "task" else in_daemon(BLOCKING[name], q, None)
        await until_waiting(q, 4)
        OPERATIONS[name].serve(q)
        await waiting
        assert_nobody_waits(q)

    with nothing_unraisable():
        run_on(kind, main())
        kept.clear()
        del loops
        gc.collect()
    assert_nobody_waits(q)


@loop_kinds
@every_operation
def test_x4_when_there_is_nobody_else_it_is_there_for_who_comes(interlock: Any, kind: str, name: str) -> None:
    q = prepared(interlock, name)
    abandoned(q, name, kind, 3)
    with nothing_unraisable():
        OPERATIONS[name].serve(q)
        assert_nobody_waits(q)
        assert BLOCKING[name](q, 0) == (1 if name == "get" else None)
        kept.clear()
        gc.collect()


@loop_kinds
@pytest.mark.parametrize("queue", ["fifo", "hooked"])
@pytest.mark.parametrize("name", ["get", "put"])
@pytest.mark.parametrize("who", ["task", "thread"])
@pytest.mark.parametrize("by", ["the loop", "a thread"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("before", ["fresh", "woken in vain"])
def test_x4_one_that_was_woken_as_its_loop_closed_passes_it_on(
    interlock: Any, kind: str, queue: str, name: str, who: str, by: str, count: int, before: str
) -> None:
    """At once, though its task is kept; the next one waits on the same loop, or on another, or in a thread."""
    q = prepared(interlock, name, queue)
    loop = new_loop(kind)
    tasks = [loop.create_task(OPERATIONS[name].call(q, None)) for _ in range(count)]
    loop.run_until_complete(ticks(2))
    if before == "woken in vain":
        OPERATIONS[name].serve(q)
        q.get_nowait() if name == "get" else q.put_nowait(0)
        loop.run_until_complete(ticks(2))
    assert waiters(q) == count

    def close() -> None:
        if by == "the loop":
            loop.call_soon(OPERATIONS[name].serve, q)
            loop.call_soon(loop.stop)
            loop.run_forever()
        else:
            in_threads(lambda: OPERATIONS[name].serve(q))
        loop.close()
        for task in tasks:
            if task.done():
                # There was time enough.
                OPERATIONS[name].serve(q)
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    async def main() -> None:
        waiting = start(name, q) if who == "task" else in_daemon(BLOCKING[name], q, None)
        await until_waiting(q, count + 1)
        await asyncio.to_thread(close)
        assert await waiting == (1 if name == "get" else None)

    with nothing_unraisable():
        run_on(kind, main())
    assert_nobody_waits(q)


@pytest.mark.parametrize("name", ["get", "put"])
def test_x4_one_that_was_woken_and_is_garbage_passes_it_on(interlock: Any, name: str) -> None:
    """Whichever of its parts the collector clears first."""

    async def main() -> None:
        q = prepared(interlock, name)
        wait = OPERATIONS[name].call(q, None)
        wait.send(None)
        # Younger than what the coroutine has made for its wait, and so cleared after it.
        cycle: list[Any] = [wait]
        cycle.append(cycle)
        staying = start(name, q)
        await until_waiting(q, 2)
        OPERATIONS[name].serve(q)
        await ticks(3)
        assert waiters(q) == 1
        del cycle, wait
        gc.collect()
        assert_nobody_waits(q)
        await staying

    with nothing_unraisable():
        run_on("plain", main())


@loop_kinds
@pytest.mark.parametrize("name", ["get", "put"])
def test_s30_loops_closed_in_mid_wait_against_a_thread(interlock: Any, kind: str, name: str) -> None:
    """200 rounds; no exception anywhere, and each item is accounted for."""
    if kind == "uvloop" and free_threaded():
        pytest.skip("uvloop itself crashes there when call_soon_threadsafe meets close")
    q = interlock.Queue(1)

    def rounds() -> None:
        for _ in range(200):
            loop = new_loop(kind)
            waits = [q.get(), q.get(timeout=60)] if name == "get" else [q.put(1), q.put(1, timeout=60)]
            tasks = [loop.create_task(wait) for wait in (*waits, q.join())]
            loop.run_until_complete(ticks(2))
            loop.close()
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            del task, tasks, waits, loop

    def serve() -> None:
        try:
            q.put_nowait(0) if name == "get" else q.get_nowait()
            q.task_done()
        except (interlock.QueueFull, interlock.QueueEmpty, ValueError):
            pass

    with nothing_unraisable():
        together(rounds, meanwhile=[serve] * 2)
        gc.collect()
        # Whoever comes finds the queue as it says that it is.
        left = drain(q)
        q.put_nowait(2)
        assert drain(q) == [2]
        q.shutdown(immediate=True)
        gc.collect()
    assert len(left) <= 1
    assert_account(q, size=0, getters=0, putters=0, joiners=0)
