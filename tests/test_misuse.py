"""Bad input, X15 and X16: the exact exception, and a text that says what to do."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from conftest import Run
from helpers import WAITS, assert_idle, ticks

TIMED: dict[str, Callable[[Any, Any], Any]] = {
    "wait_for": lambda w, timeout: w.wait_for(1, timeout=timeout),
    "wait_for_not": lambda w, timeout: w.wait_for_not(0, timeout=timeout),
    "wait_for_not_none": lambda w, timeout: w.wait_for_not_none(timeout=timeout),
    "wait_until": lambda w, timeout: w.wait_until(bool, timeout=timeout),
    "wait_for_change": lambda w, timeout: w.wait_for_change(timeout=timeout),
    "get": lambda w, timeout: w.watch().get(timeout),
    "sync.wait_for": lambda w, timeout: w.sync.wait_for(1, timeout=timeout),
    "sync.wait_for_not": lambda w, timeout: w.sync.wait_for_not(0, timeout=timeout),
    "sync.wait_for_not_none": lambda w, timeout: w.sync.wait_for_not_none(timeout=timeout),
    "sync.wait_until": lambda w, timeout: w.sync.wait_until(bool, timeout=timeout),
    "sync.wait_for_change": lambda w, timeout: w.sync.wait_for_change(timeout=timeout),
    "sync.watch().get": lambda w, timeout: w.sync.watch().get(timeout),
}


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("timeout", [-1, -0.001, float("-inf"), float("nan"), Fraction(-1, 3)])
def test_a_negative_timeout(interlock: Any, name: str, timeout: float) -> None:
    w = interlock.ValueWatcher(None)
    with pytest.raises(ValueError, match=r"timeout must be 0 or more seconds.*None"):
        TIMED[name](w, timeout)
    assert_idle(w)


def test_a_negative_timeout_beyond_all_floats(interlock: Any) -> None:
    w = interlock.ValueWatcher(None)
    for name, call in TIMED.items():
        # The blocking ones check it in the same way; one that did not would hang here.
        if not name.startswith("sync"):
            with pytest.raises(ValueError, match="timeout must be 0 or more seconds"):
                call(w, -(10**400)).close()
    assert_idle(w)


@pytest.mark.parametrize("name", TIMED)
@pytest.mark.parametrize("timeout", ["1", b"1", [], (), object(), 1j, print])
def test_a_timeout_that_is_no_number(interlock: Any, name: str, timeout: Any) -> None:
    w = interlock.ValueWatcher(None)
    with pytest.raises(TypeError, match=r"timeout must be a number of seconds or None, not \w+"):
        TIMED[name](w, timeout)
    assert_idle(w)


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.sync])
def test_a_maxlen_below_one(interlock: Any, view: Callable[[Any], Any]) -> None:
    w = interlock.ValueWatcher(0)
    maxlen: Any
    for maxlen in (0, -1, -(10**30)):
        with pytest.raises(ValueError, match=r"maxlen must be at least 1.*None"):
            view(w).watch(maxlen=maxlen)
    for maxlen in ("1", 1.0, True, [1]):
        with pytest.raises(TypeError, match="maxlen must be an int or None, not"):
            view(w).watch(maxlen=maxlen)
    assert_idle(w)


@pytest.mark.parametrize("maxlen", [2**31, 2**63, 2**64, 10**30])
def test_a_huge_maxlen_is_no_error(interlock: Any, maxlen: int) -> None:
    w = interlock.ValueWatcher(0)
    subscription = w.watch(maxlen=maxlen)
    w.value = 1
    assert subscription.get_nowait() == (0, 1)


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.sync])
def test_an_unknown_overflow(interlock: Any, view: Callable[[Any], Any]) -> None:
    w = interlock.ValueWatcher(0)
    overflow: Any
    for overflow in ("newest", "", None, 1, [], b"error"):
        with pytest.raises(ValueError, match=r"overflow must be 'error' or 'latest'"):
            view(w).watch(maxlen=1, overflow=overflow)
    with pytest.raises(ValueError, match="maxlen=1"):
        view(w).watch(overflow="latest")
    assert_idle(w)


@pytest.mark.parametrize("error", [None, OSError("gone")])
def test_w12_a_set_after_close(interlock: Any, error: Exception | None) -> None:
    w = interlock.ValueWatcher(0)
    w.close(error)
    w.close(ValueError("too late"))
    condition_called: list[int] = []
    for change in (
        lambda: w.set(1),
        lambda: w.set(0),
        lambda: setattr(w, "value", 1),
        lambda: w.set_if(1, condition_called.append),
        lambda: w.update(condition_called.append),
    ):
        with pytest.raises(interlock.WatcherClosed, match="closed") as caught:
            change()
        assert caught.value.__cause__ is error
    assert condition_called == []
    assert (w.value, w.version, w.closed) == (0, 0, True)


@pytest.mark.parametrize("error", [None, OSError("gone"), StopIteration(1)])
@pytest.mark.parametrize("name", WAITS)
def test_w12_a_wait_on_a_closed_watcher(interlock: Any, run: Run, name: str, error: BaseException | None) -> None:
    """One that is pending, one made later, and one that was satisfied before."""
    # As in every coroutine (PEP 479).
    expected = RuntimeError if isinstance(error, StopIteration) else type(error or interlock.WatcherClosed())

    async def main() -> None:
        w = interlock.ValueWatcher(None)
        satisfied = asyncio.create_task(WAITS[name](w))
        await ticks(2)
        w.value = 1
        w.value = None
        pending, unawaited = asyncio.create_task(WAITS[name](w)), WAITS[name](w)
        await ticks()
        w.close(error)
        assert await satisfied == 1
        for wait in (pending, unawaited, WAITS[name](w)):
            with pytest.raises(expected) as caught:
                await wait
            if isinstance(error, OSError):
                assert caught.value is error
        assert_idle(w)

    run(main())


def test_w12_a_value_that_satisfies_can_still_be_waited_for_after_close(interlock: Any, run: Run) -> None:
    """The value stays readable, and this is a way to read it."""

    async def main() -> None:
        w = interlock.ValueWatcher(1)
        w.close()
        assert await w.wait_for(1) == 1
        with pytest.raises(interlock.WatcherClosed):
            await w.wait_for(1, immediate=False)

    run(main())


@pytest.mark.parametrize("error", [ValueError, "gone", 1, type])
def test_w12_close_takes_an_exception_instance(interlock: Any, error: Any) -> None:
    w = interlock.ValueWatcher(0)
    with pytest.raises(TypeError, match=r"error must be an exception instance or None, not"):
        w.close(error)
    assert not w.closed


def test_what_is_not_callable(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    with pytest.raises(TypeError, match="equals must be a callable"):
        interlock.ValueWatcher(0, equals=5)
    with pytest.raises(TypeError, match="callable"):
        interlock.ValueWatcher(0, on_change=5)
    for view in (w, w.sync):
        with pytest.raises(TypeError, match=r"predicate must be a callable.*wait_for"):
            view.wait_until(5)
    with pytest.raises(TypeError, match="on_change needs a callable, not int"):
        w.on_change(5)
    with pytest.raises(TypeError, match="on_value needs a callable, not int"):
        w.on_value(1, 5)
    with pytest.raises(TypeError, match="condition must be a callable"):
        w.set_if(1, True)
    with pytest.raises(TypeError, match="function must be a callable"):
        w.update(5)
    assert_idle(w)


def test_a_coroutine_function_without_a_loop(interlock: Any) -> None:
    async def callback(*arguments: Any) -> None: ...

    w = interlock.ValueWatcher(0)
    calls: list[Callable[[], Any]] = [
        lambda: w.on_change(callback),
        lambda: w.on_value(1, callback),
        lambda: interlock.ValueWatcher(0, on_change=callback),
    ]
    for register in calls:
        with pytest.raises(RuntimeError, match="running event loop"):
            register()
    assert_idle(w)


def test_a_subscription_of_something_else(interlock: Any) -> None:
    for watcher in (None, 1, object(), interlock.ValueWatcher):
        with pytest.raises(TypeError, match=r"Watcher"):
            interlock.Subscription(watcher)


def test_arguments_that_do_not_exist(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    calls: list[Callable[[], Any]] = [
        lambda: interlock.ValueWatcher(),
        lambda: interlock.ValueWatcher(0, None),
        lambda: w.set(),
        lambda: w.wait_for(1, True),
        lambda: w.wait_for_change(immediate=True),
        lambda: w.watch().get_nowait(0),
        lambda: w.on_change(),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    for name in ("version", "closed", "sync"):
        with pytest.raises(AttributeError):
            setattr(w, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        del w.value
    assert w.value == 0


def test_truth_is_all_that_counts_of_a_flag(interlock: Any, run: Run) -> None:
    async def main() -> None:
        w = interlock.ValueWatcher(1)
        assert await w.wait_for(1, immediate=1, timeout=0) == 1
        with pytest.raises(asyncio.TimeoutError):
            await w.wait_for(1, immediate=None, timeout=0)
        assert w.watch(initial=[0]).pending == 1

    run(main())


def test_x15_exceptions_survive_pickle_and_copy(interlock: Any) -> None:
    """S24."""
    originals = [
        interlock.InterlockError("text", 1),
        interlock.WatcherClosed("closed"),
        interlock.WatcherClosed(),
        interlock.Lagged(7),
    ]
    for original in originals:
        original.extra = "kept"
        round_trips = [pickle.loads(pickle.dumps(original, protocol)) for protocol in range(6)]
        for twin in (*round_trips, copy.copy(original), copy.deepcopy(original)):
            assert type(twin) is type(original)
            assert (twin.args, str(twin), vars(twin)) == (original.args, str(original), vars(original))
    assert pickle.loads(pickle.dumps(interlock.Lagged(7))).missed == 7


def test_x15_a_transition_is_data(interlock: Any) -> None:
    pair = interlock.Transition("a", ["b"])
    for protocol in range(6):
        twin = pickle.loads(pickle.dumps(pair, protocol))
        assert type(twin) is interlock.Transition and twin == pair
    assert type(copy.deepcopy(pair)) is interlock.Transition


def test_x15_every_other_object_refuses_pickling(interlock: Any) -> None:
    w = interlock.ValueWatcher(0)
    wait, read = w.wait_for(1), w.watch().get()
    objects = [w, w.watch(), w.sync, w.sync.watch(), w.on_change(print), wait, read]
    for item in objects:
        for protocol in range(6):
            with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
                pickle.dumps(item, protocol)
    for item in (w, w.watch(), w.on_change(print), wait):
        for copying in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=r"cannot (be )?(pickle|copied)"):
                copying(item)
    wait.close()
    read.close()


@pytest.mark.parametrize("fault", [MemoryError, RecursionError, SystemError])
def test_x16_what_user_code_raises_comes_out_as_it_is(interlock: Any, fault: type[Exception]) -> None:
    def bad(*arguments: Any) -> Any:
        raise fault("from the user's code")

    w = interlock.ValueWatcher(0)
    with pytest.raises(fault, match="from the user"):
        w.set_if(1, bad)
    with pytest.raises(fault, match="from the user"):
        w.sync.wait_until(bad)
    assert_idle(w)


def test_x16_methods_taken_from_the_class_refuse_other_objects(interlock: Any) -> None:
    for name in ("set", "set_if", "update", "wait_for", "watch", "close", "statistics"):
        with pytest.raises((TypeError, AttributeError)):
            getattr(interlock.ValueWatcher, name)(object(), 1)


def test_x16_a_subclass_may_have_an_init_of_its_own(interlock: Any, run: Run) -> None:
    """As one of Inngest's class may."""

    class Named(interlock.ValueWatcher):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self, name: str, *, first: int) -> None:
            super().__init__(first)
            self.name = name

    async def main() -> None:
        w = Named("n", first=1)
        assert (w.name, await w.wait_for(1)) == ("n", 1)
        w.value = 2
        assert isinstance(w, interlock.ValueWatcher) and w.version == 1

    run(main())
    with pytest.raises(RuntimeError, match="initialised"):
        interlock.ValueWatcher(0).__init__(1)


def test_x16_a_subclass_may_override_set(interlock: Any) -> None:
    class Logged(interlock.ValueWatcher):  # type: ignore[misc, name-defined, unused-ignore]
        sets = 0

        def set(self, new_value: Any) -> None:
            type(self).sets += 1
            super().set(new_value)

    w = Logged(0)
    w.set(1)
    w.set_if(2, bool)
    assert (w.value, Logged.sets) == (2, 1)


def test_x16_a_watcher_whose_init_was_not_called_is_usable_or_says_so(interlock: Any) -> None:
    w = interlock.ValueWatcher.__new__(interlock.ValueWatcher)
    repr(w)
    uses: list[Callable[[], Any]] = [lambda: w.value, lambda: w.set(1), lambda: w.watch(), lambda: w.statistics()]
    for use in uses:
        try:
            use()
        except (RuntimeError, TypeError):
            pass


def test_generic_aliases_make_watchers(interlock: Any) -> None:
    w = interlock.ValueWatcher[int](1)
    assert type(w) is interlock.ValueWatcher
    assert interlock.Subscription[int] and interlock.Transition[int]
