"""Part 3: work at a deadline, from another thread, and when everything has to stop at once.

`asyncio.Queue` as it is usually used, and `interlock.Queue`. What the former loses
depends on the version of Python and is only reported; the latter must lose nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from interlock import Queue, QueueShutDown, QueueStatistics
from interlock.demo import runner
from interlock.demo.console import bad, bold, good, heading, say

TIMEOUT_SECONDS = 20.0
DEADLINE_SECONDS = 0.002
CONSUMERS = 4
CANCELLATIONS = 20
TIMER_SECONDS = 0.5
WORKERS, PLACES, PRODUCERS = 2, 4, 3

T = TypeVar("T")
Get = Callable[[Any, float], Coroutine[Any, Any, int]]
STOPS = ("flag, cancel()", "shutdown(True)", "abort()")


@dataclasses.dataclass
class Arrivals:
    """What came of items put near the consumers' deadline, and of consumers cancelled as their item came."""

    put: int = 0
    received: int = 0
    lost: int = 0
    went_on: int = 0

    def add(self, put: int, received: list[int]) -> None:
        self.put += put
        self.received += len(received)
        self.lost += put - len(set(received))


@dataclasses.dataclass
class Crossing:
    """An item on its way from a thread to a task."""

    milliseconds: float
    by_timer: bool


@dataclasses.dataclass
class Stopped:
    """By what became of it, every item whose `put` began; and who was still blocked after the stop."""

    offered: list[int] = dataclasses.field(default_factory=list)
    accepted: list[int] = dataclasses.field(default_factory=list)
    taken: list[int] = dataclasses.field(default_factory=list)
    done: list[int] = dataclasses.field(default_factory=list)
    returned: list[int] = dataclasses.field(default_factory=list)
    refused: list[int] = dataclasses.field(default_factory=list)
    still_queued: int = 0
    blocked: int = 0
    joined: bool = False
    statistics: QueueStatistics | None = None

    @property
    def lost(self) -> int:
        return len(set(self.offered).difference(self.done, self.returned, self.refused)) - self.still_queued


@dataclasses.dataclass
class Report:
    """What came of it all, in the order of the table's columns: asyncio's, and interlock's last."""

    arrivals: tuple[Arrivals, None, Arrivals]
    crossings: tuple[Crossing, None, Crossing]
    stops: tuple[Stopped, Stopped | None, Stopped]  # by STOPS; shutdown() came with Python 3.13

    @property
    def faults(self) -> list[str]:
        """What interlock lost, repeated, miscounted or left blocked; empty if all is well."""
        near, end = self.arrivals[-1], self.stops[-1]
        ends = sorted(end.done + end.returned + end.refused)
        sums = QueueStatistics(0, 0, len(end.accepted), len(end.taken), len(end.returned), 0, 0, 0)
        checks = {
            f"lost, repeated or not cancelled: {near}": near == Arrivals(near.put, near.put),
            f"put: {end.offered}, accounted for: {ends}": ends == end.offered,
            f"accepted: {end.accepted}, taken: {end.taken}": end.accepted == end.taken + end.returned,
            f"{end.blocked} tasks left blocked": end.blocked == 0,
            "join() did not return": end.joined,
            f"{end.statistics}, but it was {sums}": end.statistics == sums,
        }
        return [fault for fault, well in checks.items() if not well]


async def settle() -> None:
    """Let everything happen that needs no timer; `asyncio.wait_for` takes several ticks."""
    for _ in range(10):
        await asyncio.sleep(0)


async def cancel(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:  # some go on at the first time
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=DEADLINE_SECONDS)


async def arrive(make: Callable[[], Any], get: Get, items: int) -> Arrivals:
    """Put items at intervals about as long as the consumers' timeout, then one as its consumer is cancelled."""
    result, queue, finished = Arrivals(), make(), False
    received: list[int] = []

    async def consume(timeout: float) -> None:
        while not (finished and queue.empty()):
            try:
                received.append(await get(queue, timeout))
            except asyncio.TimeoutError:
                pass

    consumers = [asyncio.create_task(consume(DEADLINE_SECONDS)) for _ in range(CONSUMERS)]
    for item in range(items):
        await asyncio.sleep(DEADLINE_SECONDS * (0.9 + item % 11 / 50))
        queue.put_nowait(item)
    finished = True
    await asyncio.gather(*consumers)
    result.add(items, received)
    finished = False
    for _ in range(CANCELLATIONS):
        received.clear()
        consumer = asyncio.create_task(consume(TIMEOUT_SECONDS))
        await settle()
        queue.put_nowait(0)
        consumer.cancel()
        await settle()
        result.went_on += not consumer.done()
        await cancel({consumer})
        result.add(1, received + [queue.get_nowait() for _ in range(queue.qsize())])
    return result


async def cross(make: Callable[[], Any]) -> Crossing:
    """Put an item from a thread while the loop sleeps, with nothing else to wake it but a timer."""
    loop, queue, started = asyncio.get_running_loop(), make(), 0.0
    # asyncio's debug mode refuses such a put half-way, and the getter is stuck for good.
    loop.set_debug(False)

    def put() -> None:
        nonlocal started
        time.sleep(TIMER_SECONDS / 10)  # until the loop sleeps
        started = time.perf_counter()
        queue.put_nowait(0)

    thread = threading.Thread(target=put, name="producer", daemon=True)
    timer = loop.call_later(TIMER_SECONDS, int)
    thread.start()
    try:
        await queue.get()
        return Crossing((time.perf_counter() - started) * 1e3, loop.time() >= timer.when())
    finally:
        timer.cancel()
        thread.join()


