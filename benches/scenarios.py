"""The scenarios of a changing value: what is set up, what is timed, and what is checked outside the timed region."""

from __future__ import annotations

import asyncio
import functools
import itertools

from .candidates import FUTURES, INNGEST
from .cases import Case, Crew, Scenario, settle
from .implementations import INITIAL, BufferingFeed, Feed, Pair

# Seconds, for the waits that have a timeout: the same for all, and never reached.
_TIMEOUT = 60.0

_SETTER_THREADS = 4

BACKLOG_TRANSITIONS = 10_000


class FeedCase(Case[Feed]):
    """A case about one feed."""

    async def _open(self) -> None:
        self._feed = self.implementation.make()

    async def _close(self) -> None:
        await super()._close()
        self._feed.close()

    def _renew(self) -> BufferingFeed:
        """A feed without a past, for one round."""
        self._feed.close()
        self._feed = feed = self.implementation.make()
        assert isinstance(feed, BufferingFeed)
        return feed


async def _parked(feed: Feed, count: int) -> int:
    """Let the loop run until `count` waits are registered; how many ticks that took, at least one."""
    ticks = 0
    while ticks == 0 or feed.waiters != count:
        await asyncio.sleep(0)
        ticks += 1
        if ticks > 10:
            raise AssertionError(f"{feed.waiters} waits are registered, not {count}")
    return ticks


class FanOut(FeedCase):
    """One transition to `size` subscriptions whose readers all wait; per delivery.

    The next set comes when the last reader has the value, so that every round is
    also the proof that every reader got every transition.
    """

    least = 3

    async def _open(self) -> None:
        await super()._open()
        self._latest = [0] * self.size
        self._tasks = [asyncio.create_task(self._feed.follow(self._latest, index)) for index in range(self.size)]
        await settle()

    async def _deliver(self, values: range) -> None:
        publish = self._feed.publish
        latest = self._latest
        size = self.size
        sleep = asyncio.sleep
        for value in values:
            sending = publish(value)
            if sending is not None:
                await sending
            while latest[-1] != value or latest.count(value) != size:
                await sleep(0)

    async def _round(self) -> None:
        await self._deliver(self._values(1))
        values = self._values(self.operations)
        with self._stopwatch.running():
            await self._deliver(values)

    def divisor(self) -> int:
        return self.operations * self.size


