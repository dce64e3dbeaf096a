"""`Subscription`: one consumer's place in a watcher's transitions."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from interlock._backend import core

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

__all__ = ["Subscription"]


class Subscription(core.Subscription[T], Generic[T]):
    """Every transition of a watcher since `ValueWatcher.watch`, in order.

    Iterate over it, or `get` one at a time. It keeps its place across timeouts and
    cancellations: what arrived meanwhile is next (W13).

    - **Delivery.** Lossless, or bounded with a loss that is never silent (W14).
    - **Cost.** Idle, it costs the setter nothing: it is a cursor into one shared log.
    - **Closing.** When the watcher is closed it delivers what it holds, then ends.
      Closed itself, it drops what it holds and ends at once.
    - **Thread safety.** One reader at a time, else `RuntimeError`; it may be read in
      one loop after another (W16). `close`, `get_nowait` and `pending` from any thread.

    Example:
        >>> import asyncio
        >>> from interlock import ValueWatcher
        >>> async def main():
        ...     w = ValueWatcher(0)
        ...     with w.watch() as transitions:
        ...         w.value = 1
        ...         w.value = 2
        ...         w.close()
        ...         async for old, new in transitions:
        ...             print(old, new)
        >>> asyncio.run(main())
        0 1
        1 2
    """

    __slots__ = ("__weakref__",)

    def __new__(
        cls,
        watcher: core.Watcher[T],
        *,
        initial: bool = False,
        maxlen: int | None = None,
        overflow: Literal["error", "latest"] = "error",
    ) -> Subscription[T]:
        if not isinstance(watcher, core.Watcher):
            raise TypeError(f"watcher must be a ValueWatcher, not {type(watcher).__name__}")
        if maxlen is not None:
            if isinstance(maxlen, bool) or not isinstance(maxlen, int):
                raise TypeError(f"maxlen must be an int or None, not {type(maxlen).__name__}")
            if maxlen < 1:
                raise ValueError(f"maxlen must be at least 1, not {maxlen}; None holds everything until it is read")
            maxlen = min(maxlen, sys.maxsize)
        if overflow not in ("error", "latest"):
            raise ValueError(f"overflow must be 'error' or 'latest', not {overflow!r}")
        if overflow == "latest" and maxlen is None:
            raise ValueError("overflow='latest' needs maxlen; maxlen=1 keeps only the newest transition")
        return super().__new__(cls, watcher, bool(initial), maxlen, overflow == "latest")

    if TYPE_CHECKING:

        def __init__(
            self,
            watcher: core.Watcher[T],
            *,
            initial: bool = False,
            maxlen: int | None = None,
            overflow: Literal["error", "latest"] = "error",
        ) -> None: ...

    def __aiter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError("a Subscription cannot be pickled or copied; open another one with watch()")

    def __repr__(self) -> str:
        return f"<Subscription {'closed' if self.closed else f'pending={self.pending}'}>"
