"""W14: subscriptions that are bounded."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from conftest import Run
from helpers import assert_chain, assert_idle, count_to, drain, ticks


def read_all(subscription: Any) -> list[Any]:
    """What can be read at once, with the number missed for each lag."""
    from interlock import Lagged

    found: list[Any] = []
    while True:
        try:
            found.append(subscription.get_nowait())
        except Lagged as lag:
            found.append(lag.missed)
        except asyncio.QueueEmpty:
            return found


def test_w14_lossless_is_the_default(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.watch()
    count_to(w, 50_000)
    assert subscription.pending == 50_000
    assert_chain(drain(subscription), 0, 50_000)


def test_w14_a_lag_is_told_once_with_its_count(interlock: Any, run: Run) -> None:
    """S44."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch(maxlen=3)
        count_to(w, 3)
        assert subscription.get_nowait() == (0, 1)
        count_to(w, 8)
        assert subscription.pending == 3
        with pytest.raises(interlock.Lagged) as lag:
            await subscription.get()
        assert lag.value.missed == 4
        assert "maxlen" in str(lag.value) and "4" in str(lag.value)
        assert [await subscription.get(), await anext(subscription)] == [(5, 6), (6, 7)]
        count_to(w, 11)
        assert read_all(subscription) == [1, (8, 9), (9, 10), (10, 11)]

    run(main())


def test_w14_iteration_goes_on_after_a_lag(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch(maxlen=1)
        count_to(w, 5)
        w.close()
        with pytest.raises(interlock.Lagged):
            async for _ in subscription:
                pass
        assert [pair async for pair in subscription] == [(4, 5)]

    run(main())


def test_w14_a_reader_that_waits_does_not_lag_by_one_set(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch(maxlen=2)
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        count_to(w, 2)
        assert await reader == (0, 1)
        # But it does by more than it may hold before it is resumed.
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        assert await reader == (1, 2)
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        count_to(w, 5)
        with pytest.raises(interlock.Lagged):
            await reader

    run(main())


def test_w14_latest_keeps_the_newest_pair(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch(maxlen=1, overflow="latest")
        w.value = 1
        assert await subscription.get() == (0, 1)
        count_to(w, 9)
        assert subscription.pending == 1
        assert await subscription.get() == (1, 9)
        w.value = 10
        assert await subscription.get() == (9, 10)
        wide = w.watch(initial=True, maxlen=3, overflow="latest")
        count_to(w, 13)
        assert wide.pending == 4
        assert drain(wide) == [(10, 10), (10, 11), (11, 12), (12, 13)]
        count_to(w, 17)
        assert drain(wide) == [(13, 17)]

    run(main())


def test_w14_the_initial_value_is_never_dropped(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    strict = w.watch(initial=True, maxlen=1)
    latest = w.watch(initial=True, maxlen=1, overflow="latest")
    count_to(w, 4)
    assert read_all(strict) == [(0, 0), 3, (3, 4)]
    assert read_all(latest) == [(0, 0), (0, 4)]


class Model:
    """What a subscription must do, written down as plainly as can be."""

    def __init__(self, w: Any, maxlen: int | None, overflow: str) -> None:
        self.real = w.watch(maxlen=maxlen, overflow=overflow)
        self.maxlen, self.overflow = maxlen, overflow
        self.queue: list[tuple[int, int]] = []

    def read(self) -> list[Any]:
        """The next thing that the subscription gives."""
        if not self.queue:
            return []
        lag = 0 if self.maxlen is None else len(self.queue) - self.maxlen
        if lag <= 0:
            return [self.queue.pop(0)]
        if self.overflow == "latest":
            pair = (self.queue[0][0], self.queue[-1][1])
            self.queue.clear()
            return [pair]
        del self.queue[:lag]
        return [lag]

    def check(self) -> None:
        found: list[Any] = []
        try:
            found.append(self.real.get_nowait())
        except asyncio.QueueEmpty:
            pass
        except Exception as lag:
            found.append(lag.missed)  # type: ignore[attr-defined]
        assert found == self.read()


@pytest.mark.parametrize("seed", range(20))
def test_w14_any_mix_of_bounded_subscriptions_keeps_its_promises(interlock: Any, seed: int) -> None:
    """Subscriptions share what is retained; none must get less for another's sake, or keep more."""
    chance = random.Random(seed)
    w = interlock.ValueWatcher(0)
    models: list[Model] = []
    for _ in range(400):
        action = chance.randrange(8)
        if action == 0 and len(models) < 6:
            overflow = chance.choice(["error", "error", "latest"])
            limits = [1, 2, 5] if overflow == "latest" else [None, 1, 2, 2, 5]
            models.append(Model(w, chance.choice(limits), overflow))
        elif action == 1 and models:
            models.pop(chance.randrange(len(models))).real.close()
        elif action < 5 and models:
            chance.choice(models).check()
        else:
            for model in models:
                model.queue.append((w.value, w.value + 1))
            w.value += 1
        bounds = [model.maxlen or len(model.queue) for model in models]
        assert w.statistics().retained <= max(bounds, default=0)
    while models:
        model = models.pop()
        while model.queue:
            model.check()
        model.check()
        model.real.close()
    assert_idle(w)
