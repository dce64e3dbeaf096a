"""The two backends' queues are one: same words, same results, same calls of what the user supplies."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from helpers import ticks
from interlock.demo.backends import load
from test_queue_hooks import BASES, HOOKS
from test_twins import Scenario, outcome

SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def awaited(wait: Any) -> Any:
    """What the await of a call gives; the call itself may raise, too."""
    return outcome(lambda: asyncio.run(wait()))


@scenario
def bad_arguments(twin: Any) -> Any:
    q = twin.Queue(2)
    q.put_nowait(1)
    calls: list[Callable[[], Any]] = [
        lambda: q.get(timeout=-1),
        lambda: q.put(1, timeout="1"),
        lambda: q.join(timeout=float("nan")),
        lambda: q.sync_q.get(timeout=-1),
        lambda: q.sync_q.put(1, timeout=[]),
        lambda: q.sync_q.join(-0.5),
        lambda: q.sync_q.join(0),
        lambda: q.sync_q.get_nowait() and q.sync_q.get(timeout=0),
        lambda: [q.task_done() for _ in range(3)],
        lambda: twin.Queue("1"),
        lambda: twin.Queue(True),
        lambda: twin.Queue(float("nan")),
        lambda: twin.PriorityQueue(key=1),
        lambda: twin.Queue.__new__(twin.Queue).put_nowait(1),
        lambda: asyncio.run(twin.Queue.__new__(twin.Queue).put(1)),
        lambda: twin.Queue.__new__(twin.Queue).statistics(),
        lambda: repr(q) and None,
        lambda: q.__reduce__(),
        lambda: q.__init__(3),
        lambda: (q.maxsize, q.qsize()),
    ]
    return [outcome(call) for call in calls]


@scenario
def after_each_shutdown(twin: Any) -> Any:
    found: list[Any] = []
    for cls, shut, items in itertools.product(BASES, ("shutdown", "abort", "close"), range(3)):
        q = getattr(twin, cls)(2)
        for item in range(items):
            q.put_nowait(item)
        found.append(getattr(q, shut)())
        calls: list[Callable[[], Any]] = [
            lambda: q.put_nowait(1),  # noqa: B023
            lambda: asyncio.run(q.put(1)),  # noqa: B023
            lambda: q.get_nowait(),  # noqa: B023
            lambda: asyncio.run(q.get()),  # noqa: B023
            lambda: asyncio.run(q.get(timeout=0)),  # noqa: B023
            lambda: asyncio.run(anext(q)),  # noqa: B023
            lambda: q.sync_q.get(),  # noqa: B023
            lambda: asyncio.run(q.join(timeout=0)),  # noqa: B023
            lambda: [q.task_done() for _ in range(3)],  # noqa: B023
            lambda: asyncio.run(q.join()),  # noqa: B023
            lambda: q.abort(),  # noqa: B023
            lambda: vars(q.statistics()),  # noqa: B023
        ]
        found.append([outcome(call) for call in calls])
    return found


@scenario
def representations(twin: Any) -> Any:
    found: list[Any] = []
    for cls in BASES:
        q = getattr(twin, cls)(9)
        for item in (5, 3, 8, 1, 9, 2):
            q.put_nowait(item)
            found.append(str(q))
        q.get_nowait()
        found += [str(q), re.sub("0x[0-9a-f]+", "", repr(q)), re.sub("0x[0-9a-f]+", "", repr(q.sync_q))]
        waits = [q.get(), q.put(1), q.join(), anext(q)]
        for wait in waits:
            found += [wait.__name__, wait.__qualname__, repr(wait).split(" at ")[0]]
            wait.close()
        del wait, waits
        found.append(repr(q.statistics()))
    return found


@scenario
def order_of_what_has_none(twin: Any) -> Any:
    """A nan: whatever comes out, it is the same on both."""
    randomly = random.Random(5)
    nan = float("nan")
    q = twin.PriorityQueue()
    found = []
    for _ in range(300):
        q.put_nowait(randomly.choice([nan, 1.0, 2.0, 3.0, 4, 10**30]))
        if randomly.random() < 0.4:
            found.append(repr(q.get_nowait()))
    return [*found, *map(repr, q.abort())]


@scenario
def what_is_compared(twin: Any) -> Any:
    """A comparison is the user's code: the same ones are made."""
    compared: list[Any] = []

    class Item:
        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: Any) -> bool:
            compared.append((self.number, other.number))
            return bool(self.number < other.number)

    randomly = random.Random(6)
    q, keyed = twin.PriorityQueue(), twin.PriorityQueue(key=Item)
    for _ in range(100):
        number = randomly.randrange(20)
        q.put_nowait(Item(number))
        keyed.put_nowait(number)
        if randomly.random() < 0.4:
            compared.append((q.get_nowait().number, keyed.get_nowait()))
    compared.append(keyed.abort())
    return compared


