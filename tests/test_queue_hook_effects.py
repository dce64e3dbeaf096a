"""S11, X5: hooks that raise, use the queue, or take their time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, ticks
from queues import assert_account, assert_nobody_waits, drain, every_kind, make, until_waiting

HOOKS = ("_init", "_put", "_get", "_qsize", "qsize", "empty", "full", "put_nowait", "get_nowait")
# Of these one call is one operation.
ACTING = ("_init", "_put", "_get", "put_nowait", "get_nowait")
BASES = ("Queue", "PriorityQueue", "LifoQueue")


class Fails(Exception):
    """What a hook raises."""


@pytest.mark.parametrize("hook", ["_put", "_get", "_qsize", "qsize", "full", "empty", "put_nowait", "get_nowait"])
def test_s11_a_hook_that_raises_leaves_the_account_alone(interlock: Any, run: Run, hook: str) -> None:
    armed: list[str] = []

    def method(self: Any, *arguments: Any) -> Any:
        if armed:
            raise Fails
        return getattr(super(cls, self), hook)(*arguments)

    cls: Any = type("Failing", (interlock.Queue,), {hook: method})
    operations: list[Callable[[Any], Any]] = [
        lambda q: q.put_nowait(9),
        lambda q: q.put(9),
        lambda q: asyncio.to_thread(q.sync_q.put, 9),
        lambda q: asyncio.to_thread(q._block_put, 9, LIMIT),
        lambda q: q.get_nowait(),
        lambda q: q.get(),
        lambda q: asyncio.to_thread(q.sync_q.get),
        lambda q: anext(q),
        lambda q: q.abort(),
    ]

    async def main() -> None:
        failed = 0
        for operation in operations:
            q = cls(3)
            q.put_nowait(1)
            q.put_nowait(2)
            before = q.statistics()
            armed.append(hook)
            try:
                result = operation(q)
                if asyncio.iscoroutine(result):
                    await result
            except Fails:
                failed += 1
                armed.clear()
                assert q.statistics() == before
                assert drain(q) == [1, 2]
            finally:
                armed.clear()
            assert_nobody_waits(q)
        assert failed >= 3

    run(main())


@pytest.mark.parametrize("how", ["immediate", "abort"])
def test_q5_a_get_that_raises_in_a_shutdown_leaves_nobody_blocked(interlock: Any, run: Run, how: str) -> None:
    class Stuck(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _get(self) -> Any:
            raise Fails

    async def main() -> None:
        q = Stuck(1)
        q.put_nowait(1)
        put = asyncio.create_task(q.put(2))
        await ticks(2)
        with pytest.raises(Fails):
            q.abort() if how == "abort" else q.shutdown(immediate=True)
        with pytest.raises(interlock.QueueShutDown):
            await put
        assert_account(q, size=1, unfinished=1, dropped=0, putters=0)

    run(main())


@every_kind
def test_x5_hooks_may_use_the_queue(interlock: Any, run: Run, kind: str) -> None:
    """They run under the queue's own turn, which the same thread may take again."""
    base = type(make(interlock, kind))

    class Chatty(base):  # type: ignore[misc, valid-type]
        """Puts two more for each item that is a pair."""

        def _put(self, item: Any) -> None:
            super()._put(item)
            assert self.qsize() and not self.empty() and not self.full() and repr(self) and self.statistics()
            if item[0] == 0:
                self.put_nowait((1, 0))
                self.put_nowait((1, 1))

        def _get(self) -> Any:
            item = super()._get()
            if item == (0, 0):
                # In the place of the one just taken.
                return self.get_nowait()
            return item

    async def main() -> None:
        q = Chatty()
        gets = [asyncio.create_task(q.get()) for _ in range(2)]
        await ticks(2)
        q.put_nowait((0, 0))
        found = await asyncio.gather(*gets)
        assert sorted(found) == [(1, 0), (1, 1)]
        figures = q.statistics()
        assert figures.accepted == figures.unfinished == 3
        assert_nobody_waits(q)

    run(main())


def test_a_hook_may_shut_the_queue_down(interlock: Any, run: Run) -> None:
    class Last(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _put(self, item: Any) -> None:
            super()._put(item)
            if item == "last":
                self.shutdown()

    async def main() -> None:
        q = Last()
        consumer = asyncio.create_task(collect(q))
        await ticks(2)
        for item in ("first", "last"):
            await q.put(item)
        with pytest.raises(interlock.QueueShutDown):
            await q.put("too late")
        assert await consumer == ["first", "last"]

    run(main())


async def collect(q: Any) -> list[Any]:
    return [item async for item in q]


def test_a_blocked_hook_blocks_no_loop_for_ever(interlock: Any, run: Run) -> None:
    """A thread inside a hook is waited for, as by a lock; then it goes on."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _put(self, item: Any) -> None:
            if item == "slow":
                inside.set()
                assert leave.wait(LIMIT)
            super()._put(item)

    async def main() -> None:
        q = Slow()
        get = asyncio.create_task(q.get())
        await until_waiting(q, 1)
        slow = asyncio.ensure_future(asyncio.to_thread(q.put_nowait, "slow"))
        await asyncio.to_thread(inside.wait, LIMIT)
        threading.Timer(0.01, leave.set).start()
        q.put_nowait("quick")
        await slow
        assert [await get, await q.get()] == ["slow", "quick"]

    run(main())
