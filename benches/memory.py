"""What a backlog costs, measured in a process of its own.

`tracemalloc` does not see what Rust allocates, so it is the growth of the
process's resident memory while the backlog is built up. Run as a module it does one
measurement and prints it as JSON; `measure` runs that in a fresh interpreter.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .implementations import CANDIDATES, BufferingFeed

# Seconds. The slowest takes about one; per subscription and thousand transitions it is far less.
_LIMIT = 600.0


@dataclasses.dataclass(frozen=True)
class Backlog:
    """One measurement: resident memory gained, and the time for it."""

    bytes: int
    nanoseconds_per_transition: float


def _resident() -> Callable[[], int]:
    """How to read this process's resident memory in bytes.

    Raises:
        ImportError: Neither /proc nor psutil is there.
    """
    statm = Path("/proc/self/statm")
    if statm.exists():
        page = os.sysconf("SC_PAGE_SIZE")
        return lambda: int(statm.read_bytes().split()[1]) * page
    process = importlib.import_module("psutil").Process()
    return lambda: int(process.memory_info().rss)


def _fill_gaps() -> list[object]:
    """Take up the memory that imports have used and given back, small objects with and without the collector.

    Else a backlog would find room there and seem to cost nothing.
    """
    count = 5_000
    tracked: list[object] = [([],) * length for length in range(1, 17) for _ in range(count)]
    plain: list[object] = [bytes(size) for size in range(1, 240, 16) for _ in range(count)]
    return tracked + plain


async def _grow(name: str, subscriptions: int, transitions: int) -> Backlog:
    resident = _resident()
    feed = CANDIDATES.find(name).make()
    assert isinstance(feed, BufferingFeed)
    held = [feed.subscribe() for _ in range(subscriptions)]
    values = list(range(1_000, 1_000 + transitions))
    gc.collect()
    gc.disable()
    filling = _fill_gaps()
    before = resident()
    start = time.perf_counter_ns()
    for value in values:
        sending = feed.publish(value)
        if sending is not None:
            await sending
        # Inngest's hands a transition to its queues in the loop.
        await asyncio.sleep(0)
    elapsed = time.perf_counter_ns() - start
    gained = resident() - before
    del filling
    if any(subscription.pending() != transitions for subscription in held):
        raise AssertionError("a subscription holds more or fewer transitions than were set")
    feed.close()
    return Backlog(gained, elapsed / transitions)


def measure(name: str, subscriptions: int, transitions: int) -> Backlog:
    """Build up a backlog of `transitions` in `subscriptions` in a fresh interpreter.

    Raises:
        RuntimeError: The measurement failed; the text is what it wrote.
    """
    command = [sys.executable, "-m", __spec__.name, name, str(subscriptions), str(transitions)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the backlog of {name} could not be measured:\n{done.stderr}")
    return Backlog(**json.loads(done.stdout))


if __name__ == "__main__":
    _name, _subscriptions, _transitions = sys.argv[1:]
    print(json.dumps(dataclasses.asdict(asyncio.run(_grow(_name, int(_subscriptions), int(_transitions))))))
