"""W11: `on_value`."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from conftest import Run
from helpers import Recorder, assert_idle, in_threads, switching_often, ticks

variable: ContextVar[str] = ContextVar("variable", default="nobody's")


@pytest.mark.parametrize("value", [0, None, "", [], Exception("value"), (1, 2)])
def test_w11_on_value_fires_once(interlock: Any, value: Any) -> None:
    w = interlock.ValueWatcher("before")
    calls = Recorder()
    w.on_value(value, calls)
    assert w.statistics().callbacks == 1
    w.value = "other"
    assert calls.calls == []
    for _ in range(3):
        w.value = value
        w.value = "after"
    assert calls.calls == [()]
    assert_idle(w)


def test_w11_on_value_fires_at_once_if_equal_already(interlock: Any) -> None:
    w = interlock.ValueWatcher(1)
    calls = Recorder()
    w.on_value(True, calls)
    assert calls.calls == [()]
    w.value = 2
    w.value = 1
    assert calls.calls == [()]
    assert_idle(w)


def test_w11_it_fires_for_a_value_that_did_not_stay(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    values: list[int] = []
    w.on_value(1, lambda: values.append(w.value))
    w.on_change(lambda old, new: new == 1 and w.set(2) and None)
    w.value = 1
    assert values == [2]


def test_w11_a_cancelled_one_never_fires(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    calls = Recorder()
    handle = w.on_value(1, calls)
    handle.cancel()
    handle.cancel()
    w.value = 1
    assert calls.calls == [] and handle.cancelled
    assert_idle(w)


def test_w11_it_may_register_itself_again(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    calls = Recorder()

    def again() -> None:
        calls(w.value)
        if w.value == 1:
            w.value = 0
            w.on_value(1, again)

    w.on_value(1, again)
    w.value = 1
    w.value = 1
    assert calls.calls == [(1,), (1,)]


def test_w11_it_fires_once_with_threads_setting_and_registering(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    calls = [Recorder() for _ in range(300)]

    def register() -> None:
        for recorder in calls:
            w.on_value(1, recorder)

    def toggle() -> None:
        for n in range(600):
            w.value = n % 2

    with switching_often():
        in_threads(register, toggle, toggle)
    w.value = 1
    assert [len(recorder.calls) for recorder in calls] == [1] * 300
    assert_idle(w)


def test_w11_registered_without_a_loop_it_runs_in_the_setter_s_thread(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        threads: list[int] = []
        await asyncio.to_thread(w.on_value, 1, lambda: threads.append(threading.get_ident()))
        w.value = 1
        assert threads == [threading.get_ident()]

    run(main())


def test_w11_registered_in_a_loop_it_runs_there(interlock: Any, run: Run) -> None:
    """So `Event.set` is safe as a callback. It runs at once if that loop's thread sets."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        for value in range(1, 100):
            event = asyncio.Event()
            threads: list[int] = []
            w.on_value(value, event.set)
            w.on_value(value, lambda: threads.append(threading.get_ident()))  # noqa: B023
            if value % 2:
                w.value = value
                assert event.is_set()
            else:
                await asyncio.to_thread(w.set, value)
                await event.wait()
                await ticks()
            assert threads == [threading.get_ident()]
        assert_idle(w)

    run(main())


def test_w11_it_is_not_called_once_cancelled(interlock: Any, run: Run) -> None:
    """Not even if a thread has set the value, and the loop has yet to call it."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        calls = Recorder()
        handle = w.on_value(1, calls)
        in_threads(lambda: w.set(1))
        assert calls.calls == []
        handle.cancel()
        await ticks(3)
        assert calls.calls == []

    run(main())


def test_w11_after_its_loop_is_closed_it_runs_in_the_setter_s_thread(interlock: Any, run: Run) -> None:
    w = interlock.ValueWatcher(0)
    calls = Recorder()

    async def main() -> None:
        w.on_value(1, calls)

    run(main())
    w.value = 1
    assert calls.calls == [()]
