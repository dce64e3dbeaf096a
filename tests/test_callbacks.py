"""W9 to W11 and X13: `on_change` and `on_value`."""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from conftest import Run
from helpers import LIMIT, Recorder, assert_chain, assert_idle, drain, in_threads, switching_often, ticks

variable: ContextVar[str] = ContextVar("variable", default="nobody's")


def raising(*arguments: Any) -> None:
    raise LookupError("a callback's own failure")


def test_w9_callbacks_run_in_the_setter_s_thread(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        threads: list[int] = []
        w.on_change(lambda old, new: threads.append(threading.get_ident()))
        w.value = 1
        setter = await asyncio.to_thread(lambda: w.set(2) or threading.get_ident())
        assert threads == [threading.get_ident(), setter]

    run(main())


def test_w9_each_transition_goes_to_all_before_the_next(interlock: Any) -> None:
    """S41: a set made inside a callback is queued."""
    w = interlock.ValueWatcher(0)
    calls: list[Any] = []
    subscription = w.watch()

    def sets(old: int, new: int) -> None:
        calls.append(("first", old, new))
        if new < 3:
            w.value = new + 1
            # Whoever looks at the value sees it; whoever is called sees the order.
            assert w.value == new + 1

    w.on_change(sets)
    w.on_change(lambda old, new: calls.append(("second", old, new)))
    w.on_value(2, lambda: calls.append("two"))
    w.value = 1
    assert calls == [
        *[("first", 0, 1), ("second", 0, 1)],
        *[("first", 1, 2), ("second", 1, 2), "two"],
        *[("first", 2, 3), ("second", 2, 3)],
    ]
    assert drain(subscription) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.timeout(60)
def test_w9_sets_in_callbacks_do_not_recurse(interlock: Any) -> None:
    """S41: 5,000 increments at the normal recursion limit, directly and from one watcher to another."""
    assert sys.getrecursionlimit() < 5000
    w = interlock.ValueWatcher(0)
    w.on_change(lambda old, new: new < 5000 and w.set(new + 1) and None)
    w.value = 1
    assert w.value == 5000
    ping, pong = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
    ping.on_change(lambda old, new: pong.set(new))
    pong.on_change(lambda old, new: new < 5000 and ping.set(new + 1) and None)
    ping.value = 1
    assert (ping.value, pong.value) == (5000, 5000)


@pytest.mark.timeout(60)
def test_w9_two_watchers_that_set_each_other_never_deadlock(interlock: Any) -> None:
    """X5, S50."""
    left, right = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
    # Upwards only, or two values could chase each other for ever.
    left.on_change(lambda old, new: right.update(lambda n: max(n, new)) and None)
    right.on_change(lambda old, new: left.update(lambda n: max(n, new)) and None)

    def work(w: Any) -> Callable[[], None]:
        return lambda: [w.update(lambda n: n + 1) for _ in range(50)] and None

    with switching_often():
        in_threads(work(left), work(right), work(left), work(right))
    assert left.value == right.value >= 100


@pytest.mark.timeout(60)
def test_w9_a_setter_does_not_wait_for_another_thread_s_dispatch(interlock: Any) -> None:
    """And a slow callback delays neither waits nor subscriptions."""
    w = interlock.ValueWatcher(0)
    entered, leave = threading.Event(), threading.Event()
    calls = Recorder()

    def slow(old: int, new: int) -> None:
        calls(old, new)
        entered.set()
        assert leave.wait(LIMIT)

    w.on_change(slow)
    subscription = w.watch()

    def other() -> Any:
        assert entered.wait(LIMIT)
        w.value = 2
        assert calls.calls == [(0, 1)]
        assert w.sync.wait_for(2, timeout=LIMIT) == 2
        assert drain(subscription) == [(0, 1), (1, 2)]
        leave.set()

    in_threads(lambda: w.set(1), other)
    assert calls.calls == [(0, 1), (1, 2)]


def test_w9_a_callback_sees_what_follows_its_registration(interlock: Any) -> None:
    w = interlock.ValueWatcher(0, on_change=(first := Recorder()))
    late = Recorder()

    def registers(old: int, new: int) -> None:
        if new == 1:
            w.value = 2
            w.on_change(late)
            w.value = 3

    w.on_change(registers)
    w.value = 1
    assert first.calls == [(0, 1), (1, 2), (2, 3)]
    assert late.calls == [(2, 3)]


def test_w9_callbacks_added_and_removed_by_threads_see_chains(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)

    def listens() -> None:
        for _ in range(100):
            calls = Recorder()
            handle = w.on_change(calls)
            w.update(lambda n: n + 1)
            handle.cancel()
            seen = list(calls.calls)
            if seen:
                assert_chain(seen, seen[0][0], seen[-1][1])

    with switching_often():
        in_threads(*[listens] * 4)
    assert w.value == 400
    assert_idle(w)


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
        loop, details = asyncio.get_running_loop(), Recorder()
        handled = asyncio.Event()
        usual = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, found: details(found) or handled.set())
        w = interlock.ValueWatcher(0)
        if kind == "one-shot":
            w.on_value(1, raising)
        else:
            w.on_change(raising if kind == "plain" else raising_coroutine)
        if where == "loop":
            w.value = 1
        else:
            await asyncio.to_thread(w.set, 1)
        await handled.wait()
        [(found,)] = details.calls
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
    class Callable_:
        async def __call__(self, old: int, new: int) -> None:
            await ran(old, new)

    async def main() -> None:
        loop, calls, done = asyncio.get_running_loop(), Recorder(), asyncio.Event()
        nonlocal ran

        async def ran(*arguments: Any) -> None:
            await ticks()
            assert asyncio.get_running_loop() is loop and asyncio.current_task()
            calls(*arguments)
            if len(calls.calls) == 5 * 3 + 1:
                done.set()

        w = interlock.ValueWatcher(0)
        functions: list[Any] = [ran, Callable_(), functools.partial(ran, "partial")]
        # Plain functions that return what is to be awaited.
        functions += [lambda old, new: ran(old, new), lambda old, new: ran("lambda")]
        for function in functions:
            w.on_change(function)
        w.on_value(2, ran)
        set_all = lambda: [w.set(n) for n in (1, 2, 3)]
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

    ran: Any = None
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


