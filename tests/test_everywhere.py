"""X1, X2, X9, X10 and X3: any loop, any thread, any value, any asyncio construct."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from conftest import Run
from constructs import CASES, CONSTRUCTS, RUNNERS, Case, Wait, plain_await
from helpers import LIMIT, assert_idle, handles_counted, in_threads, ticks
from queues import KINDS, make


@pytest.mark.parametrize("how", CONSTRUCTS)
def test_x10_every_construct_takes_every_waiting_call(interlock: Any, run: Run, how: str) -> None:
    async def main() -> None:
        for name, case in CASES.items():
            expected = None if how == "anyio_start_soon" else case.result
            # Waited for, and there already at the await.
            subject = case.make(interlock)
            serving = asyncio.ensure_future(serve_after_ticks(case, subject))
            assert await CONSTRUCTS[how](case.call(subject)) == expected, name
            await serving
            subject = case.make(interlock)
            wait = case.call(subject)
            case.serve(subject)
            assert await CONSTRUCTS[how](wait) == expected, name

    run(main())


async def serve_after_ticks(case: Case, subject: Any) -> None:
    await ticks(4)
    case.serve(subject)


# In these, what waits is a task of its own that is not cancelled with who waits for it.
APART = ("shield", "wait_for_shielded", "as_completed", "threadsafe", "wait_first_completed")


@pytest.mark.parametrize("how", CONSTRUCTS)
def test_x10_every_construct_can_be_cancelled(interlock: Any, run: Run, how: str) -> None:
    async def main() -> None:
        subjects = [(case, case.make(interlock)) for case in CASES.values()]
        tasks = [asyncio.ensure_future(CONSTRUCTS[how](case.call(subject))) for case, subject in subjects]
        await ticks(4)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        if how in APART:
            for case, subject in subjects:
                case.serve(subject)
        del task, tasks
        await ticks(6)
        gc.collect()
        for case, subject in subjects:
            assert case.waiting(subject) == 0
            if isinstance(subject, interlock.ValueWatcher):
                assert_idle(subject)

    run(main())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("how", RUNNERS)
def test_x10_every_runner_takes_every_waiting_call(interlock: Any, how: str, name: str) -> None:
    case = CASES[name]
    subject = case.make(interlock)
    wait = case.call(subject)
    case.serve(subject)
    assert RUNNERS[how](wait) == case.result
    # And waits for what a thread brings.
    subject = case.make(interlock)
    ended = threading.Event()

    def serves() -> None:
        while not case.waiting(subject):
            ended.wait(0.001)
        case.serve(subject)

    thread = threading.Thread(target=serves)
    wait = case.call(subject)
    thread.start()
    assert RUNNERS[how](wait) == case.result
    thread.join(LIMIT)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", CASES)
def test_x10_single_use(interlock: Any, run: Run, name: str) -> None:
    case = CASES[name]

    async def main() -> None:
        subject = case.make(interlock)
        wait = case.call(subject)
        case.serve(subject)
        assert await wait == case.result
        before = repr(subject)
        for again in (plain_await, asyncio.create_task):
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await again(wait)
        closed = case.call(subject)
        closed.close()
        closed.close()
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await closed
        assert repr(subject) == before
        # Two at once.
        wait = case.call(case.make(interlock))
        task = asyncio.create_task(wait)
        await ticks(2)
        with pytest.raises(RuntimeError, match=r"being awaited already|already executing"):
            await wait
        assert not task.done()
        task.cancel()

    run(main())


@pytest.mark.parametrize("name", CASES)
def test_x10_never_awaited_warns_and_unregisters(interlock: Any, name: str) -> None:
    case = CASES[name]
    subject = case.make(interlock)
    before = repr(subject)
    wait = case.call(subject)
    with pytest.warns(RuntimeWarning, match=rf"coroutine '{case.qualname}' was never awaited"):
        del wait
        gc.collect()
    assert case.waiting(subject) == 0
    assert repr(subject) == before


@pytest.mark.parametrize("name", CASES)
def test_x10_they_look_like_coroutines(interlock: Any, name: str) -> None:
    case = CASES[name]
    wait: Any = case.call(case.make(interlock))
    assert [asyncio.iscoroutine(wait), isinstance(wait, Coroutine), asyncio.isfuture(wait)] == [True, True, False]
    assert [wait.__qualname__, wait.__name__] == [case.qualname, case.qualname.rpartition(".")[2]]
    assert "coroutine" in repr(wait) and wait.__qualname__ in repr(wait)
    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        wait.send(1)
    with pytest.raises(RuntimeError, match="loop"):
        wait.send(None)
    thrown = case.call(case.make(interlock))
    with pytest.raises(LookupError, match="thrown"):
        thrown.throw(LookupError("thrown"))
    with pytest.raises(RuntimeError, match="cannot reuse"):
        thrown.send(None)


VALUES: list[Any] = [None, 0, "", [], (), (1, 2), {}, False, ..., ValueError("value"), ValueError, BaseException()]
VALUES += [StopIteration(1), StopIteration, StopAsyncIteration(), asyncio.CancelledError(), asyncio.TimeoutError]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_x9_any_value_is_ordinary(interlock: Any, run: Run, value: Any) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher("before")
        subscription = w.watch()
        calls: list[Any] = []
        w.on_change(lambda old, new: calls.append((old, new)))
        waits = [
            w.wait_for(value),
            w.wait_for_not("before"),
            w.wait_until(lambda found: found is value),
            w.wait_for_change(),
        ]
        tasks = [asyncio.create_task(wait) for wait in waits[:2]]
        reader = asyncio.create_task(anext(subscription))
        blocked = asyncio.ensure_future(asyncio.to_thread(w.sync.wait_for, value, timeout=LIMIT))
        while w.statistics().waiters < 5:
            await ticks()
        w.value = value
        assert w.value is value
        assert await tasks[0] is value and await tasks[1] is value
        assert await waits[2] is value and await waits[3] is value
        assert await blocked is value
        old, new = await reader
        assert (old, new) == ("before", value) and new is value
        assert await w.wait_for(value) is value
        w.value = "after"
        assert subscription.get_nowait()[0] is value
        assert w.update(lambda _: value) is value
        assert w.set_if("end", lambda found: found is value)
        assert calls == [("before", value), (value, "after"), ("after", value), (value, "end")]

    run(main())


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_x9_any_item_is_ordinary(interlock: Any, run: Run, value: Any) -> None:
    async def main() -> None:
        for kind in KINDS:
            q = make(interlock, kind)
            get = asyncio.create_task(q.get())
            await ticks(2)
            q.put_nowait(value)
            assert await get is value
            await q.put(value)
            assert q.get_nowait() is value
            q.sync_q.put(value)
            assert await anext(q) is value
            q.put_nowait(value)
            assert (await asyncio.to_thread(lambda: [q.sync_q.get()]))[0] is value  # noqa: B023
            q.put_nowait(value)
            (dropped,) = q.abort()
            assert dropped is value

    run(main())


def test_x1_made_at_import_and_used_from_one_loop_after_another(interlock: Any, run: Run) -> None:
    """S26."""
    w = interlock.ValueWatcher(0)
    subscription = w.watch()
    waiting_since = [w.wait_for(n) for n in range(1, 4)]

    async def use(n: int) -> None:
        asyncio.get_running_loop().call_soon(w.set, n)
        assert await subscription.get() == (n - 1, n)
        assert await waiting_since[n - 1] == n
        assert await w.wait_for(n) == n

    for n in range(1, 4):
        run(use(n))
    assert w.statistics().waiters == 0


def test_x1_several_loops_in_several_threads_at_once(interlock: Any) -> None:
    """S27: each waits for what the others set; X2: each is resumed in its own thread."""
    w = interlock.ValueWatcher(0)
    loops = 4

    def in_loop(number: int) -> Callable[[], list[Any]]:
        async def main(subscription: Any) -> list[Any]:
            thread, loop = threading.get_ident(), asyncio.get_running_loop()
            for n in range(number, 40, loops):
                await w.wait_for(n, timeout=LIMIT)
                assert threading.get_ident() == thread and asyncio.get_running_loop() is loop
                w.value = n + 1
            return [await subscription.get(LIMIT) for _ in range(40)]

        subscription = w.watch()
        return lambda: asyncio.run(main(subscription), debug=True)

    pairs = in_threads(*map(in_loop, range(loops)))
    assert pairs == [[(n, n + 1) for n in range(40)]] * loops


def test_x2_every_method_from_any_thread(interlock: Any, run: Run) -> None:
    """S28: silent under debug mode."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        thread = threading.get_ident()
        resumed: list[int] = []

        async def wait(coroutine: Wait) -> None:
            await coroutine
            resumed.append(threading.get_ident())

        subscription, closing = w.watch(), w.watch()
        coroutines = await asyncio.to_thread(lambda: [w.wait_for(3), w.wait_for_change(), subscription.get()])
        tasks = [asyncio.create_task(wait(coroutine)) for coroutine in coroutines]
        end = asyncio.create_task(closing.get())
        await ticks(2)

        def work() -> None:
            # Before the first set, which the loop's thread may read at once without a GIL.
            closing.close()
            w.set(1)
            w.value = 2
            assert w.set_if(3, lambda n: n == 2) and w.update(lambda n: n + 1) == 4
            handle = w.on_change(lambda old, new: None)
            handle.cancel()
            assert w.watch(initial=True).get_nowait() == (4, 4)
            assert subscription.pending >= 3

        await asyncio.to_thread(work)
        await asyncio.gather(*tasks)
        with pytest.raises(interlock.WatcherClosed):
            await end
        assert resumed == [thread] * 3
        pending = asyncio.create_task(w.wait_for(99))
        await ticks(2)
        await asyncio.to_thread(w.close)
        with pytest.raises(interlock.WatcherClosed):
            await pending

    run(main())


@pytest.mark.parametrize("where", ["task", "thread", "callback"])
def test_x3_a_burst_is_one_handle_in_each_loop(interlock: Any, run: Run, where: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watchers = [interlock.ValueWatcher(0) for _ in range(10)]
        tasks = [
            asyncio.ensure_future(wait)
            for w in watchers
            for wait in (w.wait_for(1), w.wait_until(bool), w.wait_for_change(), w.watch().get(), anext(w.watch()))
        ]
        await ticks(2)

        def burst() -> None:
            for value in (1, 2, 3):
                for w in watchers:
                    w.value = value
            watchers[0].close()
            in_burst.append(len(scheduled))

        in_burst: list[int] = []
        with handles_counted(loop) as scheduled:
            if where == "task":
                burst()
            elif where == "thread":
                in_threads(burst)
            else:
                loop.call_later(0, burst)
            await asyncio.wait(tasks)
        assert in_burst == [1]

    run(main())
