"""Q9: `Queue.sync_q`, the queue for threads that have no loop."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import queue
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, in_threads, signalled, switching_often, ticks
from queues import (
    BLOCKING,
    OPERATIONS,
    assert_account,
    assert_nobody_waits,
    every_kind,
    every_operation,
    hooked,
    in_daemon,
    make,
    prepared,
    start,
    until_waiting,
    waiters,
    when_waiting,
)

# What a blocking call raises when its time is up.
EXPIRED: dict[str, type[Exception]] = {"get": queue.Empty, "put": queue.Full, "join": asyncio.TimeoutError}
RESULTS = {"get": 1, "put": None, "join": None}


@every_kind
def test_q9_it_has_what_queue_queue_has(interlock: Any, kind: str) -> None:
    q = make(interlock, kind, 2)
    view = q.sync_q
    assert isinstance(view, interlock.SyncQueue)
    for name, theirs in inspect.getmembers(queue.Queue, inspect.isfunction):
        if not name.startswith("_"):
            found, expected = (list(inspect.signature(method).parameters) for method in (getattr(view, name), theirs))
            # `join` has a timeout besides.
            assert found[: len(expected) - 1] == expected[1:], name
    assert [view.maxsize, view.qsize(), view.empty(), view.full()] == [2, 0, True, False]
    view.put(1)
    view.put(2, False)
    assert [view.qsize(), view.empty(), view.full(), view.unfinished_tasks] == [2, False, True, 2]
    puts: list[Callable[[], Any]] = [
        lambda: view.put_nowait(3),
        lambda: view.put(3, block=False),
        lambda: view.put(3, False, 5),
        lambda: view.put(3, timeout=0),
        lambda: view.put(3, True, 0.001),
    ]
    for put in puts:
        with pytest.raises(queue.Full):
            put()
    assert sorted([view.get(), view.get(False)]) == [1, 2]
    gets: list[Callable[[], Any]] = [
        lambda: view.get_nowait(),
        lambda: view.get(block=False),
        lambda: view.get(False, 5),
        lambda: view.get(timeout=0),
        lambda: view.get(True, 0.001),
    ]
    for get in gets:
        with pytest.raises(queue.Empty):
            get()
    with pytest.raises(asyncio.TimeoutError):
        view.join(timeout=0)
    view.task_done()
    view.task_done()
    view.join()
    with pytest.raises(ValueError, match="task_done"):
        view.task_done()
    assert_account(q, size=0, accepted=2, delivered=2, unfinished=0, getters=0, putters=0, joiners=0)
    view.shutdown()
    assert view.is_shutdown and view.closed and q.is_shutdown
    assert repr(view) == f"<SyncQueue of {q!r}>"


@every_kind
@every_operation
def test_q9_a_blocked_thread_is_served_by_a_thread(interlock: Any, kind: str, name: str) -> None:
    q = prepared(interlock, name, kind)
    result, _ = in_threads(lambda: BLOCKING[name](q, LIMIT), when_waiting(q, 1, lambda: OPERATIONS[name].serve(q)))
    assert result == RESULTS[name]
    assert_nobody_waits(q)


@every_kind
@every_operation
def test_q9_a_blocked_thread_is_served_by_a_task(interlock: Any, run: Run, kind: str, name: str) -> None:
    serve: dict[str, Callable[[Any], Any]] = {"get": lambda q: q.put(1), "put": lambda q: q.get()}

    async def main() -> None:
        q = prepared(interlock, name, kind)
        for timeout in (None, LIMIT):
            if q.empty():
                OPERATIONS[name].prepare(q)
            thread = in_daemon(BLOCKING[name], q, timeout)
            await until_waiting(q, 1)
            if name == "join":
                await q.get()
                q.task_done()
            else:
                await serve[name](q)
            assert await thread == RESULTS[name]
        assert_nobody_waits(q)

    run(main())


@every_operation
def test_q9_a_blocked_task_is_served_by_a_thread(interlock: Any, run: Run, name: str) -> None:
    serve: dict[str, Callable[[Any], Any]] = {
        "get": lambda view: view.put(1),
        "put": lambda view: view.get(),
        "join": lambda view: view.task_done(),
    }

    async def main() -> None:
        q = prepared(interlock, name)
        task = start(name, q)
        await ticks(2)
        await asyncio.to_thread(serve[name], q.sync_q)
        assert await task == RESULTS[name]
        assert_nobody_waits(q)

    run(main())


@every_kind
@every_operation
@pytest.mark.parametrize("timeout", [0, 0.001, 0.05])
def test_q9_a_blocking_wait_times_out_and_leaves_nothing(interlock: Any, kind: str, name: str, timeout: float) -> None:
    q = prepared(interlock, name, kind)
    before = q.statistics()
    with pytest.raises(EXPIRED[name]):
        BLOCKING[name](q, timeout)
    assert q.statistics() == before


@pytest.mark.parametrize("kind", ["fifo", "hooked"])
def test_q9_waits_that_time_out_as_they_are_served_lose_nothing(interlock: Any, kind: str) -> None:
    """And pass on what they were woken for: nobody else is left waiting for it."""
    q = make(interlock, kind, 1)
    found: list[list[int]] = [[], []]

    def impatient(mine: list[int]) -> Callable[[], None]:
        def get() -> None:
            while True:
                try:
                    mine.append(q.sync_q.get(timeout=0.0001))
                except queue.Empty:
                    pass
                except interlock.SyncQueueShutDown:
                    return

        return get

    def put(first: int) -> Callable[[], None]:
        def work() -> None:
            for item in range(first, first + 200):
                while True:
                    try:
                        q.sync_q.put(item, timeout=0.0001)
                        break
                    except queue.Full:
                        pass

        return work

    def end() -> None:
        try:
            in_threads(put(0), put(200))
        finally:
            q.shutdown()

    *_, patient = in_threads(end, *map(impatient, found), lambda: list(q.sync_q))
    assert sorted([*found[0], *found[1], *patient]) == list(range(400))
    assert_account(q, size=0, accepted=400, delivered=400, getters=0, putters=0)


@every_operation
@pytest.mark.parametrize("kind", ["fifo", "hooked"])
def test_q9_it_refuses_to_block_a_running_loop(interlock: Any, run: Run, name: str, kind: str) -> None:
    """And works there where it need not block."""

    async def main() -> None:
        q = prepared(interlock, name, kind)
        before = q.statistics()
        for timeout in (None, LIMIT):
            with pytest.raises(RuntimeError, match="await"):
                BLOCKING[name](q, timeout)
        with pytest.raises(EXPIRED[name]):
            BLOCKING[name](q, 0)
        assert q.statistics() == before
        OPERATIONS[name].serve(q)
        assert BLOCKING[name](q, None) == RESULTS[name]

    run(main())


def test_q9_threads_take_turns(interlock: Any) -> None:
    """Ping-pong through two queues of one place, with threads that take turns as often as they can."""
    there, back = interlock.Queue(1), hooked(interlock.Queue)(1)

    def ping() -> None:
        for number in range(500):
            there.sync_q.put(number, timeout=LIMIT)
            assert back.sync_q.get(timeout=LIMIT) == number
        there.shutdown()

    def pong() -> None:
        for number in there.sync_q:
            back.sync_q.put(number, timeout=LIMIT)

    with switching_often():
        in_threads(ping, pong)
    for q in (there, back):
        assert_account(q, size=0, accepted=500, delivered=500)


def test_q9_an_iteration_ends_with_the_queue(interlock: Any) -> None:
    """Several threads, one of which leaves early and loses nothing."""
    q = interlock.Queue(2)

    def leave() -> list[int]:
        for item in q.sync_q:
            return [item]
        return []

    def produce() -> None:
        for item in range(100):
            q.sync_q.put(item, timeout=LIMIT)
        q.shutdown()

    *found, _ = in_threads(leave, lambda: list(q.sync_q), lambda: list(q.sync_q), produce)
    assert sorted(itertools.chain(*found)) == list(range(100))
    assert list(q.sync_q) == []


posix = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the platform has no such signals")


@posix
@every_kind
@every_operation
@pytest.mark.parametrize("timeout", [None, LIMIT])
def test_q9_an_interrupt_ends_the_wait_and_leaves_nothing(
    interlock: Any, kind: str, name: str, timeout: float | None
) -> None:
    """As Ctrl-C does."""
    q = prepared(interlock, name, kind)
    before = q.statistics()
    raised: list[bool] = []

    def interrupt() -> None:
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    with signalled(lambda: waiters(q), interrupt):
        with pytest.raises(KeyboardInterrupt):
            BLOCKING[name](q, timeout)
    assert q.statistics() == before
    OPERATIONS[name].serve(q)
    assert BLOCKING[name](q, LIMIT) == RESULTS[name]


@posix
@every_kind
@every_operation
def test_q9_a_signal_handler_may_bring_what_the_thread_waits_for(interlock: Any, kind: str, name: str) -> None:
    q = prepared(interlock, name, kind)
    served: list[bool] = []

    def serve() -> None:
        if not served:
            served.append(True)
            OPERATIONS[name].serve(q)

    with signalled(lambda: waiters(q), serve):
        assert BLOCKING[name](q, LIMIT) == RESULTS[name]
    assert_nobody_waits(q)


@posix
@pytest.mark.parametrize("kind", ["fifo", "priority", "hooked"])
@pytest.mark.parametrize("name", ["get", "put"])
def test_x6_one_that_is_interrupted_as_it_is_woken_passes_it_on(interlock: Any, kind: str, name: str) -> None:
    q = prepared(interlock, name, kind)
    second: list[Any] = []
    thread = threading.Thread(target=lambda: second.append(BLOCKING[name](q, LIMIT)))

    def serve_and_interrupt() -> None:
        if not thread.ident:
            # Behind the main thread in the line.
            thread.start()
            when_waiting(q, 2, lambda: OPERATIONS[name].serve(q))()
            raise KeyboardInterrupt

    with signalled(lambda: waiters(q), serve_and_interrupt):
        with pytest.raises(KeyboardInterrupt):
            BLOCKING[name](q, LIMIT)
    thread.join(LIMIT)
    assert second == [RESULTS[name]]
    assert_nobody_waits(q)


@posix
@pytest.mark.parametrize("blocked", ["get", "put"])
def test_q9_a_signal_handler_may_shut_the_queue_down(interlock: Any, blocked: str) -> None:
    q = prepared(interlock, blocked)
    with signalled(lambda: waiters(q), q.shutdown):
        with pytest.raises(interlock.SyncQueueShutDown):
            BLOCKING[blocked](q, LIMIT)
    assert_nobody_waits(q)
