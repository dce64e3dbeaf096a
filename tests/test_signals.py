"""Code that interrupts: signal handlers and finalisers that use a watcher at any moment.

Python runs them between two bytecodes of whatever runs, and so also in the middle
of the watcher's own operations.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from helpers import LIMIT, WAITING, assert_chain, assert_idle, awaited, drain

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no such signals"),
]

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment,unused-ignore]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"plain": asyncio.new_event_loop}
if uvloop is not None:
    LOOPS["uvloop"] = uvloop.new_event_loop


@contextmanager
def handling(number: int, handler: Callable[[], object]) -> Iterator[None]:
    before = signal.signal(number, lambda *_: handler() and None)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def storm(handler: Callable[[], object]) -> Iterator[None]:
    """Interrupt this thread a thousand times for each second that it computes."""
    with handling(signal.SIGPROF, handler):
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def sleeping_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    wait: Any,
    effect: Callable[[], object],
    interrupt: Callable[[], object],
) -> Any:
    """Wait in a loop that has nothing else to do and no timer to wake it, and interrupt its sleep."""
    loop = new_loop()
    ended = threading.Event()
    handled: list[bool] = []
    hung: list[bool] = []

    def handler() -> None:
        handled.append(True)
        effect()

    def sender() -> None:
        # The signal may come before the loop sleeps; then it proves less, but nothing wrong. One that
        # comes in the very moment in which it falls asleep is not handled, so it is sent again.
        while not handled and not ended.wait(0.05):
            interrupt()
        if not ended.wait(LIMIT):
            hung.append(True)
            loop.call_soon_threadsafe(lambda: None)

    thread = threading.Thread(target=sender)

    async def main() -> Any:
        thread.start()
        return await wait

    try:
        with handling(signal.SIGUSR1, handler):
            try:
                return loop.run_until_complete(main())
            finally:
                ended.set()
                thread.join(LIMIT)
    finally:
        loop.close()
        assert not hung, "the signal handler's set did not end the loop's sleep"


@pytest.mark.parametrize("name", WAITING)
def test_x2_a_signal_handler_wakes_a_sleeping_loop(
    interlock: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], name: str
) -> None:
    w = interlock.ValueWatcher(None)
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def interrupt() -> None:
        signal.pthread_kill(main_thread, signal.SIGUSR1)

    assert sleeping_loop(new_loop, WAITING[name](w), lambda: w.set(1), interrupt) == awaited(name)


@pytest.mark.parametrize("how", ["close", "close subscription", "os.kill", "coroutine callback"])
def test_x2_whatever_a_signal_handler_does_wakes_a_sleeping_loop(
    interlock: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], how: str
) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.watch()

    async def wait() -> Any:
        if how == "coroutine callback":
            done = asyncio.Event()

            async def callback(old: int, new: int) -> None:
                done.set()

            w.on_change(callback)
            # The signal may have come before.
            return w.value or await done.wait()
        if how == "os.kill":
            return await w.wait_for(1)
        with pytest.raises(interlock.WatcherClosed):
            await (subscription.get() if how == "close subscription" else w.wait_for(1))

    effects: dict[str, Callable[[], object]] = {"close": w.close, "close subscription": subscription.close}
    effect = effects.get(how, lambda: w.set(1))
    sleeping_loop(new_loop, wait(), effect, lambda: os.kill(os.getpid(), signal.SIGUSR1))


class Intruder:
    """Uses a watcher in every way, a bounded number of times, whenever it is called."""

    def __init__(self, w: Any, limit: int) -> None:
        self.w = w
        self.limit = limit
        self.count = 0
        self.kept: list[Any] = []

    def __call__(self) -> None:
        if self.count >= self.limit:
            return
        self.count += 1
        w, turn = self.w, self.count % 8
        if turn == 0:
            w.update(lambda n: n + 1)
        elif turn == 1:
            self.kept.append(w.wait_for(w.value + self.count % 3))
        elif turn == 2:
            self.kept.append(w.watch(maxlen=self.count % 5 + 1))
        elif turn == 3:
            self.kept.append(w.watch())
        elif turn == 4:
            self.close_kept()
        elif turn == 5:
            w.on_value(w.value + 1, lambda: None).cancel()
        elif turn == 6:
            w.set(w.value + 1)
        else:
            w.on_change(lambda old, new: None).cancel()

    def close_kept(self) -> None:
        while True:
            try:
                kept = self.kept.pop()
            except IndexError:  # also if another signal's call has just taken the last one
                return
            kept.close()


def busy(w: Any, until: Callable[[], bool]) -> None:
    """Set, wait and watch in this thread, again and again; each subscription's pairs must chain."""
    for _ in range(10_000_000):
        if until():
            break
        with w.watch(initial=True) as subscription, w.watch(maxlen=10**9) as bounded:
            wait, predicate = w.wait_for(w.value + 1), w.wait_until(lambda n: n < 0)
            handle = w.on_change(lambda old, new: None)
            w.update(lambda n: n + 1)
            w.set(w.value + 1)
            handle.cancel()
            wait.close()
            predicate.close()
            pairs = drain(subscription)
            assert_chain(pairs, pairs[0][0], pairs[-1][1])
            bounded_pairs = drain(bounded)
            assert_chain(bounded_pairs, bounded_pairs[0][0], bounded_pairs[-1][1])
    else:
        raise AssertionError("nothing interrupts")


