"""Both backends do the same operations as a plain model, and as `asyncio.Queue`; every result is compared.

The operations come between two ticks of the loop, from a callback in it, or from a task in one of its steps.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
from collections.abc import Callable, Coroutine, Sequence
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

import queue_model
from interlock.demo.backends import load
from interlock.errors import QueueShutDown, SyncQueueEmpty, SyncQueueFull, SyncQueueShutDown
from queue_model import Clock
from queues import hooked

HAS_ORACLE = sys.version_info >= (3, 13)

# Items.


class Item:
    """One that can only be compared by its rank."""

    def __init__(self, rank: Any, serial: int) -> None:
        self.rank = rank
        self.serial = serial

    def __lt__(self, other: Item) -> bool:
        return bool(self.rank < other.rank)

    def __repr__(self) -> str:
        return f"Item({self.rank}, {self.serial})"


ANYTHING = [None, (), 0.0, StopIteration(1), QueueShutDown, asyncio.CancelledError()]

# Each makes an item of a number and a serial number.
FORMS: dict[str, Callable[[int, int], Any]] = {
    "int": lambda number, serial: number,
    "pair": lambda number, serial: (number, serial),
    "object": lambda number, serial: Item(number, serial),
    "ranked object": lambda number, serial: Item((number, serial), serial),
    "not all comparable": lambda number, serial: number if number % 2 else str(number),
    "anything": lambda number, serial: ANYTHING[number],
}
numbers = st.integers(0, len(ANYTHING) - 1)


# Queues.


def rank(item: Any) -> Any:
    if isinstance(item, tuple):
        return item[0] if item else -1
    return item.rank if isinstance(item, Item) else type(item).__name__


def merging(base: Any) -> Any:
    class Merging(base):  # type: ignore[misc]
        def _put(self, item: Any) -> None:
            if item not in self._queue:
                super()._put(item)

    return Merging


def raising(base: Any) -> Any:
    """One that refuses some items when they are put, and others when they are got for the first time."""

    class Raising(base):  # type: ignore[misc]
        refused: Any = None

        def _put(self, item: Any) -> None:
            if item == 4:
                raise ZeroDivisionError
            super()._put(item)

        def _get(self) -> Any:
            if self._queue[0] == 3 and not self.refused:
                self.refused = True
                raise ZeroDivisionError
            self.refused = False
            return super()._get()

    return Raising


# Each takes the package and gives what makes a queue.
KINDS: dict[str, Callable[[Any], Callable[[int], Any]]] = {
    "fifo": lambda package: package.Queue,
    "lifo": lambda package: package.LifoQueue,
    "priority": lambda package: package.PriorityQueue,
    "key": lambda package: functools.partial(package.PriorityQueue, key=rank),
    "hooked": lambda package: hooked(package.Queue),
    "hooked lifo": lambda package: hooked(package.LifoQueue),
    "hooked priority": lambda package: hooked(package.PriorityQueue),
    "merging": lambda package: merging(package.Queue),
    "raising": lambda package: raising(package.Queue),
}


def forms(kind: str) -> list[str]:
    if kind == "raising":
        return ["int"]
    if kind == "hooked priority":
        # Its heap is of the items alone: equal ones come out in any order, as from the standard library's.
        return ["int", "pair", "ranked object", "not all comparable"]
    if kind == "priority":
        return [form for form in FORMS if form != "anything"]
    return list(FORMS)


# What is done.

NAMES: dict[type[BaseException], str] = {
    SyncQueueEmpty: "QueueEmpty",
    SyncQueueFull: "QueueFull",
    SyncQueueShutDown: "QueueShutDown",
}


def describe(error: BaseException) -> str:
    return NAMES.get(type(error), type(error).__name__)


def attempt(function: Callable[..., Any], *arguments: Any) -> str:
    try:
        return f"value {function(*arguments)!r}"
    except Exception as error:
        return describe(error)


async def pause() -> None:
    await asyncio.sleep(0)


# A task's steps, each with an item, which most of them have no use for.
AWAITED: dict[str, Callable[[Any, Any], Coroutine[Any, Any, Any]]] = {
    "get": lambda q, item: q.get(),
    "put": lambda q, item: q.put(item),
    "join": lambda q, item: q.join(),
}
OURS: dict[str, Callable[[Any, Any], Coroutine[Any, Any, Any]]] = {
    "next": lambda q, item: q.__anext__(),
    "get in 0": lambda q, item: q.get(timeout=0),
    "get in 1": lambda q, item: q.get(timeout=1),
    "get in 2": lambda q, item: q.get(timeout=2),
    "put in 0": lambda q, item: q.put(item, timeout=0),
    "put in 1": lambda q, item: q.put(item, timeout=1),
    "put in 2": lambda q, item: q.put(item, timeout=2),
    "join in 0": lambda q, item: q.join(timeout=0),
    "join in 1": lambda q, item: q.join(timeout=1),
    "join in 2": lambda q, item: q.join(timeout=2),
}
AT_ONCE: dict[str, Callable[[Any, Any], Any]] = {
    "get_nowait": lambda q, item: q.get_nowait(),
    "put_nowait": lambda q, item: q.put_nowait(item),
    "task_done": lambda q, item: q.task_done(),
}
PAUSE: dict[str, Callable[[Any, Any], Coroutine[Any, Any, Any]]] = {"pause": lambda q, item: pause()}

Steps = Sequence[tuple[str, Any]]


class Driver:
    """The operations, on a queue of interlock's."""

    def __init__(self, queue: Any, eager: bool, together: bool = False) -> None:
        self.queue = queue
        self.loop = Clock(together)
        self.eager = eager
        if sys.version_info >= (3, 12) and eager:
            self.loop.set_task_factory(asyncio.eager_task_factory)
        self.tasks: list[asyncio.Task[Any]] = []
        self.log: list[tuple[int, str, str]] = []

    def put_nowait(self, item: Any) -> None:
        self.queue.put_nowait(item)

    def get_nowait(self) -> Any:
        return self.queue.get_nowait()

    def sync_put(self, item: Any) -> None:
        self.queue.sync_q.put(item, timeout=0)

    def sync_get(self) -> Any:
        return self.queue.sync_q.get(timeout=0)

    def sync_join(self) -> None:
        self.queue.sync_q.join(timeout=0)

    def task_done(self) -> None:
        self.queue.task_done()

    def shutdown(self, immediate: bool) -> None:
        self.queue.shutdown(immediate)

    def abort(self) -> Any:
        return self.queue.abort()

    def start(self, steps: Steps, stubborn: bool) -> None:
        number = len(self.tasks)
        # Here already, because an eager one runs before it is returned.
        self.tasks.append(None)  # type: ignore[arg-type]
        self.tasks[number] = self.loop.create_task(self.perform(number, steps, stubborn))

    def start_bare(self, name: str, item: Any) -> None:
        """Without a coroutine around it."""
        number = len(self.tasks)
        self.tasks.append(self.loop.create_task((AWAITED | OURS)[name](self.queue, item)))
        self.tasks[number].add_done_callback(functools.partial(self.log_end, number))

    def log_end(self, number: int, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.log.append((number, "end", f"value {task.result()!r}" if error is None else describe(error)))

    async def perform(self, number: int, steps: Steps, stubborn: bool) -> None:
        for name, item in steps:
            step = (AWAITED | OURS | AT_ONCE | PAUSE)[name]
            try:
                result = step(self.queue, item)
                outcome = f"value {result if name in AT_ONCE else await result!r}"
            except asyncio.CancelledError:
                self.log.append((number, name, "cancelled"))
                if not stubborn:
                    raise
                continue
            except Exception as error:
                outcome = describe(error)
            self.log.append((number, name, outcome))

    def cancel(self, number: int) -> bool:
        return self.tasks[number].cancel()

    def tick(self, seconds: float) -> None:
        self.loop.now += seconds
        self.loop.tick()

    def run(self, inside: bool, name: str, *arguments: Any) -> str:
        """Do this now, or else in a callback in the next tick."""
        operation = functools.partial(attempt, getattr(self, name), *arguments)
        if not inside and not (self.eager and name.startswith("start")):
            return operation()
        outcomes: list[str] = []
        self.loop.call_soon(lambda: outcomes.append(operation()))
        self.loop.tick()
        return outcomes[0]

    def seen(self) -> dict[str, Any]:
        """All that can be seen of it."""
        return {
            "qsize": self.queue.qsize(),
            "empty": self.queue.empty(),
            "full": self.queue.full(),
            "maxsize": self.queue.maxsize,
            "is_shutdown": self.queue.is_shutdown,
            "text": str(self.queue),
            "done": [task.done() for task in self.tasks],
            "log": self.log,
            **vars(self.queue.statistics()),
        }

    def end(self) -> None:
        """Cancel what is still under way; nothing is left behind (X6)."""
        for _ in range(100):
            for task in self.tasks:
                task.cancel()
            self.loop.tick()
            if all(task.done() for task in self.tasks):
                break
        self.loop.tick()
        self.loop.close()
        assert all(task.done() for task in self.tasks)
        assert self.loop.problems == []
        seen = self.seen()
        assert (seen["getters"], seen["putters"], seen.get("joiners", 0)) == (0, 0, 0)


class ModelDriver(Driver):
    """The same on the model, which has fewer ways."""

    sync_put = Driver.put_nowait
    sync_get = Driver.get_nowait

    def sync_join(self) -> None:
        if self.queue.statistics().unfinished:
            raise asyncio.TimeoutError

    def seen(self) -> dict[str, Any]:
        seen = super().seen()
        del seen["text"]
        return seen


class OracleDriver(Driver):
    """The same on `asyncio.Queue`, with what its tests look at."""

    def seen(self) -> dict[str, Any]:
        q = self.queue
        seen = {
            "qsize": q.qsize(),
            "empty": q.empty(),
            "full": q.full(),
            "maxsize": q.maxsize,
            "is_shutdown": q._is_shutdown,
            "unfinished": q._unfinished_tasks,
            "getters": len(q._getters),
            "putters": len(q._putters),
            "done": [task.done() for task in self.tasks],
            "log": self.log,
        }
        if not isinstance(q, asyncio.PriorityQueue):
            seen["text"] = str(q)
        return seen


def assert_alike(reference: Driver, drivers: dict[str, Driver]) -> None:
    """As far as both can be seen."""
    expected = reference.seen()
    for name, driver in drivers.items():
        seen = driver.seen()
        assert {what: seen.get(what, value) for what, value in expected.items()} == expected, name


class Comparison(RuleBasedStateMachine):
    """What all queues can do."""

    reference: Driver
    drivers: dict[str, Driver]
    form: str

    def __init__(self, packages: dict[str, Any]) -> None:
        super().__init__()
        self.packages = packages
        self.drivers = {}
        self.operations = 0
        self.serial = itertools.count()

    def begin(self, kind: str, maxsize: int, form: str, eager: bool) -> None:
        self.form = form
        for name, package in self.packages.items():
            self.drivers[name] = Driver(KINDS[kind](package)(maxsize), eager)

    @property
    def everyone(self) -> list[Driver]:
        return [self.reference, *self.drivers.values()]

    def item(self, number: int) -> Any:
        return FORMS[self.form](number, next(self.serial))

    def all_do(self, name: str, *arguments: Any, inside: bool = False) -> str:
        self.operations += 1
        expected = self.reference.run(inside, name, *arguments)
        for backend, driver in self.drivers.items():
            assert driver.run(inside, name, *arguments) == expected, backend
        return expected

    @rule(number=numbers, inside=st.booleans())
    def put_nowait(self, number: int, inside: bool) -> None:
        self.all_do("put_nowait", self.item(number), inside=inside)

    @rule(inside=st.booleans())
    def get_nowait(self, inside: bool) -> None:
        self.all_do("get_nowait", inside=inside)

    @rule(inside=st.booleans())
    def task_done(self, inside: bool) -> None:
        self.all_do("task_done", inside=inside)

    @precondition(lambda self: self.operations > 10)
    @rule(immediate=st.sampled_from([False, False, True]), inside=st.booleans())
    def shutdown(self, immediate: bool, inside: bool) -> None:
        self.all_do("shutdown", immediate, inside=inside)

    def start(self, steps: list[tuple[str, int]], stubborn: bool) -> None:
        self.all_do("start", [(name, self.item(number)) for name, number in steps], stubborn)

    def start_bare(self, name: str, number: int) -> None:
        self.all_do("start_bare", name, self.item(number))

    @precondition(lambda self: self.reference.tasks)
    @rule(choice=st.integers(0, 1_000), inside=st.booleans())
    def cancel(self, choice: int, inside: bool) -> None:
        self.all_do("cancel", choice % len(self.reference.tasks), inside=inside)

    @precondition(lambda self: self.reference.tasks)
    @rule()
    def cancel_the_last(self) -> None:
        self.all_do("cancel", len(self.reference.tasks) - 1)

    @rule(seconds=st.sampled_from([0, 0, 0, 1.25]))
    def tick(self, seconds: float) -> None:
        self.all_do("tick", seconds)

    @invariant()
    def all_look_the_same(self) -> None:
        assert_alike(self.reference, self.drivers)

    def teardown(self) -> None:
        for driver in self.everyone:
            driver.end()


def any_steps(names: list[str]) -> Any:
    return st.lists(st.tuples(st.sampled_from(names), numbers), min_size=1, max_size=3)


eager = st.booleans() if sys.version_info >= (3, 12) else st.just(False)
kind_and_form = st.sampled_from([(kind, form) for kind in KINDS for form in forms(kind)])


# Not those whose items raise when they are put or got, by a hook or a comparison: then asyncio's loses items (S10).
# Nor equal priorities: asyncio's gives them in any order.
kind_and_form_of_oracle = st.sampled_from(
    [
        (kind, form)
        for kind in KINDS
        for form in forms(kind)
        if kind not in ("key", "raising") and not ("priority" in kind and form in ("object", "not all comparable"))
    ]
)


class ComparisonWithModel(Comparison):
    """What only interlock's can do."""

    @initialize(kind_and_form=kind_and_form, maxsize=st.integers(0, 3), eager=eager)
    def begin_with_model(self, kind_and_form: tuple[str, str], maxsize: int, eager: bool) -> None:
        kind, form = kind_and_form
        self.reference = ModelDriver(KINDS[kind](queue_model)(maxsize), eager, together=True)
        self.begin(kind, maxsize, form, eager)

    @rule(steps=any_steps([*AWAITED, *OURS, *AT_ONCE, *PAUSE]), stubborn=st.sampled_from([False, False, True]))
    def start_ours(self, steps: list[tuple[str, int]], stubborn: bool) -> None:
        self.start(steps, stubborn)

    @rule(name=st.sampled_from([*AWAITED, *OURS]), number=numbers)
    def start_ours_bare(self, name: str, number: int) -> None:
        self.start_bare(name, number)

    @rule(number=numbers, inside=st.booleans())
    def sync_put(self, number: int, inside: bool) -> None:
        self.all_do("sync_put", self.item(number), inside=inside)

    @rule(inside=st.booleans())
    def sync_get(self, inside: bool) -> None:
        self.all_do("sync_get", inside=inside)

    @rule(inside=st.booleans())
    def sync_join(self, inside: bool) -> None:
        self.all_do("sync_join", inside=inside)

    @precondition(lambda self: self.operations > 10)
    @rule(inside=st.booleans())
    def abort(self, inside: bool) -> None:
        self.all_do("abort", inside=inside)

    @invariant()
    def sums_are_right(self) -> None:
        for driver in self.drivers.values():
            figures = driver.queue.statistics()
            assert figures.accepted >= figures.size + figures.delivered + figures.dropped
            assert driver.queue.sync_q.unfinished_tasks == figures.unfinished


class ComparisonWithOracle(Comparison):
    """What the standard library's can do, too.

    `as_it_is`: on a loop that wakes each task by itself. Interlock's tasks then resume in the same
    tick and in the same order, if no other task is about to run between them. Otherwise
    what is compared is the queue alone, on a loop that wakes in interlock's way.
    """

    as_it_is: bool

    @initialize(kind_and_form=kind_and_form_of_oracle, maxsize=st.integers(0, 3), eager=eager, as_it_is=st.booleans())
    def begin_with_oracle(self, kind_and_form: tuple[str, str], maxsize: int, eager: bool, as_it_is: bool) -> None:
        kind, form = kind_and_form
        self.as_it_is = as_it_is
        self.reference = OracleDriver(KINDS[kind](asyncio)(maxsize), eager, together=not as_it_is)
        self.begin(kind, maxsize, form, eager)

    @rule(steps=any_steps([*AWAITED, *AT_ONCE, *PAUSE]), stubborn=st.sampled_from([False, False, True]))
    def start_both(self, steps: list[tuple[str, int]], stubborn: bool) -> None:
        if not self.as_it_is:
            self.start(steps, stubborn)
            return
        self.settle_down()
        self.start([step for step in steps if step[0] not in PAUSE], stubborn)
        self.all_do("tick", 0)

    def settle_down(self) -> None:
        while any(driver.loop.busy for driver in self.everyone):
            self.all_do("tick", 0)
            self.all_look_the_same()

    @precondition(lambda self: not self.as_it_is)
    @rule(name=st.sampled_from([*AWAITED]), number=numbers)
    def start_both_bare(self, name: str, number: int) -> None:
        self.start_bare(name, number)


@pytest.fixture
def packages(request: pytest.FixtureRequest) -> dict[str, Any]:
    wanted = request.config.getoption("--backend")
    return {name: load(name) for name in (["rust", "pure"] if wanted == "both" else [wanted])}


def run(machine: type[Comparison], packages: dict[str, Any], examples: int) -> None:
    # Any, because hypothesis declares that it wants a class, and takes what makes a machine.
    new_machine: Any = lambda: machine(packages)  # noqa: E731
    run_state_machine_as_test(
        new_machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Hypothesis asks the collector who refers to its generator; the conftest has frozen who does.
hypothesis_warns = pytest.mark.filterwarnings(
    "ignore:It looks like `register_random` was passed:hypothesis.errors.HypothesisWarning"
)


@hypothesis_warns
@pytest.mark.timeout(170)
def test_backends_and_model_agree_on_every_result(packages: dict[str, Any]) -> None:
    run(ComparisonWithModel, packages, 100)


@pytest.mark.skipif(not HAS_ORACLE, reason="asyncio.Queue has had a shutdown since 3.13")
@hypothesis_warns
@pytest.mark.timeout(170)
def test_q1_backends_and_asyncio_agree_on_every_result(packages: dict[str, Any]) -> None:
    run(ComparisonWithOracle, packages, 100)


# What can be tried exhaustively.

Program = list[tuple[Any, ...]]


def steps_of(operation: tuple[Any, ...]) -> list[str]:
    return [name for name, _ in operation[1]] if operation[0] == "start" else []


def run_program(packages: dict[str, Any], kind: str, maxsize: int, program: Program) -> None:
    """Do these one after another, also on the model, and on `asyncio.Queue` if it can; compare after each."""
    make = KINDS[kind]
    drivers: dict[str, Driver] = {"model": ModelDriver(make(queue_model)(maxsize), False, together=True)}
    drivers |= {name: Driver(make(package)(maxsize), False) for name, package in packages.items()}
    if HAS_ORACLE and not any(step in OURS for operation in program for step in steps_of(operation)):
        drivers["asyncio"] = OracleDriver(make(asyncio)(maxsize), False)
    reference = drivers.pop("asyncio" if "asyncio" in drivers else "model")
    try:
        for operation in program:
            expected = reference.run(False, *operation)
            for name, driver in drivers.items():
                assert driver.run(False, *operation) == expected, (name, program, operation)
            assert_alike(reference, drivers)
    finally:
        for driver in (reference, *drivers.values()):
            driver.end()


TICK: Program = [("tick", 0)]


def started(*tasks: Sequence[str]) -> Program:
    """Tasks of these steps, begun; each puts another item."""
    starts = [("start", [(name, number) for name in steps], False) for number, steps in enumerate(tasks)]
    return [*starts, *TICK]


# How it begins, and what may follow.
SHORT: dict[str, tuple[Program, Program]] = {
    "getters": (started(["get"], ["get"], ["get"]), [("put_nowait", 8), ("get_nowait",), ("shutdown", True)]),
    "putters": (
        [("put_nowait", 9), *started(["put"], ["put"], ["put"])],
        [("put_nowait", 8), ("get_nowait",), ("shutdown", True)],
    ),
    "joiners": (
        [("put_nowait", 9), *started(["join"], ["put"], ["join"])],
        [("get_nowait",), ("task_done",), ("shutdown", True)],
    ),
    "getters in time": (
        started(["get"], ["get in 1"], ["get in 2"]),
        [("put_nowait", 8), ("get_nowait",), ("tick", 1.25)],
    ),
    "putters in time": (
        [("put_nowait", 9), *started(["put"], ["put in 1"], ["put in 2"])],
        [("put_nowait", 8), ("get_nowait",), ("tick", 1.25)],
    ),
    "joiners in time": (
        [("put_nowait", 9), *started(["join"], ["join in 1"], ["join in 2"])],
        [("put_nowait", 8), ("task_done",), ("tick", 1.25)],
    ),
}


@pytest.mark.parametrize("name", SHORT)
def test_s05_every_short_program(packages: dict[str, Any], name: str) -> None:
    """When three wait, any four operations."""
    beginning, choices = SHORT[name]
    for program in itertools.product([*choices, ("cancel", 0), ("cancel", 1), *TICK], repeat=4):
        run_program(packages, "fifo", 1, [*beginning, *program, *TICK * 3])


@pytest.mark.parametrize("kind", ["fifo", "priority", "hooked"])
def test_x7_any_two_tasks_are_cancelled_at_any_ticks(packages: dict[str, Any], kind: str) -> None:
    """S05: three producers and three consumers with a single place between them, and one who joins."""
    begin = started(
        ["put"] * 3, ["get"] * 2, ["put"] * 2, ["get"] * 3, ["put"] * 2, ["get", "task_done", "get"], ["join"]
    )
    ticks = 6
    points = list(itertools.product(range(ticks), range(7)))
    for first, second in itertools.combinations(points, 2):
        program = []
        for number in range(ticks):
            program += [("cancel", task) for tick, task in (first, second) if tick == number]
            program += TICK
        run_program(packages, kind, 1, [*begin, *program])


def test_x3_who_was_woken_together_resumes_together(packages: dict[str, Any]) -> None:
    """In the place of the first; from asyncio.Queue each would in a place of its own. The tick is the same."""
    found = {}
    makers = {**{name: package.Queue for name, package in packages.items()}, "asyncio": asyncio.Queue}
    for name, make in makers.items():
        driver = Driver(make(), False)
        program = [
            *started(["get"], ["get"]),
            ("put_nowait", 1),
            ("start", [("task_done", 0)], False),
            ("put_nowait", 2),
        ]
        for operation in [*program, *TICK]:
            driver.run(False, *operation)
        driver.loop.close()
        found[name] = [number for number, _, _ in driver.log]
    assert found == {**{name: [0, 1, 2] for name in packages}, "asyncio": [0, 2, 1]}
