"""X6, S05: one that was chosen to be woken and cannot take it passes that on, however it ends."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, ticks
from queues import OPERATIONS, assert_account, assert_nobody_waits, every_kind, make, prepared, start, waiters

served = pytest.mark.parametrize("name", ["get", "put"])


@every_kind
@served
def test_s05_a_cancelled_one_passes_it_on(interlock: Any, run: Run, kind: str, name: str) -> None:
    async def main() -> None:
        for order in ("serve, cancel", "cancel, serve"):
            q = prepared(interlock, name, kind)
            first, second = start(name, q), start(name, q)
            await ticks(2)
            for step in order.split(", "):
                OPERATIONS[name].serve(q) if step == "serve" else first.cancel()
            await ticks(5)
            assert first.cancelled() and second.done()
            await second
            assert_nobody_waits(q)

    run(main())


@served
@pytest.mark.parametrize("end", ["cancel", "close", "throw", "drop"])
def test_x6_it_is_passed_on_along_a_line_of_such(interlock: Any, run: Run, name: str, end: str) -> None:
    """Each ends just when it is its turn; the last of the line is served."""

    async def main() -> None:
        q = prepared(interlock, name)
        line: list[Any] = [OPERATIONS[name].call(q, None) for _ in range(4)]
        if end == "cancel":
            line = [asyncio.ensure_future(wait) for wait in line]
            await ticks()
        else:
            for wait in line:
                wait.send(None)
            del wait
        last = start(name, q)
        await ticks(2)
        assert waiters(q) == 5
        OPERATIONS[name].serve(q)
        while line:
            first = line.pop(0)
            if end == "cancel":
                first.cancel()
                await ticks()
            elif end == "close":
                first.close()
            elif end == "throw":
                with pytest.raises(LookupError):
                    first.throw(LookupError())
            del first
        await asyncio.wait_for(last, LIMIT)
        assert_nobody_waits(q)

    run(main())


@served
@pytest.mark.parametrize("waiting", [3, 4])
def test_s05_several_freed_in_one_tick(interlock: Any, run: Run, name: str, waiting: int) -> None:
    """However many are served and whichever are cancelled in that tick, none is left waiting for what is there."""

    async def one(count: int, gone: tuple[int, ...]) -> None:
        q = interlock.Queue(waiting)
        if name == "put":
            for item in range(waiting):
                q.put_nowait(item)
        tasks = [asyncio.ensure_future(q.get() if name == "get" else q.put(9)) for _ in range(waiting)]
        await ticks(2)
        for _ in range(count):
            q.put_nowait(1) if name == "get" else q.get_nowait()
        for index in gone:
            assert tasks[index].cancel()
        await ticks(6)
        rest = [task for index, task in enumerate(tasks) if index not in gone]
        assert all(tasks[index].cancelled() for index in gone)
        assert [task.done() for task in rest] == [index < count for index in range(len(rest))]
        left = max(count - len(rest), 0)
        assert q.qsize() == (left if name == "get" else waiting - left)
        for task in rest:
            task.cancel()
        await ticks(2)
        assert_nobody_waits(q)

    async def main() -> None:
        for count in range(1, waiting + 1):
            for size in range(1, waiting + 1):
                for gone in itertools.combinations(range(waiting), size):
                    await one(count, gone)

    run(main())


@served
def test_x6_nothing_is_passed_on_when_there_is_nothing_left(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        q = prepared(interlock, name)
        first, second = start(name, q), start(name, q)
        await ticks(2)
        OPERATIONS[name].serve(q)
        # Somebody comes between.
        q.get_nowait() if name == "get" else q.put_nowait(5)
        first.cancel()
        await ticks(4)
        assert first.cancelled() and not second.done() and waiters(q) == 1
        OPERATIONS[name].serve(q)
        await second
        assert_nobody_waits(q)

    run(main())


class Fails(Exception):
    """What a hook or a comparison raises."""


def raising_once(package: Any, name: str) -> tuple[Any, list[bool]]:
    """A queue whose hook raises once, as soon as it is armed."""
    armed: list[bool] = []

    def fuse() -> None:
        if armed:
            armed.clear()
            raise Fails

    class Raising(package.Queue):  # type: ignore[misc]
        def _put(self, item: Any) -> None:
            if name == "put":
                fuse()
            super()._put(item)

        def _get(self) -> Any:
            if name == "get":
                fuse()
            return super()._get()

    return Raising, armed


@served
def test_x6_one_whose_hook_raises_passes_it_on(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        cls, armed = raising_once(interlock, name)
        q = cls(1)
        OPERATIONS[name].prepare(q)
        first, second = start(name, q), start(name, q)
        await ticks(2)
        OPERATIONS[name].serve(q)
        armed.append(True)
        await ticks(5)
        assert isinstance(first.exception(), Fails)
        assert second.done()
        await second
        assert_nobody_waits(q)

    run(main())


@served
def test_x6_one_whose_comparison_raises_passes_it_on(interlock: Any, run: Run, name: str) -> None:
    class Item:
        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: Any) -> bool:
            if armed:
                armed.clear()
                raise Fails
            return bool(self.number < other.number)

    armed: list[bool] = []

    async def main() -> None:
        q = interlock.PriorityQueue(3)
        if name == "put":
            for number in range(3):
                q.put_nowait(Item(number))
            tasks = [asyncio.ensure_future(q.put(Item(number))) for number in range(2)]
            await ticks(2)
            assert q.get_nowait().number == 0
        else:
            tasks = [asyncio.ensure_future(q.get()) for _ in range(4)]
            await ticks(2)
            for number in range(3):
                q.put_nowait(Item(number))
        armed.append(True)
        await ticks(5)
        assert not armed
        assert isinstance(tasks[0].exception(), Fails)
        assert all(task.done() for task in tasks)
        results = [await task for task in tasks[1:]]
        if name == "get":
            assert [item.number for item in results] == [0, 1, 2]
            assert_account(q, size=0, accepted=3, delivered=3)
        else:
            assert_account(q, size=3, accepted=4, delivered=1)
        assert_nobody_waits(q)

    run(main())


@every_kind
def test_s05_a_long_line_of_which_every_other_is_cancelled(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind, 1)
        getters = [asyncio.create_task(q.get()) for _ in range(200)]
        await ticks(2)
        for number, getter in enumerate(getters):
            if not q.full():
                q.put_nowait(number)
            if number % 2:
                getter.cancel()
            if number % 3 == 0:
                await ticks()
        putters = [asyncio.create_task(q.put(number)) for number in range(200)]
        results = await asyncio.gather(*getters, return_exceptions=True)
        cancelled = sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert_account(q, getters=0, delivered=200 - cancelled)
        # The same for those who put, of whom some are still blocked.
        for putter in putters[::2]:
            putter.cancel()
        while any(not putter.done() for putter in putters):
            await q.get(timeout=LIMIT)
        assert_nobody_waits(q)

    run(main())
