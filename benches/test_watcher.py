"""The scenarios under pytest-benchmark: `pytest benches --benchmark-group-by=group`.

The ratios of the bars come from `python -m benches.run`, which interleaves the
rounds of all implementations; pytest-benchmark runs one case after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from .implementations import NAMES, Implementation, find
from .measure import QUICK
from .memory import measure
from .scenarios import BACKLOG_TRANSITIONS, SCENARIOS, Scenario


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
    return Clock.seconds


PARAMETERS = [
    pytest.param(scenario, size, name, id=f"{scenario.name}-{size}-{name}")
    for scenario in SCENARIOS.values()
    for size in QUICK.sizes(scenario)
    for name in NAMES
]


def _implementation(name: str) -> Implementation:
    try:
        return find(name)
    except ImportError as error:
        pytest.skip(f"left out: {error}")


# frequenz-channels makes its own channels by a class that it has deprecated.
@pytest.mark.filterwarnings("ignore:Please use BroadcastChannel:DeprecationWarning")
@pytest.mark.benchmark(timer=scenario_clock)
@pytest.mark.parametrize(("scenario", "size", "name"), PARAMETERS)
def test_scenario(benchmark: Benchmark, scenario: Scenario, size: int, name: str) -> None:
    implementation = _implementation(name)
    if not scenario.takes(implementation):
        pytest.skip("it holds nothing for a consumer that does not wait")
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
        benchmark.extra_info["broken_chains"] = case.broken
    finally:
        case.close()
