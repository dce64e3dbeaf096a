"""What the caller gets: a coroutine. What it yields to the task is in `parker`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from interlock._pure.parker import CANCELLED, EXPIRED, MATCHED, NOTIFIED

if TYPE_CHECKING:
    from interlock._pure.matching import Registration

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


def check_timeout(timeout: Any) -> float | None:
    """Validate a timeout in seconds; infinity is no timeout."""
    if timeout is None:
        return None
    try:
        seconds = math.ldexp(timeout, 0)
    except OverflowError:
        seconds = -1.0 if timeout < 0 else math.inf  # an integer beyond all floats
    except TypeError:
        raise TypeError(f"timeout must be a number of seconds or None, not {type(timeout).__name__}") from None
    if not seconds >= 0:
        raise ValueError(f"timeout must be 0 or more seconds, not {timeout!r}; None waits for ever")
    return None if seconds == math.inf else seconds


def unwrap(outcome: tuple[str, Any]) -> Any:
    """The value of a settled wait, or its exception."""
    kind, payload = outcome
    if kind is MATCHED:
        return payload
    if kind is NOTIFIED:
        return None
    if kind is EXPIRED:
        raise asyncio.TimeoutError
    if kind is CANCELLED:
        # A driver that is no task has cancelled the parker and gone on all the same.
        raise asyncio.CancelledError if payload is None else asyncio.CancelledError(payload)
    raise payload


class Wait(Coroutine[Any, Any, Any]):
    """The coroutine of a wait.

    It wraps a native one only for this: a task that is cancelled before its first step
    keeps the frame of that coroutine, by its exception's traceback, and the frame would
    keep the registration (X6).
    """

    __slots__ = ("__name__", "__qualname__", "_coroutine", "_registration")

    def __init__(self, kind: str, registration: Registration, timeout: float | None) -> None:
        self._registration: Registration | None = registration
        self._coroutine = named(_await(registration, timeout), f"ValueWatcher.{kind}")
        self.__name__ = kind
        self.__qualname__ = f"ValueWatcher.{kind}"

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._cancel()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._cancel()
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def _cancel(self) -> None:
        registration = self._registration
        # One that is running refuses what comes next.
        if registration is not None and not self._coroutine.cr_running:
            registration.cancel()
            self._registration = None

    def __repr__(self) -> str:
        return f"<coroutine object {self.__qualname__} at {id(self):#x}>"

    def __reduce__(self) -> str:
        raise TypeError("a coroutine cannot be pickled or copied")


def named(coroutine: Coroutine[Any, Any, T], qualified_name: str) -> CoroutineType[Any, Any, T]:
    """Give a native coroutine the name that warnings and task lists show."""
    assert isinstance(coroutine, CoroutineType)
    coroutine.__name__ = qualified_name.rpartition(".")[2]
    coroutine.__qualname__ = qualified_name
    return coroutine


def called(qualified_name: str) -> Callable[[F], F]:
    """Give all coroutines of a function that name."""

    def rename(function: F) -> F:
        function.__name__ = qualified_name.rpartition(".")[2]
        function.__qualname__ = qualified_name
        return function

    return rename


async def _await(registration: Registration, timeout: float | None) -> Any:
    try:
        return unwrap(await registration.parker.wait(timeout))
    finally:
        registration.cancel()
