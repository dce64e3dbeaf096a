"""The groups of scenarios: each has its own candidates and bars, all share the way of measuring."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from . import bars, implementations, queue_scenarios, queues, scenarios
from .candidates import Candidates
from .cases import Scenario


@dataclasses.dataclass(frozen=True)
class Group:
    """Scenarios that the same implementations take part in.

    Attributes:
        name: For the command line.
        scenarios: By name; no two groups have one of the same name.
        candidates: Who takes part.
        bars: What has been promised, for this interpreter.
    """

    name: str
    scenarios: Mapping[str, Scenario]
    candidates: Candidates[Any]
    bars: Callable[[], list[bars.Bar]]


WATCHER = Group("watcher", scenarios.SCENARIOS, implementations.CANDIDATES, bars.watcher_bars)
QUEUE = Group("queue", queue_scenarios.SCENARIOS, queues.CANDIDATES, bars.queue_bars)

GROUPS = {group.name: group for group in (WATCHER, QUEUE)}
