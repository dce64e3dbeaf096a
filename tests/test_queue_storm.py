"""Q2, Q3, Q4, Q10: whatever happens at once, every item is got once, dropped once, or was never accepted."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from queue_storm import ENDINGS, Plan, Storm, race
from queues import assert_account, assert_nobody_waits, drain, make
from storm import LIMIT, run_on, ticks
from test_threads import free_threaded

every_queue = pytest.mark.parametrize("kind", ["fifo", "lifo", "priority", "hooked"])
ROUNDS = 100
HANDED_OVER = 3_000


@every_queue
@pytest.mark.parametrize("ending", ENDINGS)
def test_q10_storm(interlock: Any, kind: str, ending: str, storm_seed: int) -> None:
    plan = Plan(kind, ending, storm_seed)
    print(plan)
    Storm(interlock, plan).run()


# Two operations at the same time.

SHUTDOWNS: dict[str, Callable[[Any], Any]] = {
    "graceful": lambda q: q.shutdown(),
    "immediate": lambda q: q.shutdown(immediate=True),
    "abort": lambda q: q.abort(),
}
every_shutdown = pytest.mark.parametrize("how", SHUTDOWNS)


def filled(package: Any, kind: str, items: int, maxsize: int = 0) -> Callable[[], Any]:
    """Makes a queue with so many items, which are numbers from 0 on."""

    def prepare() -> Any:
        q = make(package, kind, maxsize)
        for item in range(items):
            q.put_nowait(item)
        return q

    return prepare


def went_well(*outcomes: Any) -> int:
    """How many have not raised."""
    return sum(not isinstance(outcome, Exception) for outcome in outcomes)


@every_queue
@every_shutdown
def test_q3_put_against_shutdown(interlock: Any, kind: str, how: str) -> None:
    """S18: the outcome of the put is the presence of the item."""

    def check(q: Any, first: Any, second: Any, ended: Any) -> None:
        accepted = [item for item, outcome in ((8, first), (9, second)) if outcome is None]
        assert all(type(outcome) is interlock.QueueShutDown for outcome in (first, second) if outcome is not None)
        left = drain(q)
        dropped = {"graceful": [], "abort": ended, "immediate": accepted}[how]
        assert sorted([*left, *dropped]) == accepted
        assert_account(q, size=0, accepted=len(accepted), dropped=len(dropped), unfinished=len(left))
        with pytest.raises(interlock.QueueShutDown):
            q.get_nowait()

    putters = [lambda q: q.put_nowait(8), lambda q: q.put_nowait(9)]
    race(ROUNDS, filled(interlock, kind, 0), *putters, SHUTDOWNS[how], check=check)


@every_queue
@every_shutdown
def test_q5_a_put_that_is_about_to_block_against_shutdown(interlock: Any, kind: str, how: str) -> None:
    """S19: it is put in the place that gets free, or it raises; it does not hang."""

    def check(q: Any, got: Any, put: Any, ended: Any) -> None:
        accepted = [0, *([1] if put is None else [])]
        assert put is None or type(put) is interlock.SyncQueueShutDown
        found = [*([got] if went_well(got) else []), *drain(q)]
        lost = sorted(set(accepted).difference(found))
        assert sorted([*found, *lost]) == accepted
        assert lost == {"graceful": [], "abort": ended, "immediate": lost}[how]
        assert_account(q, size=0, accepted=len(accepted), dropped=len(lost), putters=0)

    contenders = [lambda q: q.get_nowait(), lambda q: q.sync_q.put(1, timeout=LIMIT), SHUTDOWNS[how]]
    race(ROUNDS, filled(interlock, kind, 1, 1), *contenders, check=check)


@every_queue
@every_shutdown
def test_q5_a_get_that_is_about_to_block_against_shutdown(interlock: Any, kind: str, how: str) -> None:
    """S16: "shut down and empty" is one decision; what was accepted is delivered, or dropped if it is immediate."""

    def check(q: Any, got: Any, put: Any, ended: Any) -> None:
        assert put is None or type(put) is interlock.QueueShutDown
        assert got == 1 or type(got) is interlock.SyncQueueShutDown
        lost = int(put is None and got != 1)
        assert not lost or how != "graceful"
        assert how != "abort" or ended == [1] * lost
        assert_account(q, size=0, accepted=int(put is None), dropped=lost, getters=0)

    contenders = [lambda q: q.sync_q.get(timeout=LIMIT), lambda q: q.put_nowait(1), SHUTDOWNS[how]]
    race(ROUNDS, filled(interlock, kind, 0), *contenders, check=check)


@every_queue
def test_q6_get_against_abort(interlock: Any, kind: str) -> None:
    """Each item is got or returned, and what is returned is in order."""

    def check(q: Any, first: Any, second: Any, dropped: list[int]) -> None:
        got = [outcome for outcome in (first, second) if went_well(outcome)]
        assert sorted([*got, *dropped]) == [0, 1, 2]
        assert dropped == sorted(dropped, reverse=kind == "lifo")
        assert_account(q, size=0, delivered=len(got), dropped=len(dropped), unfinished=len(got))

    getters = [lambda q: q.get_nowait()] * 2
    race(ROUNDS, filled(interlock, kind, 3), *getters, lambda q: q.abort(), check=check)


@every_queue
def test_q6_abort_against_abort(interlock: Any, kind: str) -> None:
    """Each dropped item is returned by one of them."""

    def check(q: Any, first: list[int], second: list[int], third: None) -> None:
        assert_account(q, size=0, dropped=5, unfinished=0)
        returned = [*first, *second]
        assert len(set(returned)) == len(returned)
        assert set(returned) <= set(range(5))

    aborts = [lambda q: q.abort()] * 2
    race(ROUNDS, filled(interlock, kind, 5), *aborts, lambda q: q.shutdown(), check=check)


@every_queue
def test_q4_task_done_against_join(interlock: Any, kind: str) -> None:
    """All joins return, also those of tasks; of three for two items one is too many."""

    def prepare() -> Any:
        q = filled(interlock, kind, 2)()
        drain(q)
        return q

    def check(q: Any, *outcomes: Any) -> None:
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [ValueError]
        assert_account(q, unfinished=0, joiners=0)

    done = [lambda q: q.task_done()] * 3
    joins = [lambda q: q.sync_q.join(LIMIT), lambda q: asyncio.run(q.join(timeout=LIMIT))]
    race(ROUNDS, prepare, *done, *joins, check=check)


@every_queue
def test_q6_join_against_abort(interlock: Any, kind: str) -> None:
    """One item is dropped or got; in the latter case its `task_done` is waited for."""

    def prepare() -> Any:
        q = filled(interlock, kind, 1)()
        q.finished = 0
        return q

    def work(q: Any) -> None:
        q.get_nowait()
        time.sleep(0)
        q.finished += 1
        q.task_done()

    def join(q: Any) -> Any:
        q.sync_q.join(LIMIT)
        return q.finished

    def check(q: Any, worked: Any, joined: int, dropped: list[int]) -> None:
        assert (joined, dropped) == ((1, []) if worked is None else (0, [0]))
        assert_account(q, size=0, unfinished=0, joiners=0)

    race(ROUNDS, prepare, work, join, lambda q: q.abort(), check=check)


@every_queue
def test_q1_the_last_place_goes_to_one(interlock: Any, kind: str) -> None:
    def check(q: Any, *outcomes: Any) -> None:
        assert went_well(*outcomes) == 1
        assert drain(q) == [item for item, outcome in enumerate(outcomes) if outcome is None]
        assert_account(q, size=0, accepted=1)

    putters = [lambda q: q.put_nowait(0), lambda q: q.put_nowait(1), lambda q: q.sync_q.put(2, timeout=0)]
    race(ROUNDS, filled(interlock, kind, 0, 1), *putters, check=check)


@every_queue
def test_q2_the_last_item_goes_to_one(interlock: Any, kind: str) -> None:
    def check(q: Any, *outcomes: Any) -> None:
        assert [outcome for outcome in outcomes if went_well(outcome)] == [0]
        assert_account(q, size=0, delivered=1)

    getters = [lambda q: q.get_nowait(), lambda q: q.get_nowait(), lambda q: q.sync_q.get(timeout=0)]
    race(ROUNDS, filled(interlock, kind, 1), *getters, check=check)


@every_queue
def test_q9_no_wake_up_is_missed(interlock: Any, kind: str) -> None:
    """Two that must wait, or have just not to, on each side: all are served."""

    def check(q: Any, *outcomes: Any) -> None:
        assert sorted(outcomes[:2]) == [1, 2]
        assert outcomes[2:] == (None, None)
        assert_account(q, size=0, delivered=2, getters=0, putters=0)

    getters = [lambda q: q.sync_q.get(timeout=LIMIT), lambda q: asyncio.run(q.get(timeout=LIMIT))]
    putters = [lambda q: q.sync_q.put(1, timeout=LIMIT), lambda q: asyncio.run(q.put(2, timeout=LIMIT))]
    race(ROUNDS, filled(interlock, kind, 0, 1), *getters, *putters, check=check)


# One thread or task on each side, and room for one item: a wake-up that is missed is missed for good.


def put_all(q: Any) -> None:
    for item in range(HANDED_OVER):
        q.sync_q.put(item, timeout=LIMIT)


def get_all(q: Any) -> list[Any]:
    return [q.sync_q.get(timeout=LIMIT) for _ in range(HANDED_OVER)]


def put_all_in_task(q: Any) -> None:
    async def main() -> None:
        for item in range(HANDED_OVER):
            await q.put(item)

    run_on("plain", main())


def get_all_in_task(q: Any) -> Any:
    async def main() -> list[Any]:
        return [await q.get() for _ in range(HANDED_OVER)]

    return run_on("plain", main())


@pytest.mark.parametrize("kind", ["fifo", "hooked"])
@pytest.mark.parametrize("put", [put_all, put_all_in_task])
@pytest.mark.parametrize("get", [get_all, get_all_in_task])
def test_q9_hand_over_hand(
    interlock: Any, kind: str, put: Callable[[Any], None], get: Callable[[Any], Any], storm_seed: int
) -> None:
    def check(q: Any, ended: None, got: list[int]) -> None:
        assert (ended, got) == (None, list(range(HANDED_OVER)))
        assert_account(q, size=0, getters=0, putters=0)

    race(1, filled(interlock, kind, 0, 1), put, get, check=check)


# Each of these has two getters or two putters, of which one may leave: the other is served in any case (X6).


def get_in_task(q: Any) -> Any:
    return asyncio.run(q.get(timeout=LIMIT))


def put_in_task(q: Any) -> Any:
    return asyncio.run(q.put(2, timeout=LIMIT))


def put_two(q: Any) -> None:
    q.put_nowait(1)
    q.put_nowait(2)


def get_two(q: Any) -> Any:
    """One is there; the other is that of whoever puts first."""
    return [q.sync_q.get(timeout=LIMIT), q.sync_q.get(timeout=LIMIT)]


def check_getters(q: Any, leaving: Any, staying: Any, put: None) -> None:
    """What has left has not taken its item with it (Q2)."""
    assert sorted([outcome for outcome in (leaving, staying) if went_well(outcome)] + drain(q)) == [1, 2]
    assert went_well(staying)
    assert_nobody_waits(q)


def check_putters(q: Any, leaving: Any, staying: Any, got: list[int]) -> None:
    """What has left has not put its item (Q3)."""
    assert staying is None
    assert sorted([*got, *drain(q)]) == ([0, 2] if isinstance(leaving, Exception) else [0, 1, 2])
    assert_nobody_waits(q)


@every_queue
def test_s01_a_get_whose_time_is_up_against_put(interlock: Any, kind: str) -> None:
    contenders = [lambda q: q.sync_q.get(timeout=0.00005), get_in_task, put_two]
    race(ROUNDS, filled(interlock, kind, 0), *contenders, check=check_getters)


@every_queue
def test_s04_a_put_whose_time_is_up_against_get(interlock: Any, kind: str) -> None:
    contenders = [lambda q: q.sync_q.put(1, timeout=0.00005), put_in_task, get_two]
    race(ROUNDS, filled(interlock, kind, 1, 1), *contenders, check=check_putters)


class Cancelled(Exception):
    """What became of a task."""


def cancelling(call: Callable[[Any], Coroutine[Any, Any, Any]], meet: Callable[[], object]) -> Callable[[Any], Any]:
    """Waits in a task, and cancels that as soon as the others are there, or a little later."""
    turns = itertools.count()

    async def main(q: Any) -> Any:
        task = asyncio.ensure_future(call(q))
        await ticks(2)
        meet()
        await ticks(next(turns) % 3)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            raise Cancelled
        return await task

    return lambda q: asyncio.run(main(q))


def after(
    meet: Callable[[], object], function: Callable[[Any], Any], ended: threading.Event | None = None
) -> Callable[[Any], Any]:
    def begin(q: Any) -> Any:
        meet()
        try:
            return function(q)
        finally:
            if ended is not None:
                ended.set()

    return begin


@every_queue
def test_s05_cancellation_against_put(interlock: Any, kind: str) -> None:
    meet = functools.partial(threading.Barrier(2).wait, LIMIT)
    contenders = [cancelling(lambda q: q.get(), meet), get_in_task, after(meet, put_two)]
    race(ROUNDS, filled(interlock, kind, 0), *contenders, check=check_getters)


@every_queue
def test_s05_cancellation_against_get(interlock: Any, kind: str) -> None:
    meet = functools.partial(threading.Barrier(2).wait, LIMIT)
    contenders = [cancelling(lambda q: q.put(1), meet), put_in_task, after(meet, get_two)]
    race(ROUNDS, filled(interlock, kind, 1, 1), *contenders, check=check_putters)


@every_queue
@every_shutdown
def test_x7_cancellation_against_shutdown(interlock: Any, kind: str, how: str) -> None:
    """A getter, a putter and a joiner end in one way or the other."""
    queue_shut_down = interlock.QueueShutDown

    def check(pair: Any, get: Any, put: Any, join: Any, ended: Any) -> None:
        empty, full = pair
        assert type(get) in (Cancelled, queue_shut_down)
        assert type(put) in (Cancelled, queue_shut_down)
        assert type(join) is Cancelled or (join is None and how != "graceful")
        assert_account(empty, size=0, accepted=0, getters=0)
        assert_account(full, size=int(how == "graceful"), accepted=1, putters=0, joiners=0)

    def end(pair: Any) -> None:
        for q in pair:
            SHUTDOWNS[how](q)

    meet = functools.partial(threading.Barrier(4).wait, LIMIT)
    calls = [lambda pair: pair[0].get(), lambda pair: pair[1].put(1), lambda pair: pair[1].join()]
    contenders = [*[cancelling(call, meet) for call in calls], after(meet, end)]

    def prepare() -> Any:
        return filled(interlock, kind, 0)(), filled(interlock, kind, 1, 1)()

    race(ROUNDS, prepare, *contenders, check=check)


def closing(
    call: Callable[[Any], Coroutine[Any, Any, Any]], count: int, meet: Callable[[], object], ended: threading.Event
) -> Callable[[Any], Any]:
    """Waits in tasks, and closes their loop as soon as the others are there; `ended`: who came after it is done."""

    def close(q: Any) -> None:
        loop = asyncio.new_event_loop()
        tasks = [loop.create_task(call(q)) for _ in range(count)]
        loop.run_until_complete(ticks(2))
        ended.clear()
        meet()
        loop.close()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        # They were first in line, and pass on what they were woken for before the loop was closed: when
        # the loop's handle goes. Without the GIL, one that another thread has made goes when that thread
        # runs again or garbage is collected, and that thread waits for the next round.
        end = time.monotonic() + LIMIT
        while not ended.wait(0.001 if free_threaded() else LIMIT):
            assert free_threaded() and time.monotonic() < end
            gc.collect()

    return close


every_count = pytest.mark.parametrize("count", [1, 2])


@every_queue
@every_count
def test_x4_closing_the_loop_against_put(interlock: Any, kind: str, count: int) -> None:
    """S30."""
    meet = functools.partial(threading.Barrier(3).wait, LIMIT)

    def check(q: Any, closed: None, staying: Any, put: None) -> None:
        assert (closed, staying, put) == (None, 1, None)
        # One may still be in line, if the item was gone before anybody was woken; it goes at the next put.
        q.put_nowait(2)
        assert drain(q) == [2]
        assert_account(q, size=0, getters=0)

    ended = threading.Event()
    closes = closing(lambda q: q.get(), count, meet, ended)
    contenders = [closes, after(meet, get_in_task, ended), after(meet, lambda q: q.put_nowait(1))]
    race(ROUNDS, filled(interlock, kind, 0), *contenders, check=check)


@every_queue
@every_count
def test_x4_closing_the_loop_against_get(interlock: Any, kind: str, count: int) -> None:
    """S30."""
    meet = functools.partial(threading.Barrier(3).wait, LIMIT)

    def check(q: Any, closed: None, staying: Any, got: int) -> None:
        assert (closed, staying, got, drain(q)) == (None, None, 0, [2])
        assert_account(q, size=0, putters=0)

    ended = threading.Event()
    closes = closing(lambda q: q.put(1), count, meet, ended)
    contenders = [closes, after(meet, put_in_task, ended), after(meet, lambda q: q.get_nowait())]
    race(ROUNDS, filled(interlock, kind, 1, 1), *contenders, check=check)


# Priority queues whose comparisons give way to other threads.


@functools.total_ordering
class Slow:
    def __init__(self, number: int) -> None:
        self.number = number

    def __lt__(self, other: Slow) -> bool:
        time.sleep(0)
        return self.number < other.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slow) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("how", ["items", "key"])
@pytest.mark.parametrize("ending", ["none", "abort"])
def test_q8_comparisons_that_give_way(interlock: Any, how: str, ending: str) -> None:
    """Two threads put, two get, and perhaps one aborts: each item once, and what is left is in order."""
    count = 8
    wrap = Slow if how == "items" else int

    def number(item: Any) -> int:
        return item.number if isinstance(item, Slow) else item

    def prepare() -> Any:
        return interlock.PriorityQueue(key=None if how == "items" else Slow)

    def put(first: int) -> Callable[[Any], list[int]]:
        def put(q: Any) -> list[int]:
            accepted = []
            for item in range(first, first + 2 * count, 2):
                try:
                    q.put_nowait(wrap(item))
                except interlock.QueueShutDown:
                    break
                accepted.append(item)
            return accepted

        return put

    def get(q: Any) -> list[int]:
        got = []
        for _ in range(count // 2):
            try:
                got.append(number(q.sync_q.get(timeout=LIMIT)))
            except interlock.SyncQueueShutDown:
                break
        return got

    def end(q: Any) -> list[int]:
        return [number(item) for item in q.abort()] if ending == "abort" else []

    def check(q: Any, *outcomes: list[int]) -> None:
        first, second, got, got_too, dropped = outcomes
        left = [number(item) for item in drain(q)] if ending == "none" else []
        assert (left, dropped) == (sorted(left), sorted(dropped))
        assert sorted([*got, *got_too, *dropped, *left]) == sorted([*first, *second])
        assert_account(q, size=0, accepted=len(first) + len(second), dropped=len(dropped))

    race(ROUNDS // 4, prepare, put(0), put(1), get, get, end, check=check)
