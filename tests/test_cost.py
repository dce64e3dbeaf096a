"""W15 and X8: what a set costs is counted, not timed, and what nobody needs is let go."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import WAITING, Counted, assert_idle, awaited, drain, in_threads, ticks


class Value:
    """Something to hold a weak reference to."""


def watched(*values: Any) -> list[weakref.ref[Any]]:
    return [weakref.ref(value) for value in values]


def test_w15_waiters_for_other_values_are_not_compared(interlock: Any) -> None:
    w = interlock.ValueWatcher(Counted(-1))
    waits = [w.wait_for(Counted(n), immediate=False) for n in range(1000)]
    handles = [w.on_value(Counted(n), print) for n in range(1000, 2000)]
    Counted.reset()
    w.value = Counted(-2)
    # The old value with the new one; the new one is hashed for each index.
    assert Counted.comparisons == 1
    assert Counted.hashes <= 2
    Counted.reset()
    for wait in waits:
        wait.close()
    for handle in handles:
        handle.cancel()
    assert (Counted.comparisons, Counted.hashes) == (0, 0)
    assert_idle(w)


def test_w15_equal_hashes_are_told_apart(interlock: Any, run: Run) -> None:
    """-1 and -2 have one hash."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        first, second = w.wait_for(-1), w.wait_for(-2)
        w.value = -2
        assert await second == -2
        assert w.statistics().waiters == 1
        w.value = -1
        assert await first == -1

    run(main())


