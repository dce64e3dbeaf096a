"""What can be awaited, and the ways of asyncio and anyio to await it, each as a function of one coroutine."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple

from helpers import LIMIT, READS, WAITING, awaited
from queues import OPERATIONS, prepared, waiters

try:
    import anyio
except ImportError:
    anyio = None  # type: ignore[assignment]

Wait = Coroutine[Any, Any, Any]
Construct = Callable[[Wait], Awaitable[Any]]


class Case(NamedTuple):
    """A call that waits."""

    make: Callable[[Any], Any]
    """Gives the package's object on which it has to."""
    call: Callable[[Any], Wait]
    serve: Callable[[Any], object]
    """Brings what it waits for."""
    result: Any
    waiting: Callable[[Any], int]
    """How many wait on the object."""
    qualname: str


def set_to_1(w: Any) -> None:
    w.value = 1


def waiting_on_watcher(w: Any) -> int:
    counts = w.statistics()
    return int(counts.waiters + counts.subscriptions)


CASES: dict[str, Case] = {
    f"watcher {name}": Case(
        lambda package: package.ValueWatcher(None),
        call,
        set_to_1,
        awaited(name),
        waiting_on_watcher,
        f"{'Subscription' if name in READS else 'ValueWatcher'}.{'__anext__' if name == 'anext' else name}",
    )
    for name, call in WAITING.items()
}
for name, operation in OPERATIONS.items():
    for limit in (None, LIMIT):
        CASES[f"queue {name}({'' if limit is None else 'timeout'})"] = Case(
            lambda package, name=name: prepared(package, name),  # type: ignore[misc]
            lambda q, call=operation.call, limit=limit: call(q, limit),  # type: ignore[misc]
            operation.serve,
            1 if name == "get" else None,
            waiters,
            f"Queue.{name}",
        )
CASES["queue anext"] = CASES["queue get()"]._replace(call=anext, qualname="Queue.__anext__")

CONSTRUCTS: dict[str, Construct] = {}


def construct(function: Construct) -> Construct:
    CONSTRUCTS[function.__name__] = function
    return function


@construct
async def plain_await(wait: Wait) -> Any:
    return await wait


@construct
async def through_coroutines(wait: Wait) -> Any:
    return await plain_await(plain_await(wait))  # type: ignore[arg-type]


@construct
async def through_a_generator(wait: Wait) -> Any:
    @types.coroutine
    def generator() -> Generator[Any, Any, Any]:
        return (yield from wait.__await__())

    return await generator()


@construct
async def create_task(wait: Wait) -> Any:
    return await asyncio.create_task(wait, name="a task")


@construct
async def loop_create_task(wait: Wait) -> Any:
    return await asyncio.get_running_loop().create_task(wait)


@construct
async def ensure_future(wait: Wait) -> Any:
    return await asyncio.ensure_future(wait)


@construct
async def task_class(wait: Wait) -> Any:
    return await asyncio.Task(wait)


@construct
async def gather(wait: Wait) -> Any:
    return (await asyncio.gather(wait, asyncio.sleep(0)))[0]


@construct
async def gather_with_exceptions(wait: Wait) -> Any:
    return (await asyncio.gather(asyncio.sleep(0), wait, return_exceptions=True))[1]


@construct
async def shield(wait: Wait) -> Any:
    return await asyncio.shield(wait)


@construct
async def wait_for(wait: Wait) -> Any:
    return await asyncio.wait_for(wait, LIMIT)


@construct
async def wait_for_without_timeout(wait: Wait) -> Any:
    return await asyncio.wait_for(wait, None)


@construct
async def wait_for_shielded(wait: Wait) -> Any:
    return await asyncio.wait_for(asyncio.shield(wait), LIMIT)


@construct
async def wait_first_completed(wait: Wait) -> Any:
    never = asyncio.create_task(asyncio.sleep(LIMIT))
    done, _ = await asyncio.wait([asyncio.create_task(wait), never], return_when=asyncio.FIRST_COMPLETED)
    never.cancel()
    return done.pop().result()


@construct
async def as_completed(wait: Wait) -> Any:
    for first in asyncio.as_completed([wait], timeout=LIMIT):
        return await first


@construct
async def threadsafe(wait: Wait) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait, loop))


if sys.version_info >= (3, 11):

    @construct
    async def task_group(wait: Wait) -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(wait)
        return task.result()

    @construct
    async def timeout(wait: Wait) -> Any:
        async with asyncio.timeout(LIMIT):
            return await wait


if sys.version_info >= (3, 12):

    @construct
    async def eager_task(wait: Wait) -> Any:
        return await asyncio.Task(wait, loop=asyncio.get_running_loop(), eager_start=True)


if anyio is not None:

    @construct
    async def anyio_task_group(wait: Wait) -> Any:
        results: list[Any] = []

        async def child() -> None:
            results.append(await wait)

        async with anyio.create_task_group() as group:
            group.start_soon(child)
        return results[0]

    @construct
    async def anyio_start_soon(wait: Wait) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: wait)
        return None

    @construct
    async def anyio_fail_after(wait: Wait) -> Any:
        with anyio.fail_after(LIMIT):
            return await wait


def runners() -> dict[str, Callable[[Wait], Any]]:
    def new_loop(wait: Wait) -> Any:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(wait)
        finally:
            loop.close()

    found: dict[str, Callable[[Wait], Any]] = {"run_until_complete": new_loop, "asyncio.run": asyncio.run}
    if sys.version_info >= (3, 11):

        def runner(wait: Wait) -> Any:
            with asyncio.Runner() as made:
                return made.run(wait)

        found["Runner.run"] = runner
    if anyio is not None:
        found["anyio.run"] = lambda wait: anyio.run(lambda: wait)
    return found


RUNNERS = runners()
