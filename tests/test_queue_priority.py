"""Q8, S10: a PriorityQueue is a stable order by `<`, or by the key."""

from __future__ import annotations

import asyncio
import functools
import heapq
import math
import random
from typing import Any

import pytest

from conftest import Run
from helpers import ticks
from queues import drain


class Reversed(int):
    """An integer with an order of its own."""

    def __lt__(self, other: Any) -> bool:
        return int(self) > int(other)


class ReversedText(str):
    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return str(self) > str(other)


class ReversedPair(tuple):  # type: ignore[type-arg]
    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return tuple(self) > tuple(other)


class OnlyGreater:
    """Compared from its right side, as Python does when the left one declines."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __gt__(self, other: Any) -> bool:
        return bool(self.number > other.number)


@functools.total_ordering
class Ticket:
    """What is told apart although it is equal."""

    def __init__(self, priority: Any) -> None:
        self.priority = priority

    def __lt__(self, other: Any) -> bool:
        return bool(self.priority < other.priority)

    def __eq__(self, other: Any) -> bool:
        return bool(self.priority == other.priority)

    __hash__ = None  # type: ignore[assignment]


def numbers(seed: int, low: int = -20, high: int = 20, count: int = 200) -> list[int]:
    randomly = random.Random(seed)
    return [randomly.randint(low, high) for _ in range(count)]


def shuffled(items: list[Any]) -> list[Any]:
    return random.Random(7).sample(items, len(items))


# Each is a list of items that have a consistent order.
ITEMS: dict[str, list[Any]] = {
    "ints": numbers(1),
    "wide ints": numbers(2, -(2**64), 2**64),
    "ints about 64 bits": shuffled([sign * 2**bits + off for bits in (31, 32, 53, 62, 63, 64, 65, 200)
                                    for off in (-1, 0, 1) for sign in (-1, 1)] * 2),
    "bools": shuffled([True, False, 0, 1, 2, -1, True, False] * 3),
    "floats": shuffled([float(number) / 3 for number in numbers(3)] + [0.0, -0.0, math.inf, -math.inf, 5e-324] * 2),
    "ints and floats": shuffled(
        [2**53, 2**53 + 1, float(2**53), 2.0**53 + 2, 2**63, 2**63 - 1, 2.0**63, -(2.0**63), -(2**63), -(2**63) - 1,
         10**400, -(10**400), math.inf, -math.inf, 1, True, 1.0, 0, False, 0.0, -0.0, 0.5] * 3
    ),
    "texts": shuffled(["", "a", "b", "ab", "é", "\u0105", "\U0001f600", "a\0b", "z" * 50] * 3),
    "bytes": shuffled([b"", b"a", b"ab", b"\xff"] * 3),
    "tuples": [(number % 5, -number) for number in numbers(4)],
    "tuples with equal first elements": [(1, number, "payload") for number in numbers(5)],
    "tuples of various lengths": shuffled([(), (1,), (1, 2), (1, 2, 3), (0, 9), (1.0, 1), (True, 1.5)] * 3),
    "lists": [[number, number] for number in numbers(6)],
    "reversed ints": [Reversed(number) for number in numbers(7)],
    "ints, some reversed": [Reversed(number) for number in (3, 1, 2)] * 5,
    "reversed texts": [ReversedText(text) for text in "the quick brown fox jumps"],
    "reversed tuples": [ReversedPair((number, -number)) for number in numbers(8)],
    "tickets": [Ticket(number % 7) for number in numbers(9)],
    "only greater": [OnlyGreater(number) for number in numbers(10)],
}  # fmt: skip
every_items = pytest.mark.parametrize("name", ITEMS)


def same(found: list[Any], expected: list[Any]) -> bool:
    """The same objects in the same order; 1, 1.0 and True are not the same."""
    return list(map(id, found)) == list(map(id, expected))


@every_items
@pytest.mark.parametrize("keyed", [False, True])
def test_q8_a_stable_order(interlock: Any, name: str, keyed: bool) -> None:
    """As `sorted` gives it, which is stable too."""
    items = ITEMS[name]
    if keyed:
        pairs = [(item, object()) for item in items]
        q = interlock.PriorityQueue(key=lambda pair: pair[0])
        expected = sorted(pairs, key=lambda pair: pair[0])
    else:
        pairs, q, expected = items, interlock.PriorityQueue(), sorted(items)
    for pair in pairs:
        q.put_nowait(pair)
    assert same(drain(q), expected)
    for pair in pairs:
        q.put_nowait(pair)
    assert same(q.abort(), expected)


@every_items
def test_q8_a_stable_order_while_items_come_and_go(interlock: Any, name: str) -> None:
    """The lowest, and of several the one put first: `min` of what is there."""
    randomly = random.Random(11)
    q = interlock.PriorityQueue()
    there: list[Any] = []
    for item in ITEMS[name] * 3:
        q.put_nowait(item)
        there.append(item)
        while there and randomly.random() < 0.45:
            lowest = min(range(len(there)), key=functools.cmp_to_key(functools.partial(compared, there)))
            assert q.get_nowait() is there.pop(lowest)
    assert same(drain(q), sorted(there))


def compared(items: list[Any], first: int, second: int) -> int:
    return -1 if items[first] < items[second] else int(items[second] < items[first])


@every_items
def test_q1_the_values_are_those_that_heapq_gives(interlock: Any, name: str) -> None:
    """Equal ones may change places, as there they do."""
    items = ITEMS[name]
    heap: list[Any] = []
    q = interlock.PriorityQueue()
    for item in items:
        heapq.heappush(heap, item)
        q.put_nowait(item)
    for _ in items:
        found, expected = q.get_nowait(), heapq.heappop(heap)
        assert not found < expected and not expected < found


def test_what_has_no_order_comes_out_once(interlock: Any) -> None:
    """Comparisons with a nan are all false, which no heap can make sense of."""
    nan = float("nan")
    items = shuffled([nan, 1.0, float("nan"), 2.0, (nan), 0.5, -math.inf, 3, 10**400] * 5)
    for group in (items, [(item, 1) for item in items]):
        q = interlock.PriorityQueue()
        for item in group:
            q.put_nowait(item)
        assert sorted(map(id, drain(q))) == sorted(map(id, group))


def test_q8_key_is_called_once_and_items_are_not_compared(interlock: Any, run: Run) -> None:
    """Also for a put that has to wait and try again."""
    keyed: list[int] = []

    def key(item: dict[str, int]) -> int:
        keyed.append(item["n"])
        return -item["n"]

    async def main() -> None:
        q = interlock.PriorityQueue(2, key=key)
        q.put_nowait({"n": 1})
        await q.put({"n": 2})
        puts = [asyncio.create_task(q.put({"n": n})) for n in (3, 4)]
        await ticks(2)
        q.get_nowait()
        q.put_nowait({"n": 5})
        await ticks(3)
        found = [(await q.get())["n"] for _ in range(4)]
        await asyncio.gather(*puts)
        assert sorted(found) == [1, 3, 4, 5]
        assert sorted(keyed) == [1, 2, 3, 4, 5]
        # One that is refused has had its key, at most once.
        for item in (6, 7):
            q.put_nowait({"n": item})
        del keyed[:]
        with pytest.raises(interlock.QueueFull):
            q.put_nowait({"n": 8})
        with pytest.raises(asyncio.TimeoutError):
            await q.put({"n": 8}, timeout=0.001)
        assert len(keyed) <= 2
        assert [item["n"] for item in q.abort()] == [7, 6]

    run(main())


def test_s10_equal_priorities_compare_payloads_unless_there_is_a_key(interlock: Any) -> None:
    q = interlock.PriorityQueue()
    q.put_nowait((1, {}))
    before = q.statistics()
    with pytest.raises(TypeError):
        q.put_nowait((1, {"a": 1}))
    assert q.statistics() == before
    assert drain(q) == [(1, {})]
    q = interlock.PriorityQueue(key=lambda pair: pair[0])
    for number in range(5):
        q.put_nowait((1, {"number": number}))
    assert [payload["number"] for _, payload in drain(q)] == [0, 1, 2, 3, 4]
