"""Cancellation at every tick of every wait: never lost, never swallowed, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, end_by_hand
from storm import switching, ticks

WAITS: dict[str, Callable[[Any, Any, float | None], Any]] = {
    "wait_for": lambda w, s, timeout: w.wait_for(1, timeout=timeout),
    "wait_for unhashable": lambda w, s, timeout: w.wait_for([1], timeout=timeout),
    "wait_for_not": lambda w, s, timeout: w.wait_for_not(0, timeout=timeout),
    "wait_for_not_none": lambda w, s, timeout: w.wait_for_not_none(immediate=False, timeout=timeout),
    "wait_until": lambda w, s, timeout: w.wait_until(lambda v: v != 0, timeout=timeout),
    "wait_for_change": lambda w, s, timeout: w.wait_for_change(timeout=timeout),
    "get": lambda w, s, timeout: s.get(timeout),
    "anext": lambda w, s, timeout: s.__anext__() if timeout is None else s.get(timeout),
}

waits = pytest.mark.parametrize("kind", WAITS)


def start(kind: str, w: Any, s: Any, timeout: float | None = None) -> asyncio.Task[Any]:
    return asyncio.ensure_future(WAITS[kind](w, s, timeout))


def satisfy(kind: str, w: Any) -> None:
    w.value = [1] if kind == "wait_for unhashable" else 1


def nothing_left(w: Any, subscriptions: int = 1) -> None:
    counts = w.statistics()
    assert (counts.subscriptions, counts.waiters) == (subscriptions, 0)


@waits
@pytest.mark.parametrize("timeout", [None, 60])
def test_x7_a_task_cancelled_before_its_end_ends_cancelled(
    interlock: Any, run: Run, kind: str, timeout: float | None
) -> None:
    async def one(before: int, after: int, order: str) -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            task = start(kind, w, s, timeout)
            await ticks(before)
            if order == "set first":
                satisfy(kind, w)
                await ticks(after)
            cancelled = task.cancel("because")
            if order == "cancel first":
                await ticks(after)
                satisfy(kind, w)
            await ticks(6)
            assert task.done()
            assert task.cancelled() == cancelled
            # The next reader gets what the cancelled one did not (W13).
            took = not cancelled and kind in ("get", "anext")
            left = 0 if took or order == "never set" else 1
            assert s.pending == left
            if left:
                assert s.get_nowait().old == 0
            assert w.statistics().retained == 0
            del task
            nothing_left(w)

    async def main() -> None:
        for before in range(4):
            for after in range(4):
                for order in ("set first", "cancel first", "never set"):
                    await one(before, after, order)

    run(main())


@waits
def test_x7_cancelled_while_it_times_out(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        for before in range(4):
            w = interlock.ValueWatcher(0)
            with w.watch() as s:
                loop = asyncio.get_running_loop()
                task = start(kind, w, s, 0.001)
                await ticks(1)
                # A handle that is due after the wait's own timer, in the same round.
                due = loop.create_future()
                loop.call_later(0.001, due.set_result, None)
                await due
                await ticks(before)
                cancelled = task.cancel()
                await ticks(4)
                assert task.done()
                assert task.cancelled() == cancelled
                if not cancelled:
                    assert isinstance(task.exception(), asyncio.TimeoutError)
                nothing_left(w)

    run(main())


@waits
def test_x6_a_set_in_the_round_of_the_timeout_is_returned_or_left(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        for before in range(4):
            w = interlock.ValueWatcher(0)
            with w.watch() as s:
                loop = asyncio.get_running_loop()
                task = start(kind, w, s, 0.001)
                await ticks(1)
                due = loop.create_future()
                loop.call_later(0.001, due.set_result, None)
                await due
                await ticks(before)
                satisfy(kind, w)
                await ticks(4)
                assert task.done()
                if task.exception() is None and kind in ("get", "anext"):
                    assert s.pending == 0
                else:
                    assert s.pending == 1
                nothing_left(w)

    run(main())


@waits
def test_cancelled_twice_and_with_a_message(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            task = start(kind, w, s)
            await ticks(1)
            assert task.cancel("first")
            assert task.cancel("second")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            if sys.version_info >= (3, 11):
                assert caught.value.args in (("first",), ("second",))
            nothing_left(w)
            satisfy(kind, w)
            assert (await s.get()).old == 0

    run(main())


@waits
def test_a_task_that_shrugs_off_cancellation_can_wait_again(interlock: Any, run: Run, kind: str) -> None:
    async def stubborn(w: Any, s: Any) -> Any:
        for _ in range(3):
            try:
                await WAITS[kind](w, s, None)
            except asyncio.CancelledError:
                pass
        return await WAITS[kind](w, s, None)

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            task = asyncio.ensure_future(stubborn(w, s))
            for _ in range(3):
                await ticks(3)
                task.cancel()
            await ticks(3)
            assert w.statistics().waiters == (0 if kind in ("get", "anext") else 1)
            satisfy(kind, w)
            assert await task is not None
            nothing_left(w)

    run(main())


@waits
@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout and Task.uncancel are of 3.11")
def test_asyncio_timeout_and_uncancel(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        if sys.version_info < (3, 11):
            return
        w = interlock.ValueWatcher(0)
        task = asyncio.current_task()
        assert task is not None
        with w.watch() as s:
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    async with asyncio.timeout(0.001):
                        await WAITS[kind](w, s, None)
                assert task.cancelling() == 0
                nothing_left(w)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await WAITS[kind](w, s, None)
            assert task.uncancel() == 0
            waiting = start(kind, w, s)
            await ticks(1)
            satisfy(kind, w)
            async with asyncio.timeout(30):
                assert await waiting is not None
            nothing_left(w)

    run(main())


@waits
@pytest.mark.parametrize("stage", ["fresh", "parked", "satisfied"])
@pytest.mark.parametrize("how", ["close", "throw", "drop"])
def test_a_coroutine_driven_by_hand(interlock: Any, run: Run, kind: str, stage: str, how: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            held = [WAITS[kind](w, s, 60)]
            if stage != "fresh":
                held[0].send(None)
            if stage == "satisfied":
                satisfy(kind, w)
            end_by_hand(held, how, stage == "fresh")
            nothing_left(w)
            if stage == "satisfied":
                assert s.get_nowait().old == 0
            # Whatever wakes it now must find nobody.
            satisfy(kind, w)
            await ticks(3)
            nothing_left(w)

    run(main())


@waits
def test_a_coroutine_resumed_too_early_says_so(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            coroutine = WAITS[kind](w, s, None)
            coroutine.send(None)
            with pytest.raises(RuntimeError):
                coroutine.send(None)
            coroutine.close()
            nothing_left(w)

    run(main())


@waits
def test_x6_cancelled_before_its_first_step_it_is_unregistered(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.watch() as s:
            task = start(kind, w, s)
            task.cancel()
            await ticks(3)
            # The task, and with it the exception's traceback, is still there.
            assert task.cancelled()
            nothing_left(w)

    run(main())


def test_w6_a_predicate_that_has_held_is_not_called_again(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        seen: list[int] = []

        def predicate(value: int) -> bool:
            seen.append(value)
            return value > 0

        task = asyncio.ensure_future(w.wait_until(predicate))
        await ticks(1)
        w.value = 1
        assert w.statistics().waiters == 0
        w.value = 2
        assert await task == 1
        assert seen == [0, 1]

    run(main())


def test_x16_a_stop_iteration_that_is_kept_is_not_used_again(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        kept = []
        for number in range(5):
            w.value = number
            coroutine = w.wait_for(number)
            with pytest.raises(StopIteration) as caught:
                coroutine.send(None)
            kept.append(caught.value)
            assert await w.wait_for(number) == number
        assert [stop.value for stop in kept] == list(range(5))

    run(main())


def test_s09_ten_thousand_timeouts_leave_nothing(interlock: Any) -> None:
    async def batch(w: Any, count: int) -> None:
        async def one(kind: str) -> None:
            with w.watch() as s:
                with pytest.raises(asyncio.TimeoutError):
                    await WAITS[kind](w, s, 0.0001)

        for kind in WAITS:
            for _ in range(count // 50):
                await asyncio.gather(*(one(kind) for _ in range(50)))

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        held = []
        tracemalloc.start()
        try:
            for _ in range(2):
                await batch(w, 5_000 // len(WAITS))
                nothing_left(w, 0)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        # Two bytes kept per wait would show.
        assert held[1] - held[0] < 10_000
        w.value = 1

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["wait_for", "wait_until", "get"])
def test_s31_a_thousand_waiters_cancelled_while_a_thread_sets(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        stop = threading.Event()

        def setter() -> None:
            number = 0
            while not stop.is_set():
                time.sleep(0)  # or the loop would rarely have its turn
                number += 1
                w.value = number % 3

        thread = threading.Thread(target=setter, daemon=True)
        cancelled = finished = 0
        with switching():
            thread.start()
            try:
                for _ in range(10):
                    subscriptions = [w.watch() for _ in range(100)]
                    tasks = [start(kind, w, s) for s in subscriptions]
                    await ticks(1)
                    asked = [task.cancel() for task in tasks]
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    for was_asked, result in zip(asked, results, strict=True):
                        assert was_asked == isinstance(result, asyncio.CancelledError)
                        cancelled += was_asked
                        finished += not was_asked
                    for s in subscriptions:
                        s.close()
            finally:
                stop.set()
                thread.join(LIMIT)
        assert not thread.is_alive()
        assert cancelled + finished == 1_000
        nothing_left(w, 0)

    run(main())
