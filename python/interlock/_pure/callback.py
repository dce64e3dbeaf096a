"""Registered callbacks, and the handle to cancel them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock._pure import hub

if TYPE_CHECKING:
    from interlock._pure.watcher import Watcher
    from interlock.callback import Callback


class CallbackHandle:
    """What `on_change` and `on_value` return.

    `cancel()` is idempotent, works from any thread and takes effect at once, even
    during a dispatch.
    """

    __slots__ = ("_callback", "_cancelled", "_generation", "_key", "_match", "_since", "_unused", "_watcher")

    def __init__(
        self,
        watcher: Watcher[Any],
        callback: Callback,
        key: int | None = None,
        match: Callable[[Any], object] | None = None,
    ) -> None:
        self._watcher: Watcher[Any] | None = watcher
        self._callback: Callback | None = callback
        # Taken by whoever fires a one-shot callback; tried, never waited for.
        self._unused = threading.Lock()
        self._cancelled = False
        self._generation = hub.generation
        self._key = key
        self._match = match
        self._since = 0

    def cancel(self) -> None:
        """Stop calling the callback. Idempotent, from any thread, even during a dispatch."""
        self._cancelled = True
        watcher = self._watcher
        self._watcher = self._callback = None
        if watcher is not None:
            watcher._forget(self)

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def _call(self, *arguments: Any) -> BaseException | None:
        """Call it; return a KeyboardInterrupt or SystemExit, which is not the callback's own failure."""
        callback = self._callback
        if callback is None:
            return None
        context = callback.context
        if self._generation != hub.generation:
            # The parent of a fork may have left it entered, by a thread that is no more.
            context = context.copy()
        try:
            result = context.run(callback.function, *arguments)
            if result is not None:
                callback.returned(result)
        except (KeyboardInterrupt, SystemExit) as interrupt:
            return interrupt
        except BaseException as error:
            callback.failed(error)
        return None

    def _fire(self) -> BaseException | None:
        """Call a one-shot callback, unless it was called before."""
        if not self._unused.acquire(blocking=False):
            return None
        interrupt = self._call()
        watcher = self._watcher
        self._watcher = self._callback = None
        if watcher is not None:
            watcher._forget(self)
        return interrupt

    def _matched(self, value: Any) -> BaseException | None:
        return self._fire()

    def _failed(self, error: BaseException) -> None:
        """Never called: `equal`, which compares for a one-shot callback, raises nothing but interrupts."""

    def __reduce__(self) -> str:
        raise TypeError("a CallbackHandle cannot be pickled or copied")
