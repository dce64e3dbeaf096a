"""The bars: what interlock has promised to reach, as ratios within one run."""

from __future__ import annotations

import dataclasses
import sys
import sysconfig
from collections.abc import Callable, Iterable

from . import queue_scenarios, scenarios
from .candidates import AIOLOGIC, ASYNCIO, CALL_SOON, CULSANS, FUTURES, INNGEST, JANUS, PURE, QUEUE, RUST, SIMPLE, label
from .measure import Result, Spread
from .queue_scenarios import (
    AWAIT,
    CANCEL,
    CANCEL_SHUFFLED,
    HAND_OVER,
    NOWAIT,
    PING_PONG,
    PRIORITY,
    TO_LOOP,
    TO_THREADS,
    WORKERS,
)
from .scenarios import BACKLOG, FAN_OUT, IDLE, OTHERS, SAME, TASKS, THREADS

_SCENARIOS = {**scenarios.SCENARIOS, **queue_scenarios.SCENARIOS}

_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


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


def _sized(scenario: str, size: int) -> str:
    """The size, where a bar has to tell it."""
    return f"{size:,}: " if "{n}" in _SCENARIOS[scenario].title else ""


def _faster(
    scenario: str, size: int, limit: float, than: str, implementation: str = RUST, *, called: str | None = None
) -> Bar:
    return Bar(
        scenario,
        implementation,
        f"{_sized(scenario, size)}≥ {limit:g}× as fast as {called or label(than)}",
        limit,
        True,
        lambda result: result.ratio((than, size), (implementation, size)),
    )


def _at_most(scenario: str, size: int, limit: float, of: str) -> Bar:
    return Bar(
        scenario,
        RUST,
        f"{_sized(scenario, size)}≤ {limit:g}× the time of {label(of)}",
        limit,
        False,
        lambda result: result.ratio((RUST, size), (of, size)),
    )


def _flat(scenario: str, limit: float, what: str) -> Bar:
    return Bar(scenario, RUST, f"{what} within {limit:g}×", limit, False, lambda result: result.growth(RUST))


def _scaling(scenario: str, few: int, many: int, limit: float) -> Bar:
    return Bar(
        scenario,
        RUST,
        f"from {few} to {many}: throughput changes by ≥ {limit:g}×",
        limit,
        True,
        lambda result: result.scaling(RUST, few, many),
    )


def _scaling_beside(scenario: str, few: int, many: int, limit: float, other: str) -> Bar:
    return Bar(
        scenario,
        RUST,
        f"from {few} to {many}: throughput changes by ≥ {limit:g}× what {label(other)}'s does",
        limit,
        True,
        lambda result: result.scaling_beside(RUST, other, few, many),
    )


def _by_version() -> list[Bar]:
    """Those whose numbers depend on the interpreter: fixed for 3.11, 3.13 and 3.14 with the GIL."""
    limits = {(3, 11): (10.0, 2.0), (3, 13): (6.0, 1.8), (3, 14): (8.0, 2.0)}
    if _FREE_THREADED or sys.version_info[:2] not in limits:
        return []
    inngest, futures = limits[sys.version_info[0], sys.version_info[1]]
    return [_faster(FAN_OUT, 1_000, inngest, INNGEST), _faster(FAN_OUT, 1_000, futures, FUTURES)]


def _not_slower() -> list[Bar]:
    """The pure backend is a baseline that must not look better by being slow."""
    return [
        _faster(name, size, 1.0, INNGEST, PURE)
        for name, scenario in scenarios.SCENARIOS.items()
        if scenario.case is not None
        for size in scenario.sizes
    ]


def watcher_bars() -> list[Bar]:
    """Those of the watchers. That no chain is broken is no bar: it is checked in each round."""
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


def queue_bars() -> list[Bar]:
    """Those of the queues: fixed for 3.11 and 3.14 with the GIL, and for threads without it."""
    if _FREE_THREADED:
        return [
            _faster(TO_THREADS, 4, 1.0, QUEUE),
            _scaling(TO_THREADS, 1, 4, 1.0),
            _scaling_beside(TO_THREADS, 1, 4, 1.0, QUEUE),
        ]
    awaiting = {(3, 11): 2.0, (3, 14): 1.6}.get((sys.version_info[0], sys.version_info[1]))
    if awaiting is None:
        return []
    return [
        _faster(NOWAIT, 1, 5.0, ASYNCIO),
        _at_most(NOWAIT, 1, 1.6, SIMPLE),
        _faster(AWAIT, 1, awaiting, ASYNCIO),
        _faster(AWAIT, 1, 5.0, JANUS),
        # Through one queue or through two, and how many at a time, is left open by the promise: so it is held for all.
        *(_faster(scenario, size, 1.6, ASYNCIO) for scenario in (HAND_OVER, PING_PONG) for size in (1, 100)),
        _faster(WORKERS, 10, 2.0, ASYNCIO),
        _faster(TO_LOOP, 100_000, 3.0, JANUS),
        _faster(TO_LOOP, 100_000, 4.0, CULSANS),
        _faster(TO_LOOP, 100_000, 1.0, AIOLOGIC, called="aiologic's SimpleQueue"),
        _faster(TO_LOOP, 100_000, 8.0, CALL_SOON),
        _faster(PRIORITY, 10_000, 2.0, ASYNCIO),
        # So is the order in which they are cancelled. In their own, the standard library's is linear too, and half of
        # its time is what asyncio takes to end a cancelled task. In another, ten times as many tasks are no longer in
        # the caches, which costs those that await a bare future twice the time each; what is quadratic costs ten times.
        _flat(CANCEL, 2.0, "linear in the number: the cost per getter is flat"),
        _faster(CANCEL, 10_000, 5.0, ASYNCIO),
        _flat(CANCEL_SHUFFLED, 4.0, "linear in the number: the cost per getter is flat"),
        _faster(CANCEL_SHUFFLED, 10_000, 5.0, ASYNCIO),
    ]


def judge(bars: Iterable[Bar], results: Iterable[Result]) -> list[Verdict]:
    """Those of the bars whose scenarios were run."""
    by_name = {result.scenario.name: result for result in results}
    return [Verdict(bar, bar.ratio(by_name[bar.scenario])) for bar in bars if bar.scenario in by_name]
