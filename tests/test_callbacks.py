"""W9, W10 and X13: `on_change`, its order, its handle and its context."""

from __future__ import annotations

import asyncio
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


def test_w9_two_watchers_that_set_each_other_never_deadlock(interlock: Any) -> None:
    """X5, S50."""
    left, right = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
    # Upwards only, or two values could chase each other for ever.
    left.on_change(lambda old, new: right.update(lambda n: max(n, new)) and None)
    right.on_change(lambda old, new: left.update(lambda n: max(n, new)) and None)

    def work(w: Any) -> Callable[[], None]:
        def increments() -> None:
            for _ in range(50):
                w.update(lambda n: n + 1)

        return increments

    with switching_often():
        in_threads(work(left), work(right), work(left), work(right))
    assert left.value == right.value >= 100


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


@pytest.mark.parametrize("how", ["before", "during", "by itself", "by another thread"])
def test_w10_cancel_is_idempotent_and_takes_effect_at_once(interlock: Any, how: str) -> None:
    w = interlock.ValueWatcher(0)
    calls = Recorder()
    handle: Any = None
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
    before: bool = handle.cancelled
    if how == "before":
        handle.cancel()
    w.value = 1
    assert (before, handle.cancelled) == (False, True)
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
