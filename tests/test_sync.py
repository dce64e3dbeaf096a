"""`ValueWatcher.sync`: the blocking view. Rules as for the waits and subscriptions that it mirrors."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import LIMIT, assert_idle, in_threads, signalled, switching_often, ticks, when

# Every blocking wait, on a watcher whose value is None and becomes 1.
SYNC: dict[str, Callable[..., Any]] = {
    "wait_for": lambda view, **options: view.wait_for(1, **options),
    "wait_for_not": lambda view, **options: view.wait_for_not(None, **options),
    "wait_for_not_none": lambda view, **options: view.wait_for_not_none(**options),
    "wait_until": lambda view, **options: view.wait_until(lambda value: value == 1, **options),
    "wait_for_change": lambda view, **options: view.wait_for_change(**options),
    "get": lambda view, **options: view.watch().get(**options)[1],
}


def waiters(w: Any) -> int:
    """How many threads wait on `w`."""
    counts = w.statistics()
    return int(counts.waiters + counts.subscriptions)


def when_waiting(w: Any, count: int, function: Callable[[], object]) -> Callable[[], Any]:
    return when(lambda: waiters(w), count, function)


@pytest.mark.parametrize("name", SYNC)
def test_a_blocked_thread_gets_the_value_that_matched(interlock: Any, name: str) -> None:
    """W4: also if another one follows before the thread runs again."""
    w = interlock.ValueWatcher(None)

    def sets() -> None:
        w.value = 1
        w.value = 2

    results = in_threads(*[lambda: SYNC[name](w.sync, timeout=LIMIT)] * 4, when_waiting(w, 4, sets))
    assert results[:4] == [1] * 4
    gc.collect()
    assert_idle(w)


def test_a_satisfied_wait_returns_at_once(interlock: Any) -> None:
    w = interlock.ValueWatcher(1)
    assert w.sync.wait_for(1, timeout=0) == 1
    assert w.sync.wait_for_not(2, timeout=0) == 1
    assert w.sync.wait_for_not_none(timeout=0) == 1
    assert w.sync.wait_until(bool, timeout=0) == 1
    waits: list[Callable[[], Any]] = [
        lambda: w.sync.wait_for(1, immediate=False, timeout=0),
        lambda: w.sync.wait_for_not(2, immediate=False, timeout=0),
        lambda: w.sync.wait_for_not_none(immediate=False, timeout=0),
        lambda: w.sync.wait_until(bool, immediate=False, timeout=0),
    ]
    for wait in waits:
        with pytest.raises(asyncio.TimeoutError):
            wait()


@pytest.mark.parametrize("timeout", [0, 0.001])
@pytest.mark.parametrize("name", SYNC)
def test_w6_a_blocking_wait_times_out_and_leaves_nothing(interlock: Any, name: str, timeout: float) -> None:
    w = interlock.ValueWatcher(None)
    with pytest.raises(asyncio.TimeoutError):
        SYNC[name](w.sync, timeout=timeout)
    assert w.statistics().waiters == 0


@pytest.mark.parametrize("name", SYNC)
def test_w12_close_wakes_a_blocked_thread(interlock: Any, name: str) -> None:
    w = interlock.ValueWatcher(None)
    error = OSError("gone")

    def blocked() -> BaseException | None:
        try:
            SYNC[name](w.sync, timeout=LIMIT)
        except (interlock.WatcherClosed, OSError) as raised:
            return raised
        return None

    raised, _ = in_threads(blocked, when_waiting(w, 1, lambda: w.close(error)))
    if name == "get":
        assert isinstance(raised, interlock.WatcherClosed) and raised.__cause__ is error
    else:
        assert raised is error
    with pytest.raises((interlock.WatcherClosed, OSError)):
        SYNC[name](w.sync, timeout=LIMIT)


@pytest.mark.parametrize("error", [LookupError, StopIteration, SystemError])
def test_w7_a_predicate_that_raises_fails_its_own_wait(interlock: Any, error: type[Exception]) -> None:
    w = interlock.ValueWatcher(0)

    def bad(value: int) -> bool:
        if value == 1:
            raise error("bad")
        return False

    def failing() -> BaseException | None:
        try:
            w.sync.wait_until(bad, timeout=LIMIT)
        except Exception as raised:
            return raised
        return None

    raised, good, _ = in_threads(
        failing, lambda: w.sync.wait_for(1, timeout=LIMIT), when_waiting(w, 2, lambda: w.set(1))
    )
    assert isinstance(raised, (error, RuntimeError)) and good == 1
    with pytest.raises((error, RuntimeError)):
        w.sync.wait_until(bad)
    assert_idle(w)


def test_a_blocking_subscription_delivers_everything_in_order(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)

    def read() -> list[Any]:
        with w.sync.watch(initial=True) as subscription:
            ready.wait(LIMIT)
            return list(subscription)

    def sets() -> None:
        ready.wait(LIMIT)
        for _ in range(500):
            w.update(lambda n: n + 1)
        both_done.wait(LIMIT)
        w.close()

    ready, both_done = threading.Barrier(5), threading.Barrier(2)
    with switching_often():
        first, second, third, *_ = in_threads(read, read, read, sets, sets)
    assert first == second == third == [(0, 0), *[(n, n + 1) for n in range(1000)]]
    assert_idle(w)


def test_w13_a_blocking_subscription_keeps_its_place_across_timeouts(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.sync.watch()
    for timeout in (0, 0.001, 0.001):
        with pytest.raises(asyncio.TimeoutError):
            subscription.get(timeout=timeout)
    for value in (1, 2, 3):
        w.value = value
    assert subscription.pending == 3
    assert subscription.get() == (0, 1)
    assert subscription.get_nowait() == (1, 2)
    assert next(subscription) == (2, 3)
    with pytest.raises(asyncio.QueueEmpty):
        subscription.get_nowait()


def test_w14_a_blocking_subscription_may_be_bounded(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    strict, latest = w.sync.watch(maxlen=2), w.sync.watch(maxlen=1, overflow="latest")
    for value in range(1, 6):
        w.value = value
    with pytest.raises(interlock.Lagged) as lag:
        strict.get()
    assert lag.value.missed == 3
    assert [strict.get(), strict.get(), latest.get()] == [(3, 4), (4, 5), (0, 5)]


def test_w16_a_second_blocking_reader_is_refused(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.sync.watch()

    def second() -> None:
        gone = threading.Event()
        for _ in range(LIMIT * 1000):
            try:
                subscription.get(timeout=0)
            except asyncio.TimeoutError:
                gone.wait(0.001)
            except RuntimeError as error:
                assert "watch()" in str(error)
                break
        else:
            raise AssertionError("it was never refused")
        w.value = 1

    first, _ = in_threads(lambda: retry_refused(subscription), second)
    assert first == (0, 1)


def retry_refused(subscription: Any) -> Any:
    # The other thread's reads are as good as this one's, for a moment each.
    while True:
        try:
            return subscription.get(timeout=LIMIT)
        except RuntimeError:
            continue


def test_closing_the_subscription_wakes_its_blocked_reader(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.sync.watch()
    entered = threading.Event()

    def read() -> list[Any]:
        found = []
        for pair in subscription:
            found.append(pair)
            entered.set()
        return found

    def close() -> None:
        w.value = 1
        assert entered.wait(LIMIT)
        subscription.close()
        subscription.close()

    found, _ = in_threads(read, close)
    assert found == [(0, 1)]
    assert subscription.closed and subscription.pending == 0
    with pytest.raises(interlock.WatcherClosed):
        subscription.get()
    assert_idle(w)


@pytest.mark.parametrize("name", SYNC)
def test_it_refuses_to_block_a_running_loop(interlock: Any, run: Run, name: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(None)
        with pytest.raises(RuntimeError, match="await"):
            SYNC[name](w.sync)
        assert w.statistics().waiters == 0
        # In another thread it may.
        task = asyncio.ensure_future(asyncio.to_thread(SYNC[name], w.sync, timeout=LIMIT))
        while not (w.statistics().waiters or w.statistics().subscriptions):
            await ticks()
        w.value = 1
        assert await task == 1

    run(main())


def test_what_does_not_block_works_in_a_loop(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        with w.sync.watch() as subscription:
            w.value = 1
            assert subscription.pending == 1
            assert subscription.get_nowait() == (0, 1)

    run(main())


def test_tasks_and_threads_wait_side_by_side(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)

        def ping() -> None:
            for n in range(0, 200, 2):
                w.sync.wait_for(n, timeout=LIMIT)
                w.value = n + 1

        thread = asyncio.ensure_future(asyncio.to_thread(ping))
        for n in range(1, 200, 2):
            await w.wait_for(n)
            w.value = n + 1
        await thread
        assert w.value == 200
        assert_idle(w)

    run(main())


@pytest.mark.parametrize("name", SYNC)
def test_a_signal_handler_may_set_what_the_main_thread_waits_for(interlock: Any, name: str) -> None:
    w = interlock.ValueWatcher(None)
    with signalled(lambda: waiters(w), lambda: w.set(1)):
        assert SYNC[name](w.sync, timeout=LIMIT) == 1


@pytest.mark.parametrize("name", SYNC)
def test_a_signal_handler_that_raises_ends_the_wait(interlock: Any, name: str) -> None:
    """As Ctrl-C does; nothing is left behind."""
    w = interlock.ValueWatcher(None)
    raised: list[bool] = []

    def interrupt() -> None:
        if not raised:
            raised.append(True)
            raise KeyboardInterrupt

    with signalled(lambda: waiters(w), interrupt):
        with pytest.raises(KeyboardInterrupt):
            SYNC[name](w.sync, timeout=LIMIT)
    assert w.statistics().waiters == 0
    w.value = 1


def test_a_signal_that_comes_as_the_wait_begins_is_not_missed(interlock: Any) -> None:
    """It is pending when the thread is about to sleep, so its handler has to run before that."""
    # A predicate without any bytecode, after which the interpreter would look for signals:
    # `kill(pid, value)`, which returns -1, and so is true, for what is no signal's number.
    predicate = functools.partial(ctypes.CDLL(None).kill, os.getpid())
    w = interlock.ValueWatcher(int(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, lambda *_: w.set(9999))
    try:
        assert w.sync.wait_until(predicate, timeout=LIMIT) == 9999
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_view_has_a_repr(interlock: Any) -> None:
    w = interlock.ValueWatcher("idle")
    assert isinstance(w.sync, interlock.SyncView)
    assert "idle" in repr(w.sync)
    subscription = w.sync.watch()
    assert isinstance(subscription, interlock.SyncSubscription)
    assert "pending=0" in repr(subscription)