def check_consumers(w: Any, subscription: Any, calls: list[Any]) -> None:
    pairs = drain(subscription)
    assert len(pairs) == w.version
    assert_chain(pairs, 0, w.value)
    assert calls == pairs
    subscription.close()


def test_w1_signal_handlers_in_the_middle_break_no_chain(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription, calls = w.watch(), []
    handle = w.on_change(lambda old, new: calls.append((old, new)))
    intruder = Intruder(w, 200)
    with storm(intruder):
        busy(w, lambda: intruder.count >= intruder.limit)
    intruder.close_kept()
    check_consumers(w, subscription, calls)
    handle.cancel()
    assert_idle(w)


def test_w1_signal_handlers_while_a_loop_delivers(
    interlock: Any, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    w = interlock.ValueWatcher(0)
    intruder = Intruder(w, 200)
    received: list[Any] = []

    async def read(subscription: Any) -> None:
        async for pair in subscription:
            received.append(pair)

    async def come_and_go() -> None:
        while intruder.count < intruder.limit:
            waits = [asyncio.ensure_future(w.wait_for(w.value + n)) for n in range(1, 4)]
            waits.append(asyncio.ensure_future(w.wait_for_change(timeout=LIMIT)))
            await asyncio.sleep(0)
            w.update(lambda n: n + 1)
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        intruder.close_kept()
        w.close()

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(read(w.watch()), come_and_go()), 60)

    loop = new_loop()
    try:
        with storm(intruder):
            loop.run_until_complete(main())
    finally:
        loop.close()
    assert len(received) == w.version
    assert_chain(received, 0, w.value)


def test_w1_signal_handlers_during_blocking_waits(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    intruder = Intruder(w, 100)
    turn = interlock.ValueWatcher(0)
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def answer() -> None:
        for n in range(1, 10_000_001, 2):
            if turn.sync.wait_until(lambda value: value == n or value < 0, timeout=LIMIT) < 0:  # noqa: B023
                return
            # In the main thread's wait, or as that begins or ends. It computes too little for the storm alone,
            # least of all on a busy machine.
            signal.pthread_kill(main_thread, signal.SIGPROF)
            turn.value = n + 1

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with storm(intruder):
            for n in range(1, 10_000_001, 2):
                turn.value = n
                turn.sync.wait_for(n + 1, timeout=LIMIT)
                if intruder.count >= intruder.limit:
                    break
    finally:
        turn.value = -1
        thread.join(LIMIT)
    assert not thread.is_alive()
    assert intruder.count == intruder.limit


class Cycle:
    """Garbage whose finaliser calls something."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.itself = self

    def __del__(self) -> None:
        self.function()


@contextmanager
def collecting_always() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def test_w1_finalisers_in_the_middle_break_no_chain(interlock: Any) -> None:
    """S56: the garbage collector may run a `__del__` wherever something is allocated."""
    w = interlock.ValueWatcher(0)
    subscription, calls = w.watch(), []
    handle = w.on_change(lambda old, new: calls.append((old, new)))
    intruder = Intruder(w, 200)

    def until() -> bool:
        Cycle(intruder)
        return intruder.count >= intruder.limit

    with collecting_always():
        busy(w, until)
    gc.collect()
    intruder.limit = 0
    intruder.close_kept()
    check_consumers(w, subscription, calls)
    handle.cancel()
    assert_idle(w)


@pytest.mark.parametrize("effect", ["set", "close", "wait", "watch"])
def test_x5_a_value_s_finaliser_may_use_the_watcher_that_drops_it(interlock: Any, effect: str) -> None:
    """S56."""

    class Value:
        def __del__(self) -> None:
            done.append(effect)
            if effect == "set":
                w.value = len(done)
            elif effect == "close":
                w.close()
            elif effect == "wait":
                w.wait_for(1).close()
            else:
                w.watch(initial=True).close()

    done: list[str] = []
    w = interlock.ValueWatcher(None)
    subscription = w.watch()
    for _ in range(3):
        if w.closed:
            break
        w.value = Value()
        w.value = None
        drain(subscription)
        gc.collect()
    assert done
    subscription.close()
    w.close()


def test_w1_signals_and_finalisers_and_threads_together(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription, calls = w.watch(), []
    handle = w.on_change(lambda old, new: calls.append((old, new)))
    by_signal, by_finaliser = Intruder(w, 100), Intruder(w, 100)
    finished, turns = threading.Event(), threading.Semaphore(0)

    def thread_work() -> None:
        while not finished.is_set():
            # As often as the main thread, which would otherwise never have read all there is.
            if turns.acquire(timeout=0.05):
                w.update(lambda n: n + 1)
                with w.watch(maxlen=2):
                    w.wait_for(w.value + 1).close()

    def until() -> bool:
        turns.release()
        Cycle(by_finaliser)
        return by_signal.count >= by_signal.limit

    thread = threading.Thread(target=thread_work)
    thread.start()
    try:
        with storm(by_signal):
            busy(w, until)
    finally:
        finished.set()
        thread.join(LIMIT)
    assert not thread.is_alive()
    gc.collect()
    by_finaliser.limit = 0
    for intruder in (by_signal, by_finaliser):
        intruder.close_kept()
    check_consumers(w, subscription, calls)
    handle.cancel()
    assert_idle(w)
