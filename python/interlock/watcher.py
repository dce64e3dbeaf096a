"""`ValueWatcher`: a value whose every transition reaches every consumer."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, TypeVar

from interlock._backend import core
from interlock.callback import Callback, CallbackHandle
from interlock.equality import equal
from interlock.subscription import Subscription
from interlock.sync import SyncView

T = TypeVar("T")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])

__all__ = ["ValueWatcher", "WatcherStatistics"]


def _coroutine_function(function: F) -> F:
    """Let tools (`unittest.mock`, frameworks) see that calling this gives a coroutine."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


@dataclasses.dataclass(frozen=True)
class WatcherStatistics:
    """What a watcher holds at one moment.

    Attributes:
        version: Number of transitions so far.
        subscriptions: Open subscriptions.
        waiters: Pending `wait_*` calls.
        callbacks: Registered `on_change` callbacks and pending `on_value` ones.
        retained: Transitions kept because some subscription has not passed them.
    """

    version: int
    subscriptions: int
    waiters: int
    callbacks: int
    retained: int


class ValueWatcher(core.Watcher[T], Generic[T]):
    """A value that any thread may set and any number of consumers can follow.

    Where `asyncio.Event` and `asyncio.Condition` wake a task that then looks at
    whatever the state has become meanwhile, a watcher gives every consumer every
    transition, in one order (W1).

    - **Delivery.** Waits and subscriptions are registered when the method is
      called, and return the value that matched, however many sets follow before
      the task runs (W2, W3, W4). Setting an equal value is no transition (W5).
    - **Cost.** A set does not grow with the number of idle subscriptions, nor with
      the number of waiters for other hashable values (W15).
    - **Cancellation.** A cancelled or timed-out wait leaves nothing behind (X6).
    - **Thread safety.** Every method may be called from any thread; a task is
      resumed only in its own loop's thread (X2). No loop is needed to create one.
    - **Closing.** `close` ends all waits and, once drained, all subscriptions (W12).

    Args:
        initial_value: The value before the first transition.
        on_change: Registered as by `on_change(...)`, before anything can happen.
        equals: Decides whether a set is a transition: called with the current and
            the new value. By default identity first, then `==`, and in doubt
            different. `None` makes every set a transition. An `equals` that raises
            counts as "different". It does not affect what `wait_for` matches.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     state = ValueWatcher("connecting")
        ...     with state.watch() as transitions:
        ...         state.value = "connected"
        ...         state.value = "closing"
        ...         print(await transitions.get())
        ...         print(await transitions.get())
        >>> asyncio.run(main())
        Transition(old='connecting', new='connected')
        Transition(old='connected', new='closing')
    """

    def __init__(
        self,
        initial_value: T,
        *,
        on_change: Callable[[T, T], object] | None = None,
        equals: Callable[[T, T], object] | None = equal,
    ) -> None:
        if equals is not None and not callable(equals):
            raise TypeError(f"equals must be a callable of (old, new) or None, not {type(equals).__name__}")
        self._init(initial_value, equals)
        if on_change is not None:
            self.on_change(on_change)

    def set_if(self, new_value: T, condition: Callable[[T], object]) -> bool:
        """Set the value if `condition(current value)` is true, atomically (W8).

        No other set falls between the check and the write. The condition runs
        without any lock and may use this watcher; it is called again when another
        thread set the value meanwhile. If it raises, nothing changes.

        Args:
            new_value: The value to set.
            condition: Called with the current value.

        Returns:
            Whether the condition held. True also if the value was already equal.

        Raises:
            WatcherClosed: The watcher is closed.

        >>> w = ValueWatcher("idle")
        >>> w.set_if("busy", lambda state: state == "idle"), w.set_if("busy", lambda state: state == "idle")
        (True, False)
        """
        if not callable(condition):
            raise TypeError(f"condition must be a callable of the current value, not {type(condition).__name__}")
        return super().set_if(new_value, condition)

    def update(self, function: Callable[[T], T]) -> T:
        """Set the value to `function(current value)`, atomically (W8).

        The function runs without any lock and may use this watcher; it is called
        again when the value was set meanwhile, so it should have no side effects,
        and must not set this watcher itself each time. If it raises, nothing changes.

        Args:
            function: Makes the new value from the current one.

        Returns:
            The new value.

        Raises:
            WatcherClosed: The watcher is closed.

        >>> w = ValueWatcher(1)
        >>> w.update(lambda n: n + 1)
        2
        """
        if not callable(function):
            raise TypeError(
                f"function must be a callable of the current value, not {type(function).__name__}; "
                "to set a value use set"
            )
        return super().update(function)

    @_coroutine_function
    def wait_for(self, value: T, *, immediate: bool = True, timeout: float | None = None) -> Coroutine[Any, Any, T]:
        """Wait until the value equals `value`.

        The wait counts from this call, not from when its task first runs (W3),
        and returns the value that matched (W4).

        Args:
            value: What to wait for. A hashable value costs other sets nothing.
            immediate: If true and the current value already equals `value`, return
                it at once. If false, wait for a transition.
            timeout: Seconds from the first `await` until `asyncio.TimeoutError`;
                `None` waits for ever, 0 does not wait.

        Returns:
            A coroutine, to be awaited once.

        Raises:
            ValueError: `timeout` is negative or not a number of seconds.
            asyncio.TimeoutError: In the await, when time is up.
            WatcherClosed: In the await, if the watcher is or gets closed.

        >>> import asyncio
        >>> async def main():
        ...     w = ValueWatcher(0)
        ...     task = asyncio.create_task(w.wait_for(1, timeout=5))
        ...     w.value = 1
        ...     w.value = 2
        ...     return await task
        >>> asyncio.run(main())
        1
        """
        return self._wait("wait_for", value, bool(immediate), timeout)

    @_coroutine_function
    def wait_for_not(self, value: T, *, immediate: bool = True, timeout: float | None = None) -> Coroutine[Any, Any, T]:
        """Wait until the value differs from `value`. Arguments and errors as for `wait_for`."""
        return self._wait("wait_for_not", value, bool(immediate), timeout)

    @_coroutine_function
    def wait_for_not_none(
        self: ValueWatcher[S | None], *, immediate: bool = True, timeout: float | None = None
    ) -> Coroutine[Any, Any, S]:
        """Wait until the value is not `None`. Arguments and errors as for `wait_for`."""
        return self._wait("wait_for_not_none", None, bool(immediate), timeout)

    @_coroutine_function
    def wait_until(
        self, predicate: Callable[[T], object], *, immediate: bool = True, timeout: float | None = None
    ) -> Coroutine[Any, Any, T]:
        """Wait until `predicate(value)` is true.

        The predicate is called for each transition, in order, in the thread that
        sets and in the `contextvars` context of this call, until it holds; keep it
        short. If it raises, this wait alone fails with its exception (W7).

        Args:
            predicate: Called with the value.
            immediate: If true, the current value is tried first.
            timeout: As for `wait_for`.

        Raises:
            TypeError: `predicate` is not callable.
        """
        if not callable(predicate):
            raise TypeError(
                f"predicate must be a callable, not {type(predicate).__name__}; to wait for a value use wait_for"
            )
        return self._wait("wait_until", predicate, bool(immediate), timeout)

    @_coroutine_function
    def wait_for_change(self, *, timeout: float | None = None) -> Coroutine[Any, Any, T]:
        """Wait for the first transition after this call; returns its new value.

        A sequence of such waits misses what happens between them: to see every
        transition, use `watch`. Timeout and errors as for `wait_for`.
        """
        return self._wait("wait_for_change", None, False, timeout)

    def watch(
        self,
        initial: bool = False,
        maxlen: int | None = None,
        overflow: Literal["error", "latest"] = "error",
    ) -> Subscription[T]:
        """Open a subscription: every transition from now on, in order (W2).

        Args:
            initial: Yield the value at this moment first, as `Transition(value, value)`.
            maxlen: At most so many transitions are held for this subscription;
                `None` holds all until they are read (W14).
            overflow: What a bounded subscription that fell behind gets: `"error"`,
                one `Lagged` and then the oldest transition still held; `"latest"`,
                a single transition from the last value it was given to the current one.

        Returns:
            A `Subscription`. Close it, or leave its `with` block, when done.

        Raises:
            ValueError: `maxlen` below 1, an unknown `overflow`, or `"latest"` without `maxlen`.
        """
        return Subscription(self, initial=initial, maxlen=maxlen, overflow=overflow)

    def on_change(self, callback: Callable[[T, T], object]) -> CallbackHandle:
        """Call `callback(old, new)` for every transition from now on (W9, W10).

        A plain function runs in the thread that sets, in the `contextvars` context
        of this call; each transition goes to all callbacks before the next one. A
        set made inside a callback is queued behind the current dispatch. A
        coroutine function runs as a task on the loop that is running now.

        What a callback raises goes to the exception handler of the loop it was
        registered in, else to the `interlock` logger; never to the setter.

        Args:
            callback: A function or coroutine function of two arguments.

        Returns:
            A handle; its `cancel()` takes effect at once, even during a dispatch.

        Raises:
            TypeError: `callback` is not callable.
            RuntimeError: A coroutine function, and no loop is running.

        >>> w = ValueWatcher(0)
        >>> handle = w.on_change(lambda old, new: print(old, "->", new))
        >>> w.value = 1
        0 -> 1
        >>> handle.cancel()
        >>> w.value = 2
        """
        registered = Callback(callback, "on_change")
        registered.handle = self._on_change(registered)
        return registered.handle

    def on_value(self, value: T, callback: Callable[[], object]) -> CallbackHandle:
        """Call `callback()` once: now if the value equals `value`, else at the first transition to it (W11).

        Works from any thread, with or without a running loop. Registered while a loop
        is running, the callback is called in that loop, so that `on_value(v, event.set)`
        with an `asyncio.Event` is safe; otherwise in the thread that sets. Its context,
        and where its errors go, are as for `on_change`. Pending ones are dropped when
        the watcher is closed.

        Args:
            value: The value to wait for.
            callback: A function or coroutine function without arguments.

        Returns:
            A handle with `cancel()`.
        """
        registered = Callback(callback, "on_value")
        registered.handle = self._on_value(value, registered)
        return registered.handle

    def close(self, error: BaseException | None = None) -> None:
        """End all waits and, once drained, all subscriptions; idempotent (W12).

        Subscriptions deliver what they still hold, then end. Waits raise `error`,
        or `WatcherClosed` without one. Later sets raise `WatcherClosed`. The value
        stays readable.

        Args:
            error: The exception that pending and later waits raise.
        """
        if error is not None and not isinstance(error, BaseException):
            raise TypeError(f"error must be an exception instance or None, not {type(error).__name__}")
        super().close(error)

    def statistics(self) -> WatcherStatistics:
        """A snapshot of what the watcher holds; for monitoring and tests."""
        return WatcherStatistics(*self._counts())

    @property
    def sync(self) -> SyncView[T]:
        """The same waits and a blocking `watch()`, for threads without a loop."""
        return SyncView(self)

    def __reduce__(self) -> str:
        raise TypeError("a ValueWatcher cannot be pickled or copied; send its value")

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<ValueWatcher {self.value!r} version={self.version}{state}>"
