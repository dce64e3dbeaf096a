"""Storms: many threads, a tiny switch interval, and what must hold all the same (W1, W8, W9, X2, X4, X5, S57)."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any

import pytest

from storm import LIMIT, assert_chains, kinds, new_loop, nothing_unraisable, run_on, ticks, together


def free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_w8_threads_lose_no_increment(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    s = w.watch()

    def updater() -> None:
        for _ in range(300):
            w.update(lambda number: number + 1)

    def setter() -> None:
        done = 0
        while done < 300:
            seen = w.value
            done += w.set_if(seen + 1, lambda value, seen=seen: value == seen)

    together(*[updater] * 4, *[setter] * 2)
    assert (w.value, w.version, s.pending) == (1_800, 1_800, 1_800)
    assert [s.get_nowait() for _ in range(1_800)] == [(number, number + 1) for number in range(1_800)]


@kinds
def test_w1_each_consumer_sees_one_chain_that_ends_at_the_value(interlock: Any, kind: str) -> None:
    """Subscriptions in several loops and threads, random cancels and timeouts, callbacks, waits."""
    w = interlock.ValueWatcher((0, 0))
    chains: list[list[tuple[Any, Any]]] = []
    called: list[tuple[Any, Any]] = []
    seen: list[tuple[Any, Any]] = []
    w.on_change(lambda *pair: called.append(pair))
    w.on_change(lambda *pair: seen.append(pair))
    readers = threading.Barrier(8 + 1)

    def setter(number: int) -> Callable[[], None]:
        def run() -> None:
            for count in range(1, 301):
                w.value = (number, count)

        return run

    def all_setters() -> None:
        readers.wait(LIMIT)
        together(*[setter(number) for number in range(4)])
        w.close()

    async def read(chain: list[tuple[Any, Any]], seed: int) -> None:
        randomly = random.Random(seed)
        with w.watch() as s:
            await asyncio.get_running_loop().run_in_executor(None, readers.wait, LIMIT)
            while True:
                reading = asyncio.ensure_future(s.get(timeout=randomly.choice([None, 0, 0.001])))
                await ticks(randomly.randrange(3))
                if randomly.random() < 0.3:
                    reading.cancel()
                try:
                    chain.append(await reading)
                except (asyncio.CancelledError, asyncio.TimeoutError):
                    pass
                except interlock.WatcherClosed:
                    return

    async def iterate(chain: list[tuple[Any, Any]]) -> None:
        with w.watch() as s:
            await asyncio.get_running_loop().run_in_executor(None, readers.wait, LIMIT)
            async for pair in s:
                chain.append(pair)

    def loop(seed: int) -> Callable[[], None]:
        mine: list[list[tuple[Any, Any]]] = [[], [], []]
        chains.extend(mine)

        async def main() -> None:
            await asyncio.gather(iterate(mine[0]), iterate(mine[1]), read(mine[2], seed))

        return lambda: run_on(kind, main())

    def block() -> None:
        mine: list[tuple[Any, Any]] = []
        chains.append(mine)
        with w.sync.watch() as s:
            readers.wait(LIMIT)
            mine.extend(s)

    with nothing_unraisable():
        together(all_setters, loop(1), loop(2), block, block)
    assert w.version == len(called) == 4 * 300
    assert seen == called
    for chain in [called, *chains]:
        assert len(chain) == w.version
        assert chain[0][0] == (0, 0)
        assert chain[-1][1] == w.value
        assert_chains(chain)
        assert chain == called
    counts = w.statistics()
    assert (counts.subscriptions, counts.waiters, counts.callbacks, counts.retained) == (0, 0, 0, 0)


def test_w14_a_bounded_reader_is_told_of_every_loss(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    error, latest = w.sync.watch(maxlen=3), w.sync.watch(maxlen=2, overflow="latest")
    count = 2_000

    def setter() -> None:
        for number in range(1, count + 1):
            w.value = number
        w.close()

    def read_all() -> None:
        expected = 0
        while True:
            try:
                old, new = error.get(LIMIT)
            except interlock.Lagged as lagged:
                assert lagged.missed > 0
                expected += lagged.missed
            except interlock.WatcherClosed:
                break
            else:
                assert (old, new) == (expected, expected + 1)
                expected = new
        assert expected == count

    def read_latest() -> None:
        pairs = list(latest)
        assert_chains(pairs)
        assert (pairs[0][0], pairs[-1][1]) == (0, count)

    together(setter, read_all, read_latest)


@kinds
def test_w4_a_wait_returns_what_matched_in_a_storm(interlock: Any, kind: str) -> None:
    w = interlock.ValueWatcher(0)

    def setter() -> None:
        w.update(lambda number: (number + 1) % 7)

    def waiter(seed: int) -> Callable[[], None]:
        randomly = random.Random(seed)

        async def main() -> None:
            for _ in range(60):
                wanted = randomly.randrange(7)
                found = await asyncio.gather(
                    w.wait_for(wanted),
                    w.wait_for(wanted, immediate=False, timeout=LIMIT),
                    w.wait_until(lambda value, wanted=wanted: value == wanted),
                    w.wait_for_not(wanted),
                    w.wait_for_change(),
                )
                assert list(found[:3]) == [wanted] * 3
                assert found[3] != wanted

        return lambda: run_on(kind, main())

    def blocker() -> None:
        for wanted in range(60):
            assert w.sync.wait_for(wanted % 7, timeout=LIMIT) == wanted % 7

    with nothing_unraisable():
        together(waiter(1), waiter(2), blocker, meanwhile=[setter, setter])
    assert w.statistics().waiters == 0


@kinds
def test_s33_eight_threads_set_and_a_loop_hears_all(interlock: Any, kind: str) -> None:
    async def main() -> Any:
        w = interlock.ValueWatcher((0, 0))
        loop = asyncio.get_running_loop()

        def setter(number: int) -> Callable[[], object]:
            return lambda: [w.set((number, count)) for count in range(1, 1_001)]

        with w.watch() as s:
            setting = loop.run_in_executor(None, together, *[setter(number) for number in range(8)])
            heard: list[list[int]] = [[] for _ in range(8)]
            for _ in range(8 * 1_000):
                number, count = (await s.get(timeout=LIMIT)).new
                heard[number].append(count)
            await setting
            assert s.pending == 0
        assert heard == [list(range(1, 1_001))] * 8
        return w.version

    assert run_on(kind, main()) == 8_000


@kinds
def test_s30_loops_closed_in_mid_wait_against_a_setter(interlock: Any, kind: str) -> None:
    if kind == "uvloop" and free_threaded():
        pytest.skip("uvloop itself crashes there when call_soon_threadsafe meets close")
    w = interlock.ValueWatcher(0)

    async def read() -> None:
        with w.watch() as s:
            async for _ in s:
                pass

    def rounds() -> None:
        for _ in range(200):
            loop = new_loop(kind)
            waits = [read(), w.wait_for(-1), w.wait_for(-1, timeout=60), w.wait_until(lambda value: value < 0)]
            tasks = [loop.create_task(wait) for wait in waits]
            loop.run_until_complete(ticks(2))
            loop.close()
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            del task, tasks, waits, loop

    with nothing_unraisable():
        together(rounds, meanwhile=[lambda: w.update(lambda number: number + 1)] * 2)
        # What was left behind goes when it is next notified.
        w.value = -1
        gc.collect()
    counts = w.statistics()
    assert (counts.subscriptions, counts.waiters, counts.retained) == (0, 0, 0)


def test_s57_sixteen_threads_call_everything(interlock: Any) -> None:
    """No result is checked here: only that nothing crashes, hangs, or raises what it should not."""
    shared = [interlock.ValueWatcher(0) for _ in range(4)]
    subscriptions = [w.watch(maxlen=maxlen) for w in shared for maxlen in (None, 1, 3)]
    expected = (interlock.InterlockError, asyncio.QueueEmpty, asyncio.TimeoutError)

    def read_once(s: Any) -> None:
        try:
            s._block(0.001) if s.pending % 2 else s.get_nowait()
        except RuntimeError as error:
            assert "another reader" in str(error)

    def thread(seed: int) -> Callable[[], None]:
        randomly = random.Random(seed)

        def once() -> None:
            index = randomly.randrange(4)
            w = shared[index]
            s = randomly.choice(subscriptions)
            value = randomly.randrange(5)
            handle = w.on_change(lambda old, new: None)
            action = randomly.randrange(14)
            if action < 4:
                w.value = value
            elif action == 4:
                w.set_if(value, lambda current: current != value)
            elif action == 5:
                w.update(lambda current: current + 1)
            elif action == 6:
                w.sync.wait_for(value, timeout=0.001)
            elif action == 7:
                w.sync.wait_until(lambda current: current == value, timeout=0.001)
            elif action == 8:
                read_once(s)
            elif action == 9:
                w.on_value(value, lambda: None).cancel()
            elif action == 10:
                w.statistics(), repr(w), repr(s), s.pending, s.closed, w.version, w.closed
            elif action == 11:
                coroutine = w.wait_for(value)
                coroutine.close()
            elif action == 12 and randomly.random() < 0.1:
                s.close()
                subscriptions[subscriptions.index(s)] = w.watch(maxlen=randomly.choice([None, 1, 3]))
            elif action == 13 and randomly.random() < 0.05:
                shared[index] = interlock.ValueWatcher(0)
                w.close(randomly.choice([None, interlock.InterlockError()]))
            handle.cancel()

        def run() -> None:
            for _ in range(150):
                try:
                    once()
                except (*expected, ValueError):
                    pass

        return run

    with nothing_unraisable():
        together(*[thread(seed) for seed in range(16)])
        for w in shared:
            w.close()
        for s in subscriptions:
            s.close()


def test_s57_closed_during_a_blocking_get(interlock: Any) -> None:
    for round_ in range(20):
        w = interlock.ValueWatcher(0)
        s = w.sync.watch()
        begun = threading.Event()

        def reader(s: Any = s, begun: threading.Event = begun) -> None:
            begun.set()
            with pytest.raises(interlock.WatcherClosed):
                s.get(LIMIT)

        def closer(s: Any = s, w: Any = w, begun: threading.Event = begun, whole: int = round_ % 2) -> None:
            begun.wait(LIMIT)
            w.close() if whole else s.close()

        together(reader, closer)
        assert w.statistics().waiters == 0


@pytest.mark.parametrize("overflow", [None, "latest"])
def test_a_blocking_reader_and_many_setters(interlock: Any, overflow: str | None) -> None:
    """The setters must not hear of the reader's lock, however closely they meet."""
    w = interlock.ValueWatcher(0)
    s = w.sync.watch(maxlen=1, overflow="latest") if overflow else w.sync.watch()

    def reader() -> None:
        last = 0
        for _ in range(2_000 if free_threaded() else 500):
            old, new = s.get(LIMIT)
            assert old == last < new
            last = new

    def setter() -> None:
        # Not so far ahead of the reader that it need not wait for them any more.
        if s.pending < 100:
            w.update(lambda number: number + 1)

    with nothing_unraisable():
        together(reader, meanwhile=[setter] * 3)


@pytest.mark.skipif(not free_threaded(), reason="the build has a GIL")
def test_x14_importing_leaves_the_gil_off(interlock: Any) -> None:
    assert not getattr(sys, "_is_gil_enabled")()  # noqa: B009 (only there from 3.13 on)
