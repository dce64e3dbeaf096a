"""S11: subclasses that keep their items in their own way, with the hooks of asyncio's queues."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, ticks
from queues import assert_account, drain

HOOKS = ("_init", "_put", "_get", "_qsize", "qsize", "empty", "full", "put_nowait", "get_nowait")
# Of these one call is one operation.
ACTING = ("_init", "_put", "_get", "put_nowait", "get_nowait")
BASES = ("Queue", "PriorityQueue", "LifoQueue")


def overriding(base: Any, *names: str) -> tuple[Any, collections.Counter[str]]:
    """A subclass that overrides these to count the calls, and leaves the work to `super()`."""
    calls: collections.Counter[str] = collections.Counter()

    def counting(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any) -> Any:
            calls[name] += 1
            return getattr(super(cls, self), name)(*arguments)

        return method

    cls: Any = type("Overriding", (base,), {name: counting(name) for name in names})
    return cls, calls


async def use(q: Any) -> list[Any]:
    """Put and get three items in each way; return them."""
    found = []
    for _ in range(3):
        q.put_nowait(1)
        found.append(q.get_nowait())
        await q.put(2)
        found.append(await q.get())
        q.sync_q.put(3)
        found.append(q.sync_q.get())
    return found


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("first", HOOKS)
def test_s11_each_hook_is_called_once_per_operation(interlock: Any, base: str, first: str) -> None:
    """Alone, with each other one, and all together; and nothing else changes."""

    async def one(*names: str) -> None:
        cls, calls = overriding(getattr(interlock, base), *names)
        q = cls(3)
        assert await use(q) == [1, 2, 3] * 3
        expected = {"_init": 1, "_put": 9, "_get": 9, "put_nowait": 9, "get_nowait": 9}
        assert {name: calls[name] for name in ACTING} == {name: expected[name] * (name in names) for name in ACTING}
        assert_account(q, size=0, accepted=9, delivered=9, unfinished=9)
        # A put that waits and tries again is one put.
        for item in range(3):
            q.put_nowait(item)
        calls.clear()
        blocked = [asyncio.create_task(q.put(item)) for item in (3, 4)]
        await ticks(2)
        for _ in range(2):
            await q.get()
            await ticks(2)
        await asyncio.gather(*blocked)
        assert [calls["_put"], calls["_get"]] == [2 * ("_put" in names), 2 * ("_get" in names)]
        assert sorted(q.abort()) == ([0, 1, 4] if base == "LifoQueue" else [2, 3, 4])
        assert_account(q, size=0, dropped=3, unfinished=11)

    async def main() -> None:
        await one(*HOOKS)
        for second in HOOKS:
            await one(*{first, second})

    asyncio.run(main())


def test_s11_init_may_make_any_container(interlock: Any, run: Run) -> None:
    class Own(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _init(self, maxsize: int) -> None:
            self.given = maxsize
            self.store: dict[int, Any] = {}

        def _put(self, item: Any) -> None:
            self.store[len(self.store)] = item

        def _get(self) -> Any:
            return self.store.pop(max(self.store))

        def _qsize(self) -> int:
            return len(self.store)

    async def main() -> None:
        q = Own(maxsize=2.5)
        assert q.given == 2.5
        for item in range(3):
            await q.put(item)
        assert q.full() and q.qsize() == 3
        blocked = asyncio.create_task(q.put(3))
        await ticks(2)
        assert await q.get() == 2
        await blocked
        q.shutdown()
        assert [item async for item in q] == [3, 1, 0]
        assert_account(q, accepted=4, delivered=4, unfinished=4)

    run(main())


def test_s11_init_may_put(interlock: Any, run: Run) -> None:
    class Started(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _init(self, maxsize: int) -> None:
            super()._init(maxsize)
            self.put_nowait("first")

    async def main() -> None:
        q = Started(1)
        assert q.full() and await q.get() == "first"
        assert_account(q, size=0, accepted=1, delivered=1, unfinished=1)

    run(main())


def test_s11_a_queue_of_unique_items(interlock: Any, run: Run) -> None:
    """Each put counts as unfinished, as in asyncio, also one that is merged with what is there."""

    class Unique(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _init(self, maxsize: int) -> None:
            self._queue: set[Any] = set()

        def _put(self, item: Any) -> None:
            self._queue.add(item)

        def _get(self) -> Any:
            return self._queue.pop()

    async def main() -> None:
        q = Unique(2)
        for item in ("a", "b", "a"):
            if not q.full():
                await q.put(item)
        await q.get()
        left = next(iter(q._queue))
        await q.put(left)
        assert q.qsize() == 1 and not q.full() and f"_queue=[{left!r}]" in repr(q)
        assert q.statistics().accepted == 3 and q.unfinished_tasks == 3
        assert q.abort() == [left]
        assert q.unfinished_tasks == 2

    run(main())


def test_s11_only_get_makes_it_last_in_first_out(interlock: Any, run: Run) -> None:
    class Last(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def _get(self) -> Any:
            return self._queue.pop()

    class Bounded(Last):
        """A subclass of a subclass, with nothing of its own."""

    async def main() -> None:
        for cls in (Last, Bounded):
            q = cls(5)
            for item in range(5):
                await q.put(item)
            q.shutdown()
            assert [item async for item in q] == [4, 3, 2, 1, 0]

    run(main())


def test_s11_a_ring_drops_its_oldest(interlock: Any, run: Run) -> None:
    """A `put_nowait` that takes from the same queue."""

    class Ring(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        def put_nowait(self, item: Any) -> None:
            if self.full():
                super().get_nowait()
                self.task_done()
            super().put_nowait(item)

    async def main() -> None:
        q = Ring(3)
        for item in range(10):
            q.put_nowait(item)
        blocked = asyncio.create_task(q.put(10))
        await ticks(3)
        # As in asyncio, `put` waits for `full()`, and so never comes to that.
        assert not blocked.done()
        assert await q.get() == 7
        await blocked
        assert drain(q) == [8, 9, 10]
        assert_account(q, accepted=11, delivered=11, unfinished=4)

    run(main())


def test_s11_own_notions_of_full_and_empty(interlock: Any, run: Run) -> None:
    class Gated(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        open = False

        def full(self) -> bool:
            return not self.open

        def empty(self) -> bool:
            return not self.open or super().empty()

    async def main() -> None:
        q = Gated()
        with pytest.raises(interlock.QueueFull):
            q.put_nowait(1)
        with pytest.raises(asyncio.TimeoutError):
            await q.put(1, timeout=0.001)
        q.open = True
        q.put_nowait(1)
        await q.put(2)
        q.open = False
        with pytest.raises(interlock.QueueEmpty):
            q.get_nowait()
        with pytest.raises(interlock.SyncQueueEmpty):
            q.sync_q.get(timeout=0)
        q.open = True
        assert await q.get() == 1
        assert_account(q, size=1, accepted=2, delivered=1)

    run(main())


NAMES = [
    "closed",
    "sync_q",
    "async_q",
    "unfinished_tasks",
    "statistics",
    "abort",
    "close",
    "name",
    "loop",
    "lock",
    "key",
]
NAMES += ["_order", "_key", "_hooked", "_start", "_own", "_setup", "_counts", "_snapshot", "_block_put", "_block_get"]
NAMES += ["_loop", "_lock", "_count", "_closed", "_waiters", "_getters", "_putters", "_items", "_size", "_capacity"]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("hook", [False, True])
def test_q1_a_subclass_may_use_any_name_for_itself(interlock: Any, run: Run, base: str, hook: bool) -> None:
    """As one may that was written for asyncio's, before there was a shutdown."""
    cls = overriding(getattr(interlock, base), "_put")[0] if hook else getattr(interlock, base)

    class Own(cls):  # type: ignore[misc, valid-type]
        def __init__(self, maxsize: int) -> None:
            for name in NAMES:
                setattr(self, name, name)
            super().__init__(maxsize)

    async def main() -> None:
        q = Own(2)
        q.put_nowait(1)
        blocked = [asyncio.create_task(wait) for wait in (q.put(2), q.put(3), q.join())]
        await ticks(2)
        assert q.full() and "tasks=2" in repr(q) and q.qsize() == 2
        assert sorted([await q.get(), q.get_nowait(), await q.get()]) == [1, 2, 3]
        for _ in range(3):
            q.task_done()
        await asyncio.gather(*blocked)
        q.shutdown()
        assert [item async for item in q] == [] and q.is_shutdown
        assert all(getattr(q, name) == name for name in NAMES)

    run(main())