@pytest.mark.parametrize("how", ["before", "during", "by itself", "by another thread"])
def test_w10_cancel_is_idempotent_and_takes_effect_at_once(interlock: Any, how: str) -> None:
    w = interlock.ValueWatcher(0)
    calls = Recorder()
    if how == "during":
        w.on_change(lambda old, new: handle.cancel())
    elif how == "by another thread":
        w.on_change(lambda old, new: in_threads(lambda: handle.cancel()) and None)

    def callback(old: int, new: int) -> None:
        calls(old, new)
        if how == "by itself":
            w.value = 2
            handle.cancel()

    handle = w.on_change(callback)
    assert handle.cancelled is False
    if how == "before":
        handle.cancel()
    w.value = 1
    assert handle.cancelled is True
    handle.cancel()
    w.value = 3
    assert calls.calls == ([(0, 1)] if how == "by itself" else [])


def test_w10_a_registration_is_one_of_its_own(interlock: Any) -> None:
    """One function registered twice is called twice, and cancelled once by once."""
    w = interlock.ValueWatcher(0)
    calls = Recorder()
    handles = [w.on_change(calls), w.on_change(calls)]
    w.value = 1
    handles[0].cancel()
    w.value = 2
    assert calls.calls == [(0, 1), (0, 1), (1, 2)]


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


def test_w12_after_the_last_transition_callbacks_are_dropped(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    calls, never = Recorder(), Recorder()

    def closes(old: int, new: int) -> None:
        if new == 1:
            w.value = 2
            w.close()

    w.on_change(closes)
    w.on_change(calls)
    w.on_value(9, never)
    w.value = 1
    # What was set before the close is still dispatched.
    assert calls.calls == [(0, 1), (1, 2)]
    late = w.on_change(never)
    w.on_value(3, never)
    assert w.statistics().callbacks == 0
    late.cancel()
    w.on_value(2, calls)
    assert calls.calls[2:] == [()]
    assert never.calls == []


def test_x13_callbacks_run_in_the_context_of_their_registration(interlock: Any, run: Run) -> None:
    """S53."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        seen: list[str] = []
        tasks_done = asyncio.Event()

        def look(*arguments: Any) -> None:
            seen.append(variable.get())
            variable.set("a callback's")

        async def look_in_task(old: int, new: int) -> None:
            look()
            tasks_done.set()

        variable.set("registration's")
        w.on_change(look)
        w.on_change(look_in_task)
        w.on_value(1, look)
        wait = w.wait_until(look, immediate=False)
        variable.set("setter's")

        def sets() -> None:
            variable.set("thread's")
            w.value = 1
            assert variable.get() == "thread's"

        await asyncio.to_thread(sets)
        await tasks_done.wait()
        # The tasks start in a copy of the context, in which the plain callback has set nothing.
        assert seen == ["registration's"] * 4
        assert variable.get() == "setter's"
        wait.close()

    run(main())


def test_x13_a_consumer_resumes_in_its_own_context(interlock: Any, run: Run) -> None:
    async def consume(w: Any, name: str) -> str:
        variable.set(name)
        await w.wait_for(1)
        return variable.get()

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        tasks = [asyncio.create_task(consume(w, name)) for name in "abc"]
        await ticks(2)
        variable.set("setter's")
        w.value = 1
        assert await asyncio.gather(*tasks) == ["a", "b", "c"]
        assert variable.get() == "setter's"

    run(main())


def test_x13_a_setter_s_context_is_kept_by_nobody(interlock: Any, run: Run) -> None:
    class Held: ...

    held: ContextVar[Any] = ContextVar("held")

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        readers = [asyncio.create_task(w.wait_for(n)) for n in (1, 99)]
        subscription = w.watch()
        await ticks(2)

        def sets() -> weakref.ref[Held]:
            held.set(value := Held())
            w.value = 1
            return weakref.ref(value)

        import contextvars

        reference = contextvars.Context().run(sets)
        gc.collect()
        assert reference() is None
        assert await readers[0] == 1
        subscription.close()
        readers[1].cancel()

    run(main())


def test_s52_the_last_arguments_are_not_kept_alive(interlock: Any) -> None:
    class Value: ...

    w = interlock.ValueWatcher(Value())
    w.on_change(lambda old, new: None)
    w.on_value(0, lambda: None)
    reference = weakref.ref(w.value)
    w.value = 1
    gc.collect()
    assert reference() is None
