"""User code that runs at the worst moment: finalisers, comparisons and collections (X5, S50, S56)."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

from conftest import Run
from storm import LIMIT, nothing_unraisable, ticks, together


def test_s56_a_replaced_value_that_sets_when_it_goes(interlock: Any) -> None:
    class Setter:
        def __init__(self, left: int) -> None:
            self.left = left

        def __del__(self) -> None:
            if self.left:
                w.value = Setter(self.left - 1)

    w = interlock.ValueWatcher(0)
    counted: list[int] = []
    handle = w.on_change(lambda old, new: counted.append(1))
    s = w.watch(maxlen=2)

    def setter() -> None:
        for number in range(50):
            w.value = Setter(3)
            w.value = number

    with nothing_unraisable():
        together(*[setter] * 8)
        s.close()
        w.value = None
        gc.collect()
        handle.cancel()
    assert len(counted) == w.version
    assert w.version >= 8 * 50 * 2
    w.value = None


def test_x5_every_hook_of_a_value_may_use_the_watcher(interlock: Any, run: Run) -> None:
    class Meddler:
        busy = False
        sets = 0

        def meddle(self) -> None:
            if Meddler.busy:
                return
            Meddler.busy = True
            try:
                # Not for ever: a set whose comparison always sets would never end.
                if Meddler.sets < 200:
                    Meddler.sets += 1
                    w.value = w.version
                w.statistics()
                if s.pending:
                    s.get_nowait()
                w.on_change(lambda old, new: None).cancel()
                w.on_value(Meddler(), list).cancel()
                w.watch(maxlen=1).close()
                w.wait_for(Meddler()).close()
                repr(w)
            finally:
                Meddler.busy = False

        def __eq__(self, other: object) -> Any:
            self.meddle()
            return self

        def __bool__(self) -> bool:
            self.meddle()
            return False

        def __hash__(self) -> int:
            self.meddle()
            return 1

        def __repr__(self) -> str:
            self.meddle()
            return "Meddler"

        def __del__(self) -> None:
            self.meddle()

    w = interlock.ValueWatcher(0)
    s = w.watch()

    async def main() -> None:
        waits = [asyncio.ensure_future(w.wait_for(value, immediate=False)) for value in (Meddler(), 1, [1], Meddler())]
        waits.append(asyncio.ensure_future(w.wait_until(lambda value: Meddler())))
        await ticks(1)
        for number in range(20):
            w.value = Meddler() if number % 2 else number
            w.set_if(Meddler(), lambda value: repr(value))
            w.update(lambda value: Meddler())
            repr(w)
            await ticks(1)
        for wait in waits:
            wait.cancel()
        await ticks(3)
        while s.pending:
            s.get_nowait()

    with nothing_unraisable():
        run(main())
        gc.collect()
        s.close()
        w.value = None
    assert w.statistics().waiters == 0


class Holder:
    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.held: list[Any] = []


def test_collecting_while_others_set(interlock: Any) -> None:
    w = interlock.ValueWatcher(None)
    wanted, begins = threading.Semaphore(0), threading.Semaphore(0)

    def setter() -> None:
        # A few callbacks at a time, or each set would cost more than the one before.
        callbacks: list[Any] = []
        for number in range(150):
            value = Holder(number)
            s = w.watch(maxlen=1 + number % 3)
            callbacks.append(w.on_change(lambda old, new: None))
            value.held.append((w, s, callbacks[-1], w.on_value(value, list)))
            w.value = value
            while len(callbacks) > number % 3:
                callbacks.pop(0).cancel()
            if number % 15 == 0:
                wanted.release()
                assert begins.acquire(timeout=LIMIT)

    def collector() -> None:
        # One for so many sets, not back to back: it stops every thread where there is no GIL, for as long as
        # the heap is large.
        for _ in range(3 * 10):
            assert wanted.acquire(timeout=LIMIT)
            begins.release()
            gc.collect()

    with nothing_unraisable():
        together(setter, setter, setter, collector)
        w.close()
        w = None
        gc.collect()
