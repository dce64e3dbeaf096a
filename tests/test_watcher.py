"""W1 and W3 to W6: the value, its order, and the waits. See `test_cost.py` for W15 and X8."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from conftest import Run
from helpers import (
    WAITS,
    Array,
    Recorder,
    Unequal,
    assert_chain,
    assert_idle,
    drain,
    in_threads,
    switching_often,
    ticks,
)

NAN = float("nan")


def test_w1_all_consumers_agree_on_one_order(interlock: Any) -> None:
    """S39: with several threads setting, everybody sees the same pairs, and they chain to the value."""
    w = interlock.ValueWatcher(("main", 0))
    subscription, bounded = w.watch(), w.watch(maxlen=10_000)
    callback, seen = Recorder(), []
    w.on_change(callback)
    waiting = w.wait_until(lambda value: seen.append(value), immediate=False)

    def setter(name: str) -> Callable[[], None]:
        def sets() -> None:
            for n in range(300):
                w.value = (name, n)

        return sets

    with switching_often():
        in_threads(*map(setter, "abcd"))
    pairs = drain(subscription)
    assert len(pairs) == w.version == 1200
    assert_chain(pairs, ("main", 0), w.value)
    assert drain(bounded) == pairs
    assert callback.calls == pairs
    assert seen == [new for _, new in pairs]
    for name in "abcd":
        assert [n for setter, n in seen if setter == name] == list(range(300))
    waiting.close()


def test_w1_consumers_in_a_loop_agree_while_threads_set(interlock: Any, run: Run) -> None:
    async def read(subscription: Any) -> list[Any]:
        return [pair async for pair in subscription]

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        readers = [asyncio.ensure_future(read(w.watch())) for _ in range(5)]
        await ticks()

        def add() -> None:
            for _ in range(200):
                w.update(lambda n: n + 1)

        await asyncio.to_thread(in_threads, add, add, add)
        w.close()
        expected = [(n, n + 1) for n in range(600)]
        assert await asyncio.gather(*readers) == [expected] * 5

    with switching_often():
        run(main())


@pytest.mark.parametrize("name", WAITS)
def test_w3_a_wait_counts_from_the_call(interlock: Any, run: Run, name: str) -> None:
    """Inngest's class loses the 1 here: its wait begins when the task first runs."""

    async def main() -> None:
        w = interlock.ValueWatcher(None)
        task = asyncio.create_task(WAITS[name](w))
        w.value = 1
        w.value = None
        assert await task == 1
        coroutine = WAITS[name](w)
        w.value = 1
        w.value = None
        w.close()
        assert await coroutine == 1
        assert_idle(w)

    run(main())


def test_w3_a_wait_made_without_a_loop_counts_from_the_call(interlock: Any, run: Run) -> None:
    w = interlock.ValueWatcher(None)
    waits = [call(w) for call in WAITS.values()]
    w.value = 1
    w.value = 2

    async def main() -> list[Any]:
        return [await wait for wait in waits]

    assert run(main()) == [1] * len(waits)


