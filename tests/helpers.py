"""What several test modules share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# For whatever blocks: far above what it takes, so that only a hang reaches it.
LIMIT = 50

# Every waiting call, on a watcher whose value is None and becomes 1.
WAITS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "wait_for": lambda w: w.wait_for(1),
    "wait_for_not": lambda w: w.wait_for_not(None),
    "wait_for_not_none": lambda w: w.wait_for_not_none(),
    "wait_until": lambda w: w.wait_until(lambda value: value == 1),
    "wait_for_change": lambda w: w.wait_for_change(),
}
READS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "get": lambda w: w.watch().get(),
    # The builtin asks for an AsyncIterator, and mypy does not know that it is given one.
    "anext": lambda w: anext(w.watch()),
}
WAITING = WAITS | READS


def awaited(name: str) -> Any:
    """What the waiting call of this name returns."""
    return 1 if name in WAITS else (None, 1)


async def ticks(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def assert_chain(pairs: Iterable[tuple[Any, Any]], first: Any, last: Any) -> None:
    """Each pair begins where the one before ended, from `first` to `last` (W1)."""
    pairs = list(pairs)
    ends = [first, *(new for _, new in pairs)]
    assert [old for old, _ in pairs] == ends[:-1]
    assert ends[-1] == last


def assert_idle(watcher: Any) -> None:
    """Nobody waits on it and it keeps nothing (X6)."""
    counts = watcher.statistics()
    assert (counts.waiters, counts.subscriptions, counts.callbacks, counts.retained) == (0, 0, 0, 0)


def count_to(w: Any, last: int) -> None:
    for value in range(w.value + 1, last + 1):
        w.value = value


def drain(subscription: Any) -> list[Any]:
    """What can be read at once."""
    found: list[Any] = []
    while True:
        try:
            found.append(subscription.get_nowait())
        except asyncio.QueueEmpty:
            return found


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own, all at once; return what they return, or raise what one raises."""
    barrier = threading.Barrier(len(functions))
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            barrier.wait(LIMIT)
            results[index] = functions[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


@contextmanager
def switching_often() -> Iterator[None]:
    """Threads take turns after every few bytecodes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


class Recorder:
    """Collects what it is called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(arguments)


class Counted:
    """A value that counts how often it is compared and hashed."""

    comparisons = 0
    hashes = 0

    def __init__(self, key: int) -> None:
        self.key = key

    @classmethod
    def reset(cls) -> None:
        cls.comparisons = cls.hashes = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return isinstance(other, Counted) and self.key == other.key

    def __hash__(self) -> int:
        Counted.hashes += 1
        return hash(self.key)


class Unequal:
    """A value whose comparison raises, and that has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")


class Array:
    """A value whose comparison has no truth value, as NumPy's have none."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def when(waiting: Callable[[], int], count: int, function: Callable[[], Any]) -> Callable[[], Any]:
    """Call the function once so many wait."""

    def poll() -> Any:
        gone = threading.Event()
        for _ in range(LIMIT * 1000):
            if waiting() == count:
                return function()
            gone.wait(0.001)
        raise AssertionError(f"{waiting()} wait, not {count}")

    return poll


@contextmanager
def signalled(waiting: Callable[[], int], handler: Callable[[], object]) -> Iterator[None]:
    """Run the handler in this thread once it waits.

    The signal is sent again until that is over: one that arrives in the very moment in
    which CPython puts the thread to sleep does not end the sleep.
    """
    over = threading.Event()

    def send() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        while not over.wait(0.2):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler() and None)
    sender = threading.Thread(target=when(waiting, 1, send))
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join(LIMIT)
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def handles_counted(loop: Any) -> Iterator[list[Any]]:
    """What is scheduled on the loop meanwhile, from any thread."""
    scheduled: list[Any] = []

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            scheduled.append(arguments)
            return method(*arguments, **options)

        return call

    for name in ("call_soon", "call_soon_threadsafe"):
        setattr(loop, name, counting(getattr(loop, name)))
    yield scheduled
    del loop.call_soon, loop.call_soon_threadsafe


def end_by_hand(held: list[Any], how: str, fresh: bool) -> None:
    """End the one coroutine in the list, to which that is the only reference, without awaiting it."""
    coroutine = held.pop()
    if how == "close":
        coroutine.close()
        coroutine.close()
    elif how == "throw":
        with pytest.raises(KeyError):
            coroutine.throw(KeyError("by hand"))
        with pytest.raises(RuntimeError):
            coroutine.send(None)
    elif fresh:
        with pytest.warns(RuntimeWarning, match="never awaited"):
            del coroutine
            gc.collect()
    else:
        del coroutine
        gc.collect()
