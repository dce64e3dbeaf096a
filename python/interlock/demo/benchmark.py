"""Part 4: a short benchmark. Interleaved rounds, medians, ratios; the full one is in `benches/`."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from interlock.demo import runner
from interlock.demo.console import Progress, bold, heading, say
from interlock.demo.contenders import Contender, Get, contenders

CONSUMERS = 1000
ROUNDS = 11
SECONDS = 40.0

Measure = Callable[[Contender], Awaitable[float]]
Results = Mapping[str, Mapping[str, float]]


async def settle() -> None:
    """Let every wake-up through; the slowest contender needs two ticks for one."""
    for _ in range(3):
        await asyncio.sleep(0)


async def fan_out(contender: Contender) -> float:
    """Seconds per delivery of one transition to consumers that all wait for it."""
    transitions = 10
    arrived = 0

    async def consume(get: Get) -> None:
        for _ in range(transitions):
            await get()

    async def consume_and_count(get: Get) -> None:
        nonlocal arrived
        for _ in range(transitions):
            await get()
            arrived += 1

    tasks = [asyncio.create_task(consume(contender.subscribe())) for _ in range(CONSUMERS - 1)]
    # Woken in order, the last one's delivery is everybody's.
    tasks.append(asyncio.create_task(consume_and_count(contender.subscribe())))
    await settle()
    started = time.perf_counter()
    for number in range(1, transitions + 1):
        contender.set(number)
        while arrived < number:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return (time.perf_counter() - started) / (transitions * CONSUMERS)


async def idle_subscriptions(contender: Contender) -> float:
    """Seconds per set while subscriptions are open that nobody is reading."""
    subscriptions = [contender.subscribe() for _ in range(CONSUMERS)]
    sets = 20
    started = time.perf_counter()
    for number in range(1, sets + 1):
        contender.set(number)
    elapsed = time.perf_counter() - started
    # Checks that it was all held, and keeps the subscriptions open until here.
    for get in subscriptions:
        await get()
    return elapsed / sets


async def waiters_for_other_values(contender: Contender) -> float:
    """Seconds per set, with whatever it wakes, while others wait for values that do not come."""
    tasks = [asyncio.create_task(contender.wait_for(-number)) for number in range(1, CONSUMERS + 1)]
    await settle()
    sets = 20
    started = time.perf_counter()
    for number in range(1, sets + 1):
        contender.set(number)
    await settle()
    elapsed = time.perf_counter() - started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return elapsed / sets


async def waiters_for_one_value(contender: Contender) -> float:
    """Seconds per waiter for one set that satisfies all of them: wake and leave."""
    tasks = [asyncio.create_task(contender.wait_for(1)) for _ in range(CONSUMERS)]
    await settle()
    started = time.perf_counter()
    contender.set(1)
    await asyncio.gather(*tasks)
    return (time.perf_counter() - started) / CONSUMERS


SCENARIOS: dict[str, Measure] = {
    f"1 set to {CONSUMERS:,} readers, each": fan_out,
    f"set, {CONSUMERS:,} idle subscribed": idle_subscriptions,
    f"set, {CONSUMERS:,} other waiters": waiters_for_other_values,
    f"1 set, {CONSUMERS:,} waiters, each": waiters_for_one_value,
}

# A future holds nothing for a reader who is away and does not know who waits for what.
NOT_COMPARABLE = {("futures", idle_subscriptions), ("futures", waiters_for_other_values)}


def once(measure: Measure, make: Callable[[], Contender]) -> float:
    async def main() -> float:
        return await measure(make())

    gc.collect()
    gc.disable()
    try:
        return runner.run(main())
    finally:
        gc.enable()


def measure_all(rounds: int) -> tuple[Results, int]:
    """Medians in seconds, by scenario and contender, and of how many rounds. Every round runs everything once."""
    pairs = [
        (scenario, measure, name, make)
        for scenario, measure in SCENARIOS.items()
        for name, make in contenders().items()
        if (name, measure) not in NOT_COMPARABLE
    ]
    samples: dict[str, dict[str, list[float]]] = {scenario: {} for scenario in SCENARIOS}
    deadline = time.monotonic() + SECONDS
    done = 0
    with Progress(rounds * len(pairs)) as progress:
        while done < rounds and time.monotonic() < deadline:
            done += 1
            for scenario, measure, name, make in pairs:
                samples[scenario].setdefault(name, []).append(once(measure, make))
                progress.advance(f"{name}: {scenario}")
    medians = {
        scenario: {name: statistics.median(seconds) for name, seconds in by_name.items()}
        for scenario, by_name in samples.items()
    }
    return medians, done


def table(results: Results, names: Sequence[str]) -> str:
    """Microseconds, then how many times the first contender's time the others take."""
    width = 9
    first = names[0]

    def row(label: str, cells: Sequence[str]) -> str:
        return f"{label:<31}" + "".join(f"{cell:>{width}}" for cell in cells)

    def scaled(seconds: float | None, unit: float) -> str:
        if seconds is None:
            return "-"
        number = seconds / unit
        return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"

    lines = [bold(row("microseconds", names))]
    for scenario, by_name in results.items():
        lines.append(row(scenario, [scaled(by_name.get(name), 1e-6) for name in names]))
    lines += ["", bold(row(f"times as long as {first}", names))]
    for scenario, by_name in results.items():
        lines.append(row(scenario, [scaled(by_name.get(name), by_name[first]) for name in names]))
    return "\n".join(lines)


def run(rounds: int = ROUNDS) -> Results:
    """Run part 4 and print its tables."""
    heading("4. What it costs")
    names = list(contenders())
    if "rust" not in names:
        say("The Rust backend is not built for this interpreter, so this is the pure one.")
        say("A wheel has it; in a clone `make demo` builds it (with maturin).")
    if "Inngest" not in names:
        say("Inngest's class joins in after `pip install 'inngest[connect]'`.")
    say("queues: one asyncio.Queue per consumer. futures: bare futures, which lose what")
    say("comes between two waits.")
    say()
    results, done = measure_all(rounds)
    say(table(results, names))
    say()
    say(f"Medians of {done} interleaved rounds on a machine that may be busy.")
    return results