def test_w3_the_value_at_the_call_satisfies_even_if_it_is_gone_at_the_await(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        waits = [w.wait_for(0), w.wait_for_not(1), w.wait_for_not_none(), w.wait_until(lambda value: value == 0)]
        w.value = 1
        w.value = None
        assert [await wait for wait in waits] == [0, 0, 0, 0]

    run(main())


@pytest.mark.parametrize("name", WAITS)
def test_w4_a_wait_returns_the_value_that_matched(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(None)
        task = asyncio.create_task(WAITS[name](w))
        await ticks(2)
        for value in (1, 2, None, 1, 3):
            w.value = value
        assert await task == 1

    run(main())


def test_w4_wait_for_returns_the_object_that_was_set(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        wait = w.wait_for(1)
        w.value = True
        assert await wait is True
        assert await w.wait_for(1) is True

    run(main())


@pytest.mark.parametrize(
    ("old", "new"),
    [(0, 0), (0, 0.0), (1, True), ("a" * 99, "".join(["a"] * 99)), ((1, [2]), (1, [2])), (NAN, NAN), ([], [])],
)
def test_w5_an_equal_value_is_no_transition(interlock: Any, old: Any, new: Any) -> None:
    w = interlock.ValueWatcher(old)
    callback, subscription = Recorder(), w.watch()
    w.on_change(callback)
    w.value = new
    assert w.set_if(new, lambda _: True)
    assert w.update(lambda _: new) is new
    assert (w.version, subscription.pending, callback.calls) == (0, 0, [])
    assert w.value is old


def test_w5_the_same_object_is_equal_whatever_its_comparison_says(interlock: Any) -> None:
    for value in (Unequal(), Array(), NAN, mock.NonCallableMock(__eq__=lambda *_: False)):
        w = interlock.ValueWatcher(value)
        w.value = value
        assert w.version == 0


@pytest.mark.parametrize("kind", [Unequal, Array, lambda: float("nan")])
def test_w5_in_doubt_different(interlock: Any, run: Run, kind: Callable[[], Any]) -> None:
    """S47: a comparison that raises or has no truth value; everything must still be delivered."""

    async def main() -> None:
        old, new = kind(), kind()
        w = interlock.ValueWatcher(old)
        callback, subscription = Recorder(), w.watch()
        w.on_change(callback)
        waits = [w.wait_for_change(), w.wait_for(new), w.wait_for_not(old), w.wait_until(lambda value: value is new)]
        stranger = w.wait_for(kind())
        w.value = new
        assert w.version == 1
        assert all([await wait is new for wait in waits])
        # By their elements, for `==` on the pair would ask the values.
        for pair in (*callback.calls, subscription.get_nowait()):
            assert pair[0] is old and pair[1] is new
        assert w.statistics().waiters == 1
        stranger.close()

    run(main())


def test_w5_equals_decides(interlock: Any) -> None:
    calls = Recorder()

    def same_length(old: str, new: str) -> bool:
        calls(old, new)
        return len(old) == len(new)

    w = interlock.ValueWatcher("ab", equals=same_length)
    w.value = "cd"
    assert (w.value, w.version) == ("ab", 0)
    w.value = "abc"
    assert (w.value, w.version) == ("abc", 1)
    assert calls.calls == [("ab", "cd"), ("ab", "abc")]


def test_w5_equals_does_not_change_what_a_wait_matches(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0, equals=lambda old, new: old is not None and new < 5)
        with pytest.raises(asyncio.TimeoutError):
            await w.wait_for(3, timeout=0)
        assert await w.wait_for_not(3) == 0

    run(main())


def test_w5_without_equals_every_set_is_a_transition(interlock: Any, run: Run) -> None:
    async def main() -> None:
        value = object()
        w = interlock.ValueWatcher(value, equals=None)
        subscription = w.watch()
        wait = w.wait_for(value, immediate=False)
        w.value = value
        assert w.set_if(value, lambda _: True)
        w.update(lambda same: same)
        assert w.version == 3
        assert drain(subscription) == [(value, value)] * 3
        assert await wait is value

    run(main())


@pytest.mark.parametrize("error", [ValueError, StopIteration, asyncio.CancelledError, RecursionError])
def test_w5_an_error_in_equals_does_not_reach_the_setter(interlock: Any, error: type[BaseException]) -> None:
    def equals(old: int, new: int) -> bool:
        raise error("no")

    w = interlock.ValueWatcher(0, equals=equals)
    w.value = 0
    assert w.set_if(0, lambda _: True)
    assert w.update(lambda n: n) == 0
    assert w.version == 3


def test_w6_a_satisfied_wait_returns_at_once(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(1)
        assert await w.wait_for(1, timeout=0) == 1
        assert await w.wait_for_not(2, timeout=0) == 1
        assert await w.wait_for_not_none(timeout=0) == 1
        assert await w.wait_until(bool, timeout=0) == 1
        assert await w.wait_for(mock.ANY, timeout=0) == 1

    run(main())


def test_w6_without_immediate_only_a_transition_counts(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(1)
        waits = [
            w.wait_for(1, immediate=False),
            w.wait_for_not(2, immediate=False),
            w.wait_for_not_none(immediate=False),
            w.wait_until(lambda value: value == 1, immediate=False),
        ]
        tasks = [asyncio.create_task(wait) for wait in waits]
        await ticks(3)
        assert not any(task.done() for task in tasks)
        w.value = None
        w.value = 2
        w.value = 1
        assert await asyncio.gather(*tasks) == [1, None, 2, 1]

    run(main())


@pytest.mark.parametrize("timeout", [0, 0.0, -0.0, 0.001, False])
@pytest.mark.parametrize("name", WAITS)
def test_w6_a_wait_times_out_and_leaves_nothing(interlock: Any, run: Run, name: str, timeout: float) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "wait_for": lambda w: w.wait_for(1, timeout=timeout),
        "wait_for_not": lambda w: w.wait_for_not(None, timeout=timeout),
        "wait_for_not_none": lambda w: w.wait_for_not_none(timeout=timeout),
        "wait_until": lambda w: w.wait_until(lambda value: value == 1, timeout=timeout),
        "wait_for_change": lambda w: w.wait_for_change(timeout=timeout),
    }

    async def main() -> None:
        w = interlock.ValueWatcher(None)
        with pytest.raises(asyncio.TimeoutError):
            await calls[name](w)
        assert_idle(w)
        # Time does not matter to a wait that has its value already.
        wait = calls[name](w)
        w.value = 1
        assert await wait == 1

    run(main())


def test_w6_thousands_of_timeouts_leave_nothing(interlock: Any, run: Run) -> None:
    """S09."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        for _ in range(20):
            waits = [w.wait_for(n + 1, timeout=0.0001) for n in range(100)]
            found = await asyncio.gather(*waits, return_exceptions=True)
            assert {type(error) for error in found} == {asyncio.TimeoutError}
        assert_idle(w)

    run(main())


def test_w6_an_infinite_timeout_is_none(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        tasks = [asyncio.create_task(w.wait_for(1, timeout=timeout)) for timeout in (None, float("inf"), 10**400)]
        await ticks(2)
        w.value = 1
        assert await asyncio.gather(*tasks) == [1, 1, 1]

    run(main())
