"""X6, S09, S31: a wait that was given up in any way leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import tracemalloc
import weakref
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, end_by_hand, ticks
from queues import (
    KINDS,
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
from storm import switching


@every_operation
@pytest.mark.parametrize("stage", ["fresh", "parked", "served"])
@pytest.mark.parametrize("how", ["close", "throw", "drop"])
def test_a_coroutine_driven_by_hand(interlock: Any, run: Run, name: str, stage: str, how: str) -> None:
    async def one(kind: str) -> None:
        q = prepared(interlock, name, kind)
        held = [OPERATIONS[name].call(q, 60)]
        if stage != "fresh":
            held[0].send(None)
            assert waiters(q) == 1
        if stage == "served":
            OPERATIONS[name].serve(q)
        end_by_hand(held, how, stage == "fresh")
        assert_nobody_waits(q)
        if stage != "served":
            OPERATIONS[name].serve(q)
        if name == "join":
            assert_account(q, unfinished=0)
        else:
            assert drain(q) == ([1] if name == "get" else [])
        await ticks(3)
        assert_nobody_waits(q)

    async def main() -> None:
        for kind in KINDS:
            await one(kind)

    run(main())


@every_kind
def test_x6_what_it_would_have_put_is_released(interlock: Any, run: Run, kind: str) -> None:
    class Item:
        def __lt__(self, other: Any) -> bool:
            return False

    async def main() -> None:
        q = make(interlock, kind, 1)
        q.put_nowait(Item())
        references = []
        for timeout in (None, 0.001, 0):
            for stage in ("first step", "parked", "served"):
                item = Item()
                references.append(weakref.ref(item))
                put = asyncio.ensure_future(q.put(item, timeout=timeout))
                del item
                if stage != "first step":
                    await ticks()
                if stage == "served":
                    q.put_nowait(q.get_nowait())
                if timeout is None or stage == "first step":
                    put.cancel()
                await asyncio.wait([put])
                assert put.cancelled() or isinstance(put.exception(), asyncio.TimeoutError)
                del put
        # The handle that resumed this task still holds what woke it.
        await ticks(2)
        gc.collect()
        assert [reference() for reference in references] == [None] * 9
        assert_account(q, size=1, putters=0)

    run(main())


@every_kind
def test_x11_no_hidden_tasks_and_no_hidden_threads(interlock: Any, run: Run, kind: str) -> None:
    """S32."""

    async def main() -> None:
        before = set(threading.enumerate())
        queues = [prepared(interlock, name, kind) for name in OPERATIONS]
        tasks = {start(name, q, 60) for name, q in zip(OPERATIONS, queues, strict=True)}
        ours = {task for task in asyncio.all_tasks() if task not in tasks}
        await ticks(3)
        assert asyncio.all_tasks() == ours | tasks
        for q in queues:
            await q.aclose()
            await q.wait_closed()
        await asyncio.wait(tasks)
        for task in tasks:
            task.exception()
        await ticks()
        assert asyncio.all_tasks() == ours
        assert set(threading.enumerate()) == before

    run(main())


def test_s09_ten_thousand_timeouts_leave_nothing(interlock: Any) -> None:
    """And later operations find nobody to wake."""

    async def batch(queues: dict[str, Any], count: int) -> None:
        async def one(name: str) -> None:
            with pytest.raises(asyncio.TimeoutError):
                await OPERATIONS[name].call(queues[name], 0.0001)

        for name in OPERATIONS:
            for _ in range(count // 50):
                await asyncio.gather(*(one(name) for _ in range(50)))

    async def main() -> None:
        queues = {name: prepared(interlock, name) for name in OPERATIONS}
        held = []
        tracemalloc.start()
        try:
            for _ in range(2):
                await batch(queues, 5_000 // len(OPERATIONS))
                for q in queues.values():
                    assert_nobody_waits(q)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        # Two bytes kept per wait would show.
        assert held[1] - held[0] < 10_000
        for name, q in queues.items():
            OPERATIONS[name].serve(q)
            assert_nobody_waits(q)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["get", "put"])
def test_s31_a_thousand_waiters_cancelled_while_a_thread_serves(interlock: Any, run: Run, name: str) -> None:
    """Nothing reaches the loop's exception handler, and the account of successes is exact."""

    async def main() -> None:
        q = interlock.Queue(1)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                time.sleep(0)  # or the loop would rarely have its turn
                try:
                    q.put_nowait(0) if name == "get" else q.get_nowait()
                except (interlock.QueueEmpty, interlock.QueueFull):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        finished = 0
        with switching():
            thread.start()
            try:
                for _ in range(10):
                    tasks = [start(name, q) for _ in range(100)]
                    await ticks()
                    asked = [task.cancel() for task in tasks]
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    assert [isinstance(result, asyncio.CancelledError) for result in results] == asked
                    finished += asked.count(False)
            finally:
                stop.set()
                thread.join(LIMIT)
        assert not thread.is_alive()
        assert_nobody_waits(q)
        assert_account(q, **{"delivered" if name == "get" else "accepted": finished})

    run(main())
