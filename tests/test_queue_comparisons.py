"""Q8, S10, X5: what a comparison or a key may do: raise, use the queue, change it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT
from queues import assert_account, assert_nobody_waits, drain, hooked
from test_queue_priority import numbers


class Fails(BaseException):
    """What no `except Exception` may swallow."""


class Fused:
    """An item whose comparison raises, or does something, when it is the turn of its fuse."""

    fuse = -1
    effect: Callable[[], object] = staticmethod(int)

    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: Any) -> bool:
        Fused.fuse -= 1
        if Fused.fuse == 0:
            Fused.effect()
        return bool(self.number < other.number)


@pytest.fixture(autouse=True)
def _no_fuse() -> Iterator[None]:
    yield
    Fused.fuse, Fused.effect = -1, staticmethod(int)


def raises(error: type[BaseException]) -> Callable[[], object]:
    def effect() -> None:
        raise error("compared")

    return effect


def fused(cls: Any, count: int, keyed: bool = False) -> Any:
    q = cls(key=lambda item: item) if keyed else cls()
    for number in numbers(12, 0, 9, count):
        q.put_nowait(Fused(number))
    return q


@pytest.mark.parametrize("operation", ["put_nowait", "put", "get_nowait", "get", "sync put", "sync get"])
@pytest.mark.parametrize("error", [TypeError, Fails])
@pytest.mark.parametrize("kind", ["own", "key", "hooked"])
def test_s10_a_comparison_that_raises_changes_nothing(
    interlock: Any, operation: str, error: type[BaseException], kind: str
) -> None:
    """At whichever comparison of the operation it is."""
    cls = hooked(interlock.PriorityQueue) if kind == "hooked" else interlock.PriorityQueue
    calls: dict[str, Callable[[Any], Any]] = {
        "put_nowait": lambda q: q.put_nowait(Fused(0)),
        "put": lambda q: asyncio.run(q.put(Fused(0))),
        "sync put": lambda q: q.sync_q.put(Fused(0)),
        "get_nowait": lambda q: q.get_nowait(),
        "get": lambda q: asyncio.run(q.get()),
        "sync get": lambda q: q.sync_q.get(),
    }
    for count in (3, 7, 16):
        q = fused(cls, count, kind == "key")
        before, expected = q.statistics(), sorted(numbers(12, 0, 9, count))
        for position in range(1, 100):
            Fused.fuse, Fused.effect = position, staticmethod(raises(error))
            try:
                calls[operation](q)
            except error:
                assert q.statistics() == before
                continue
            break
        assert 1 < position < 50
        Fused.fuse = -1
        if "put" in operation:
            expected = [0, *expected]
        else:
            del expected[0]
        assert [item.number for item in drain(q)] == expected


def test_s10_a_comparison_that_raises_in_abort(interlock: Any) -> None:
    """Then they come in the order in which they were put: nothing that was accepted may be lost for it."""
    Fused.effect = staticmethod(raises(TypeError))
    for position in range(1, 8):
        q = fused(interlock.PriorityQueue, 8)
        Fused.fuse = position
        assert [item.number for item in q.abort()] == numbers(12, 0, 9, 8)
        assert_account(q, size=0, dropped=8, unfinished=0)
        Fused.fuse = -1
        q = fused(interlock.PriorityQueue, 8)
        Fused.fuse = position
        q.shutdown(immediate=True)
        Fused.fuse = -1
        assert_account(q, size=0, dropped=8, unfinished=0)


def test_q8_a_key_that_raises_puts_nothing(interlock: Any, run: Run) -> None:
    async def main() -> None:
        q = interlock.PriorityQueue(key=lambda item: item["key"])
        for put in (q.put_nowait, q.sync_q.put):
            with pytest.raises(KeyError):
                put({})
        with pytest.raises(KeyError):
            await q.put({})
        assert_account(q, size=0, accepted=0, unfinished=0)
        q.put_nowait({"key": 1})
        assert q.get_nowait() == {"key": 1}

    run(main())


EFFECTS: dict[str, Callable[[Any], object]] = {
    "look": lambda q: (q.qsize(), q.empty(), q.full(), q.statistics(), q.is_shutdown, q.maxsize, str(q)[:0]),
    "put": lambda q: q.put_nowait(Fused(5)),
    "get": lambda q: q.get_nowait(),
    "put and get": lambda q: (q.put_nowait(Fused(-1)), q.get_nowait()),
    "put coroutine": lambda q: q.put(Fused(5)).send(None),
    "get coroutine": lambda q: q.get().send(None),
    "task_done": lambda q: q.task_done(),
    "shutdown": lambda q: q.shutdown(),
    "immediate": lambda q: q.shutdown(immediate=True),
    "abort": lambda q: q.abort(),
}


@pytest.mark.parametrize("operation", ["put", "get"])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("keyed", [False, True])
def test_x5_a_comparison_may_use_the_queue(interlock: Any, operation: str, effect: str, keyed: bool) -> None:
    """At whichever comparison: each item is there or accounted for, and what is left is in order."""
    for position in range(1, 12):
        q = fused(interlock.PriorityQueue, 8, keyed)

        def act(q: Any = q) -> None:
            try:
                EFFECTS[effect](q)
            except StopIteration:
                pass

        Fused.fuse, Fused.effect = position, staticmethod(act)
        shut = effect in ("shutdown", "immediate", "abort")
        try:
            q.put_nowait(Fused(3)) if operation == "put" else q.get_nowait()
        except interlock.QueueShutDown:
            assert shut
        Fused.fuse = -1
        figures = q.statistics()
        assert figures.accepted == figures.size + figures.delivered + figures.dropped
        left = [item.number for item in drain(q)]
        assert left == sorted(left) and len(left) == figures.size
        assert_nobody_waits(q)


@pytest.mark.parametrize("operation", ["put", "get"])
def test_x5_a_comparison_that_changes_the_queue_each_time(interlock: Any, operation: str) -> None:
    """It can be made to try for ever; it gives up, says why, and has changed nothing itself."""

    class Meddler:
        busy = True

        def __init__(self, number: int) -> None:
            self.number = number

        def __lt__(self, other: Any) -> bool:
            if not Meddler.busy:
                Meddler.busy = True
                q.put_nowait(Meddler(99))
                Meddler.busy = False
            return bool(self.number < other.number)

    q = interlock.PriorityQueue()
    for number in range(5):
        q.put_nowait(Meddler(number))
    before = q.statistics()
    Meddler.busy = False
    with pytest.raises(RuntimeError, match="compar"):
        q.put_nowait(Meddler(-1)) if operation == "put" else q.get_nowait()
    Meddler.busy = True
    after = q.statistics()
    assert after.delivered == 0 and after.size == after.accepted > before.size
    left = [q.get_nowait().number for _ in range(5)]
    assert left == [0, 1, 2, 3, 4]


class Overtaken:
    """An item that is compared only when another thread has used the queue, or has been seen to wait."""

    asks, has_gone = threading.Event(), threading.Event()
    patience = 0.0

    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: Any) -> bool:
        if Overtaken.patience and threading.current_thread() is threading.main_thread():
            Overtaken.has_gone.clear()
            Overtaken.asks.set()
            Overtaken.has_gone.wait(Overtaken.patience)
        return bool(self.number < other.number)


@pytest.mark.parametrize("patience", [0.05, LIMIT])
@pytest.mark.parametrize("operation", ["put", "get"])
def test_x5_a_comparison_that_takes_long_is_not_overtaken_for_ever(
    interlock: Any, operation: str, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the longer patience it needs what waits for it; that gives up first, the first few times."""
    q = interlock.PriorityQueue()
    for number in range(5):
        q.put_nowait(Overtaken(number))
    monkeypatch.setattr(Overtaken, "patience", patience)
    overtaken: list[int] = []
    waits: list[int] = []
    ended = threading.Event()

    def overtake() -> None:
        while not ended.is_set():
            Overtaken.asks.wait(LIMIT)
            Overtaken.asks.clear()
            begun = time.monotonic()
            q.put_nowait(Overtaken(99))
            if time.monotonic() - begun > 0.5:
                waits.append(1)
                if len(waits) == 2:
                    Overtaken.patience = 0.05
            overtaken.append(1)
            Overtaken.has_gone.set()

    thread = threading.Thread(target=overtake)
    thread.start()
    try:
        if operation == "put":
            q.put_nowait(Overtaken(-1))
        else:
            assert q.get_nowait().number == 0
    finally:
        ended.set()
        Overtaken.asks.set()
        thread.join(LIMIT)
    monkeypatch.undo()
    assert len(overtaken) > 100 and (len(waits) >= 2 or patience < LIMIT)
    order = [item.number for item in drain(q)]
    assert order == sorted(order)
    assert set(order) == {0, 1, 2, 3, 4, 99} ^ ({-1} if operation == "put" else {0})