def test_w15_idle_subscriptions_cost_a_set_nothing(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(Counted(0))
        with w.watch():
            alone = allocated(lambda: w.set(Counted(1)))
            idle = [w.watch() for _ in range(1000)]
            Counted.reset()
            among_many = allocated(lambda: w.set(Counted(2)))
            assert Counted.comparisons == 1
            assert Counted.hashes == 0
        assert among_many < alone + 1000
        for subscription in idle:
            subscription.close()
        assert_idle(w)

    run(main())


def allocated(function: Callable[[], object]) -> int:
    """The most memory it has taken at one moment, in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_w15_one_log_for_all(interlock: Any) -> None:
    """Memory per transition does not grow with the number of subscriptions."""
    w = interlock.ValueWatcher(0)

    def backlog() -> None:
        for _ in range(500):
            w.update(lambda n: n + 1)

    with w.watch():
        alone = allocated(backlog)
    idle = [w.watch() for _ in range(200)]
    shared = allocated(backlog)
    assert w.statistics().retained == 500
    assert shared < 2 * alone + 10_000
    assert [subscription.pending for subscription in idle] == [500] * 200


def test_w15_what_all_have_passed_is_freed(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    fast, slow = w.watch(), w.watch()
    for value in range(1, 11):
        w.value = value
    assert w.statistics().retained == 10
    drain(fast)
    assert w.statistics().retained == 10
    for left in range(9, -1, -1):
        slow.get_nowait()
        assert w.statistics().retained == left
    w.value = 11
    assert w.statistics().retained == 1
    slow.close()
    fast.close()
    assert_idle(w)


def test_w15_a_dropped_subscription_holds_nothing_back(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.watch()
    w.value = 1
    del subscription
    gc.collect()
    assert_idle(w)


def test_w15_nothing_is_retained_for_nobody(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    for value in range(1, 1000):
        w.value = value
    assert w.statistics().retained == 0


@pytest.mark.parametrize("maxlen", [1, 3])
@pytest.mark.parametrize("overflow", ["error", "latest"])
def test_w15_a_bounded_subscription_retains_its_bound_at_most(interlock: Any, maxlen: int, overflow: str) -> None:
    w = interlock.ValueWatcher(Value())
    subscription = w.watch(maxlen=maxlen, overflow=overflow)
    passed = []
    for _ in range(50):
        value = Value()
        passed.append(weakref.ref(value))
        w.value = value
        assert w.statistics().retained <= maxlen
        assert subscription.pending <= maxlen
    del value
    gc.collect()
    # The bound, and the value before it.
    assert sum(reference() is not None for reference in passed) <= maxlen + 1
    subscription.close()


def test_x8_an_old_value_is_released_at_once(interlock: Any) -> None:
    first, second = Value(), Value()
    references = watched(first, second)
    w = interlock.ValueWatcher(first)
    del first
    w.value = second
    del second
    gc.collect()
    assert [reference() is None for reference in references] == [True, False]
    w.value = None
    gc.collect()
    assert references[1]() is None


def test_x8_values_are_released_as_the_last_consumer_passes(interlock: Any) -> None:
    w = interlock.ValueWatcher(None)
    subscriptions = [w.watch(), w.watch()]
    references = []
    for _ in range(5):
        value = Value()
        references.append(weakref.ref(value))
        w.value = value
    del value
    drain(subscriptions[0])
    for passed in range(5):
        gc.collect()
        # The value passed last is the `old` of the next pair.
        assert [n for n, reference in enumerate(references) if reference() is None] == list(range(passed - 1))
        subscriptions[1].get_nowait()
    w.value = None
    for subscription in subscriptions:
        drain(subscription)
    gc.collect()
    assert not any(reference() for reference in references)


@pytest.mark.parametrize("how", ["satisfied", "timeout", "cancelled", "closed", "never awaited", "watcher closed"])
def test_x8_a_wait_releases_what_it_waited_for(interlock: Any, run: Run, how: str) -> None:
    class Predicate:
        def __call__(self, value: Any) -> bool:
            return isinstance(value, Value)

    async def wait_and_end(w: Any, waits: list[Any], operand: Value) -> None:
        if how == "never awaited":
            with pytest.warns(RuntimeWarning, match="never awaited"):
                waits.clear()
                gc.collect()
            return
        if how == "closed":
            for wait in waits:
                wait.close()
            return
        tasks = [asyncio.create_task(wait) for wait in waits]
        await ticks(2)
        if how == "satisfied":
            w.value = operand
            w.value = None
        elif how == "cancelled":
            for task in tasks:
                task.cancel()
        elif how == "watcher closed":
            w.close()
        await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled() or task.exception() is None or how in ("timeout", "watcher closed")

    async def main() -> None:
        w = interlock.ValueWatcher(None)
        operand, predicate = Value(), Predicate()
        references = watched(operand, predicate)
        timeout = 0.001 if how == "timeout" else None
        waits = [w.wait_for(operand, timeout=timeout), w.wait_until(predicate, timeout=timeout)]
        await wait_and_end(w, waits, operand)
        del operand, predicate, waits
        # The handle that resumed this task still holds what woke it.
        await ticks()
        gc.collect()
        assert [reference() for reference in references] == [None, None]
        assert w.statistics().waiters == 0

    run(main())


@pytest.mark.parametrize("name", WAITING)
def test_x8_a_cancelled_wait_costs_later_sets_nothing(interlock: Any, run: Run, name: str) -> None:
    """X6."""

    async def main() -> None:
        w = interlock.ValueWatcher(None)
        tasks = [asyncio.create_task(WAITING[name](w)) for _ in range(100)]
        await ticks(2)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.wait(tasks[1:])
        assert w.statistics().waiters <= 1
        w.value = 1
        assert await tasks[0] == awaited(name)
        # What the tasks raised keeps the frames of a pure subscription's reads.
        del task, tasks
        await ticks()
        gc.collect()
        assert_idle(w)

    run(main())


def test_x8_a_fired_or_cancelled_callback_is_released(interlock: Any) -> None:
    class Function:
        def __call__(self, *arguments: Any) -> None: ...

    w = interlock.ValueWatcher(0)
    functions = [Function() for _ in range(4)]
    references = watched(*functions)
    handles = [
        w.on_value(1, functions[0]),
        w.on_value(0, functions[1]),
        w.on_value(2, functions[2]),
        w.on_change(functions[3]),
    ]
    w.value = 1
    handles[2].cancel()
    handles[3].cancel()
    del functions
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    assert_idle(w)


def test_x8_a_closed_watcher_releases_its_callbacks(interlock: Any) -> None:
    class Function:
        def __call__(self, *arguments: Any) -> None: ...

    w = interlock.ValueWatcher(0)
    functions = [Function(), Function()]
    references = watched(*functions)
    handles = [w.on_change(functions[0]), w.on_value(1, functions[1])]
    w.close()
    del functions
    assert w.statistics().callbacks == 0
    del handles
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_w15_leaving_is_clean_from_any_thread(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)

    def come_and_go() -> None:
        for n in range(200):
            waits = [w.wait_for(n + 1), w.wait_for_not(w.value), w.wait_until(lambda _: False)]
            with w.watch(), w.watch(maxlen=1):
                w.value = -n
            for wait in waits:
                wait.close()

    in_threads(*[come_and_go] * 4)
    assert_idle(w)
