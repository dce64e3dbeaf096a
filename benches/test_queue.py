"""The queues' scenarios under pytest-benchmark: `pytest benches --benchmark-group-by=group`."""

from __future__ import annotations

import pytest

from .cases import Scenario
from .groups import QUEUE
from .pytest_cases import Benchmark, parameters, run_case, scenario_clock


@pytest.mark.benchmark(timer=scenario_clock)
@pytest.mark.parametrize(("scenario", "size", "name"), parameters(QUEUE))
def test_scenario(benchmark: Benchmark, scenario: Scenario, size: int, name: str) -> None:
    run_case(benchmark, QUEUE, scenario, size, name)
