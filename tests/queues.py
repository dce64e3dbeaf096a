"""What the tests of the queues share: each kind of queue, its account, and what waits on it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from helpers import when

Make = Callable[..., Any]


def hooked(base: Any) -> Any:
    """A subclass that keeps its items in Python, in the way of its base."""

    class Hooked(base):  # type: ignore[misc]
        def _put(self, item: Any) -> None:
            super()._put(item)

    return Hooked


# Each takes the package and gives what makes a queue. Whole numbers come out of all but the LIFO ones in
# the order in which they grow.
KINDS: dict[str, Callable[[Any], Make]] = {
    "fifo": lambda package: package.Queue,
    "lifo": lambda package: package.LifoQueue,
    "priority": lambda package: package.PriorityQueue,
    "key": lambda package: functools.partial(package.PriorityQueue, key=lambda item: 0),
    "hooked": lambda package: hooked(package.Queue),
    "hooked priority": lambda package: hooked(package.PriorityQueue),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(package: Any, kind: str, maxsize: Any = 0) -> Any:
    return KINDS[kind](package)(maxsize)


class Operation(NamedTuple):
    """A call that has to wait on a queue of one place."""

    prepare: Callable[[Any], object]
    """Puts the queue in a state in which it waits."""
    call: Callable[[Any, float | None], Coroutine[Any, Any, Any]]
    serve: Callable[[Any], object]
    """Brings what it waits for."""
    waiting: str
    """Where `statistics()` counts it."""


def nothing(q: Any) -> None:
    """An empty queue is all that a `get` needs to wait."""


OPERATIONS: dict[str, Operation] = {
    "get": Operation(nothing, lambda q, timeout: q.get(timeout=timeout), lambda q: q.put_nowait(1), "getters"),
    "put": Operation(
        lambda q: q.put_nowait(0), lambda q, timeout: q.put(1, timeout=timeout), lambda q: q.get_nowait(), "putters"
    ),
    "join": Operation(
        lambda q: q.put_nowait(0), lambda q, timeout: q.join(timeout=timeout), lambda q: q.task_done(), "joiners"
    ),
}
every_operation = pytest.mark.parametrize("name", OPERATIONS)

# The same for threads.
BLOCKING: dict[str, Callable[[Any, float | None], Any]] = {
    "get": lambda q, timeout: q.sync_q.get(timeout=timeout),
    "put": lambda q, timeout: q.sync_q.put(1, timeout=timeout),
    "join": lambda q, timeout: q.sync_q.join(timeout=timeout),
}


def prepared(package: Any, name: str, kind: str = "fifo") -> Any:
    """A queue on which this operation has to wait."""
    q = make(package, kind, 1)
    OPERATIONS[name].prepare(q)
    return q


def start(name: str, q: Any, timeout: float | None = None) -> asyncio.Task[Any]:
    return asyncio.ensure_future(OPERATIONS[name].call(q, timeout))


def assert_account(q: Any, **expected: int) -> None:
    """These figures, and the sum that always holds."""
    figures = q.statistics()
    assert {name: getattr(figures, name) for name in expected} == expected, figures
    assert figures.accepted == figures.size + figures.delivered + figures.dropped, figures


def assert_nobody_waits(q: Any) -> None:
    """X6."""
    assert_account(q, getters=0, putters=0, joiners=0)


def drain(q: Any) -> list[Any]:
    """What can be got at once."""
    return [q.get_nowait() for _ in range(q.qsize())]


def waiters(q: Any) -> int:
    figures = q.statistics()
    return int(figures.getters + figures.putters + figures.joiners)


def when_waiting(q: Any, count: int, function: Callable[[], Any]) -> Callable[[], Any]:
    """Call the function once so many wait on `q`."""
    return when(lambda: waiters(q), count, function)


def in_daemon(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """As `asyncio.to_thread`; but a thread that stays blocked does not keep the interpreter from its end."""
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def work() -> None:
        try:
            done.set_result(function(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return asyncio.wrap_future(done)


async def until_waiting(q: Any, count: int) -> None:
    """Let others run until so many wait on `q`."""
    while waiters(q) != count:
        await asyncio.sleep(0.001)
