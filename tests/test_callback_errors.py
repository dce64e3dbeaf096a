"""W10: what becomes of what a callback raises, and of the coroutines it returns."""

from __future__ import annotations

import asyncio
import functools
from contextvars import ContextVar
from typing import Any

import pytest

from conftest import Run
from helpers import Recorder, assert_idle, drain, ticks

variable: ContextVar[str] = ContextVar("variable", default="nobody's")


def raising(*arguments: Any) -> None:
    raise LookupError("a callback's own failure")


def test_w10_a_callback_that_raises_stops_nobody(interlock: Any, caplog: pytest.LogCaptureFixture) -> None:
    """S51: with no loop, it is logged with its traceback."""
    w = interlock.ValueWatcher(0)
    before, after = Recorder(), Recorder()
    for callback in (before, raising, after):
        w.on_change(callback)
    w.on_value(1, raising)
    w.value = 1
    w.value = 2
    assert before.calls == after.calls == [(0, 1), (1, 2)]
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert all(record.exc_info and record.exc_info[0] is LookupError for record in caplog.records)
    assert all(record.exc_info and record.exc_info[2] for record in caplog.records)
    assert sum("on_change" in record.getMessage() for record in caplog.records) == 2
    assert sum("on_value" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "one-shot"])
def test_w10_its_error_goes_to_the_loop_where_it_was_registered(
    interlock: Any, run: Run, caplog: pytest.LogCaptureFixture, where: str, kind: str
) -> None:
    async def raising_coroutine(*arguments: Any) -> None:
        raising()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        handled: asyncio.Future[dict[str, Any]] = loop.create_future()
        usual = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, details: handled.set_result(details))
        w = interlock.ValueWatcher(0)
        if kind == "one-shot":
            w.on_value(1, raising)
        else:
            w.on_change(raising if kind == "plain" else raising_coroutine)
        if where == "loop":
            w.value = 1
        else:
            await asyncio.to_thread(w.set, 1)
        found = await handled
        assert isinstance(found["exception"], LookupError)
        assert found["exception"].__traceback__ is not None
        assert "on_" in found["message"]
        loop.set_exception_handler(usual)

    run(main())
    assert caplog.records == []


def test_w10_after_its_loop_is_closed_an_error_is_logged(
    interlock: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    w = interlock.ValueWatcher(0)

    async def main() -> None:
        w.on_change(raising)

    run(main())
    w.value = 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_w10_an_interrupt_reaches_the_setter_after_all_are_called(interlock: Any) -> None:
    def interrupted(old: int, new: int) -> None:
        raise KeyboardInterrupt

    w = interlock.ValueWatcher(0)
    after = Recorder()
    w.on_change(interrupted)
    w.on_change(after)
    subscription = w.watch()
    with pytest.raises(KeyboardInterrupt):
        w.value = 1
    assert after.calls == drain(subscription) == [(0, 1)]


@pytest.mark.parametrize("where", ["loop", "thread"])
def test_w10_coroutine_functions_run_as_tasks_on_their_loop(interlock: Any, run: Run, where: str) -> None:
    async def main() -> None:
        loop, calls, done = asyncio.get_running_loop(), Recorder(), asyncio.Event()

        async def ran(*arguments: Any) -> None:
            await ticks()
            assert asyncio.get_running_loop() is loop and asyncio.current_task()
            calls(*arguments)
            if len(calls.calls) == 5 * 3 + 1:
                done.set()

        class AsyncCallable:
            async def __call__(self, old: int, new: int) -> None:
                await ran(old, new)

        w = interlock.ValueWatcher(0)
        functions: list[Any] = [ran, AsyncCallable(), functools.partial(ran, "partial")]
        # Plain functions that return what is to be awaited.
        functions += [lambda old, new: ran(old, new), lambda old, new: ran("lambda")]
        for function in functions:
            w.on_change(function)
        w.on_value(2, ran)

        def set_all() -> None:
            for value in (1, 2, 3):
                w.value = value

        if where == "loop":
            set_all()
        else:
            await asyncio.to_thread(set_all)
        await done.wait()
        assert sorted(calls.calls, key=repr) == sorted(
            [
                *[(0, 1), (1, 2), (2, 3)] * 3,
                *[("partial", 0, 1), ("partial", 1, 2), ("partial", 2, 3)],
                *[("lambda",)] * 3,
                (),
            ],
            key=repr,
        )

    run(main())


def test_w10_a_callback_may_return_a_wait(interlock: Any, run: Run) -> None:
    """What a wait returns is a coroutine to asyncio (X10), so it is run like any other."""

    async def main() -> None:
        w, other = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
        waits: list[Any] = []

        def callback(old: int, new: int) -> Any:
            waits.append(None)
            return other.wait_for(1)

        w.on_change(callback)
        w.value = 1
        await ticks(3)
        assert other.statistics().waiters == 1
        other.value = 1
        await ticks(3)
        assert_idle(other)

    run(main())


def test_w10_a_coroutine_with_no_loop_is_an_error_of_the_callback(
    interlock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def coroutine() -> None: ...

    w = interlock.ValueWatcher(0)
    w.on_change(lambda old, new: coroutine())
    w.value = 1
    assert "loop" in caplog.text


def test_w10_coroutine_callbacks_of_a_closed_loop_are_dropped(interlock: Any, run: Run) -> None:
    """X4, also with what was pending when it closed."""
    w = interlock.ValueWatcher(0)
    called = Recorder()

    async def callback(old: int, new: int) -> None:
        called(old, new)

    async def main() -> None:
        w.on_change(callback)
        w.on_change(lambda old, new: callback(old, new))
        w.on_value(5, callback)

    run(main())
    w.value = 5
    w.value = 6
    assert called.calls == []
