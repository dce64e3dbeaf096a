"""What goes wrong in the very moment in which somebody is woken: Q2, Q3, X4, X6."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from asyncio import events
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import LIMIT, in_threads, ticks
from storm import nothing_unraisable


class Boom(Exception):
    """What a loop raises where it is to schedule something."""


class Failing(asyncio.SelectorEventLoop):
    """A loop whose thread-safe call fails as often as it is told to."""

    failures = 0
    error: type[BaseException] = Boom

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.failures:
            self.failures -= 1
            raise self.error
        return super().call_soon_threadsafe(callback, *arguments, context=context)


def test_x4_a_loop_closed_with_its_handle_scheduled_keeps_nothing_from_others(interlock: Any) -> None:
    q = interlock.Queue()
    closed, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    lost = [closed.create_task(q.get()) for _ in range(3)]
    closed.run_until_complete(ticks(3))
    gets = [other.create_task(q.get()) for _ in range(2)]
    other.run_until_complete(ticks(3))
    q.put_nowait(1)
    closed.close()
    q.put_nowait(2)
    q.put_nowait(3)
    try:
        other.run_until_complete(asyncio.wait_for(asyncio.gather(*gets), 5))
    finally:
        other.close()
        for task in lost:
            task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("wait", ["get", "put", "join"])
def test_x8_a_queue_and_the_task_that_waits_on_it_are_collected_in_silence(interlock: Any, wait: str) -> None:
    """Whichever of them the collector clears first."""
    with nothing_unraisable():
        for _ in range(10):
            loop = asyncio.new_event_loop()
            q = interlock.Queue(1)
            if wait != "get":
                q.put_nowait(0)
            task = loop.create_task({"get": q.get, "put": lambda q=q: q.put(1), "join": q.join}[wait]())
            loop.run_until_complete(ticks(2))
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            q.task = task
            loop.close()
            del task, q, loop
        gc.collect()
        gc.collect()


def test_x6_waking_at_the_recursion_limit_strands_nobody(interlock: Any) -> None:
    """The loop's own call fails with a RuntimeError there, and yet it is not closed."""

    async def main() -> None:
        q = interlock.Queue()
        gets: list[asyncio.Task[Any]] = []

        def deep(depth: int) -> None:
            if depth:
                deep(depth - 1)
            else:
                q.put_nowait("item")

        limit = sys.getrecursionlimit()
        for depth in range(limit - 60, limit):
            while not q.empty():
                q.get_nowait()
            gets.append(asyncio.create_task(q.get()))
            await ticks(3)
            try:
                deep(depth)
            except RecursionError:
                pass
            await ticks(3)
        for _ in gets:
            q.put_nowait("item")
        _, asleep = await asyncio.wait(gets, timeout=5)
        for get in gets:
            get.cancel()
        _, stuck = await asyncio.wait(gets, timeout=5)
        for get in stuck:
            get._log_destroy_pending = False  # type: ignore[attr-defined]
        assert (len(asleep), len(stuck)) == (0, 0)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@contextlib.contextmanager
def waiting(q: Any, method: str) -> Iterator[tuple[Failing, list[Any]]]:
    """A loop in which three tasks wait for what the method brings, and who of them was woken."""
    loop = Failing()
    woken: list[Any] = []

    async def wait(number: int) -> None:
        if method == "put_nowait":
            woken.append(await q.get())
        else:
            await q.put(number)
            woken.append(number)

    tasks = [loop.create_task(wait(number)) for number in range(3)]
    loop.run_until_complete(ticks(3))
    try:
        yield loop, woken
    finally:
        loop.failures = 0
        for task in tasks:
            task.cancel()
        _, stuck = loop.run_until_complete(asyncio.wait(tasks, timeout=5))
        for task in stuck:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
    assert not stuck, "a task cannot be cancelled"


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("error", [Boom, RuntimeError])
@pytest.mark.parametrize("method", ["put_nowait", "get_nowait"])
def test_q2_q3_an_error_of_the_loop_while_waking_is_told_or_undone(
    interlock: Any, method: str, error: type[BaseException], failures: int
) -> None:
    """A put that raises has not inserted, and a get that raises has taken nothing."""
    q = interlock.Queue(1)
    if method == "get_nowait":
        q.put_nowait("old")
    before = q.statistics()
    with waiting(q, method) as (loop, _):
        loop.error, loop.failures = error, failures
        got: Any = None
        try:
            got = q.put_nowait("new") if method == "put_nowait" else q.get_nowait()
            done = 1
        except error:
            done = 0
        after = q.statistics()
    if method == "put_nowait":
        assert after.accepted == before.accepted + done
    else:
        assert after.delivered == before.delivered + done
        assert got == ("old" if done else None)