@pytest.mark.parametrize("base", BASES)
def test_s11_hooks_set_after_the_class_statement(interlock: Any, base: str) -> None:
    """As a class decorator sets them. What was made before goes on as it was made."""
    cls: Any = type("Plain", (getattr(interlock, base),), {})
    put: list[Any] = []

    def _put(self: Any, item: Any) -> None:
        put.append(item)
        super(cls, self)._put(item)

    before = cls()
    cls._put = _put
    after = cls()
    for q in (before, after):
        q.put_nowait(1)
        assert q.get_nowait() == 1
    assert put == [1]


def test_put_and_get_may_be_overridden_too(interlock: Any, run: Run) -> None:
    """They are no hooks, so the items stay in the core; whoever calls them gets the override."""

    class Tagged(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        async def put(self, item: Any, **options: Any) -> None:
            await super().put(("tagged", item), **options)

        async def get(self, **options: Any) -> Any:
            return (await super().get(**options))[1]

    async def main() -> None:
        q = Tagged(1)
        await q.put(1)
        blocked = asyncio.create_task(q.put(2))
        await ticks(2)
        assert [await q.get(), await q.get(timeout=LIMIT)] == [1, 2]
        await blocked

    run(main())


@pytest.mark.parametrize("hooks", [False, True])
def test_q1_a_subclass_may_use_our_names_for_itself(interlock: Any, hooks: bool) -> None:
    """Before 3.13 everybody wrote a `closed` of his own; asyncio's queue has none of these."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError("called by interlock")

    names = ("_setup", "_start", "_counts", "_snapshot", "_block_get", "_block_put", "statistics", "abort", "async_q")
    members: dict[str, Any] = dict.fromkeys(names, refuse)
    if hooks:
        members["_put"] = lambda self, item: interlock.Queue._put(self, item)
    cls: Any = type("Own", (interlock.Queue,), members)

    class Closing(cls):  # type: ignore[misc]
        def __init__(self) -> None:
            self.closed = False
            self.unfinished_tasks = "mine"
            super().__init__(2)

    q = Closing()
    q.put_nowait(1)
    q.sync_q.put(2)
    assert "_queue=[1, 2]" in repr(q) and q.sync_q.get() == 1
    assert (q.closed, q.unfinished_tasks, q.sync_q.unfinished_tasks) == (False, "mine", 2)


def test_s11_hooks_set_after_the_class_statement_are_seen(interlock: Any) -> None:
    class Late(interlock.Queue):  # type: ignore[misc, name-defined, unused-ignore]
        pass

    put: list[Any] = []
    Late._put = lambda self, item: put.append(item) or interlock.Queue._put(self, item)  # type: ignore[func-returns-value]
    q = Late()
    q.put_nowait(1)
    assert put == [1] and q.get_nowait() == 1
