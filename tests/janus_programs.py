"""Programs that run on `janus` and on interlock, each with what it must give.

A program takes the names it needs (`Names`) and returns what it observed. Most give the same on both.
Where interlock differs, both observations stand beside the program, so that the list in the documentation
cannot drift from either.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from helpers import LIMIT, ticks

janus: Any = pytest.importorskip("janus", reason="needs 'janus'")

WAITING = "still waiting"
RETURNED = "returned"

# The exceptions, by names that say which side raises them.
EMPTY, FULL, SHUT_DOWN = "empty (thread)", "full (thread)", "shut down (thread)"
TASK_EMPTY, TASK_FULL, TASK_SHUT_DOWN = "empty (task)", "full (task)", "shut down (task)"


class Names:
    """What a program needs to be told: the classes, and which exception is which."""

    def __init__(self, module: Any) -> None:
        self.Queue: Any = module.Queue
        self.PriorityQueue: Any = module.PriorityQueue
        self.LifoQueue: Any = module.LifoQueue
        theirs = module is janus
        self._blocked = _blocked_on_theirs if theirs else _blocked_on_ours
        self._errors: dict[type[BaseException], str] = {
            queue.Empty: EMPTY,
            queue.Full: FULL,
            module.SyncQueueShutDown: SHUT_DOWN,
            asyncio.QueueEmpty: TASK_EMPTY,
            asyncio.QueueFull: TASK_FULL,
            (module.AsyncQueueShutDown if theirs else module.QueueShutDown): TASK_SHUT_DOWN,
        }

    def _named(self, error: BaseException) -> str:
        return self._errors.get(type(error)) or type(error).__name__

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What the call returns, or the name of what it raises."""
        try:
            found = function(*arguments, **options)
        except Exception as error:
            return self._named(error)
        return RETURNED if found is None else found

    async def wait(self, awaitable: Awaitable[Any]) -> Any:
        """What it returns, or the name of what it raises."""
        try:
            found = await awaitable
        except Exception as error:
            return self._named(error)
        return RETURNED if found is None else found

    def in_thread(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> asyncio.Future[Any]:
        """`call` in a thread; a future of what it gives. The thread holds up nobody if it hangs."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(found: Any) -> None:
            if not future.done():
                future.set_result(found)

        def work() -> None:
            loop.call_soon_threadsafe(settle, self.call(function, *arguments, **options))

        threading.Thread(target=work, daemon=True).start()
        return future

    async def until_blocked(self, q: Any, count: int) -> None:
        """Until so many calls wait on the queue, those of tasks and those of threads together."""
        while self._blocked(q) != count:
            await asyncio.sleep(0.001)


def _blocked_on_theirs(q: Any) -> int:
    waits = ("not_empty", "not_full", "tasks_done")
    return sum(getattr(q, f"_{side}_{wait}_waiting") for side in ("sync", "async") for wait in waits)


def _blocked_on_ours(q: Any) -> int:
    account = q.statistics()
    blocked: int = account.getters + account.putters + account.joiners
    return blocked


Program = Callable[[Names], object]


@dataclass(frozen=True)
class Case:
    program: Program
    theirs: object
    ours: object


CASES: list[Case] = []


def differs(*, theirs: object, ours: object) -> Callable[[Any], Any]:
    def register(program: Any) -> Any:
        if inspect.iscoroutinefunction(program):
            program = _in_a_loop(program)
        CASES.append(Case(program, theirs, ours))
        return program

    return register


def agrees(value: object) -> Callable[[Any], Any]:
    return differs(theirs=value, ours=value)


def _in_a_loop(main: Callable[[Names], Coroutine[Any, Any, object]]) -> Program:
    def program(names: Names) -> object:
        return asyncio.run(asyncio.wait_for(main(names), LIMIT))

    program.__name__ = main.__name__
    return program


# Order and account.


def order(q: Any) -> list[Any]:
    for item in (3, 1, 2):
        q.sync_q.put(item)
    return [q.sync_q.get() for _ in range(3)]


@agrees([[3, 1, 2], [1, 2, 3], [2, 1, 3]])
def items_come_out_in_the_order_of_the_class(names: Names) -> object:
    return [order(names.Queue()), order(names.PriorityQueue()), order(names.LifoQueue())]


@agrees([[3, 1, 2], [1, 2, 3], [2, 1, 3]])
def classes_can_be_subscripted(names: Names) -> object:
    return [order(names.Queue[int]()), order(names.PriorityQueue[int]()), order(names.LifoQueue[int](maxsize=3))]


@agrees([(number, number) for number in range(16)])
async def what_one_side_puts_the_other_gets(names: Names) -> object:
    q = names.Queue()
    puts = [q.sync_q.put, q.sync_q.put_nowait, q.async_q.put, q.async_q.put_nowait]
    gets = [q.sync_q.get, q.sync_q.get_nowait, q.async_q.get, q.async_q.get_nowait]
    found = []
    for number, (put, get) in enumerate(itertools.product(puts, gets)):
        if (putting := put(number)) is not None:
            await putting
        item = get()
        found.append((number, item if isinstance(item, int) else await item))
    return found


def account(q: Any) -> list[Any]:
    sides = (q.sync_q, q.async_q)
    return [
        q.maxsize,
        q.closed,
        *((s.maxsize, s.qsize(), s.empty(), s.full(), s.unfinished_tasks, s.closed) for s in sides),
    ]


@agrees(
    [
        [2, False, *[(2, 0, True, False, 0, False)] * 2],
        [2, False, *[(2, 1, False, False, 1, False)] * 2],
        [2, False, *[(2, 2, False, True, 2, False)] * 2],
        [2, False, *[(2, 1, False, False, 2, False)] * 2],
        [2, False, *[(2, 1, False, False, 1, False)] * 2],
        [2, True, *[(2, 1, False, False, 1, True)] * 2],
        [2, True, *[(2, 0, True, False, 0, True)] * 2],
    ]
)
async def both_sides_give_the_same_account(names: Names) -> object:
    q = names.Queue(2)
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: q.sync_q.put(1),
        lambda: q.async_q.put_nowait(2),
        lambda: q.sync_q.get(),
        lambda: q.async_q.task_done(),
        lambda: q.sync_q.shutdown(),
        lambda: q.async_q.shutdown(immediate=True),
    ]
    found = []
    for step in steps:
        step()
        found.append(account(q))
    return found


@agrees([(0, False), (-1, False), (-7, False)])
def a_maxsize_of_zero_or_less_is_no_limit(names: Names) -> object:
    found = []
    for maxsize in (0, -1, -7):
        q = names.Queue(maxsize)
        for item in range(1000):
            q.sync_q.put_nowait(item)
        found.append((q.sync_q.maxsize, q.async_q.full()))
    return found


@agrees(["ValueError", RETURNED, "ValueError", RETURNED, "ValueError", "ValueError"])
async def task_done_too_often(names: Names) -> object:
    q = names.Queue()
    found = [names.call(q.sync_q.task_done)]
    for first, second in ((q.sync_q, q.async_q), (q.async_q, q.sync_q)):
        q.sync_q.put(1)
        q.sync_q.get()
        found += [names.call(first.task_done), names.call(second.task_done)]
    return [*found, names.call(q.async_q.task_done)]


# Empty and full.


@agrees([EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, TASK_EMPTY])
async def getting_from_an_empty_queue(names: Names) -> object:
    q = names.Queue()
    return [
        names.call(q.sync_q.get_nowait),
        names.call(q.sync_q.get, block=False),
        names.call(q.sync_q.get, False, -1),  # a timeout that is not used is not looked at
        await names.in_thread(q.sync_q.get, timeout=0.01),
        await names.in_thread(q.sync_q.get, True, 0),
        names.call(q.async_q.get_nowait),
    ]


@agrees([FULL, FULL, FULL, FULL, FULL, TASK_FULL, [1]])
async def putting_into_a_full_queue(names: Names) -> object:
    q = names.Queue(1)
    q.sync_q.put(1)
    return [
        names.call(q.sync_q.put_nowait, 2),
        names.call(q.sync_q.put, 2, block=False),
        names.call(q.sync_q.put, 2, False, -1),
        await names.in_thread(q.sync_q.put, 2, timeout=0.01),
        await names.in_thread(q.sync_q.put, 2, True, 0),
        names.call(q.async_q.put_nowait, 2),
        [q.sync_q.get() for _ in range(q.sync_q.qsize())],
    ]


@agrees(["ValueError", "ValueError", 1])
def a_negative_timeout(names: Names) -> object:
    q = names.Queue(1)
    found = [names.call(q.sync_q.get, timeout=-1)]
    q.sync_q.put(1)
    return [*found, names.call(q.sync_q.put, 2, timeout=-0.1), q.sync_q.get()]


@agrees([RETURNED, EMPTY, RETURNED, FULL])
def a_timeout_of_zero_in_a_loops_own_thread(names: Names) -> object:
    """It blocks nobody, so it is none of the calls that are refused there."""

    async def main() -> object:
        q = names.Queue(1)
        return [
            names.call(q.sync_q.put, 1, timeout=0),
            names.call(lambda: [q.sync_q.get(timeout=0), q.sync_q.get(timeout=0)]),
            names.call(q.sync_q.put, 1, timeout=0),
            names.call(q.sync_q.put, 1, timeout=0),
        ]

    return asyncio.run(main())


# Waiting, across the sides.


@agrees([[1, 2], [1, 2]])
async def blocked_gets_are_woken_by_either_side(names: Names) -> object:
    found = []
    for put in ("sync_q", "async_q"):
        q = names.Queue()
        gets = [names.in_thread(q.sync_q.get), asyncio.ensure_future(names.wait(q.async_q.get()))]
        await names.until_blocked(q, 2)
        for item in (1, 2):
            getattr(q, put).put_nowait(item)
        found.append(sorted(await asyncio.gather(*gets)))
    return found


@agrees([[0, 1, 2], [0, 1, 2]])
async def blocked_puts_are_woken_by_either_side(names: Names) -> object:
    found = []
    for get in ("sync_q", "async_q"):
        q = names.Queue(1)
        q.sync_q.put(0)
        puts = [names.in_thread(q.sync_q.put, 1), asyncio.ensure_future(names.wait(q.async_q.put(2)))]
        await names.until_blocked(q, 2)
        items: list[int] = []
        while len(items) < 3:
            try:
                items.append(getattr(q, get).get_nowait())
            except (queue.Empty, asyncio.QueueEmpty):
                await asyncio.sleep(0.001)
        assert await asyncio.gather(*puts) == [RETURNED, RETURNED]
        found.append(sorted(items))
    return found


@agrees([[WAITING, WAITING], [RETURNED, RETURNED]] * 2)
async def joins_end_with_the_last_task_done_of_either_side(names: Names) -> object:
    found = []
    for side in ("sync_q", "async_q"):
        q = names.Queue()
        for item in range(2):
            q.sync_q.put(item)
            q.sync_q.get()
        joins = [names.in_thread(q.sync_q.join), asyncio.ensure_future(names.wait(q.async_q.join()))]
        await names.until_blocked(q, 2)
        getattr(q, side).task_done()
        await ticks(20)
        found.append([join.result() if join.done() else WAITING for join in joins])
        getattr(q, side).task_done()
        found.append(await asyncio.gather(*joins))
    return found


@agrees([RETURNED, RETURNED])
async def a_join_with_nothing_unfinished(names: Names) -> object:
    q = names.Queue()
    return [names.call(q.sync_q.join), await names.wait(q.async_q.join())]


@agrees([(True, RETURNED)] * 3)
async def a_thread_feeds_the_loop(names: Names) -> object:
    """Q10, and backpressure."""
    found = []
    for maxsize in (0, 1, 10):
        q = names.Queue(maxsize)

        def produce(q: Any = q) -> None:
            for item in range(1000):
                q.sync_q.put(item)
            q.sync_q.join()

        done = names.in_thread(produce)
        items = []
        for _ in range(1000):
            items.append(await q.async_q.get())
            q.async_q.task_done()
        found.append((items == list(range(1000)), await done))
    return found


@agrees([(True, RETURNED)] * 3)
async def the_loop_feeds_a_thread(names: Names) -> object:
    found = []
    for maxsize in (0, 1, 10):
        q = names.Queue(maxsize)
        items: list[int] = []

        def consume(q: Any = q, items: list[int] = items) -> None:
            for _ in range(1000):
                items.append(q.sync_q.get())
                q.sync_q.task_done()

        done = names.in_thread(consume)
        for item in range(1000):
            await q.async_q.put(item)
        await q.async_q.join()
        found.append((items == list(range(1000)), await done))
    return found


@agrees(["CancelledError", "TimeoutError", 1])
async def a_get_that_was_given_up_has_taken_nothing(names: Names) -> object:
    """Q2, S01."""
    q = names.Queue()
    get = asyncio.ensure_future(q.async_q.get())
    await names.until_blocked(q, 1)
    get.cancel()
    found: list[Any] = []
    try:
        await get
    except asyncio.CancelledError:
        found.append("CancelledError")
    found.append(await names.wait(asyncio.wait_for(q.async_q.get(), 0.01)))
    q.sync_q.put(1)
    return [*found, await q.async_q.get()]


@agrees(["CancelledError", "TimeoutError", 1, EMPTY])
async def a_put_that_was_given_up_has_put_nothing(names: Names) -> object:
    """Q3, S04."""
    q = names.Queue(1)
    q.sync_q.put(1)
    put = asyncio.ensure_future(q.async_q.put(2))
    await names.until_blocked(q, 1)
    put.cancel()
    found: list[Any] = []
    try:
        await put
    except asyncio.CancelledError:
        found.append("CancelledError")
    found.append(await names.wait(asyncio.wait_for(q.async_q.put(3), 0.01)))
    found.append(q.sync_q.get())
    await ticks(20)
    return [*found, names.call(q.sync_q.get_nowait)]


# Shutdown.


async def everything(names: Names, q: Any) -> dict[str, Any]:
    """What each method gives on a queue that was shut down; the ones that take, last."""
    return {
        "put": await names.wait(q.async_q.put(9)),
        "put_nowait": names.call(q.async_q.put_nowait, 9),
        "sync put": names.call(q.sync_q.put, 9),
        "sync put, timeout": names.call(q.sync_q.put, 9, timeout=1),
        "sync put_nowait": names.call(q.sync_q.put_nowait, 9),
        "get": await names.wait(q.async_q.get()),
        "get_nowait": names.call(q.async_q.get_nowait),
        "sync get": names.call(q.sync_q.get),
        "sync get, timeout": names.call(q.sync_q.get, timeout=1),
        "sync get_nowait": names.call(q.sync_q.get_nowait),
        "unfinished": q.sync_q.unfinished_tasks,
    }


PUTS_END = {
    "put": TASK_SHUT_DOWN,
    "put_nowait": TASK_SHUT_DOWN,
    "sync put": SHUT_DOWN,
    "sync put, timeout": SHUT_DOWN,
    "sync put_nowait": SHUT_DOWN,
}
GETS_END = {
    "get": TASK_SHUT_DOWN,
    "get_nowait": TASK_SHUT_DOWN,
    "sync get": SHUT_DOWN,
    "sync get, timeout": SHUT_DOWN,
    "sync get_nowait": SHUT_DOWN,
    "unfinished": 0,
}
GETS_DRAIN = {"get": 0, "get_nowait": 1, "sync get": 2, "sync get, timeout": 3, "sync get_nowait": 4, "unfinished": 5}


async def after(names: Names, items: int, *shutdowns: bool) -> dict[str, Any]:
    q = names.Queue(5)
    for item in range(items):
        q.sync_q.put(item)
    for immediate in shutdowns:
        q.shutdown(immediate)
    return await everything(names, q)


@agrees(PUTS_END | GETS_DRAIN)
async def a_graceful_shutdown_of_a_full_queue(names: Names) -> object:
    """Q5, S15."""
    return await after(names, 5, False)


@agrees(PUTS_END | GETS_END)
async def a_graceful_shutdown_of_an_empty_queue(names: Names) -> object:
    return await after(names, 0, False)


@agrees(PUTS_END | GETS_END)
async def an_immediate_shutdown(names: Names) -> object:
    """Q6, S15."""
    return await after(names, 5, True)


@agrees([PUTS_END | GETS_DRAIN, PUTS_END | GETS_END, PUTS_END | GETS_END])
async def one_shutdown_after_another(names: Names) -> object:
    ways = ((False, False), (False, True), (True, False))
    return [await after(names, 5, *shutdowns) for shutdowns in ways]


def blocked_calls(names: Names, q: Any) -> dict[str, Any]:
    return {
        "get": asyncio.ensure_future(names.wait(q.async_q.get())),
        "sync get": names.in_thread(q.sync_q.get),
        "sync get, timeout": names.in_thread(q.sync_q.get, timeout=LIMIT),
    }


@agrees([{"get": TASK_SHUT_DOWN, "sync get": SHUT_DOWN, "sync get, timeout": SHUT_DOWN}] * 4)
async def a_shutdown_wakes_blocked_gets(names: Names) -> object:
    """S13, S19."""
    found = []
    for side, immediate in itertools.product(("sync_q", "async_q"), (False, True)):
        q = names.Queue()
        calls = blocked_calls(names, q)
        await names.until_blocked(q, 3)
        getattr(q, side).shutdown(immediate=immediate)
        found.append({name: await call for name, call in calls.items()})
    return found


@agrees([({"put": TASK_SHUT_DOWN, "sync put": SHUT_DOWN, "sync put, timeout": SHUT_DOWN}, size) for size in (1, 0)] * 2)
async def a_shutdown_wakes_blocked_puts(names: Names) -> object:
    """Q3, S19."""
    found = []
    for side, immediate in itertools.product(("sync_q", "async_q"), (False, True)):
        q = names.Queue(1)
        q.sync_q.put(0)
        calls: dict[str, Any] = {
            "put": asyncio.ensure_future(names.wait(q.async_q.put(1))),
            "sync put": names.in_thread(q.sync_q.put, 2),
            "sync put, timeout": names.in_thread(q.sync_q.put, 3, timeout=LIMIT),
        }
        await names.until_blocked(q, 3)
        getattr(q, side).shutdown(immediate=immediate)
        found.append(({name: await call for name, call in calls.items()}, q.sync_q.qsize()))
    return found


@agrees([[WAITING, WAITING, 2], [WAITING, WAITING, 1], [RETURNED, RETURNED, 0]])
async def joins_after_a_graceful_shutdown(names: Names) -> object:
    """What is there has still to be worked off (Q5)."""
    q = names.Queue()
    q.sync_q.put(1)
    q.sync_q.put(2)
    joins = [names.in_thread(q.sync_q.join), asyncio.ensure_future(names.wait(q.async_q.join()))]
    await names.until_blocked(q, 2)
    q.shutdown()
    await ticks(20)
    found = [[*(join.result() if join.done() else WAITING for join in joins), q.sync_q.unfinished_tasks]]
    q.sync_q.get()
    q.sync_q.task_done()
    await ticks(20)
    found.append([*(join.result() if join.done() else WAITING for join in joins), q.sync_q.unfinished_tasks])
    q.sync_q.get()
    q.sync_q.task_done()
    return [*found, [*await asyncio.gather(*joins), q.sync_q.unfinished_tasks]]


@agrees([[WAITING, WAITING, 1], [RETURNED, RETURNED, 0]])
async def joins_after_an_immediate_shutdown(names: Names) -> object:
    """What was got before holds them, what was dropped does not (Q6)."""
    q = names.Queue()
    q.sync_q.put(1)
    q.sync_q.put(2)
    q.sync_q.get()
    joins = [names.in_thread(q.sync_q.join), asyncio.ensure_future(names.wait(q.async_q.join()))]
    await names.until_blocked(q, 2)
    q.shutdown(immediate=True)
    await ticks(20)
    found = [[*(join.result() if join.done() else WAITING for join in joins), q.sync_q.unfinished_tasks]]
    q.sync_q.task_done()
    return [*found, [*await asyncio.gather(*joins), q.sync_q.unfinished_tasks]]


@agrees([RETURNED, RETURNED])
async def an_immediate_shutdown_releases_joins_of_a_queue_that_nobody_reads(names: Names) -> object:
    """S19: a join on a closed queue that hangs."""
    q = names.Queue()
    q.sync_q.put(1)
    joins = [names.in_thread(q.sync_q.join), asyncio.ensure_future(names.wait(q.async_q.join()))]
    await names.until_blocked(q, 2)
    q.close()
    return await asyncio.gather(*joins)


# Closing.


@agrees([False, "RuntimeError", RETURNED, True, RETURNED, RETURNED, RETURNED, True, PUTS_END | GETS_END])
async def close_and_wait_closed(names: Names) -> object:
    q = names.Queue(5)
    q.sync_q.put(1)
    found = [q.closed, await names.wait(q.wait_closed()), names.call(q.close)]
    found += [q.closed, await names.wait(q.wait_closed())]
    found += [names.call(q.close), await names.wait(q.wait_closed()), q.sync_q.closed and q.async_q.closed]
    return [*found, await everything(names, q)]


@agrees([RETURNED, True, RETURNED, PUTS_END | GETS_END])
async def aclose(names: Names) -> object:
    q = names.Queue(5)
    q.sync_q.put(1)
    found = [await names.wait(q.aclose()), q.closed, await names.wait(q.aclose())]
    return [*found, await everything(names, q)]


@agrees([TASK_SHUT_DOWN, SHUT_DOWN, TASK_SHUT_DOWN, SHUT_DOWN, RETURNED])
async def aclose_wakes_everybody(names: Names) -> object:
    empty, full = names.Queue(), names.Queue(1)
    full.sync_q.put(0)
    calls = [
        asyncio.ensure_future(names.wait(empty.async_q.get())),
        names.in_thread(empty.sync_q.get),
        asyncio.ensure_future(names.wait(full.async_q.put(1))),
        names.in_thread(full.sync_q.put, 1),
        names.in_thread(full.sync_q.join),
    ]
    await names.until_blocked(empty, 2)
    await names.until_blocked(full, 3)
    await empty.aclose()
    await full.aclose()
    return await asyncio.gather(*calls)


@agrees([1, 2, SHUT_DOWN, RETURNED])
def a_queue_of_threads_alone(names: Names) -> object:
    """With no loop at all, ever."""
    q = names.Queue()
    q.sync_q.put(1)
    q.sync_q.put(2)
    q.shutdown()
    found = [names.call(q.sync_q.get) for _ in range(3)]
    q.sync_q.task_done()
    q.sync_q.task_done()
    return [*found, names.call(q.sync_q.join)]


# Subclasses.


@agrees([["get", "init", "put", "qsize"], [3, 2, 1], SHUT_DOWN, 0])
def a_subclass_keeps_its_items_in_its_own_way(names: Names) -> object:
    called: list[str] = []

    class Distinct(names.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        """A set of items, the largest first."""

        def _init(self, maxsize: int) -> None:
            called.append("init")
            self._items: set[int] = set()

        def _qsize(self) -> int:
            called.append("qsize")
            return len(self._items)

        def _put(self, item: int) -> None:
            called.append("put")
            self._items.add(item)

        def _get(self) -> int:
            called.append("get")
            item = max(self._items)
            self._items.remove(item)
            return item

    q = Distinct()
    for item in (2, 1, 2, 3, 1):
        q.sync_q.put(item)
    items = [q.sync_q.get() for _ in range(3)]
    q.sync_q.put(1)
    q.close()
    return [sorted(set(called)), items, names.call(q.sync_q.get), q.sync_q.qsize()]


# Where they differ.


@differs(theirs="RuntimeError", ours=1)
def one_loop_after_another(names: Names) -> object:
    """X1, S26."""
    q = names.Queue()

    async def main() -> Any:
        await q.async_q.put(1)
        return await q.async_q.get()

    asyncio.run(main())
    return names.call(lambda: asyncio.run(main()))


@differs(theirs=["RuntimeError", "RuntimeError"], ours=[RETURNED, 1])
def the_tasks_side_without_a_loop(names: Names) -> object:
    """X1, X2: `put_nowait` and `get_nowait` need none."""
    q = names.Queue()
    found = [names.call(q.async_q.put_nowait, 1)]
    q.sync_q.put(1)
    return [*found, names.call(q.async_q.get_nowait)]


@differs(theirs=[EMPTY, FULL], ours=["RuntimeError", "RuntimeError"])
async def the_threads_side_would_block_the_loop(names: Names) -> object:
    """Theirs blocks it, for ever if there is no timeout."""
    q = names.Queue(1)
    found = [names.call(q.sync_q.get, timeout=0.01)]
    q.sync_q.put(1)
    return [*found, names.call(q.sync_q.put, 2, timeout=0.01)]


@differs(theirs=[RETURNED, SHUT_DOWN], ours=["ValueError", "ValueError"])
def a_negative_timeout_where_there_is_nothing_to_wait_for(names: Names) -> object:
    q = names.Queue()
    found = [names.call(q.sync_q.put, 1, timeout=-1)]
    q.close()
    return [*found, names.call(q.sync_q.get, timeout=-1)]


@differs(theirs=["TypeError", 2, 1], ours=["TypeError", 1, 1])
def priorities_that_cannot_be_compared(names: Names) -> object:
    """Q8, S10: theirs keeps the item of the put that has failed, and does not count it."""
    q = names.PriorityQueue()
    q.sync_q.put(1)
    return [names.call(q.sync_q.put, "a"), q.sync_q.qsize(), q.sync_q.unfinished_tasks]


class Job:
    """As a job that has a priority and nothing else to be compared."""

    def __init__(self, priority: int, name: str) -> None:
        self.priority = priority
        self.name = name

    def __lt__(self, other: Job) -> bool:
        return self.priority < other.priority


@differs(theirs=["a", "c", "b", "d"], ours=["a", "b", "c", "d"])
def equal_priorities(names: Names) -> object:
    """Q8: in the order in which they were put."""
    q = names.PriorityQueue()
    for name in "abcd":
        q.sync_q.put(Job(1, name))
    return [q.sync_q.get().name for _ in range(4)]


@differs(theirs=[True, False], ours=[True, True])
async def closed_while_those_who_wait_are_being_woken(names: Names) -> object:
    """Ours has nothing under way that it could wait for: `closed` is `is_shutdown`."""
    q = names.Queue()
    get = asyncio.ensure_future(names.wait(q.async_q.get()))
    await names.until_blocked(q, 1)
    q.close()
    found = [q.closed]
    await asyncio.sleep(0)  # theirs now makes the task that tells the one who waits
    found.append(q.closed)
    await get
    return found


@differs(theirs=[True, True, False], ours=[False, True, True])
def the_views(names: Names) -> object:
    """Theirs makes them with the queue. Ours makes the one for threads when it is asked for; the other is the queue."""
    q = names.Queue()
    return [q.sync_q is q.sync_q, q.sync_q == q.sync_q and len({q.sync_q, q.sync_q}) == 1, q.async_q is q]
