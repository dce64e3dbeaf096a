"""Both backends and a plain model do the same operations; every result is compared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from interlock.demo.backends import load
from model import EQUALS, PREDICATES, Model, behave, describe

# One object each, because identity counts: `nan` equals only itself, `[]` has no hash.
VALUES = [None, 0, 1, True, 2, 2.0, "", [], [1], float("nan"), ValueError("a value")]
values = st.sampled_from(VALUES)
choices = st.integers(0, 1_000)
timeouts = st.sampled_from([None, None, 0, 1, 2])
kinds = st.sampled_from(["log", "raise", "follow", "cancel the next", "cancel itself", "close", "register"])
errors = st.sampled_from([None, OSError("gone")])


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is told to move."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Failures(logging.Filter):
    """Counts what is logged, and keeps it out of the log."""

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.count += 1
        return False


class Driver:
    """The operations of `Model`, on a real watcher."""

    def __init__(self, package: Any, loop: Clock, equals: str, failures: Failures) -> None:
        self.watcher = package.ValueWatcher(0, equals=EQUALS[equals])
        self.loop = loop
        self.loop.now = 0.0
        self.problems: list[Any] = []
        self.loop.set_exception_handler(lambda _, details: self.problems.append(details))
        self.cursors: list[Any] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.handles: dict[int, Any] = {}
        self.numbers = 0
        self.calls: list[tuple[int, str, str]] = []
        self._failures = failures
        self.failures = 0

    @property
    def value(self) -> Any:
        return self.watcher.value

    def set(self, new: Any) -> None:
        self.watcher.value = new

    def set_if(self, new: Any, accepts: Callable[[Any], object]) -> Any:
        return self.watcher.set_if(new, accepts)

    def update(self, function: Callable[[Any], Any]) -> Any:
        return self.watcher.update(function)

    def close(self, error: BaseException | None) -> None:
        self.watcher.close(error)

    def on_change(self, kind: str) -> int:
        number = self.numbers
        self.numbers += 1
        self.handles[number] = self.watcher.on_change(lambda *pair: behave(self, kind, number, pair))
        return number

    def on_value(self, value: Any, kind: str) -> int:
        number = self.numbers
        self.numbers += 1
        self.handles[number] = self.watcher.on_value(value, lambda: behave(self, kind, number, ()))
        return number

    def cancel_callback(self, number: int) -> None:
        # A callback may run before its handle is there to be cancelled; then it is one that fires once.
        if number in self.handles:
            self.handles[number].cancel()

    def watch(self, initial: bool, maxlen: int | None, latest: bool) -> None:
        self.cursors.append(self.watcher.watch(initial, maxlen, "latest" if latest else "error"))

    def get_nowait(self, number: int) -> Any:
        return self.cursors[number].get_nowait()

    def pending(self, number: int) -> Any:
        return self.cursors[number].pending

    def close_subscription(self, number: int) -> None:
        self.cursors[number].close()

    def start_wait(self, kind: str, operand: Any, immediate: bool, timeout: float | None) -> None:
        method = getattr(self.watcher, kind)
        arguments: tuple[Any, ...] = ()
        if kind == "wait_until":
            arguments = (PREDICATES[operand],)
        elif kind in ("wait_for", "wait_for_not"):
            arguments = (operand,)
        if kind != "wait_for_change":
            method = _with(method, immediate=immediate)
        self.tasks.append(self.loop.create_task(method(*arguments, timeout=timeout)))

    def start_get(self, number: int, timeout: float | None, iterating: bool) -> None:
        cursor = self.cursors[number]
        self.tasks.append(self.loop.create_task(cursor.__anext__() if iterating else cursor.get(timeout)))

    def cancel(self, number: int) -> bool:
        return self.tasks[number].cancel()

    def tick(self) -> None:
        async def ticks() -> None:
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(ticks())

    def result(self, number: int) -> tuple[str, ...] | None:
        task = self.tasks[number]
        if not task.done():
            return None
        if task.cancelled():
            return ("cancelled",)
        error = task.exception()
        return ("value", repr(task.result())) if error is None else describe(error)

    def run(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self._failures.count = 0
        outcome = attempt(getattr(self, name), arguments)
        self.failures += self._failures.count
        return outcome

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.tick()
        assert all(task.done() for task in self.tasks)
        for cursor in self.cursors:
            cursor.close()
        counts = self.watcher.statistics()
        assert (counts.subscriptions, counts.waiters, counts.retained) == (0, 0, 0)
        assert self.problems == []


def _with(method: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    return lambda *arguments, **more: method(*arguments, **keywords, **more)


def attempt(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, ...]:
    try:
        return ("value", repr(function(*arguments)))
    except Exception as error:
        return describe(error)


class Comparison(RuleBasedStateMachine):
    def __init__(self, make_drivers: Callable[[str], dict[str, Driver]]) -> None:
        super().__init__()
        self.make_drivers = make_drivers
        self.drivers: dict[str, Driver] = {}
        self.model = Model("default")

    @initialize(equals=st.sampled_from(sorted(EQUALS)))
    def begin(self, equals: str) -> None:
        self.model = Model(equals)
        self.drivers = self.make_drivers(equals)

    def all_do(self, name: str, *arguments: Any) -> None:
        expected = attempt(getattr(self.model, name), arguments)
        for backend, driver in self.drivers.items():
            assert driver.run(name, arguments) == expected, backend

    # Setting.

    @rule(value=values)
    def set(self, value: Any) -> None:
        self.all_do("set", value)

    @rule(value=values, condition=st.sampled_from(sorted(PREDICATES)))
    def set_if(self, value: Any, condition: str) -> None:
        self.all_do("set_if", value, PREDICATES[condition])

    @rule(value=values, inner=values, fails=st.booleans())
    def update_that_sets(self, value: Any, inner: Any, fails: bool) -> None:
        def updater(api: Any) -> Callable[[Any], Any]:
            calls: list[None] = []

            def function(_: Any) -> Any:
                calls.append(None)
                if len(calls) == 1:
                    api.set(inner)
                    if fails:
                        raise ZeroDivisionError
                return value

            return function

        expected = attempt(self.model.update, (updater(self.model),))
        for backend, driver in self.drivers.items():
            assert driver.run("update", (updater(driver),)) == expected, backend

    @precondition(lambda self: self.model.version > 5)
    @rule(error=errors)
    def close(self, error: BaseException | None) -> None:
        self.all_do("close", error)

    # Callbacks.

    @precondition(lambda self: len(self.model.callbacks) < 8)
    @rule(kind=kinds)
    def on_change(self, kind: str) -> None:
        self.all_do("on_change", kind)

    @precondition(lambda self: len(self.model.callbacks) < 8)
    @rule(value=values, kind=kinds)
    def on_value(self, value: Any, kind: str) -> None:
        self.all_do("on_value", value, kind)

    @precondition(lambda self: self.model.callbacks)
    @rule(choice=choices)
    def cancel_callback(self, choice: int) -> None:
        self.all_do("cancel_callback", choice % len(self.model.callbacks))

    # Subscriptions.

    @rule(initial=st.booleans(), maxlen=st.sampled_from([None, 1, 2, 3]), latest=st.booleans())
    def watch(self, initial: bool, maxlen: int | None, latest: bool) -> None:
        self.all_do("watch", initial, maxlen, latest and maxlen is not None)

    @precondition(lambda self: self.model.cursors)
    @rule(choice=choices)
    def get_nowait(self, choice: int) -> None:
        self.all_do("get_nowait", choice % len(self.model.cursors))

    @precondition(lambda self: self.model.cursors)
    @rule(choice=choices, timeout=timeouts, iterating=st.booleans())
    def start_get(self, choice: int, timeout: float | None, iterating: bool) -> None:
        self.all_do("start_get", choice % len(self.model.cursors), None if iterating else timeout, iterating)

    @precondition(lambda self: self.model.cursors)
    @rule(choice=choices)
    def close_subscription(self, choice: int) -> None:
        self.all_do("close_subscription", choice % len(self.model.cursors))

    # Tasks and time.

    @rule(kind=st.sampled_from(["wait_for", "wait_for_not"]), value=values, immediate=st.booleans(), timeout=timeouts)
    def start_wait_for(self, kind: str, value: Any, immediate: bool, timeout: float | None) -> None:
        self.all_do("start_wait", kind, value, immediate, timeout)

    @rule(predicate=st.sampled_from(sorted(PREDICATES)), immediate=st.booleans(), timeout=timeouts)
    def start_wait_until(self, predicate: str, immediate: bool, timeout: float | None) -> None:
        self.all_do("start_wait", "wait_until", predicate, immediate, timeout)

    @rule(immediate=st.booleans(), timeout=timeouts)
    def start_wait_for_not_none(self, immediate: bool, timeout: float | None) -> None:
        self.all_do("start_wait", "wait_for_not_none", None, immediate, timeout)

    @rule(timeout=timeouts)
    def start_wait_for_change(self, timeout: float | None) -> None:
        self.all_do("start_wait", "wait_for_change", None, False, timeout)

    @precondition(lambda self: self.model.tasks)
    @rule(choice=choices)
    def cancel(self, choice: int) -> None:
        self.all_do("cancel", choice % len(self.model.tasks))

    @rule(seconds=st.sampled_from([0, 0, 0, 1]))
    def tick(self, seconds: float) -> None:
        self.model.now += seconds
        for driver in self.drivers.values():
            driver.loop.now = self.model.now
        self.all_do("tick")

    # What all agree on.

    @invariant()
    def same_state(self) -> None:
        model = self.model
        # A wait that has matched is unregistered by then, or when its task resumes.
        resuming = any(task.result is None and task.outcome is not None for task in model.tasks)
        for backend, driver in self.drivers.items():
            counts = driver.watcher.statistics()
            assert repr(driver.value) == repr(model.value), backend
            assert (driver.watcher.version, driver.watcher.closed) == (model.version, model.closed), backend
            assert counts.version == model.version, backend
            assert counts.subscriptions == sum(not cursor.closed for cursor in model.cursors), backend
            assert counts.callbacks == sum(callback.active for callback in model.callbacks), backend
            assert resuming or counts.waiters == len(model.waiting), backend
            assert self.may_retain(backend, counts.retained), backend
            assert driver.calls == model.calls, backend
            assert driver.failures == model.failures, backend
            for number in range(len(model.cursors)):
                assert driver.pending(number) == model.pending(number), backend
            assert [driver.result(number) for number in range(len(model.tasks))] == [
                task.result for task in model.tasks
            ], backend

    def may_retain(self, backend: str, retained: int) -> bool:
        needed = self.model.retained()
        if backend == "rust":
            return retained == needed
        # The pure backend keeps one window for all bounded subscriptions of one `maxlen`. It
        # may lag behind its members, but never by more than that.
        limits = [int(cursor.limit) for cursor in self.model.cursors if not cursor.closed and cursor.limit < 1_000]
        return needed <= retained <= max([needed, *limits])

    def teardown(self) -> None:
        for driver in self.drivers.values():
            driver.end()


@pytest.fixture
def failures() -> Iterator[Failures]:
    """Counts what callbacks raised; without a loop that is logged."""
    logger, counter = logging.getLogger("interlock"), Failures()
    logger.addFilter(counter)
    yield counter
    logger.removeFilter(counter)


# Hypothesis asks the collector who refers to its generator; the conftest has frozen who does.
@pytest.mark.filterwarnings("ignore:It looks like `register_random` was passed:hypothesis.errors.HypothesisWarning")
def test_backends_and_model_agree_on_every_result(request: pytest.FixtureRequest, failures: Failures) -> None:
    wanted = request.config.getoption("--backend")
    packages = {name: load(name) for name in (["rust", "pure"] if wanted == "both" else [wanted])}
    loops = {name: Clock() for name in packages}

    def make_drivers(equals: str) -> dict[str, Driver]:
        return {name: Driver(package, loops[name], equals, failures) for name, package in packages.items()}

    # Any, because hypothesis declares that it wants a class, and takes what makes a machine.
    new_machine: Any = lambda: Comparison(make_drivers)  # noqa: E731
    try:
        run_state_machine_as_test(
            new_machine,
            settings=settings(
                max_examples=100,
                stateful_step_count=50,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        for loop in loops.values():
            loop.close()
