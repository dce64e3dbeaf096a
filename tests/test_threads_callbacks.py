"""Callbacks and predicates in a storm: one order, no deadlock, nobody else harmed (W7, W9, W10, X5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from conftest import Run
from storm import LIMIT, assert_chains, kinds, run_on, together


def test_w9_callbacks_that_set_each_others_watcher_do_not_deadlock(interlock: Any) -> None:
    left, right = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
    pairs: dict[Any, list[tuple[int, int]]] = {left: [], right: []}

    def follow(one: Any, other: Any) -> None:
        def callback(old: int, new: int) -> None:
            pairs[one].append((old, new))
            # Never back, so that it ends; the other way round it goes on for ever.
            other.update(lambda value: max(value, new))

        one.on_change(callback)

    follow(left, right)
    follow(right, left)

    def setter(w: Any) -> Callable[[], object]:
        return lambda: [w.update(lambda value: value + 1) for _ in range(200)]

    together(setter(left), setter(right), setter(left), setter(right))
    assert left.value == right.value
    for w, seen in pairs.items():
        assert len(seen) == w.version
        assert_chains(seen)
        assert seen[-1][1] == w.value


def test_w9_sets_in_callbacks_keep_one_order_for_all(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    first: list[tuple[Any, Any]] = []
    last: list[tuple[Any, Any]] = []
    s = w.watch()
    w.on_change(lambda *pair: first.append(pair))
    # Each outer set is answered by one more from within.
    w.on_change(lambda old, new: w.update(lambda value: value + 1) if new % 2 else None)
    w.on_change(lambda *pair: last.append(pair))

    def setter() -> None:
        for _ in range(200):
            w.update(lambda value: value + 2 - value % 2 - 1 if value % 2 == 0 else value + 2)

    together(*[setter] * 4)
    assert first == last
    assert len(first) == w.version
    assert_chains(first)
    assert first[-1][1] == w.value
    assert [s.get_nowait() for _ in range(s.pending)] == first


@kinds
def test_w10_coroutine_callbacks_run_for_every_transition_from_any_thread(interlock: Any, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        loop, seen = asyncio.get_running_loop(), []
        done = asyncio.Event()

        async def callback(old: int, new: int) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append((old, new))
            if len(seen) == 800:
                done.set()

        w.on_change(callback)

        def setter() -> None:
            for _ in range(200):
                w.update(lambda number: number + 1)

        await loop.run_in_executor(None, together, *[setter] * 4)
        await done.wait()
        assert seen == [(number, number + 1) for number in range(800)]

    run_on(kind, main())


def test_x5_a_predicate_may_set_the_value_that_it_is_asked_about(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)

        def predicate(value: int) -> bool:
            if value < 3:
                w.value = value + 1
            return value >= 3

        assert await w.wait_until(predicate, timeout=LIMIT) == 3

    run(main())


def test_w7_a_predicate_is_asked_while_others_set(interlock: Any) -> None:
    """Being registered and being asked about a transition meet, and neither may fail the wait."""
    w = interlock.ValueWatcher(0)

    def waiter() -> None:
        for _ in range(300):
            above = w.value + 2
            assert w.sync.wait_until(lambda value: sum(range(50)) and value >= above, timeout=LIMIT) >= above  # noqa: B023

    together(waiter, waiter, meanwhile=[lambda: w.update(lambda number: number + 1)] * 2)
