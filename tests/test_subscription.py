"""W2, W12, W13 and W16: subscriptions. See `test_overflow.py` for W14."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from conftest import Run
from helpers import assert_idle, count_to, drain, in_threads, switching_often, ticks


@pytest.mark.parametrize("initial", [False, True])
def test_w2_a_subscription_sees_what_follows_its_opening(interlock: Any, initial: bool) -> None:
    w = interlock.ValueWatcher(0)
    count_to(w, 3)
    subscription = w.watch(initial=initial)
    count_to(w, 5)
    assert drain(subscription) == [(3, 3)] * initial + [(3, 4), (4, 5)]
    assert drain(subscription) == []


@pytest.mark.parametrize("maxlen", [None, 100_000])
def test_w2_no_gap_and_no_duplicate_while_threads_set(interlock: Any, maxlen: int | None) -> None:
    w = interlock.ValueWatcher(0)

    def opened() -> list[list[Any]]:
        subscriptions = [w.watch(initial=True, maxlen=maxlen) for _ in range(100)]
        return subscriptions

    def sets() -> None:
        for _ in range(1000):
            w.update(lambda n: n + 1)

    with switching_often():
        subscriptions, *_ = in_threads(opened, sets, sets)
    for subscription in subscriptions:
        (first, same), *pairs = drain(subscription)
        assert first == same
        assert pairs == [(n, n + 1) for n in range(first, 2000)]


def test_w2_a_subscription_opened_in_a_callback_sees_what_is_queued(interlock: Any) -> None:
    """The value is ahead of the dispatch there; the subscription goes by the value."""
    w = interlock.ValueWatcher(0)
    opened: list[Any] = []

    def callback(old: int, new: int) -> None:
        if new == 1:
            w.value = 2
            opened.append(w.watch(initial=True))
            w.value = 3

    w.on_change(callback)
    w.value = 1
    assert drain(opened[0]) == [(2, 2), (2, 3)]


def test_transitions_unpack_and_have_names(interlock: Any) -> None:
    w = interlock.ValueWatcher("a")
    with w.watch() as subscription:
        w.value = "b"
        transition = subscription.get_nowait()
    assert isinstance(transition, interlock.Transition)
    old, new = transition
    assert (old, new) == (transition.old, transition.new) == ("a", "b")
    assert repr(transition) == "Transition(old='a', new='b')"


def test_iteration_ends_after_the_last_transition(interlock: Any, run: Run) -> None:
    """W12, S45: what is held at the close comes first."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription, waiting = w.watch(), w.watch()
        reader = asyncio.ensure_future(waiting.get())
        await ticks()
        count_to(w, 3)
        w.close()
        assert await reader == (0, 1)
        assert subscription.pending == 3
        assert [pair async for pair in subscription] == [(0, 1), (1, 2), (2, 3)]
        assert [pair async for pair in subscription] == []
        assert await anext(subscription, "end") == "end"
        with pytest.raises(interlock.WatcherClosed):
            await subscription.get()
        with pytest.raises(interlock.WatcherClosed):
            subscription.get_nowait()
        assert (subscription.pending, subscription.closed) == (0, False)

    run(main())


@pytest.mark.parametrize("error", [None, OSError("gone")])
def test_w12_close_ends_the_readers_that_wait(interlock: Any, run: Run, error: Exception | None) -> None:
    async def iterate(subscription: Any) -> list[Any]:
        return [pair async for pair in subscription]

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        reader = asyncio.create_task(w.watch().get())
        iterator = asyncio.create_task(iterate(w.watch()))
        await ticks(2)
        w.close(error)
        w.close(ValueError("too late"))
        with pytest.raises(interlock.WatcherClosed) as caught:
            await reader
        assert caught.value.__cause__ is error
        assert await iterator == []

    run(main())


