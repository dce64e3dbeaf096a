"""The bars: what interlock has promised to reach, as ratios within one run."""

from __future__ import annotations

import dataclasses
import sys
import sysconfig
from collections.abc import Callable, Iterable

from .implementations import FUTURES, INNGEST, PURE, RUST, label
from .measure import Result, Spread
from .scenarios import BACKLOG, FAN_OUT, IDLE, OTHERS, SAME, SCENARIOS, TASKS, THREADS


@dataclasses.dataclass(frozen=True)
class Bar:
    """One promise.

    Attributes:
        scenario: Where it is measured.
        implementation: Whose promise it is.
        claim: In words.
        limit: The number.
        at_least: Whether the ratio must reach the limit; else it must not exceed it.
        ratio: Takes the ratio from a result; `None` if something is missing for it.
    """

    scenario: str
    implementation: str
    claim: str
    limit: float
    at_least: bool
    ratio: Callable[[Result], Spread | None]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A bar and what became of it; `measured` is `None` if it was not measured."""

    bar: Bar
    measured: Spread | None

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        if self.bar.at_least:
            return self.measured.median >= self.bar.limit
        return self.measured.median <= self.bar.limit


def _faster(scenario: str, size: int, limit: float, than: str, implementation: str = RUST) -> Bar:
    return Bar(
        scenario,
        implementation,
        f"{size:,}: ≥ {limit:g}× as fast as {label(than)}",
        limit,
        True,
        lambda result: result.ratio((than, size), (implementation, size)),
    )


def _flat(scenario: str, limit: float, what: str) -> Bar:
    return Bar(scenario, RUST, f"{what} within {limit:g}×", limit, False, lambda result: result.growth(RUST))


def _by_version() -> list[Bar]:
    """Those whose numbers depend on the interpreter: fixed for 3.11, 3.13 and 3.14 with the GIL."""
    limits = {(3, 11): (10.0, 2.0), (3, 13): (6.0, 1.8), (3, 14): (8.0, 2.0)}
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    if free_threaded or sys.version_info[:2] not in limits:
        return []
    inngest, futures = limits[sys.version_info[0], sys.version_info[1]]
    return [_faster(FAN_OUT, 1_000, inngest, INNGEST), _faster(FAN_OUT, 1_000, futures, FUTURES)]


def _not_slower() -> list[Bar]:
    """The pure backend is a baseline that must not look better by being slow."""
    return [
        _faster(name, size, 1.0, INNGEST, PURE)
        for name, scenario in SCENARIOS.items()
        if scenario.case is not None
        for size in scenario.sizes
    ]


def bars() -> list[Bar]:
    """All bars that hold for this interpreter. That no chain is broken is no bar: it is checked in each round."""
    return [
        _faster(FAN_OUT, 1, 3.5, INNGEST),
        *_by_version(),
        _faster(FAN_OUT, 10_000, 10.0, INNGEST),
        _flat(IDLE, 1.5, "the cost of a set is flat"),
        _faster(IDLE, 1, 8.0, INNGEST),
        _flat(OTHERS, 2.0, "the cost of a set is flat"),
        _faster(SAME, 4_000, 15.0, INNGEST),
        _flat(SAME, 2.0, "linear in the number: the cost per waiter is flat"),
        # How many at a time is left open by the promise: so it is held for both.
        _faster(TASKS, 1, 3.0, INNGEST),
        _faster(TASKS, 100, 3.0, INNGEST),
        _faster(THREADS, 4, 5.0, INNGEST),
        _flat(BACKLOG, 2.0, "memory does not grow with the subscriptions: the same"),
        *_not_slower(),
    ]


def judge(results: Iterable[Result]) -> list[Verdict]:
    """All bars of the scenarios that were run."""
    by_name = {result.scenario.name: result for result in results}
    return [Verdict(bar, bar.ratio(by_name[bar.scenario])) for bar in bars() if bar.scenario in by_name]
