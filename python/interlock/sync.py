"""The blocking view of a watcher, for threads without an event loop."""

from __future__ import annotations

from asyncio.events import _get_running_loop
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from interlock.errors import WatcherClosed
from interlock.subscription import Subscription
from interlock.transition import Transition

if TYPE_CHECKING:
    from typing_extensions import Self

    from interlock._backend import core

T = TypeVar("T")
S = TypeVar("S")

__all__ = ["SyncSubscription", "SyncView"]


def _refuse_in_loop(instead: str) -> None:
    if _get_running_loop() is not None:
        raise RuntimeError(f"this would block the event loop that runs in this thread; use {instead}")


class SyncView(Generic[T]):
    """`ValueWatcher.sync`: the watcher's waits as calls that block the thread.

    They release the GIL, obey `timeout` and can be interrupted by signals. In a
    thread that runs an event loop they raise `RuntimeError` instead of blocking it.

    Example:
        >>> import threading
        >>> from interlock import ValueWatcher
        >>> w = ValueWatcher(0)
        >>> threading.Timer(0.01, w.set, [1]).start()
        >>> w.sync.wait_for(1, timeout=5)
        1
    """

    __slots__ = ("_watcher",)

    def __init__(self, watcher: core.Watcher[T]) -> None:
        self._watcher = watcher

    def _block(self, kind: str, operand: Any, immediate: bool, timeout: float | None) -> Any:
        _refuse_in_loop(f"'await watcher.{kind}(...)'")
        return self._watcher._block(kind, operand, bool(immediate), timeout)

    def wait_for(self, value: T, *, immediate: bool = True, timeout: float | None = None) -> T:
        """Block until the value equals `value`; as `ValueWatcher.wait_for`.

        Raises:
            asyncio.TimeoutError: Time is up.
            WatcherClosed: The watcher is or gets closed.
            RuntimeError: An event loop is running in this thread.
        """
        result: T = self._block("wait_for", value, immediate, timeout)
        return result

    def wait_for_not(self, value: T, *, immediate: bool = True, timeout: float | None = None) -> T:
        """Block until the value differs from `value`; as `ValueWatcher.wait_for_not`."""
        result: T = self._block("wait_for_not", value, immediate, timeout)
        return result

    def wait_for_not_none(self: SyncView[S | None], *, immediate: bool = True, timeout: float | None = None) -> S:
        """Block until the value is not `None`; as `ValueWatcher.wait_for_not_none`."""
        result: S = self._block("wait_for_not_none", None, immediate, timeout)
        return result

    def wait_until(
        self, predicate: Callable[[T], object], *, immediate: bool = True, timeout: float | None = None
    ) -> T:
        """Block until `predicate(value)` is true; as `ValueWatcher.wait_until`."""
        if not callable(predicate):
            raise TypeError(
                f"predicate must be a callable, not {type(predicate).__name__}; to wait for a value use wait_for"
            )
        result: T = self._block("wait_until", predicate, immediate, timeout)
        return result

    def wait_for_change(self, *, timeout: float | None = None) -> T:
        """Block until the next transition; as `ValueWatcher.wait_for_change`."""
        result: T = self._block("wait_for_change", None, False, timeout)
        return result

    def watch(
        self,
        initial: bool = False,
        maxlen: int | None = None,
        overflow: Literal["error", "latest"] = "error",
    ) -> SyncSubscription[T]:
        """Open a blocking subscription; arguments as for `ValueWatcher.watch`."""
        return SyncSubscription(Subscription(self._watcher, initial=initial, maxlen=maxlen, overflow=overflow))

    def __reduce__(self) -> str:
        raise TypeError("a SyncView cannot be pickled or copied; send the watcher's value")

    def __repr__(self) -> str:
        return f"<SyncView of {self._watcher!r}>"


class SyncSubscription(Generic[T]):
    """A `Subscription` whose reads block the thread. Iterate over it, or `get`.

    Delivery, lag and closing are as for `Subscription`; one reader at a time.
    """

    __slots__ = ("_subscription",)

    def __init__(self, subscription: Subscription[T]) -> None:
        self._subscription = subscription

    def get(self, timeout: float | None = None) -> Transition[T]:
        """Block until the next transition and return it.

        Args:
            timeout: Seconds until `asyncio.TimeoutError`; `None` waits for ever.

        Raises:
            WatcherClosed: The watcher was closed and everything was delivered, or
                this subscription is closed.
            Lagged: Once per gap of a bounded subscription.
            RuntimeError: Another reader is waiting, or an event loop is running in this thread.
        """
        _refuse_in_loop("'await watcher.watch().get()'")
        return self._subscription._block(timeout)

    def get_nowait(self) -> Transition[T]:
        """Return the next transition, or raise `asyncio.QueueEmpty`."""
        return self._subscription.get_nowait()

    @property
    def pending(self) -> int:
        """How many transitions can be read without waiting."""
        return self._subscription.pending

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._subscription.closed

    def close(self) -> None:
        """Drop what is held; a reader that waits gets `WatcherClosed`. Idempotent."""
        self._subscription.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Transition[T]:
        try:
            return self.get()
        except WatcherClosed:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError("a SyncSubscription cannot be pickled or copied; open another one with watch()")

    def __repr__(self) -> str:
        return f"<SyncSubscription of {self._subscription!r}>"
