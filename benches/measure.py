"""Runs scenarios with interleaved rounds, so that drift of the machine hits all alike."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import memory
from .candidates import Implementation, label
from .cases import Case, Scenario
from .scenarios import BACKLOG_TRANSITIONS

#: Implementation and size.
Key = tuple[str, int]

#: Called with the share done (0 to 1) and what is being measured.
Progress = Callable[[float, str], None]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: Of each case, unless its scenario makes do with fewer.
        nanoseconds: How long the timed region of a round should about be.
        quick: Whether to leave out the sizes that take longest.
    """

    rounds: int
    nanoseconds: float
    quick: bool

    def sizes(self, scenario: Scenario) -> tuple[int, ...]:
        return scenario.quick if self.quick else scenario.sizes

    def rounds_of(self, scenario: Scenario) -> int:
        return self.rounds if scenario.rounds is None else min(self.rounds, scenario.rounds)


FULL = Effort(rounds=21, nanoseconds=40e6, quick=False)
QUICK = Effort(rounds=5, nanoseconds=10e6, quick=True)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high)


@dataclasses.dataclass
class Result:
    """The samples of one scenario: one for each round, in the scenario's unit.

    For the backlog a sample is resident bytes gained; for all others nanoseconds.
    """

    scenario: Scenario
    sizes: tuple[int, ...]
    implementations: tuple[str, ...]
    samples: dict[Key, list[float]]
    #: Transitions that did not begin where the one before ended, and out of how many.
    broken: dict[Key, tuple[int, int]] = dataclasses.field(default_factory=dict)

    def spread(self, key: Key) -> Spread:
        return Spread.of(self.samples[key])

    def _by_round(self, over: Key, under: Key) -> list[float] | None:
        if over not in self.samples or under not in self.samples:
            return None
        pairs = zip(self.samples[over], self.samples[under], strict=True)
        # A backlog may gain no page at all.
        return [above / max(below, 1) for above, below in pairs]

    def ratio(self, over: Key, under: Key) -> Spread | None:
        """How many times `over` is `under`, taken round by round; `None` if one was not measured."""
        ratios = self._by_round(over, under)
        return None if ratios is None else Spread.of(ratios)

    def scaling(self, name: str, few: int, many: int) -> Spread | None:
        """How many times as much goes through in the same time with size `many` as with `few`."""
        return self.ratio((name, few), (name, many))

    def scaling_beside(self, name: str, other: str, few: int, many: int) -> Spread | None:
        """`scaling` over that of another implementation."""
        own, others = (self._by_round((each, few), (each, many)) for each in (name, other))
        if own is None or others is None:
            return None
        return Spread.of([mine / theirs for mine, theirs in zip(own, others, strict=True)])

    def growth(self, implementation: str) -> Spread | None:
        """The dearest size over the cheapest one, by their medians."""
        keys = [(implementation, size) for size in self.sizes if (implementation, size) in self.samples]
        if len(keys) < 2:
            return None
        by_median = sorted(keys, key=lambda key: self.spread(key).median)
        return self.ratio(by_median[-1], by_median[0])


class _Steps:
    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def begin(self, what: str) -> None:
        self._progress(self._done / self._total, what)

    def end(self, count: int) -> None:
        self._done += count


# Opening and calibrating a case, and a backlog's process, in rounds' worth of progress.
_OPENING_STEPS = 4
_BACKLOG_STEPS = 20


def _count(scenario: Scenario, takers: int, effort: Effort) -> int:
    cases = takers * len(effort.sizes(scenario))
    return cases * (_BACKLOG_STEPS if scenario.case is None else _OPENING_STEPS + effort.rounds_of(scenario))


@contextlib.contextmanager
def _named(scenario: Scenario, size: int, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{label(name)} failed in {scenario.name!r}, N = {size:,}: {error!r}") from error


def _timed(
    scenario: Scenario,
    make: Callable[[Implementation[Any], int], Case[Any]],
    takers: Sequence[Implementation[Any]],
    effort: Effort,
    steps: _Steps,
) -> Result:
    sizes = effort.sizes(scenario)
    samples: dict[Key, list[float]] = {}
    with contextlib.ExitStack() as opened:
        cases: dict[Key, Case[Any]] = {}
        for size in sizes:
            for implementation in takers:
                steps.begin(f"{scenario.titled(size)}: {implementation.label}")
                with _named(scenario, size, implementation.name):
                    case = make(implementation, size)
                    opened.callback(case.close)
                    case.calibrate(effort.nanoseconds)
                cases[implementation.name, size] = case
                samples[implementation.name, size] = []
                steps.end(_OPENING_STEPS)
        rounds = effort.rounds_of(scenario)
        for number in range(rounds):
            for key, case in cases.items():
                steps.begin(f"{scenario.titled(case.size)}: round {number + 1} of {rounds}")
                with _named(scenario, case.size, case.implementation.name):
                    samples[key].append(case.round())
                steps.end(1)
        broken = {key: (case.broken, case.chained) for key, case in cases.items() if case.chained}
    return Result(scenario, sizes, tuple(taker.name for taker in takers), samples, broken)


def _backlog(scenario: Scenario, takers: Sequence[Implementation[Any]], effort: Effort, steps: _Steps) -> Result:
    sizes = effort.sizes(scenario)
    samples: dict[Key, list[float]] = {}
    for size in sizes:
        for implementation in takers:
            steps.begin(f"{scenario.titled(size)}: {implementation.label}")
            backlog = memory.measure(implementation.name, size, BACKLOG_TRANSITIONS)
            samples[implementation.name, size] = [float(backlog.bytes)]
            steps.end(_BACKLOG_STEPS)
    return Result(scenario, sizes, tuple(taker.name for taker in takers), samples)


def run(
    scenarios: Iterable[tuple[Scenario, Iterable[Implementation[Any]]]],
    effort: Effort = FULL,
    progress: Progress = lambda _share, _what: None,
) -> list[Result]:
    """Measure each scenario with those of its implementations that can take part."""
    chosen = [(scenario, [each for each in found if scenario.takes(each)]) for scenario, found in scenarios]
    total = sum(_count(scenario, len(takers), effort) for scenario, takers in chosen)
    steps = _Steps(max(total, 1), progress)
    results: list[Result] = []
    for scenario, takers in chosen:
        if scenario.case is None:
            results.append(_backlog(scenario, takers, effort, steps))
        else:
            results.append(_timed(scenario, scenario.case, takers, effort, steps))
    progress(1.0, "done")
    return results
