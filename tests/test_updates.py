"""W8: `set_if` and `update`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from helpers import (
    Array,
    Recorder,
    in_threads,
    switching_often,
)

NAN = float("nan")


def test_w8_threads_lose_no_increment(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    with switching_often():
        in_threads(*[lambda: [w.update(lambda n: n + 1) for _ in range(500)]] * 4)
    assert w.value == w.version == 2000


def test_w8_set_if_has_one_winner(interlock: Any) -> None:
    w = interlock.ValueWatcher(-1)
    with switching_often():
        for turn in range(100):
            w.value = -1
            won = in_threads(*[lambda n=n: w.set_if(n, lambda value: value == -1) for n in range(4)])
            assert won.count(True) == 1, turn
            assert w.value == won.index(True)


def test_w8_what_raises_changes_nothing_and_notifies_nobody(interlock: Any) -> None:
    def bad(value: int) -> Any:
        raise LookupError("bad")

    w = interlock.ValueWatcher(0)
    callback, subscription = Recorder(), w.watch()
    w.on_change(callback)
    wait = w.wait_for_change()
    with pytest.raises(LookupError):
        w.set_if(1, bad)
    with pytest.raises(LookupError):
        w.update(bad)
    with pytest.raises(ValueError, match="ambiguous"):
        w.set_if(1, lambda _: Array())
    assert (w.value, w.version, callback.calls, subscription.pending) == (0, 0, [], 0)
    assert w.statistics().waiters == 1
    wait.close()
    # And the next one works (S46).
    assert w.set_if(1, lambda value: value == 0)


def test_w8_set_if_tells_whether_the_condition_held(interlock: Any) -> None:
    w = interlock.ValueWatcher("idle")
    assert w.set_if("busy", lambda state: state == "idle") is True
    assert w.set_if("idle", lambda state: state == "idle") is False
    assert w.set_if("busy", lambda state: [state]) is True
    assert (w.value, w.version) == ("busy", 1)


@pytest.mark.timeout(30)
def test_w8_the_function_may_use_the_watcher(interlock: Any) -> None:
    """S50: Inngest's class hangs at the first of these."""
    w = interlock.ValueWatcher(0)
    assert w.set_if(1, lambda value: w.value == value)
    calls = Recorder()
    kept: list[Any] = []

    def looks_around(value: int) -> int:
        calls(value)
        kept.append(w.watch())
        kept.append(w.on_change(Recorder()))
        w.wait_for(99).close()
        return value + 1

    assert w.update(looks_around) == 2
    # Nobody set the value meanwhile, so it was called once.
    assert calls.calls == [(1,)]

    def sets_first(value: int) -> int:
        if value < 10:
            w.value = 10
        return value + 1

    assert w.update(sets_first) == 11
    assert w.version == 4


def test_w8_a_function_that_closes_the_watcher_sets_nothing(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    with pytest.raises(interlock.WatcherClosed):
        w.update(lambda n: w.close() or n + 1)
    assert w.value == 0


def test_w8_a_set_from_another_thread_during_the_function_is_not_overwritten(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    entered, leave = threading.Event(), threading.Event()

    def slow(value: int) -> int:
        entered.set()
        assert leave.wait(20)
        return value + 1

    def intrude() -> None:
        assert entered.wait(20)
        w.value = 100
        leave.set()

    in_threads(lambda: w.update(slow), intrude)
    assert w.value == 101
