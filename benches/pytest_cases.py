"""A group's scenarios under pytest-benchmark: one test for each case, on the clock of the scenario.

The ratios of the bars come from `python -m benches.run`, which interleaves the
rounds of all implementations; pytest-benchmark runs one case after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from .candidates import Implementation
from .cases import Scenario
from .groups import Group
from .measure import QUICK
from .memory import measure
from .scenarios import BACKLOG_TRANSITIONS


class Benchmark(Protocol):
    """What is used of pytest-benchmark's fixture."""

    group: str | None
    extra_info: dict[str, Any]

    def pedantic(self, target: Callable[[], None], *, rounds: int = 1, warmup_rounds: int = 0) -> None: ...


class Clock:
    """Goes on only by what a scenario has measured, per unit.

    With it pytest-benchmark shows what the scenario times, without the set-up and the checks of a round.
    """

    seconds = 0.0

    @classmethod
    def add(cls, nanoseconds: float) -> None:
        cls.seconds += nanoseconds * 1e-9


def scenario_clock() -> float:
    """The timer for pytest-benchmark."""
    return Clock.seconds


def parameters(group: Group) -> list[Any]:
    """A scenario, a size and an implementation's name for each test."""
    return [
        pytest.param(scenario, size, name, id=f"{scenario.name}-{size}-{name}")
        for scenario in group.scenarios.values()
        for size in QUICK.sizes(scenario)
        for name in group.candidates.names
    ]


def _implementation(group: Group, scenario: Scenario, name: str) -> Implementation[Any]:
    try:
        implementation = group.candidates.find(name)
    except ImportError as error:
        pytest.skip(f"left out: {error}")
    if not scenario.takes(implementation):
        pytest.skip(f"{implementation.label} cannot take part: {scenario.needs.__doc__}")
    return implementation


def run_case(benchmark: Benchmark, group: Group, scenario: Scenario, size: int, name: str) -> None:
    """Measure one case; skip it if the implementation is not installed or cannot take part."""
    implementation = _implementation(group, scenario, name)
    benchmark.group = f"{scenario.titled(size)}, per {scenario.unit}"
    benchmark.extra_info["version"] = implementation.version

    if scenario.case is None:

        def build_up() -> None:
            backlog = measure(name, size, BACKLOG_TRANSITIONS)
            benchmark.extra_info["resident_bytes"] = backlog.bytes
            Clock.add(backlog.nanoseconds_per_transition)

        benchmark.pedantic(build_up, rounds=1)
        return

    case = scenario.case(implementation, size)
    try:
        case.calibrate(QUICK.nanoseconds)
        benchmark.pedantic(lambda: Clock.add(case.round()), rounds=QUICK.rounds, warmup_rounds=1)
        if case.chained:
            benchmark.extra_info["broken_chains"] = case.broken
    finally:
        case.close()
