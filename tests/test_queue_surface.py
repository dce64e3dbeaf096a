"""Q1: what a queue looks like: sizes, representation, signatures, classes, account."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import weakref
from typing import Any

import pytest

from conftest import Run
from helpers import ticks
from queues import assert_account, drain, every_kind, make

CLASSES = ["Queue", "PriorityQueue", "LifoQueue"]

MAXSIZES = [
    (0, None),
    (-1, None),
    (-0.5, None),
    (-math.inf, None),
    (math.inf, None),
    (10**30, None),
    (2**63, None),
    (1e300, None),
    (1, 1),
    (3, 3),
    (2.0, 2),
    (1.3, 2),
    (0.5, 1),
]


@every_kind
@pytest.mark.parametrize(("maxsize", "places"), MAXSIZES)
def test_q1_maxsize_is_any_number_as_in_asyncio(interlock: Any, kind: str, maxsize: Any, places: int | None) -> None:
    q, model = make(interlock, kind, maxsize), asyncio.Queue[int](maxsize)
    assert q.maxsize == maxsize and type(q.maxsize) is type(maxsize)
    for item in range(places or 5):
        assert [q.qsize(), q.empty(), q.full()] == [item, item == 0, False]
        q.put_nowait(item)
        model.put_nowait(item)
    assert q.full() == model.full() == (places is not None)
    if places is not None:
        with pytest.raises(interlock.QueueFull):
            q.put_nowait(5)
    assert_account(q, size=places or 5, accepted=places or 5)


def test_q1_maxsize_cannot_be_changed(interlock: Any) -> None:
    q = interlock.Queue(maxsize=3)
    with pytest.raises(AttributeError):
        q.maxsize = 4
    assert interlock.Queue().maxsize == 0


def anonymous(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x0", text)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("text", [repr, str])
def test_q1_the_representation_is_that_of_asyncio(interlock: Any, run: Run, cls: str, text: Any) -> None:
    async def main() -> None:
        q, model = (getattr(module, cls)(2) for module in (interlock, asyncio))

        def alike(ending: str) -> None:
            assert anonymous(text(q)) == anonymous(text(model))
            assert text(q).endswith(ending + ">"), text(q)

        alike("maxsize=2")
        both = [asyncio.ensure_future(queue.get()) for queue in (q, model, q, model)]
        await ticks(2)
        alike("maxsize=2 _getters[2]")
        for task in both:
            task.cancel()
        await asyncio.wait(both)
        for queue in (q, model):
            queue.put_nowait(1)
            queue.put_nowait(2)
        alike("maxsize=2 _queue=[1, 2] tasks=2")
        both = [asyncio.ensure_future(queue.put(3)) for queue in (q, model)]
        await ticks(2)
        alike("maxsize=2 _queue=[1, 2] _putters[1] tasks=2")
        q.shutdown()
        with pytest.raises(interlock.QueueShutDown):
            await both[0]
        assert text(q).endswith("maxsize=2 _queue=[1, 2] tasks=2 shutdown>")
        q.shutdown(immediate=True)
        assert text(q).endswith("maxsize=2 shutdown>")
        both[1].cancel()

    run(main())


@every_kind
def test_x5_an_item_s_representation_may_use_the_queue(interlock: Any, kind: str) -> None:
    class Item:
        def __repr__(self) -> str:
            return f"<one of {q.qsize()}>"

    q = make(interlock, kind)
    q.put_nowait(Item())
    assert "_queue=[<one of 1>]" in repr(q)


@pytest.mark.parametrize("cls", CLASSES)
def test_q1_generic_aliases_and_subclasses(interlock: Any, cls: str) -> None:
    base = getattr(interlock, cls)
    assert type(base[int](3)) is base
    assert base[int].__origin__ is base

    class Numbers(base[int]):  # type: ignore[misc, valid-type]
        def __init__(self, name: str) -> None:
            super().__init__(maxsize=2)
            self.name = name

        async def get(self, **options: Any) -> Any:
            return self.name, await super().get(**options)

    q = Numbers("numbers")
    q.put_nowait(1)
    assert asyncio.run(q.get()) == ("numbers", 1)
    assert isinstance(q, interlock.Queue) and q.maxsize == 2 and repr(q).startswith("<Numbers at 0x")


@pytest.mark.parametrize("cls", CLASSES)
def test_q1_it_can_be_called_as_asyncio_s(interlock: Any, cls: str) -> None:
    ours, model = getattr(interlock, cls), getattr(asyncio, cls)
    for name in [name for name in dir(model) if not name.startswith("_")] + ["shutdown", "maxsize"]:
        assert hasattr(ours, name), name
        if not inspect.isfunction(getattr(model, name, None)):
            continue
        theirs = list(inspect.signature(getattr(model, name)).parameters.values())
        found = list(inspect.signature(getattr(ours, name)).parameters.values())
        assert [parameter.name for parameter in found[1 : len(theirs)]] == [parameter.name for parameter in theirs[1:]]
        # What is there besides can be left out.
        assert all(parameter.default is not parameter.empty for parameter in found[len(theirs) :])
    q = ours(maxsize=1)
    q.put_nowait(item=1)
    assert asyncio.run(q.get()) == 1
    asyncio.run(q.put(item=2))
    q.shutdown(immediate=True)


@every_kind
def test_q1_it_is_an_ordinary_object(interlock: Any, kind: str) -> None:
    q: Any = make(interlock, kind)
    other = make(interlock, kind)
    assert bool(q) and q != other and len({q: 1, other: 2}) == 2
    reference = weakref.ref(q)
    assert reference() is not None
    q.label = "kept"
    assert q.label == "kept"
    with pytest.raises(TypeError):
        len(q)
    assert q.async_q is q


@every_kind
def test_the_account_is_of_one_moment(interlock: Any, run: Run, kind: str) -> None:
    async def main() -> None:
        q = make(interlock, kind, 3)
        assert_account(q, size=0, unfinished=0, accepted=0, delivered=0, dropped=0, getters=0, putters=0, joiners=0)
        for item in range(3):
            await q.put(item)
        tasks = [asyncio.create_task(wait) for wait in (q.put(3), q.put(4), q.join())]
        await ticks(2)
        assert_account(q, size=3, unfinished=3, accepted=3, putters=2, joiners=1)
        await q.get()
        q.task_done()
        await ticks(3)
        assert_account(q, size=3, unfinished=3, accepted=4, delivered=1, putters=1, joiners=1)
        q.shutdown(immediate=True)
        await asyncio.wait(tasks)
        assert_account(q, size=0, unfinished=0, accepted=4, delivered=1, dropped=3, getters=0, putters=0, joiners=0)
        assert drain(q) == []
        for task in tasks:
            task.exception()

    run(main())


def test_the_surface_of_janus(interlock: Any, run: Run) -> None:
    async def main() -> None:
        for close in ("close", "aclose"):
            q = interlock.Queue()
            q.put_nowait(1)
            assert not q.closed and not q.sync_q.closed
            with pytest.raises(RuntimeError, match=r"close\(\) or shutdown\(\)"):
                await q.wait_closed()
            if close == "aclose":
                await q.aclose()
            else:
                q.close()
            await q.wait_closed()
            assert q.closed and q.is_shutdown and q.sync_q.closed and q.sync_q.is_shutdown
            assert_account(q, size=0, dropped=1, unfinished=0)

    run(main())
