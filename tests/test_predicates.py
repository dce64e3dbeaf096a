"""W7: `wait_until` and what its predicate may do."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Run
from helpers import (
    Array,
    Recorder,
    assert_idle,
)

NAN = float("nan")


@pytest.mark.parametrize("error", [ValueError, StopIteration, StopAsyncIteration, GeneratorExit, BaseException])
@pytest.mark.parametrize("immediate", [True, False])
def test_w7_a_predicate_that_raises_fails_its_own_waiter_only(
    interlock: Any, run: Run, error: type[BaseException], immediate: bool
) -> None:
    """S46. A `StopIteration` must not pass for the coroutine's return."""

    def bad(value: Any) -> bool:
        raise error("bad")

    # As in every coroutine (PEP 479).
    expected = RuntimeError if error is StopIteration else error

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        failing = w.wait_until(bad, immediate=immediate)
        others = [w.wait_for(1), w.wait_until(lambda value: value == 1), w.wait_until(bad, immediate=False)]
        w.value = 1
        assert w.version == 1
        assert await others[0] == await others[1] == 1
        for wait in (failing, others[2]):
            with pytest.raises(expected):
                await wait
        assert_idle(w)

    run(main())


def test_w7_a_result_without_truth_value_fails_its_own_waiter(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        waits = [w.wait_until(lambda _: Array()), w.wait_until(lambda _: Array(), immediate=False)]
        w.value = 1
        for wait in waits:
            with pytest.raises(ValueError, match="ambiguous"):
                await wait

    run(main())


def test_w7_an_interrupt_in_a_predicate_reaches_the_setter_after_all_are_told(interlock: Any, run: Run) -> None:
    def interrupted(value: Any) -> bool:
        raise KeyboardInterrupt

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription, callback = w.watch(), Recorder()
        w.on_change(callback)
        unlucky = w.wait_until(interrupted, immediate=False)
        lucky = w.wait_until(bool, immediate=False)
        with pytest.raises(KeyboardInterrupt):
            w.value = 1
        assert await lucky == 1
        assert subscription.get_nowait() == (0, 1)
        assert callback.calls == [(0, 1)]
        unlucky.close()

    run(main())


def test_w7_a_predicate_is_called_for_each_transition_until_it_holds(interlock: Any, run: Run) -> None:
    async def main() -> None:
        seen: list[int] = []

        def predicate(value: int) -> bool:
            seen.append(value)
            return value == 3

        w = interlock.ValueWatcher(0)
        wait = w.wait_until(predicate)
        for value in (1, 2, 3, 4):
            w.value = value
        assert await wait == 3
        assert seen == [0, 1, 2, 3]

    run(main())


@pytest.mark.parametrize("immediate", [True, False])
def test_w7_a_predicate_may_set_and_wait_and_close(interlock: Any, run: Run, immediate: bool) -> None:
    """X5: it is called without a lock and in its own context, at the call and at each transition."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)

        def push(value: int) -> bool:
            w.wait_for(value + 1).close()
            with w.watch():
                if value < 5:
                    w.value = value + 1
            return value == 5

        wait = w.wait_until(push, immediate=immediate)
        if not immediate:
            w.value = 1
        assert await wait == 5
        closing = w.wait_until(lambda value: w.close(), immediate=False)
        w.value = 6
        with pytest.raises(interlock.WatcherClosed):
            await closing

    run(main())
