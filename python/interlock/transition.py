"""What a subscription yields."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


class Transition(tuple[T, T], Generic[T]):
    """One step of a watched value: a pair `(old, new)` with names.

    It is a tuple, so it unpacks and compares like one.

    >>> old, new = Transition("idle", "busy")
    >>> Transition(1, 2).new
    2
    """

    __slots__ = ()

    def __new__(cls, old: T, new: T) -> Transition[T]:
        return tuple.__new__(cls, (old, new))

    if TYPE_CHECKING:

        @property
        def old(self) -> T:
            """The value before."""

        @property
        def new(self) -> T:
            """The value after."""

    else:
        old = property(itemgetter(0), doc="The value before.")
        new = property(itemgetter(1), doc="The value after.")

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"Transition(old={self[0]!r}, new={self[1]!r})"
