"""Garbage: cycles are collected, values released in time, and what runs meanwhile harms nothing (X8, S55, S56)."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from storm import new_loop, nothing_unraisable, ticks


class Value:
    """A value that can be in a cycle and be seen to go."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.held: list[Any] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and other.number == self.number

    def __hash__(self) -> int:
        return self.number

    def __lt__(self, other: Value) -> bool:
        return self.number < other.number


def through_value(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(sentinel)
    sentinel.held.append(w)


def through_replaced_value(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(sentinel)
    sentinel.held.append((w, w.watch()))
    w.value = None


def through_backlog(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(None)
    sentinel.held.append((w, w.watch(), w.watch(maxlen=2)))
    w.value = None, sentinel
    w.value = sentinel


def through_initial(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(sentinel)
    sentinel.held.append(w.watch(initial=True))


def through_latest(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(sentinel)
    sentinel.held.append((w, w.watch(maxlen=1, overflow="latest")))
    w.value = 1
    w.value = 2


def through_callback(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(0)
    w.on_change(lambda old, new: sentinel)
    w.on_value(1, lambda: sentinel)
    sentinel.held.append(w)


def through_handle(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(0)
    sentinel.held.append(w.on_change(lambda old, new: sentinel))


def through_awaited_value(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(0)
    w.on_value(sentinel, list)
    sentinel.held.append(w)


def through_equals(package: Any, sentinel: Value) -> None:
    sentinel.held.append(package.ValueWatcher(0, equals=lambda old, new: sentinel is None))


def through_error(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(0)
    error = OSError()
    error.sentinel = sentinel  # type: ignore[attr-defined]
    w.close(error)
    sentinel.held.append(w)


def through_sync_subscription(package: Any, sentinel: Value) -> None:
    w = package.ValueWatcher(sentinel)
    sentinel.held.append(w.sync.watch(initial=True))


def through_parked_coroutine(package: Any, sentinel: Value) -> None:
    async def main() -> None:
        w = package.ValueWatcher(0)
        s = w.watch()
        for coroutine in (w.wait_for(sentinel), w.wait_until(lambda v: v is sentinel), s.get(60)):
            coroutine.send(None)
            sentinel.held.append(coroutine)

    asyncio.run(main())


def through_settled_coroutine(package: Any, sentinel: Value) -> None:
    async def main() -> None:
        w = package.ValueWatcher(0)
        for coroutine in (w.wait_for(sentinel), w.wait_for_change(), w.watch().get()):
            coroutine.send(None)
            sentinel.held.append(coroutine)
        w.value = sentinel

    asyncio.run(main())


def through_lost_task(package: Any, sentinel: Value) -> None:
    """A loop that was dropped while a task of it waited."""

    async def wait(w: Any) -> Any:
        with w.watch() as s:
            await s.get()
        return sentinel

    w = package.ValueWatcher(sentinel)
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait(w))
    loop.run_until_complete(ticks(1))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    sentinel.held.append((w, task))


@pytest.mark.parametrize(
    "make",
    [
        through_value,
        through_replaced_value,
        through_backlog,
        through_initial,
        through_latest,
        through_callback,
        through_handle,
        through_awaited_value,
        through_equals,
        through_error,
        through_sync_subscription,
        through_parked_coroutine,
        through_settled_coroutine,
        through_lost_task,
    ],
    ids=lambda make: make.__name__,
)
def test_x8_a_cycle_is_collected(interlock: Any, make: Callable[[Any, Value], None]) -> None:
    assert_collected(interlock, make)


def assert_collected(package: Any, make: Callable[[Any, Value], None]) -> None:
    """What `make` has put in a cycle with a value goes with it."""
    sentinel = Value()
    make(package, sentinel)
    reference = weakref.ref(sentinel)
    del sentinel
    with nothing_unraisable():
        gc.collect()
    assert reference() is None


def test_x8_a_value_goes_when_its_last_consumer_has_passed_it(interlock: Any) -> None:
    w = interlock.ValueWatcher(None)
    slow, fast = w.watch(), w.watch()
    references = []
    for number in range(3):
        value = Value(number)
        references.append(weakref.ref(value))
        w.value = value
        del value

    def alive() -> list[bool]:
        return [reference() is not None for reference in references]

    for _ in range(3):
        fast.get_nowait()
    assert alive() == [True, True, True]
    slow.get_nowait()
    assert alive() == [True, True, True]  # the next transition's old value
    slow.get_nowait()
    assert alive() == [False, True, True]
    slow.get_nowait()
    assert alive() == [False, False, True]
    w.value = None
    fast.close()
    assert alive() == [False, False, True]
    slow.close()
    assert alive() == [False, False, False]


def test_x8_a_bounded_reader_that_fell_behind_keeps_no_more_than_its_bound(interlock: Any) -> None:
    w = interlock.ValueWatcher(None)
    bounded, latest = w.watch(maxlen=2), w.watch(maxlen=1, overflow="latest")
    references = []
    for number in range(10):
        value = Value(number)
        references.append(weakref.ref(value))
        w.value = value
        del value
    # Two transitions are three values.
    assert [reference() is not None for reference in references] == [False] * 7 + [True] * 3
    bounded.close()
    latest.close()


def test_a_long_backlog_is_dropped_without_recursion(interlock: Any) -> None:
    for leave in ("close", "drop the subscription", "drop the watcher", "read"):
        w = interlock.ValueWatcher(-1)
        s = w.watch()
        for number in range(200_000):
            w.value = number
        assert s.pending == 200_000
        if leave == "close":
            s.close()
            assert w.statistics().retained == 0
        elif leave == "drop the subscription":
            del s
            gc.collect()
            assert w.statistics().retained == 0
        elif leave == "drop the watcher":
            del s, w
            gc.collect()
        else:
            assert sum(s.get_nowait().new for _ in range(200_000)) == 199_999 * 100_000
            assert w.statistics().retained == 0


gone = pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("plain", "closed"),
        ("plain", "dropped"),
        ("plain", "dropped with its waiters on the hub"),
        ("uvloop", "closed"),  # a uvloop that is not closed never goes, whoever uses it
    ],
)


def left(wait: Coroutine[Any, Any, Any], kind: str, how: str, serve: Callable[[], object]) -> weakref.ref[Any]:
    """A loop that is gone, or may go, with a task that waits."""
    loop = new_loop(kind)
    task = loop.create_task(wait)
    loop.run_until_complete(ticks(1))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    if how == "closed":
        loop.close()
    elif how == "dropped with its waiters on the hub":
        serve()
    return weakref.ref(loop)


@gone
@pytest.mark.parametrize("wait", ["wait_for", "get"])
def test_x4_a_watcher_lets_go_of_a_loop_that_is_gone(interlock: Any, kind: str, wait: str, how: str) -> None:
    """At the latest when it next has something to tell."""
    w = interlock.ValueWatcher(0)

    async def waiting() -> None:
        if wait == "get":
            with w.watch() as s:
                async for _ in s:
                    pass
        else:
            await w.wait_for(1)

    with warnings.catch_warnings(), nothing_unraisable():
        warnings.simplefilter("ignore", ResourceWarning)
        reference = left(waiting(), kind, how, lambda: w.set(1))
        gc.collect()
        for number in range(1, 4):
            w.value = number
            gc.collect()
        assert reference() is None
    counts = w.statistics()
    assert (counts.subscriptions, counts.waiters, counts.retained) == (0, 0, 0)
