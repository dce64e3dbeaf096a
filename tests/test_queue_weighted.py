"""S11: queues that measure their items by weight, and the one step of check and insert for threads."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, ticks
from queues import assert_account, assert_nobody_waits
from storm import together


class Weighted:
    """Mixed into a queue of numbers, whose size is their sum."""

    most = 0

    def _init(self: Any, maxsize: int) -> None:
        super()._init(maxsize)  # type: ignore[misc]
        self.weight = 0

    def _put(self: Any, item: int) -> None:
        super()._put(item)  # type: ignore[misc]
        self.weight += item
        self.most = max(self.most, self.weight)

    def _get(self: Any) -> int:
        item: int = super()._get()  # type: ignore[misc]
        self.weight -= item
        return item

    def _qsize(self: Any) -> int:
        return int(self.weight)


def test_s11_a_weighted_size(interlock: Any, run: Run) -> None:
    class Heavy(Weighted, interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        pass

    async def main() -> None:
        q = Heavy(10)
        for item in (4, 5, 3):
            q.put_nowait(item)
        assert q.full() and q.qsize() == 12
        blocked = asyncio.create_task(q.put(2))
        await ticks(2)
        assert await q.get() == 4
        await blocked
        assert q.qsize() == 10 and q.full()
        with pytest.raises(interlock.QueueFull):
            q.put_nowait(1)
        figures = q.statistics()
        assert (figures.accepted, figures.delivered, figures.unfinished) == (4, 1, 4)
        assert [q.get_nowait() for _ in range(3)] == [5, 3, 2]
        assert q.empty()

    run(main())


@pytest.mark.parametrize("strict", [False, True])
def test_s11_check_and_insert_are_one_step_for_threads(interlock: Any, strict: bool) -> None:
    """A weighted queue is never more than its last item above its bound, one that refuses what does not fit never."""

    class Heavy(Weighted, interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        inside = 0

        def _put(self, item: int) -> None:
            self.inside += 1
            assert self.inside == 1, "two threads at once"
            super()._put(item)
            self.inside -= 1

        def _get(self) -> int:
            self.inside += 1
            assert self.inside == 1, "two threads at once"
            item = super()._get()
            self.inside -= 1
            return item

        def put_nowait(self, item: int) -> None:
            if strict and self.qsize() + item > self.maxsize:
                raise interlock.QueueFull
            super().put_nowait(item)

    q = Heavy(12)
    got: list[list[int]] = [[] for _ in range(3)]
    count = 300

    def produce(weight: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                while True:
                    try:
                        q.sync_q.put(weight, timeout=LIMIT)
                        break
                    except interlock.SyncQueueFull:
                        assert strict
                        time.sleep(0)  # or the consumers would rarely have their turn

        return work

    def consume(number: int) -> Callable[[], None]:
        return lambda: got[number].extend(q.sync_q)

    def end() -> None:
        try:
            together(*[produce(weight) for weight in (1, 2, 3)])
        finally:
            q.shutdown()

    together(end, *[consume(number) for number in range(3)])
    assert sorted(itertools.chain(*got)) == [1] * count + [2] * count + [3] * count
    assert q.most <= (12 if strict else 12 + 2)
    assert_account(q, accepted=3 * count, delivered=3 * count, unfinished=3 * count)
    assert_nobody_waits(q)
