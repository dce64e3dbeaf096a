"""Storms: many threads, a tiny switch interval, and what must hold all the same (W1, W8, W9, X2, X4, X5, S57)."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from storm import LIMIT, new_loop, nothing_unraisable, run_on, switching, ticks, together

kinds = pytest.mark.parametrize("kind", ["plain", "uvloop"])


def assert_chains(pairs: list[tuple[Any, Any]]) -> None:
    for (_, new), (old, _) in zip(pairs, pairs[1:], strict=False):
        assert new == old


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
    stop = threading.Event()

    def setter() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            w.value = number % 7

    def waiter(seed: int) -> Callable[[], None]:
        randomly = random.Random(seed)

        async def main() -> None:
            for _ in range(60):
                wanted = randomly.randrange(7)
                found = await asyncio.gather(
                    w.wait_for(wanted),
                    w.wait_for(wanted, immediate=False, timeout=LIMIT),
                    w.wait_until(lambda value: value == wanted),
                    w.wait_for_not(wanted),
                    w.wait_for_change(),
                )
                assert found[:3] == [wanted] * 3
                assert found[3] != wanted

        def run() -> None:
            try:
                run_on(kind, main())
            finally:
                if not finished.acquire(blocking=False):
                    stop.set()

        return run

    def blocker() -> None:
        try:
            for wanted in range(60):
                assert w.sync.wait_for(wanted % 7, timeout=LIMIT) == wanted % 7
        finally:
            if not finished.acquire(blocking=False):
                stop.set()

    # The last one of the three to end stops the setters.
    finished = threading.Semaphore(2)
    with nothing_unraisable():
        together(setter, setter, waiter(1), waiter(2), blocker)
    assert w.statistics().waiters == 0


def test_w9_callbacks_that_set_each_others_watcher_do_not_deadlock(interlock: Any) -> None:
    left, right = interlock.ValueWatcher(0), interlock.ValueWatcher(0)
    left.on_change(lambda old, new: right.set(new))
    right.on_change(lambda old, new: left.set(new))

    def setter(w: Any, sign: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(1, 200):
                # An update that the other side cannot undo for ever.
                w.update(lambda value, number=number: max(value, number))

        return run

    counts: dict[str, list[tuple[int, int]]] = {"left": [], "right": []}
    left.on_change(lambda *pair: counts["left"].append(pair) if len(counts["left"]) < 10_000 else left.close())
    right.on_change(lambda *pair: counts["right"].append(pair) if len(counts["right"]) < 10_000 else right.close())

    def guarded(w: Any) -> Callable[[], None]:
        def run() -> None:
            try:
                setter(w, 1)()
            except interlock.WatcherClosed:
                pass

        return run

    together(guarded(left), guarded(right), guarded(left), guarded(right))
    for pairs in counts.values():
        assert_chains(pairs)


def test_w9_sets_in_callbacks_keep_one_order_for_all(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    first: list[tuple[Any, Any]] = []
    last: list[tuple[Any, Any]] = []
    s = w.watch()
    w.on_change(lambda *pair: first.append(pair))
    # Each outer set is answered by one more from within.
    w.on_change(lambda old, new: w.update(lambda value: value + 1) if new % 2 else None)
    w.on_change(lambda *pair: last.append(pair))

    def setter() -> None:
        for _ in range(200):
            w.update(lambda value: value + 2 - value % 2 - 1 if value % 2 == 0 else value + 2)

    together(*[setter] * 4)
    assert first == last
    assert len(first) == w.version
    assert_chains(first)
    assert first[-1][1] == w.value
    assert [s.get_nowait() for _ in range(s.pending)] == first


@kinds
def test_w10_coroutine_callbacks_run_for_every_transition_from_any_thread(interlock: Any, kind: str) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        loop, seen = asyncio.get_running_loop(), []
        done = asyncio.Event()

        async def callback(old: int, new: int) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append((old, new))
            if len(seen) == 800:
                done.set()

        w.on_change(callback)

        def setter() -> None:
            for _ in range(200):
                w.update(lambda number: number + 1)

        await loop.run_in_executor(None, together, *[setter] * 4)
        await done.wait()
        assert seen == [(number, number + 1) for number in range(800)]

    run_on(kind, main())


@kinds
def test_s33_eight_threads_set_and_a_loop_hears_all(interlock: Any, kind: str) -> None:
    async def main() -> int:
        w = interlock.ValueWatcher((0, 0))
        loop = asyncio.get_running_loop()

        def setter(number: int) -> Callable[[], None]:
            return lambda: [w.set((number, count)) for count in range(1, 1_001)] and None

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
    w = interlock.ValueWatcher(0)
    stop = threading.Event()
    errors: list[BaseException] = []

    def setter() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                w.value = number
        except BaseException as error:
            errors.append(error)

    async def read() -> None:
        with w.watch() as s:
            async for _ in s:
                pass

    threads = [threading.Thread(target=setter, daemon=True) for _ in range(2)]
    with nothing_unraisable(), switching():
        for thread in threads:
            thread.start()
        try:
            for _ in range(200):
                loop = new_loop(kind)
                tasks = [loop.create_task(read()), loop.create_task(w.wait_for(-1)), loop.create_task(w.wait_for(-1, timeout=60))]
                loop.run_until_complete(ticks(2))
                loop.close()
                for task in tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                del task, tasks, loop
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        assert errors == []
        assert not any(thread.is_alive() for thread in threads)


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
    for round_ in range(50):
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


def test_x5_a_predicate_may_set_the_value_that_it_is_asked_about(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)

        def predicate(value: int) -> bool:
            if value < 3:
                w.value = value + 1
            return value >= 3

        assert await w.wait_until(predicate, timeout=LIMIT) == 3

    run(main())


def test_w7_a_predicate_is_asked_while_others_set(interlock: Any) -> None:
    """Being registered and being asked about a transition meet, and neither may fail the wait."""
    w = interlock.ValueWatcher(0)
    stop = threading.Event()

    def setter() -> None:
        while not stop.is_set():
            w.update(lambda number: number + 1)

    def waiter() -> None:
        try:
            for _ in range(300):
                above = w.value + 2
                assert w.sync.wait_until(lambda value, above=above: sum(range(50)) and value >= above, timeout=LIMIT)
        finally:
            stop.set()

    together(setter, setter, waiter, waiter)


def test_a_blocking_reader_and_many_setters(interlock: Any) -> None:
    """The setter must not hear of the reader's lock, however closely the two meet."""
    w = interlock.ValueWatcher(0)
    s = w.sync.watch()

    def setter() -> None:
        for _ in range(3_000):
            w.update(lambda number: number + 1)

    def reader() -> None:
        for number in range(9_000):
            assert s.get(LIMIT) == (number, number + 1)

    with nothing_unraisable():
        together(setter, setter, setter, reader)
    assert s.pending == 0


@pytest.mark.skipif(not hasattr(sys, "_is_gil_enabled"), reason="free threading began with 3.13")
def test_x14_importing_leaves_the_gil_off(interlock: Any) -> None:
    import sysconfig

    if sysconfig.get_config_var("Py_GIL_DISABLED") and sys.version_info >= (3, 13):
        assert not sys._is_gil_enabled()
