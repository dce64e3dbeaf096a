"""Where `interlock.ValueWatcher` does not do what the SDK's class does, one probe each.

A probe takes the class and returns what it observed. Both expected observations stand
beside it, so the list in the documentation cannot drift from either class.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from inngest_sdk import LIMIT, Theirs, bounded

WAITING = "still waiting"

NAN = float("nan")


@dataclass(frozen=True)
class Difference:
    rule: str
    probe: Callable[[Any], object]
    theirs: object
    ours: object


DIFFERENCES: list[Difference] = []


def differs(rule: str, *, theirs: object, ours: object) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    def register(probe: Callable[[Any], object]) -> Callable[[Any], object]:
        DIFFERENCES.append(Difference(rule, probe, theirs, ours))
        return probe

    return register


def agrees(rule: str, value: object) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    """Both do the same, where a class that only looks alike would not."""
    return differs(rule, theirs=value, ours=value)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(bounded(main))


async def settle() -> None:
    """Longer than any chain of wake-ups that is under way."""
    for _ in range(20):
        await asyncio.sleep(0)


async def outcome(awaitable: Any) -> Any:
    task = asyncio.ensure_future(awaitable)
    await settle()
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
        return WAITING
    error = task.exception()
    return task.result() if error is None else type(error).__name__


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive()


def patience(watcher: Any) -> float:
    """Seconds to wait for what theirs never lets happen, and ours does at once."""
    return 0.3 if watcher is Theirs else LIMIT


@contextmanager
def never_awaited() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
        yield


class Incomparable:
    """As a value whose `==` fails."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("cannot be compared")


