"""Garbage of queues: cycles are collected, items released in time, loops let go (X4, X8, S55)."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from queues import KINDS, OPERATIONS, assert_nobody_waits, every_kind, make, prepared
from storm import nothing_unraisable, ticks
from test_gc import Value, assert_collected, gone, left


def through_item(package: Any, sentinel: Value) -> None:
    for kind in KINDS:
        q = make(package, kind)
        q.put_nowait(sentinel)
        sentinel.held.append((q, q.sync_q))


def through_key(package: Any, sentinel: Value) -> None:
    q = package.PriorityQueue(key=lambda item: sentinel)
    q.put_nowait(1)
    sentinel.held.append(q)


def through_keys(package: Any, sentinel: Value) -> None:
    q = package.PriorityQueue(key=lambda item: (0, sentinel))
    q.put_nowait(1)
    sentinel.held.append(q)


def through_attribute(package: Any, sentinel: Value) -> None:
    q = package.LifoQueue()
    q.sentinel = sentinel
    sentinel.held.append(q)


def through_parked_coroutine(package: Any, sentinel: Value) -> None:
    """Fresh, parked, and woken ones."""

    async def main() -> None:
        for kind in KINDS:
            for name, operation in OPERATIONS.items():
                for served in (False, True):
                    q = prepared(package, name, kind)
                    wait = q.put(sentinel) if name == "put" else operation.call(q, 60)
                    wait.send(None)
                    sentinel.held.append((wait, q))
                    if served:
                        operation.serve(q)

    asyncio.run(main())


def through_unawaited_coroutine(package: Any, sentinel: Value) -> None:
    wait = package.Queue().put(sentinel)
    # What it warns of is not the matter here.
    wait.close()
    sentinel.held.append(wait)


def through_lost_task(package: Any, sentinel: Value) -> None:
    async def wait(name: str, q: Any) -> Any:
        await OPERATIONS[name].call(q, None)
        return sentinel

    loop = asyncio.new_event_loop()
    for name in OPERATIONS:
        q = prepared(package, name)
        task = loop.create_task(wait(name, q))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        q.sentinel = sentinel
        sentinel.held.append((q, task))
    loop.run_until_complete(ticks(1))
    loop.close()


@pytest.mark.parametrize(
    "through",
    [
        through_item,
        through_key,
        through_keys,
        through_attribute,
        through_parked_coroutine,
        through_unawaited_coroutine,
        through_lost_task,
    ],
    ids=lambda through: through.__name__,
)
def test_x8_a_cycle_is_collected(interlock: Any, through: Callable[[Any, Value], None]) -> None:
    assert_collected(interlock, through)


@every_kind
def test_x8_an_item_goes_when_it_has_been_got(interlock: Any, kind: str) -> None:
    q = make(interlock, kind)
    references = []
    ways: list[Callable[[], Any]] = [
        q.get_nowait,
        lambda: asyncio.run(q.get()),
        lambda: asyncio.run(anext(q)),
        q.sync_q.get,
        lambda: q.shutdown(immediate=True),
    ]
    for number in range(len(ways)):
        item = Value(number)
        references.append(weakref.ref(item))
        q.put_nowait(item)
        del item
    for rest in range(len(ways) - 1, -1, -1):
        ways[len(ways) - 1 - rest]()
        gc.collect()
        assert sum(reference() is not None for reference in references) == rest


@gone
@pytest.mark.parametrize("name", OPERATIONS)
def test_x4_a_queue_lets_go_of_a_loop_that_is_gone(interlock: Any, kind: str, name: str, how: str) -> None:
    """And what the one who waited there was woken for is there for others."""
    operation = OPERATIONS[name]
    q = prepared(interlock, name)
    with warnings.catch_warnings(), nothing_unraisable():
        warnings.simplefilter("ignore", ResourceWarning)
        reference = left(operation.call(q, None), kind, how, lambda: operation.serve(q))
        gc.collect()
        if how != "dropped with its waiters on the hub":
            operation.serve(q)
        gc.collect()
        assert reference() is None
    assert_nobody_waits(q)
    assert asyncio.run(operation.call(q, 0)) == (1 if name == "get" else None)