class IdleSubscriptions(FeedCase):
    """A set beside `size` subscriptions on which nobody waits; per set.

    Timed is the setter alone. What it leaves to the loop (one callback per
    subscription and set with Inngest's) is done afterwards and not counted.
    """

    most = 2_000

    _READ = 50_000

    async def _burst(self, feed: Feed, values: range) -> None:
        with self._stopwatch.running():
            sending = feed.publish_all(values)
            if sending is not None:
                await sending

    async def _rehearse(self) -> None:
        """The same beside one subscription, and let it go.

        The backlog then finds memory that is mapped and in the caches. Otherwise it would be what
        was done before (the case measured last, the opening of subscriptions) that decides how long a set takes.
        """
        feed = self.implementation.make()
        assert isinstance(feed, BufferingFeed)
        subscription = feed.subscribe()
        await self._burst(feed, self._values(self.operations))
        await settle()
        for _ in range(subscription.pending()):
            subscription.read()
        feed.close()

    async def _round(self) -> None:
        feed = self._renew()
        subscriptions = [feed.subscribe() for _ in range(self.size)]
        await self._rehearse()
        values = self._values(self.operations)
        await self._burst(feed, values)
        await settle()
        if any(subscription.pending() != len(values) for subscription in subscriptions):
            raise AssertionError("a subscription holds more or fewer transitions than were set")
        # All were counted; to read every one of them would take longer than all the rest.
        expected = list(itertools.pairwise((INITIAL, *values)))
        for subscription in subscriptions[:: max(1, self.size * len(values) // self._READ)]:
            if [subscription.read() for _ in values] != expected:
                raise AssertionError("a subscription holds other transitions than were set")


class OtherWaiters(FeedCase):
    """A set beside `size` waits for other values; per set.

    Timed are a burst of sets and what the loop then has to do until nothing is
    left: an implementation that wakes every waiter to let it look pays for that here.
    """

    async def _open(self) -> None:
        await super()._open()
        # Negative values are never set.
        self._tasks = [asyncio.create_task(self._feed.wait_for(-1 - index, None)) for index in range(self.size)]
        await _parked(self._feed, self.size)

    async def _round(self) -> None:
        values = self._values(self.operations)
        with self._stopwatch.running():
            sending = self._feed.publish_all(values)
            if sending is not None:
                await sending
            await settle()
        if self._feed.waiters != self.size or any(task.done() for task in self._tasks):
            raise AssertionError("a wait for another value ended")


class SameWaiters(FeedCase):
    """`size` waits for one value: the set, the wake-ups and the leaving; per wait.

    Making and registering the waits is not timed.
    """

    most = 1

    async def _round(self) -> None:
        feed, sleep = self._feed, asyncio.sleep
        (value,) = self._values(1)
        tasks = [asyncio.create_task(feed.wait_for(value, None)) for _ in range(self.size)]
        await _parked(feed, self.size)
        with self._stopwatch.running():
            sending = feed.publish(value)
            if sending is not None:
                await sending
            while not all(task.done() for task in reversed(tasks)):
                await sleep(0)
        if any(task.result() != value for task in tasks):
            raise AssertionError("a wait returned another value than it waited for")
        if feed.waiters:
            raise AssertionError(f"{feed.waiters} waits were left behind")

    def divisor(self) -> int:
        return self.operations * self.size


class TaskWaits(FeedCase):
    """`create_task(wait_for(v, timeout=…))` for `size` tasks, then the set that satisfies them; per task.

    One at a time, the loop's own rounds are a large part of it, for everybody; a hundred share them.
    Each implementation gets the ticks that it needs to be waiting (one, but two for those that go
    through `asyncio.wait_for` with a coroutine before Python 3.12).
    """

    async def _open(self) -> None:
        await super()._open()
        (value,) = self._values(1)
        tasks = [asyncio.create_task(self._feed.wait_for(value, _TIMEOUT)) for _ in range(self.size)]
        self._ticks = await _parked(self._feed, self.size)
        sending = self._feed.publish(value)
        if sending is not None:
            await sending
        await asyncio.gather(*tasks)

    async def _round(self) -> None:
        values = self._values(self.operations)
        batch, ticks = range(self.size), range(self._ticks)
        create_task, sleep = asyncio.create_task, asyncio.sleep
        wait_for, publish = self._feed.wait_for, self._feed.publish
        returned: list[int] = []
        with self._stopwatch.running():
            for value in values:
                tasks = [create_task(wait_for(value, _TIMEOUT)) for _ in batch]
                for _ in ticks:
                    await sleep(0)
                sending = publish(value)
                if sending is not None:
                    await sending
                for task in tasks:
                    returned.append(await task)
        if returned != [value for value in values for _ in batch]:
            raise AssertionError("a wait returned another value than it waited for")
        if self._feed.waiters:
            raise AssertionError(f"{self._feed.waiters} waits were left behind")

    def divisor(self) -> int:
        return self.operations * self.size


class Threads(FeedCase):
    """`size` threads that set, one loop that reads; per transition, from the start until the last is read."""

    least = 200
    most = 5_000

    async def _round(self) -> None:
        feed = self._renew()
        values = self._values(self.size * self.operations)
        pairs: list[Pair] = []
        reader = asyncio.create_task(feed.collect(pairs, len(values)))
        await settle()
        setters = Crew(
            [functools.partial(feed.publish_from_thread, values[number :: self.size]) for number in range(self.size)]
        )
        with self._stopwatch.running():
            setters.start()
            await reader
        setters.join()
        if sorted(new for _, new in pairs) != list(values):
            raise AssertionError("other transitions were read than were set")
        broken = sum(before[1] != after[0] for before, after in itertools.pairwise(pairs))
        if broken and feed.ordered_across_threads:
            raise AssertionError(f"{broken} of {len(pairs)} transitions do not begin where the one before ended")
        self.broken += broken
        self.chained += len(pairs)

    def divisor(self) -> int:
        return self.size * self.operations


FAN_OUT = "fan-out"
IDLE = "idle"
OTHERS = "others"
SAME = "same"
TASKS = "tasks"
THREADS = "threads"
BACKLOG = "backlog"

_REFERENCES = (INNGEST, FUTURES)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            FAN_OUT,
            "one transition to {n} waiting subscriptions",
            "delivery",
            (1, 1_000, 10_000),
            (1, 1_000),
            FanOut,
            Feed,
            _REFERENCES,
        ),
        Scenario(
            IDLE,
            "set with {n} idle subscriptions",
            "set",
            (1, 100, 10_000),
            (1, 100, 10_000),
            IdleSubscriptions,
            BufferingFeed,
            _REFERENCES,
            flat=True,
        ),
        Scenario(
            OTHERS,
            "set with {n} waiters for other values",
            "set",
            (10, 1_000, 10_000),
            (10, 1_000),
            OtherWaiters,
            Feed,
            _REFERENCES,
            flat=True,
        ),
        Scenario(
            SAME,
            "{n} waiters for one value: set, wake and leave",
            "waiter",
            (1_000, 4_000, 8_000),
            (1_000, 4_000),
            SameWaiters,
            Feed,
            _REFERENCES,
            flat=True,
        ),
        Scenario(
            TASKS,
            "create_task(wait_for(v, timeout=…)), satisfied, {n} at a time",
            "task",
            (1, 100),
            (1, 100),
            TaskWaits,
            Feed,
            _REFERENCES,
        ),
        Scenario(
            THREADS,
            "{n} threads setting, one loop reading",
            "transition",
            (_SETTER_THREADS,),
            (_SETTER_THREADS,),
            Threads,
            BufferingFeed,
            _REFERENCES,
        ),
        Scenario(
            BACKLOG,
            f"backlog of {BACKLOG_TRANSITIONS:,} transitions in {{n}} subscriptions",
            "backlog",
            (1, 1_000),
            (1, 100),
            None,
            BufferingFeed,
            _REFERENCES,
            flat=True,
        ),
    )
}