class Array:
    """As a NumPy array: `==` gives an array, which has no truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return self

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


# When a wait counts from.


@differs("W3", theirs=WAITING, ours=1)
def wait_in_a_task_that_has_not_run_yet(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        task = asyncio.create_task(w.wait_for(1))
        w.value = 1
        w.value = 2
        return await outcome(task)

    return run(main())


@differs("W3", theirs=WAITING, ours=1)
def change_between_call_and_await(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        change = w.wait_for_change()
        w.value = 1
        return await outcome(change)

    return run(main())


@differs("W3", theirs=WAITING, ours=0)
def value_that_matched_at_the_call_and_not_at_the_await(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        wait = w.wait_for(0)
        w.value = 1
        return await outcome(wait)

    return run(main())


# The order of callbacks.


@differs("W9", theirs=[(1, 2), (0, 1)], ours=[(0, 1), (1, 2)])
def order_seen_when_an_earlier_callback_sets(watcher: Any) -> object:
    seen: list[tuple[int, int]] = []
    w = watcher(0)
    w.on_change(lambda old, new: setattr(w, "value", 2) if new == 1 else None)
    w.on_change(lambda old, new: seen.append((old, new)))
    w.value = 1
    return seen


@differs("W9", theirs=["in 1", "in 2", "out 2", "out 1"], ours=["in 1", "out 1", "in 2", "out 2"])
def set_inside_a_callback_returns_after_its_own_callbacks(watcher: Any) -> object:
    seen: list[str] = []

    def callback(old: int, new: int) -> None:
        seen.append(f"in {new}")
        if new == 1:
            w.value = 2
        seen.append(f"out {new}")

    w = watcher(0, on_change=callback)
    w.value = 1
    return seen


@differs("W9", theirs=False, ours=True)
def callback_that_counts_up_reaches_5000(watcher: Any) -> object:
    def callback(old: int, new: int) -> None:
        if new < 5000:
            w.value = new + 1

    w = watcher(0, on_change=callback)
    w.value = 1
    return w.value == 5000


def _set_while_another_thread_dispatches(watcher: Any) -> tuple[object, object]:
    seen: list[tuple[int, int]] = []
    entered, proceed = threading.Event(), threading.Event()

    def slow(old: int, new: int) -> None:
        if new == 1:
            entered.set()
            proceed.wait(LIMIT)

    w = watcher(0, on_change=slow)
    w.on_change(lambda old, new: seen.append((old, new)))
    thread = threading.Thread(target=lambda: setattr(w, "value", 1))
    thread.start()
    assert entered.wait(LIMIT)
    w.value = 2
    when_it_returned = list(seen)
    proceed.set()
    thread.join(LIMIT)
    return when_it_returned, seen


@differs("W1", theirs=[(1, 2), (0, 1)], ours=[(0, 1), (1, 2)])
def order_seen_when_two_threads_set(watcher: Any) -> object:
    return _set_while_another_thread_dispatches(watcher)[1]


@differs("W9", theirs=[(1, 2)], ours=[])
def callbacks_run_before_the_setter_returns_though_another_thread_dispatches(watcher: Any) -> object:
    return _set_while_another_thread_dispatches(watcher)[0]


# What becomes of callbacks, and of their errors.


@differs("W10", theirs=[], ours=["ZeroDivisionError"])
def error_of_a_callback_at_the_exception_handler_of_its_loop(watcher: Any) -> object:
    async def main() -> object:
        reported: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(type(context["exception"]).__name__))
        w = watcher(0, on_change=lambda old, new: 1 / 0)
        w.value = 1
        await settle()
        return reported

    return run(main())


@differs("W10", theirs=[], ours=["interlock"])
def error_of_a_callback_without_a_loop_in_the_log(watcher: Any) -> object:
    with mock.patch.object(logging.getLogger(), "handlers", [mock.Mock(level=logging.ERROR)]) as handlers:
        w = watcher(0, on_change=lambda old, new: 1 / 0)
        w.value = 1
        return [call.args[0].name for call in handlers[0].handle.call_args_list]


@differs("W10", theirs=[], ours=[1])
def callbacks_called_after_one_that_raised_keyboard_interrupt(watcher: Any) -> object:
    def interrupt(old: int, new: int) -> None:
        raise KeyboardInterrupt

    seen: list[int] = []
    w = watcher(0, on_change=interrupt)
    w.on_change(lambda old, new: seen.append(new))
    try:
        w.value = 1
    except KeyboardInterrupt:
        return seen
    return "it was swallowed"


@differs("W10", theirs=[], ours=[1])
def coroutine_function_as_callback_runs(watcher: Any) -> object:
    async def main() -> object:
        seen: list[int] = []

        async def callback(old: int, new: int) -> None:
            seen.append(new)

        with never_awaited():
            w = watcher(0, on_change=callback)
            w.value = 1
        await settle()
        return seen

    return run(main())


@differs("W10", theirs=True, ours=False)
def on_change_returns_none(watcher: Any) -> object:
    return watcher(0).on_change(lambda old, new: None) is None


@differs("W10", theirs="accepted", ours="TypeError")
def callback_that_cannot_be_called(watcher: Any) -> object:
    w = watcher(0)
    try:
        w.on_change(3)
    except TypeError:
        return "TypeError"
    w.value = 1
    return "accepted"


@differs("W10", theirs="accepted", ours="TypeError")
def false_for_on_change_in_the_constructor(watcher: Any) -> object:
    try:
        watcher(0, on_change=False)
    except TypeError:
        return "TypeError"
    return "accepted"


@differs("X13", theirs="setter", ours="registration")
def context_variables_a_callback_sees(watcher: Any) -> object:
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    def test() -> None:
        variable.set("registration")
        w = watcher(0, on_change=lambda old, new: seen.append(variable.get()))
        variable.set("setter")
        w.value = 1

    contextvars.copy_context().run(test)
    return seen[0]


# on_value.


@differs("W11", theirs="RuntimeError", ours=[1])
def on_value_without_a_loop(watcher: Any) -> object:
    seen: list[int] = []
    w = watcher(0)
    with never_awaited():
        try:
            w.on_value(1, lambda: seen.append(w.value))
        except RuntimeError:
            return "RuntimeError"
    w.value = 1
    return seen


@differs("W11", theirs=[], ours=[1])
def on_value_called_by_the_time_the_set_returns(watcher: Any) -> object:
    async def main() -> object:
        seen: list[int] = []
        w = watcher(0)
        w.on_value(1, lambda: seen.append(w.value))
        await settle()
        w.value = 1
        at_return = list(seen)
        await settle()
        return at_return

    return run(main())


@agrees("W11", "the loop's")
def thread_on_value_is_called_in(watcher: Any) -> object:
    async def main() -> object:
        seen: list[threading.Thread] = []
        w = watcher(0)
        w.on_value(1, lambda: seen.append(threading.current_thread()))
        await settle()
        in_thread(lambda: setattr(w, "value", 1))
        await settle()
        return "the loop's" if seen == [threading.current_thread()] else "the setter's"

    return run(main())


@differs("W11", theirs=[], ours=[1])
def on_value_when_it_is_that_value_already_called_at_once(watcher: Any) -> object:
    async def main() -> object:
        seen: list[int] = []
        w = watcher(1)
        w.on_value(1, lambda: seen.append(w.value))
        at_return = list(seen)
        await settle()
        return at_return

    return run(main())


@differs("W11", theirs=0, ours=1)
def on_value_of_a_value_passed_in_the_same_tick(watcher: Any) -> object:
    async def main() -> object:
        callback = mock.Mock(return_value=None)
        w = watcher(0)
        w.on_value(1, callback)
        w.value = 1
        w.value = 2
        await settle()
        return callback.call_count

    return run(main())


@differs("W11", theirs=0, ours=1)
def on_value_after_its_loop_has_ended(watcher: Any) -> object:
    callback = mock.Mock(return_value=None)
    w = watcher(0)

    async def main() -> None:
        w.on_value(1, callback)
        await settle()

    run(main())
    w.value = 1
    return callback.call_count


# Equality.


@differs("W5", theirs="ValueError", ours="a transition")
def set_where_the_comparison_raises(watcher: Any) -> object:
    w = watcher(Incomparable())
    new = Incomparable()
    try:
        w.value = new
    except ValueError:
        return "ValueError"
    return "a transition" if w.value is new else "nothing"


@differs("W5", theirs="ValueError", ours="a transition")
def set_where_the_comparison_has_no_truth_value(watcher: Any) -> object:
    w = watcher(Array())
    new = Array()
    try:
        w.value = new
    except ValueError:
        return "ValueError"
    return "a transition" if w.value is new else "nothing"


@differs("W5", theirs=1, ours=0)
def transitions_when_the_same_nan_is_set_again(watcher: Any) -> object:
    seen: list[object] = []
    w = watcher(NAN, on_change=lambda old, new: seen.append(new))
    w.value = NAN
    return len(seen)


@differs("W5", theirs=["new"], ours=["old"])
def side_whose_eq_is_asked(watcher: Any) -> object:
    asked: list[str] = []

    class Value:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            asked.append(self.name)
            return False

    w = watcher(Value("old"))
    w.value = Value("new")
    return asked


@differs("W5", theirs=WAITING, ours="matched")
def wait_for_the_very_nan_that_is_set(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        task = asyncio.create_task(w.wait_for(NAN))
        await settle()
        w.value = NAN
        return "matched" if await outcome(task) is NAN else WAITING

    return run(main())


@differs("W5", theirs="ValueError", ours=WAITING)
def wait_for_where_the_comparison_raises(watcher: Any) -> object:
    return run(outcome(watcher(Incomparable()).wait_for(1)))


@differs("W5", theirs="returned", ours=WAITING)
def wait_for_not_asks_ne(watcher: Any) -> object:
    class Value:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return True

    async def main() -> object:
        return "returned" if isinstance(await outcome(watcher(Value()).wait_for_not(Value())), Value) else WAITING

    return run(main())


@differs("W15", theirs=1, ours=WAITING)
def wait_for_an_equal_value_with_another_hash(watcher: Any) -> object:
    class Anything:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return True

    async def main() -> object:
        w = watcher(0)
        task = asyncio.create_task(w.wait_for(Anything(), immediate=False))
        await settle()
        w.value = 1
        return await outcome(task)

    return run(main())


@differs("W15", theirs="the loop's", ours="the setter's")
def thread_a_wait_compares_in(watcher: Any) -> object:
    threads: list[threading.Thread] = []

    class Value:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            threads.append(threading.current_thread())
            return False

    async def main() -> object:
        w = watcher(0)
        task = asyncio.create_task(w.wait_for(Value(), immediate=False))
        await settle()
        in_thread(lambda: setattr(w, "value", 1))
        await outcome(task)
        return "the loop's" if threads == [threading.current_thread()] else "the setter's"

    return run(main())


# set_if.


@differs("X5", theirs="blocked", ours="read")
def value_can_be_read_while_a_condition_runs(watcher: Any) -> object:
    read = threading.Event()
    seen: list[str] = []

    def look() -> None:
        _ = w.value
        read.set()

    def condition(value: int) -> bool:
        thread.start()
        seen.append("read" if read.wait(patience(watcher)) else "blocked")
        return True

    w = watcher(0)
    thread = threading.Thread(target=look)
    w.set_if(1, condition)
    thread.join(LIMIT)
    return seen[0]


@differs("W8", theirs=([0], 2), ours=([0, 2], 1))
def condition_is_asked_again_when_another_thread_sets_meanwhile(watcher: Any) -> object:
    asked: list[int] = []

    def condition(value: int) -> bool:
        asked.append(value)
        if value == 0:
            thread.start()
            thread.join(patience(watcher))
        return True

    w = watcher(0)
    thread = threading.Thread(target=lambda: setattr(w, "value", 2))
    w.set_if(1, condition)
    thread.join(LIMIT)
    return asked, w.value


# Waiting.


@differs("W6", theirs="TimeoutError", ours="ValueError")
def negative_timeout(watcher: Any) -> object:
    return _wait_with(watcher, 1, -1)


@differs("W6", theirs=0, ours="ValueError")
def negative_timeout_where_the_value_matches(watcher: Any) -> object:
    return _wait_with(watcher, 0, -1)


@differs("W6", theirs=WAITING, ours="ValueError")
def nan_as_timeout(watcher: Any) -> object:
    return _wait_with(watcher, 1, NAN)


def _wait_with(watcher: Any, value: int, timeout: float) -> object:
    async def wait() -> object:
        return await watcher(0).wait_for(value, timeout=timeout)

    return run(outcome(wait()))


async def _wake_order(waits: dict[str, Any], w: Any, *values: int) -> list[str]:
    woken: list[str] = []

    async def wait(name: str, awaitable: Any) -> None:
        await awaitable
        woken.append(name)

    tasks = [asyncio.create_task(wait(*item)) for item in waits.items()]
    await settle()
    for value in values:
        w.value = value
    await asyncio.wait(tasks)
    return woken


@differs("W15", theirs=["not 0", "1"], ours=["1", "not 0"])
def order_in_which_one_transition_wakes_different_kinds_of_waits(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        return await _wake_order({"not 0": w.wait_for_not(0), "1": w.wait_for(1)}, w, 1)

    return run(main())


@differs("W1", theirs=["2", "1"], ours=["1", "2"])
def order_in_which_transitions_of_one_tick_wake(watcher: Any) -> object:
    async def main() -> object:
        w = watcher(0)
        return await _wake_order({"2": w.wait_for(2), "1": w.wait_for(1)}, w, 1, 2)

    return run(main())


if sys.version_info < (3, 12):
    # Later versions of `asyncio.wait_for`, which theirs is built on, do not swallow it.

    @differs("X7", theirs="swallowed", ours="cancelled")
    def cancellation_that_meets_the_wake_up(watcher: Any) -> object:
        async def main() -> object:
            # Theirs takes several ticks to return; in whichever tick, a cancel() that was accepted must count.
            for ticks in range(10):
                w = watcher(0)
                task = asyncio.create_task(w.wait_for(1, timeout=LIMIT))
                await settle()
                w.value = 1
                for _ in range(ticks):
                    await asyncio.sleep(0)
                accepted = task.cancel()
                await asyncio.wait([task])
                if accepted and not task.cancelled():
                    return "swallowed"
            return "cancelled"

        return run(main())


@agrees("X10", True)
def waits_are_coroutine_functions(watcher: Any) -> object:
    # Before 3.12 nothing but a native one can be marked for `inspect`.
    looks = inspect if sys.version_info >= (3, 12) else asyncio
    return looks.iscoroutinefunction(watcher.wait_for)


# The class as an object.


@agrees("API", "accepted")
def subclass_with_other_constructor_arguments(watcher: Any) -> object:
    class Counter(watcher):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(0)

    try:
        Counter()
    except TypeError:
        return "TypeError"
    return "accepted"


@agrees("API", "accepted")
def attribute_on_an_instance(watcher: Any) -> object:
    try:
        watcher(0).name = "state"
    except AttributeError:
        return "AttributeError"
    return "accepted"


@differs("X15", theirs="a copy with the same lock", ours="TypeError")
def shallow_copy(watcher: Any) -> object:
    w = watcher(0)
    try:
        duplicate = copy.copy(w)
    except TypeError:
        return "TypeError"
    return "a copy with the same lock" if duplicate._lock is w._lock else "a copy"


@differs("API", theirs=False, ours=True)
def repr_shows_the_value(watcher: Any) -> object:
    return "'connecting'" in repr(watcher("connecting"))
