"""X5, S56: what is released may use the queue that releases it; no lock is held meanwhile."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import in_threads, ticks
from queues import KINDS, assert_account, assert_nobody_waits, every_kind, make


class Last:
    """Uses a queue in every way when it goes."""

    def __init__(self, q: Any, gone: list[str], name: str) -> None:
        self.q, self.gone, self.name = q, gone, name

    def __lt__(self, other: Any) -> bool:
        return False

    def __del__(self) -> None:
        q = self.q
        try:
            q.put_nowait(self.name)
            q.get_nowait()
            q.task_done()
            q.sync_q.put(self.name, timeout=0)
            q.sync_q.get(timeout=0)
            q.task_done()
            q.put(1).close()
        except Exception as error:
            self.gone.append(type(error).__name__)
        q.qsize(), q.full(), q.statistics(), repr(q)
        self.gone.append(self.name)


@every_kind
@pytest.mark.parametrize("how", ["shutdown", "abort", "close"])
def test_a_dropped_item(interlock: Any, kind: str, how: str) -> None:
    gone: list[str] = []
    q = make(interlock, kind)
    for _ in range(3):
        q.put_nowait(Last(q, gone, "item"))
    if how == "shutdown":
        q.shutdown(immediate=True)
    else:
        assert getattr(q, how)() is not Ellipsis
    assert gone == ["QueueShutDown", "item"] * 3
    assert_account(q, size=0, accepted=3, dropped=3, unfinished=0)


@every_kind
def test_an_item_that_was_got(interlock: Any, kind: str) -> None:
    gone: list[str] = []
    q = make(interlock, kind)
    gets: list[Callable[[], Any]] = [q.get_nowait, q.sync_q.get, lambda: asyncio.run(q.get())]
    for get in gets:
        q.put_nowait(Last(q, gone, "item"))
        get()
        q.task_done()
        gc.collect()
    assert gone == ["item"] * 3
    assert_account(q, size=0, accepted=9, delivered=9, unfinished=0)


@pytest.mark.parametrize("end", ["full", "timeout", "cancelled", "fresh", "closed", "shut down", "thread"])
def test_an_item_that_was_never_put(interlock: Any, run: Run, end: str) -> None:
    """Its finaliser finds the queue full, or shut down; it does not find it locked."""

    async def one(kind: str) -> None:
        gone: list[str] = []
        q = make(interlock, kind, 1)
        q.put_nowait("first")
        item = Last(q, gone, "item")
        if end == "full":
            with pytest.raises(interlock.QueueFull):
                q.put_nowait(item)
        elif end == "thread":
            with pytest.raises(interlock.SyncQueueFull):
                in_threads(functools.partial(q.sync_q.put, item, timeout=0.001))
        elif end in ("fresh", "closed"):
            put = q.put(item)
            if end == "closed":
                put.send(None)
            put.close()
            del put
        else:
            task = asyncio.create_task(q.put(item, timeout=0.001 if end == "timeout" else None))
            await ticks(2)
            if end == "cancelled":
                task.cancel()
            elif end == "shut down":
                q.shutdown()
            await asyncio.wait([task])
            task.cancelled() or task.exception()
            del task
        del item
        # The handle that resumed this task still holds what woke it.
        await ticks(3)
        gc.collect()
        assert gone == ["QueueShutDown" if end == "shut down" else "QueueFull", "item"]
        assert_account(q, size=1, accepted=1)
        assert_nobody_waits(q)

    async def main() -> None:
        for kind in KINDS:
            await one(kind)

    run(main())


@pytest.mark.parametrize("operation", ["get", "abort", "shutdown", "put raises"])
def test_a_key(interlock: Any, operation: str) -> None:
    gone: list[str] = []

    def key(item: Any) -> Any:
        # What the finaliser puts has none.
        return (99,) if isinstance(item, str) else (item, Last(q, gone, f"key of {item}"))

    q: Any = interlock.PriorityQueue(3, key=key)
    q.put_nowait(1)
    q.put_nowait(2)
    if operation == "get":
        assert q.get_nowait() == 1
    elif operation == "abort":
        assert q.abort() == [1, 2]
    elif operation == "shutdown":
        q.shutdown(immediate=True)
    else:
        with pytest.raises(TypeError):
            q.put_nowait(1j)
    gc.collect()
    # What it gets may be another item, whose key then goes, too.
    assert ("key of 1j" if operation == "put raises" else "key of 1") in gone
    figures = q.statistics()
    assert figures.accepted == figures.size + figures.delivered + figures.dropped
    q.abort()