async def stop_at_once(
    make: Callable[[int], Any], stop: Callable[[Any], list[int]] | None, patience: float = 5
) -> Stopped:
    """Stop with the queue full, all workers at an item and all producers blocked; `None`: by a flag and `cancel()`."""
    result, queue, numbers = Stopped(), make(PLACES), itertools.count()
    flag, finish = asyncio.Event(), asyncio.Event()

    async def produce() -> None:
        while not flag.is_set():
            result.offered.append(item := next(numbers))
            try:
                await queue.put(item)
            except QueueShutDown:
                result.refused.append(item)
                return
            result.accepted.append(item)

    async def work() -> None:
        while not flag.is_set():
            try:
                item = await queue.get()
            except QueueShutDown:
                return
            result.taken.append(item)
            try:
                await finish.wait()
                result.done.append(item)
            finally:
                queue.task_done()

    workers = {asyncio.create_task(work()) for _ in range(WORKERS)}
    producers = {asyncio.create_task(produce()) for _ in range(PRODUCERS)}
    await settle()
    joiner = asyncio.create_task(queue.join())
    await settle()
    if stop is not None:
        result.returned = stop(queue)
    else:
        flag.set()
        for worker in workers:
            worker.cancel()
    finish.set()
    _, left = await asyncio.wait({*workers, *producers, joiner}, timeout=patience)
    result.joined = joiner not in left
    result.blocked = len(left - {joiner})
    result.still_queued = queue.qsize()
    result.statistics = queue.statistics() if isinstance(queue, Queue) else None
    await cancel(left)
    return result


def measure(items: int) -> Report:
    def timed(main: Coroutine[Any, Any, T]) -> T:
        return runner.run(main, TIMEOUT_SECONDS)

    return Report(
        (
            timed(arrive(asyncio.Queue, lambda queue, seconds: asyncio.wait_for(queue.get(), seconds), items)),
            None,
            timed(arrive(Queue, lambda queue, seconds: queue.get(timeout=seconds), items)),
        ),
        (timed(cross(asyncio.Queue)), None, timed(cross(Queue))),
        (
            # Who is blocked for good takes all of the patience, who is not takes none of it.
            timed(stop_at_once(asyncio.Queue, None, patience=0.3)),
            timed(stop_at_once(asyncio.Queue, lambda queue: queue.shutdown(immediate=True) or []))
            if hasattr(asyncio.Queue, "shutdown")
            else None,
            timed(stop_at_once(Queue, Queue.abort)),
        ),
    )


def table(report: Report) -> str:
    def title(*cells: str) -> str:
        return bold("{:<32}{:>16}{:>16}{:>16}".format(*cells))

    def row(label: str, results: Sequence[object], name: str, wanted: object = None) -> str:
        line = f"  {label:<30}"
        for result in results:
            value = getattr(result, name, "")
            if isinstance(value, bool):
                text = "yes" if value else "no"
            elif isinstance(value, float):
                text = f"{value:,.1f} ms"
            else:
                text = str(len(value) if isinstance(value, list) else value)
            colour = str if wanted is None or result is None else good if value == wanted else bad
            line += colour(f"{text:>16}")
        return line

    return "\n".join(
        [
            title("", "asyncio.Queue", "", "interlock.Queue"),
            title(f"get, at most {DEADLINE_SECONDS * 1e3:.0f} ms: by", "wait_for()", "", "timeout="),
            row("items put", report.arrivals, "put"),
            row("items received", report.arrivals, "received"),
            row("items lost", report.arrivals, "lost", 0),
            row(f"of {CANCELLATIONS} cancelled, went on", report.arrivals, "went_on", 0),
            bold("a thread puts, a task waits"),
            row("in the task after", report.crossings, "milliseconds"),
            row("only a timer woke the loop", report.crossings, "by_timer", False),
            title("stop at once: by", *STOPS),
            row("items that were to be put", report.stops, "offered"),
            row("done by a worker", report.stops, "done"),
            row("refused to their producers", report.stops, "refused"),
            row("returned by the stop", report.stops, "returned"),
            row("still in the queue", report.stops, "still_queued"),
            row("unaccounted for", report.stops, "lost", 0),
            row("tasks left blocked", report.stops, "blocked", 0),
            row("join() returned", report.stops, "joined", True),
        ]
    )


def run(items: int = 300) -> Report | None:
    """Run part 3 and print its table; `None` if it was not finished in time."""
    heading("3. Which work gets lost?")
    say(f"Items come as {CONSUMERS} consumers' time is up, or as a consumer is cancelled. A thread")
    say(f"puts an item while the loop sleeps. Everything stops at once, with {PLACES} items in a")
    say(f"full queue, {WORKERS} in work and {PRODUCERS} producers blocked.")
    say()
    try:
        report = measure(items)
    except asyncio.TimeoutError:
        say(bad(f"Not finished within {TIMEOUT_SECONDS:.0f} s."))
        return None
    say(table(report))
    say()
    if report.arrivals[0].went_on:
        say("wait_for() of this Python swallows a cancellation that comes with the item.")
    if report.stops[1] is None:
        say("asyncio.Queue.shutdown() came with Python 3.13; it does not tell what it drops.")
    else:
        say("shutdown(True) does not tell what it drops. In one loop, get_nowait() until the")
        say("queue is empty, just before it, would.")
    say("abort() returns it, and may be called from any thread.")
    for fault in report.faults:
        say(bad(f"  {fault}"))
    return report
