"""What all scenarios have in common: a case is measured round by round, each round is timed and checked.

A `Case` is one scenario at one size with one implementation. It keeps an event
loop of its own that stands still between rounds, so that the rounds of several
cases can be interleaved in one process.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, Generic

from .candidates import Implementation, MadeT

#: Seconds. No round comes near it; it turns a lost delivery into an error instead of a hang.
LIMIT = 120.0

# What the loop needs at most to hand something on: call_soon, the getter's future, its task.
_SETTLE_TICKS = 4


class Stopwatch:
    """Times one region of each round."""

    def __init__(self) -> None:
        self.nanoseconds = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            self.nanoseconds = time.perf_counter_ns() - start


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Collect garbage first, and none during a round: for everyone alike.

    What is alive is then frozen until a case closes: each collection would go through
    all the parked tasks again, and take longer than what is measured.
    """
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def settle() -> None:
    """Let the loop hand on what is under way."""
    for _ in range(_SETTLE_TICKS):
        await asyncio.sleep(0)


class Crew:
    """Threads that stand ready, so that it is not their making that is timed."""

    def __init__(self, targets: Sequence[Callable[[], None]]) -> None:
        self._start = threading.Event()
        self._ready = threading.Barrier(len(targets) + 1)
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=(target,), daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()
        self._ready.wait(LIMIT)

    def _work(self, target: Callable[[], None]) -> None:
        try:
            self._ready.wait(LIMIT)
            self._start.wait(LIMIT)
            target()
        except BaseException as error:
            self._errors.append(error)

    def start(self) -> None:
        """Let all of them go."""
        self._start.set()

    def join(self) -> None:
        """Wait until all have ended; raise what one of them raised."""
        deadline = time.monotonic() + LIMIT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._errors:
            raise self._errors[0]
        if any(thread.is_alive() for thread in self._threads):
            raise AssertionError("a thread has not ended in time")


class Case(abc.ABC, Generic[MadeT]):
    """One scenario, size and implementation, ready to be measured round by round."""

    #: Bounds of how many operations a round may have.
    least: ClassVar[int] = 1
    most: ClassVar[int] = 20_000

    def __init__(self, implementation: Implementation[MadeT], size: int) -> None:
        self.implementation = implementation
        self.size = size
        self.operations = self.least
        #: Transitions that did not begin where the one before ended, and out of how many (`Threads` only).
        self.broken = 0
        self.chained = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._stopwatch = Stopwatch()
        self._value = 1_000
        self._loop = asyncio.new_event_loop()
        try:
            self._run(self._open())
        except BaseException:
            self._loop.close()
            raise

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(asyncio.wait_for(coroutine, LIMIT))

    def _values(self, count: int) -> range:
        """The next `count` values; none comes twice in a case."""
        self._value += count
        return range(self._value - count, self._value)

    @abc.abstractmethod
    async def _open(self) -> None:
        """Set up what lasts for all rounds."""

    @abc.abstractmethod
    async def _round(self) -> None:
        """Do `operations` operations under the stopwatch, then check what came of them."""

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def divisor(self) -> int:
        """How many units the operations of a round amount to."""
        return self.operations

    def calibrate(self, nanoseconds: float) -> None:
        """Warm up, and choose `operations` so that a round takes about so long."""
        while True:
            self.round()
            wanted = int(self.operations * nanoseconds / max(self._stopwatch.nanoseconds, 1))
            bounded = max(self.least, min(self.most, wanted))
            if bounded <= 2 * self.operations:
                self.operations = bounded
                return
            # In steps: the first rounds are slow and would be taken for the rule.
            self.operations = min(bounded, 8 * self.operations)

    def round(self) -> float:
        """Do one round; nanoseconds per unit."""
        with _without_collector():
            self._run(self._round())
        return self._stopwatch.nanoseconds / self.divisor()

    def close(self) -> None:
        """End the consumers and close the loop."""
        try:
            self._run(self._close())
        finally:
            self._loop.close()
            gc.unfreeze()


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A row of the comparison.

    Attributes:
        name: For the command line.
        title: What is measured; `{n}` stands for the size.
        unit: What one figure is for.
        sizes: All sizes.
        quick: The sizes of a quick run.
        case: How it is measured; `None` for the memory of a backlog, which takes a process each.
        needs: What an implementation's class must be to take part.
        references: The implementations whose time is divided by that of the others.
        flat: Whether a figure should not depend on the size.
        scales: Whether more should go through with a larger size.
        rounds: How many rounds are enough, where one takes long.
    """

    name: str
    title: str
    unit: str
    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    case: Callable[[Implementation[Any], int], Case[Any]] | None
    needs: type
    references: tuple[str, ...]
    flat: bool = False
    scales: bool = False
    rounds: int | None = None

    def titled(self, size: int | str) -> str:
        """The title with its size in it."""
        return self.title.format(n=size if isinstance(size, str) else f"{size:,}")

    def takes(self, implementation: Implementation[Any]) -> bool:
        """Whether the implementation can take part."""
        return issubclass(implementation.kind, self.needs)
