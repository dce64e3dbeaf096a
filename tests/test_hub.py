"""The hub under interrupts, forks, odd loops and odd drivers; the loop's one timer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, handles_counted, in_threads
from queues import KINDS, OPERATIONS, assert_nobody_waits, prepared, start, when_waiting
from storm import clean, ticks
from test_processes import CHILD, forks


class Interrupted(asyncio.SelectorEventLoop):
    """Raises KeyboardInterrupt, once, where a Ctrl-C might come."""

    boom: str | None = None
    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def _maybe(self, place: str) -> None:
        if self.boom == place:
            self.boom = None
            raise KeyboardInterrupt

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self._maybe("call_soon_threadsafe")
        return super().call_soon_threadsafe(*args, **kwargs)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, **kwargs: Any
    ) -> Any:
        if "expire" in repr(callback):
            self._maybe("call_at")
        return super().call_at(when, callback, *args, **kwargs)


def test_x6_timed_waits_leave_no_timers_of_the_loop(interlock: Any) -> None:
    """However many there were, and whatever else is waiting."""
    loop = asyncio.SelectorEventLoop()

    async def main() -> int:
        w = interlock.ValueWatcher(0)
        long = asyncio.ensure_future(w.wait_for(99, timeout=1000))
        await asyncio.sleep(0)
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await w.wait_for(99, timeout=0.001)
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        long.cancel()
        return len(timers)

    try:
        assert loop.run_until_complete(main()) <= 1
    finally:
        loop.close()


def test_an_interrupt_while_timing_out_forgets_nobody(interlock: Any) -> None:
    loop = Interrupted()
    w = interlock.ValueWatcher(0)
    out: list[float] = []

    async def one(timeout: float) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await w.wait_for(1, timeout=timeout)
        out.append(timeout)

    async def first() -> None:
        waits = [asyncio.ensure_future(one(timeout)) for timeout in (1_000, 2_000)]
        await asyncio.sleep(0)
        loop.boom = "call_at"
        # Moved by hand, so that the second is never due with the first.
        for wait in waits:
            loop.ahead += 1_001
            await wait

    main = loop.create_task(first())
    try:
        try:
            loop.run_until_complete(main)
        except KeyboardInterrupt:
            loop.run_until_complete(main)
        loop.run_until_complete(asyncio.wait_for(one(0.01), 20))
        assert out == [1_000, 2_000, 0.01]
    finally:
        loop.close()


def test_an_interrupt_while_waking_one_loop_does_not_strand_another(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    loops = [Interrupted() for _ in range(2)]
    results: dict[int, Any] = {}
    ready = threading.Barrier(3)

    def run(number: int) -> None:
        async def main() -> None:
            wait = asyncio.ensure_future(w.wait_for(1))
            await asyncio.sleep(0)
            ready.wait(20)
            results[number] = await asyncio.wait_for(wait, 20)

        loops[number].run_until_complete(main())
        loops[number].close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(20)
    loops[0].boom = "call_soon_threadsafe"
    with pytest.raises(KeyboardInterrupt):
        w.value = 1
    for thread in threads:
        thread.join(20)
    assert results == {0: 1, 1: 1}


@forks
def test_x12_forked_from_within_a_task_that_was_woken(interlock: Any) -> None:
    clean(
        interlock,
        CHILD
        + """
async def main():
    w = ValueWatcher(0)
    asyncio.get_running_loop().call_later(0.01, w.set, 1)
    await w.wait_for(1)
    child(lambda: asyncio.run(use(ValueWatcher(0))))

asyncio.run(main())
""",
    )


def test_a_transition_hashes_like_the_tuple_that_it_is(interlock: Any) -> None:
    w = interlock.ValueWatcher("a")
    with w.watch(initial=True, maxlen=1, overflow="latest") as latest, w.watch() as every:
        w.value = "b"
        w.value = "c"
        for transition in (latest.get_nowait(), latest.get_nowait(), every.get_nowait()):
            assert hash(transition) == hash(tuple(transition))
            assert transition in {tuple(transition)}


def test_a_driver_that_goes_on_after_cancelling_gets_the_cancellation(interlock: Any) -> None:
    """X16: no panic, whatever a driver that is no task does."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        coroutine = w.wait_for(1)
        parker = coroutine.send(None)
        assert parker.cancel()
        with pytest.raises(asyncio.CancelledError):
            coroutine.send(None)
        assert w.statistics().waiters == 0

    asyncio.run(main())