@pytest.mark.parametrize("failures", [1])
@pytest.mark.parametrize("error", [Boom, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("method", ["put_nowait", "get_nowait"])
def test_x6_an_error_while_waking_strands_nobody(
    interlock: Any, method: str, error: type[BaseException], failures: int
) -> None:
    """Whatever becomes of the call itself, the next one finds who waits."""
    q = interlock.Queue(1)
    if method == "get_nowait":
        q.put_nowait("old")
    with waiting(q, method) as (loop, woken):
        loop.error, loop.failures = error, failures
        for _ in range(6):
            try:
                if method == "put_nowait":
                    q.put_nowait("new")
                else:
                    q.get_nowait()
            except (error, interlock.QueueFull, interlock.QueueEmpty):
                pass
            loop.failures = 0
            loop.run_until_complete(ticks(5))
        assert len(woken) == 3


def test_x2_an_error_of_one_thread_is_not_raised_in_another(interlock: Any) -> None:
    q = interlock.Queue()

    def put() -> None:
        try:
            q.put_nowait(1)
        except Boom:
            pass

    with waiting(q, "put_nowait") as (loop, _):
        loop.failures = 1
        try:
            in_threads(put)
            for _ in range(1000):
                pass
        except Boom:
            pytest.fail("the main thread has got another thread's error")


def test_x1_another_loop_run_inside_a_task_that_was_woken_here(interlock: Any) -> None:
    """As nest_asyncio allows it: its waits are its own, not those of the loop around it."""

    def nested(q: Any) -> Any:
        outer, task = events._get_running_loop(), asyncio.current_task()
        assert outer is not None and task is not None
        asyncio.tasks._leave_task(outer, task)
        events._set_running_loop(None)
        inner = asyncio.new_event_loop()

        async def use() -> Any:
            inner.call_later(0.01, q.put_nowait, "inner")
            return await awaited_get(q)

        try:
            return inner.run_until_complete(use())
        finally:
            inner.close()
            events._set_running_loop(outer)
            asyncio.tasks._enter_task(outer, task)

    async def awaited_get(q: Any) -> Any:
        return await q.get()

    async def main() -> Any:
        outer, inner = interlock.Queue(), interlock.Queue()

        async def work() -> Any:
            await outer.get()
            return nested(inner)

        task = asyncio.create_task(work())
        await ticks(3)
        outer.put_nowait(1)
        return await asyncio.wait_for(task, LIMIT)

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == "inner"
    finally:
        loop.close()


@pytest.mark.parametrize("hook", ["_put", "_get", "key", "__lt__"])
def test_q9_a_timeout_of_the_users_own_code_is_not_taken_for_the_queues(interlock: Any, hook: str) -> None:
    def fail(*_: Any) -> Any:
        raise asyncio.TimeoutError("the user's")

    def item() -> Any:
        return type("Item", (), {"__lt__": fail})()

    calls: dict[str, Callable[[], Any]] = {
        "_put": lambda: type("Hooked", (interlock.Queue,), {"_put": fail})().sync_q.put(1),
        "key": lambda: interlock.PriorityQueue(key=fail).sync_q.put(1),
    }
    if hook == "_get":
        q = type("Hooked", (interlock.Queue,), {"_get": fail})()
        q.put_nowait(1)
        calls["_get"] = q.sync_q.get
    elif hook == "__lt__":
        q = interlock.PriorityQueue()
        q.put_nowait(item())
        calls["__lt__"] = lambda: q.sync_q.put(item())
    with pytest.raises(asyncio.TimeoutError, match="the user's"):
        calls[hook]()
