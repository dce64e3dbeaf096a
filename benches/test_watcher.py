"""The watchers' scenarios under pytest-benchmark: `pytest benches --benchmark-group-by=group`."""

from __future__ import annotations

import pytest

from .cases import Scenario
from .groups import WATCHER
from .pytest_cases import Benchmark, parameters, run_case, scenario_clock


# frequenz-channels makes its own channels by a class that it has deprecated.
@pytest.mark.filterwarnings("ignore:Please use BroadcastChannel:DeprecationWarning")
@pytest.mark.benchmark(timer=scenario_clock)
@pytest.mark.parametrize(("scenario", "size", "name"), parameters(WATCHER))
def test_scenario(benchmark: Benchmark, scenario: Scenario, size: int, name: str) -> None:
    run_case(benchmark, WATCHER, scenario, size, name)