def test_a_coroutine_is_not_closed_while_it_runs(interlock: Any) -> None:
    class Reentrant(asyncio.SelectorEventLoop):
        victim: Any = None

        def time(self) -> float:
            if self.victim is not None:
                victim, self.victim = self.victim, None
                with pytest.raises(ValueError, match="already executing"):
                    victim.close()
            return super().time()

    loop = Reentrant()

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        wait = w.wait_for(1, timeout=20)

        async def waits() -> Any:
            loop.victim = wait
            return await wait

        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        assert w.statistics().waiters == 1
        w.value = 1
        assert await task == 1

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_loop_that_is_run_inside_one_of_its_tasks_wakes_the_others(interlock: Any) -> None:
    """As with nest_asyncio, in a notebook: a task of a round waits for a later one of it."""

    class Nested(asyncio.SelectorEventLoop):
        _nest_patched = True

        def run_nested(self, task: asyncio.Task[Any]) -> Any:
            current = asyncio.current_task(self)
            assert current is not None
            asyncio.tasks._leave_task(self, current)
            try:
                for _ in range(100):
                    self._run_once()  # type: ignore[attr-defined]
                    if task.done():
                        return task.result()
                raise AssertionError("stranded")
            finally:
                asyncio.tasks._enter_task(self, current)

    loop = Nested()

    async def main() -> None:
        w = interlock.ValueWatcher(0)

        async def first() -> Any:
            await w.wait_for(1)
            return loop.run_nested(second)

        one = asyncio.ensure_future(first())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(w.wait_for(1))
        await asyncio.sleep(0)
        w.value = 1
        loop.call_later(0, lambda: None)
        assert await one == 1

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("where", ["task", "thread"])
@pytest.mark.parametrize("what", ["put", "get", "task_done", "shutdown"])
def test_x3_a_burst_on_many_queues_is_one_handle_in_each_loop(interlock: Any, run: Run, where: str, what: str) -> None:
    """However many of their waiters it wakes."""
    operation = {"put": "get", "get": "put", "task_done": "join", "shutdown": "get"}[what]

    async def main() -> None:
        queues = [prepared(interlock, operation, kind) for kind in KINDS for _ in range(5)]
        tasks = [start(operation, q) for q in queues for _ in range(3)]
        await ticks(2)

        def burst() -> None:
            for q in queues:
                q.shutdown() if what == "shutdown" else OPERATIONS[operation].serve(q)

        with handles_counted(asyncio.get_running_loop()) as scheduled:
            # The thread is joined here, so that the loop does not wake anybody meanwhile.
            burst() if where == "task" else in_threads(burst)
            assert len(scheduled) == 1
        await ticks(3)
        for q in queues:
            q.abort()
        await asyncio.wait(tasks)
        for task in tasks:
            assert isinstance(task.exception(), (type(None), interlock.QueueShutDown))
        for q in queues:
            assert_nobody_waits(q)

    run(main())


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interrupt_while_a_queue_wakes_a_loop_strands_nobody(interlock: Any, name: str) -> None:
    """It comes in the main thread, from the call or right after it; what the call was to do is done or not (Q3)."""
    loop = Interrupted()
    q = prepared(interlock, name)
    results: list[Any] = []

    async def main() -> None:
        results.append(await OPERATIONS[name].call(q, LIMIT))

    def serve() -> None:
        OPERATIONS[name].serve(q)
        for _ in range(1000):
            pass

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    when_waiting(q, 1, lambda: setattr(loop, "boom", "call_soon_threadsafe"))()
    before = q.statistics()
    with pytest.raises(KeyboardInterrupt):
        serve()
    after = q.statistics()
    if (after.accepted, after.delivered, after.unfinished) == (before.accepted, before.delivered, before.unfinished):
        OPERATIONS[name].serve(q)
    thread.join(LIMIT)
    loop.close()
    assert results == [1 if name == "get" else None]
    assert_nobody_waits(q)
