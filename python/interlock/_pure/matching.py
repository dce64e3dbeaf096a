"""What a wait accepts, and its place among the waits of a watcher."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from interlock._pure.lock import lock
from interlock._pure.registry import hash_or_none
from interlock.equality import equal

if TYPE_CHECKING:
    from interlock._pure.parker import Parker
    from interlock._pure.watcher import Watcher


def matcher(kind: str, operand: Any) -> tuple[Callable[[Any], object], int | None]:
    """What a wait accepts, and the hash it can be found by, if any."""
    if kind == "wait_for":
        return (lambda value: equal(value, operand)), hash_or_none(operand)
    if kind == "wait_for_not":
        return (lambda value: not equal(value, operand)), None
    if kind == "wait_for_not_none":
        return (lambda value: value is not None), None
    if kind == "wait_until":
        context = copy_context()
        # A copy each time: the thread that registers and one that sets may both be trying it.
        return (lambda value: context.copy().run(operand, value)), None
    return (lambda value: True), None


class Registration:
    """A pending wait. When it is dropped, awaited or not, nothing of it stays behind (X6)."""

    __slots__ = ("_watcher", "parker")

    def __init__(self, watcher: Watcher[Any], parker: Parker) -> None:
        self._watcher = watcher
        self.parker = parker

    def cancel(self) -> None:
        with lock:
            self._watcher._waiters.discard(self.parker)

    __del__ = cancel