@scenario
def when_the_key_is_called(twin: Any) -> Any:
    found: list[Any] = []
    keyed: list[int] = []

    def key(item: int) -> int:
        keyed.append(item)
        return item

    q = twin.PriorityQueue(1, key=key)
    calls: list[Callable[[], Any]] = [
        lambda: q.put_nowait(1),
        lambda: q.put_nowait(2),
        lambda: q.sync_q.put_nowait(2),
        lambda: q.sync_q.put(2, timeout=0),
        lambda: q.sync_q.put(2, timeout=0.001),
        lambda: asyncio.run(q.put(2, timeout=0)),
        lambda: asyncio.run(q.put(2, timeout=0.001)),
        lambda: q.put(2).close(),
        lambda: q.put(2, timeout=-1),
        lambda: q.sync_q.put(2, timeout=-1),
        lambda: q.get_nowait(),
        lambda: q.sync_q.put(2),
        lambda: q.abort(),
        lambda: q.put_nowait(3),
        lambda: q.sync_q.put(3),
        lambda: asyncio.run(q.put(3)),
    ]
    for call in calls:
        found.append((outcome(call), keyed[:]))
        keyed.clear()
    return found


@scenario
def what_each_operation_calls(twin: Any) -> Any:
    """The hooks, and the methods that are overridden, one after another."""
    found: list[Any] = []
    for base in BASES:
        calls: list[str] = []

        def logging(name: str, base: str = base, calls: list[str] = calls) -> Callable[..., Any]:
            def method(self: Any, *arguments: Any) -> Any:
                calls.append(name)
                return getattr(getattr(twin, base), name)(self, *arguments)

            return method

        q: Any = type("Logging", (getattr(twin, base),), {name: logging(name) for name in HOOKS})(2)
        operations: list[Callable[[], Any]] = [
            lambda: q.put_nowait(1),  # noqa: B023
            lambda: asyncio.run(q.put(2)),  # noqa: B023
            lambda: q.put_nowait(3),  # noqa: B023
            lambda: asyncio.run(q.put(3, timeout=0)),  # noqa: B023
            lambda: q.sync_q.put(3, timeout=0),  # noqa: B023
            lambda: q.qsize() + q.full() + q.empty(),  # noqa: B023
            lambda: str(q),  # noqa: B023
            lambda: vars(q.statistics()),  # noqa: B023
            lambda: q.get_nowait(),  # noqa: B023
            lambda: asyncio.run(q.get()),  # noqa: B023
            lambda: asyncio.run(q.get(timeout=0)),  # noqa: B023
            lambda: q.sync_q.get(timeout=0),  # noqa: B023
            lambda: q.sync_q.put(4),  # noqa: B023
            lambda: q.sync_q.get(),  # noqa: B023
            lambda: asyncio.run(q.put(5)),  # noqa: B023
            lambda: asyncio.run(anext(q)),  # noqa: B023
            lambda: asyncio.run(q.join(timeout=0)),  # noqa: B023
            lambda: q.put_nowait(6),  # noqa: B023
            lambda: q.task_done(),  # noqa: B023
            lambda: q.abort(),  # noqa: B023
            lambda: q.shutdown(immediate=True),  # noqa: B023
            lambda: q.get_nowait(),  # noqa: B023
            lambda: asyncio.run(q.put(5)),  # noqa: B023
        ]
        for operation in operations:
            calls.clear()
            found.append((outcome(operation), calls[:]))
    return found


@scenario
def errors_in_user_code(twin: Any) -> Any:
    found: list[Any] = []
    for error in (ValueError, StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit, BaseException):

        class Bad:
            def __lt__(self, other: Any) -> Any:
                raise error("bad")  # noqa: B023

        def bad(*arguments: Any) -> Any:
            raise error("bad")  # noqa: B023

        keyed, plain = twin.PriorityQueue(key=bad), twin.PriorityQueue()
        plain.put_nowait(Bad())
        for q in (keyed, plain):
            found += [outcome(lambda: q.put_nowait(Bad())), outcome(lambda: q.sync_q.put(Bad()))]  # noqa: B023
            if error not in (KeyboardInterrupt, SystemExit):
                found.append(awaited(lambda: q.put(Bad())))  # noqa: B023
            found.append((vars(q.statistics()), len(q.abort())))
        for hook in ("_put", "_get"):
            hooked = type("Hooked", (twin.Queue,), {hook: bad})()
            found += [outcome(lambda: hooked.put_nowait(1)), outcome(hooked.get_nowait), outcome(hooked.abort)]  # noqa: B023
            found.append(vars(hooked.statistics()))
    return found


@scenario
def who_is_served(twin: Any) -> Any:
    """Tasks that wait, and others that come between."""
    served: list[Any] = []

    async def one(name: str, wait: Any) -> None:
        try:
            served.append((name, await wait))
        except BaseException as error:
            served.append((name, type(error).__name__))
            raise

    async def main() -> None:
        q = twin.Queue(2)
        tasks = [asyncio.create_task(one(f"get {n}", q.get(timeout=None if n % 2 else 50))) for n in range(4)]
        await ticks(2)
        tasks += [asyncio.create_task(one(f"put {n}", q.put(n))) for n in range(9)]
        tasks.append(asyncio.create_task(one("join", q.join())))
        q.put_nowait("early")
        served.append(("nowait", q.get_nowait()))
        tasks[1].cancel()
        for _ in range(8):
            await ticks()
            served.append(vars(q.statistics()))
        served.append(q.get_nowait())
        tasks[8].cancel()
        await ticks(3)
        q.shutdown()
        await ticks(3)
        served.append(q.abort())
        for _ in range(q.unfinished_tasks):
            q.task_done()
        await asyncio.wait(tasks)
        for task in tasks:
            task.cancelled() or task.exception()

    asyncio.run(main())
    return served


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda function: function.__name__)
def test_they_give_the_same_results(function: Scenario) -> None:
    rust, pure = (function(load(backend)) for backend in ("rust", "pure"))
    assert rust == pure