def test_w12_a_subscription_opened_after_the_close_ends_at_once(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(7)
        w.close()
        assert [pair async for pair in w.watch()] == []
        assert [pair async for pair in w.watch(initial=True)] == [(7, 7)]

    run(main())


def test_closing_a_subscription_drops_what_it_holds_and_ends_its_reader(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        held, waiting = w.watch(initial=True), w.watch()
        reader = asyncio.create_task(waiting.get())
        await ticks(2)
        with held:
            w.value = 1
        assert await reader == (0, 1)
        reader = asyncio.create_task(waiting.get())
        await ticks(2)
        waiting.close()
        waiting.close()
        with pytest.raises(interlock.WatcherClosed):
            await reader
        for subscription in (held, waiting):
            assert subscription.closed and subscription.pending == 0
            assert [pair async for pair in subscription] == []
            with pytest.raises(interlock.WatcherClosed):
                subscription.get_nowait()
        w.value = 2
        assert not w.closed
        assert_idle(w)

    run(main())


def test_closing_between_the_set_and_the_reader_s_step_ends_it(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch()
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        w.value = 1
        subscription.close()
        with pytest.raises(interlock.WatcherClosed):
            await reader
        assert_idle(w)

    run(main())


@pytest.mark.parametrize("overflow", [None, "error", "latest"])
def test_w13_a_cancelled_or_timed_out_read_takes_nothing(interlock: Any, run: Run, overflow: str | None) -> None:
    """S43, and S01 for subscriptions."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch() if overflow is None else w.watch(maxlen=9, overflow=overflow)
        with pytest.raises(asyncio.TimeoutError):
            await subscription.get(timeout=0)
        with pytest.raises(asyncio.TimeoutError):
            await subscription.get(0.001)
        # Set, then cancelled, in one tick.
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        w.value = 1
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        # Cancelled before its first step (an eager task has none that is later).
        w.value = 2
        reader = asyncio.ensure_future(anext(subscription))
        read_at_once = [reader.result()] if reader.done() else []
        reader.cancel()
        await asyncio.wait([reader])
        w.value = 3
        rest = [*read_at_once, await subscription.get(timeout=0), *drain(subscription)]
        assert rest == [(0, 1), (1, 2), (2, 3)]

    run(main())


def test_w13_many_reads_near_their_timeout_lose_nothing(interlock: Any, run: Run) -> None:
    """S01: a thread sets at random moments, the reader's timeouts are about as long as the intervals."""

    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch()
        received: list[Any] = []

        def setter() -> None:
            wait = asyncio.Event().is_set
            for _ in range(300):
                w.update(lambda n: n + 1)
                for _ in range(random.randrange(2000)):
                    wait()
            w.close()

        sending = asyncio.ensure_future(asyncio.to_thread(setter))
        how = 0
        while True:
            how += 1
            try:
                if how % 2:
                    received.append(await subscription.get(timeout=0.0001))
                else:
                    received.append(await asyncio.wait_for(subscription.get(), 0.0001))
            except asyncio.TimeoutError:
                continue
            except interlock.WatcherClosed:
                break
        await sending
        assert received == [(n, n + 1) for n in range(300)]

    run(main())


def second_readers(subscription: Any) -> list[Callable[[], Any]]:
    return [subscription.get, lambda: subscription.get(0), lambda: subscription.get(5), lambda: anext(subscription)]


def test_w16_a_second_reader_is_refused_and_the_first_goes_on(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch()
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        for second in second_readers(subscription):
            with pytest.raises(RuntimeError, match=r"watch\(\)"):
                await second()
        assert not reader.done()
        w.value = 1
        # It is still waiting: it has not been resumed.
        with pytest.raises(RuntimeError, match=r"watch\(\)"):
            await subscription.get()
        assert await reader == (0, 1)
        w.value = 2
        assert await subscription.get() == (1, 2)

    run(main())


def test_w16_a_reader_that_has_gone_leaves_the_place_free(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch()
        for end in (asyncio.Task.cancel, lambda reader: w.set(w.value + 1)):
            reader = asyncio.create_task(subscription.get())
            await ticks(2)
            end(reader)
            await asyncio.wait([reader])
        with pytest.raises(asyncio.TimeoutError):
            await subscription.get(timeout=0.001)
        subscription.get().close()
        w.value = 5
        assert await subscription.get() == (1, 5)

    run(main())


def test_w16_a_second_thread_is_refused(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        subscription = w.watch()
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        with pytest.raises(RuntimeError, match=r"watch\(\)"):
            await asyncio.to_thread(subscription._block, None)
        with pytest.raises(RuntimeError, match=r"watch\(\)"):
            await asyncio.to_thread(asyncio.run, subscription.get())
        w.value = 1
        assert await reader == (0, 1)

    run(main())


def test_w16_it_may_be_read_in_one_loop_after_another(interlock: Any, run: Run) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.watch()

    async def read_next() -> Any:
        asyncio.get_running_loop().call_soon(w.set, w.value + 1)
        return await subscription.get()

    async def leave_a_reader_behind() -> None:
        reader = asyncio.ensure_future(subscription.get())
        await ticks(2)
        assert not reader.done()

    for value in range(3):
        assert run(read_next()) == (value, value + 1)
        # Its task is cancelled at the end of the loop.
        run(leave_a_reader_behind())


def test_the_coroutine_keeps_its_subscription(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(0)
        reader = asyncio.create_task(w.watch().get())
        await ticks(2)
        w.value = 1
        assert await reader == (0, 1)

    run(main())
