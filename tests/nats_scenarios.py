"""What programs do with `nats-py`, whose subscriptions are asyncio queues; each with the messages that it must see.

Nothing in here knows whose queues they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from helpers import LIMIT, ticks

nats: Any = pytest.importorskip("nats", reason="needs 'nats-py'")
errors: Any = pytest.importorskip("nats.errors")
api: Any = pytest.importorskip("nats.js.api")

Scenario = Callable[["Client"], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    scenario: Scenario
    expected: object


CASES: list[Case] = []
COUNT = 200
ALL = list(range(COUNT))

# Streams outlive a connection.
_names = (f"N{number}" for number in itertools.count())


def sees(expected: object) -> Callable[[Scenario], Scenario]:
    def register(scenario: Scenario) -> Scenario:
        CASES.append(Case(scenario, expected))
        return scenario

    return register


class Client:
    """A connection, and the kinds of the errors that it has told of."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.reconnects: asyncio.Queue[None] = asyncio.Queue()
        self.connection: Any = None

    async def _on_error(self, error: Exception) -> None:
        self.errors.append(type(error).__name__)

    async def _on_reconnect(self) -> None:
        self.reconnects.put_nowait(None)

    async def open(self, url: str) -> None:
        self.connection = await nats.connect(
            url, error_cb=self._on_error, reconnected_cb=self._on_reconnect, reconnect_time_wait=0
        )

    async def publish(self, subject: str, numbers: Any, reply: str = "") -> None:
        for number in numbers:
            await self.connection.publish(subject, str(number).encode(), reply)

    async def settle(self) -> None:
        """Until all that was published has come to its subscriptions.

        By a message that comes behind it. The client's own `flush` does not do: its PING is written at once,
        ahead of messages that wait for the flusher.
        """
        last: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inbox = self.connection.new_inbox()
        subscription = await self.connection.subscribe(inbox, future=last)
        await self.connection.publish(inbox)
        await last
        await subscription.unsubscribe()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = Client()
    await client.open(url)
    try:
        yield client
    finally:
        await client.connection.close()


def number(message: Any) -> int:
    return int(message.data)


class Collector:
    """A callback that keeps the numbers of its messages, and can be waited for."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._more = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.numbers.append(number(message))
        self._more.set()

    async def until(self, count: int) -> list[int]:
        while len(self.numbers) < count:
            self._more.clear()
            await self._more.wait()
        return self.numbers


def collecting() -> tuple[Collector, Any]:
    """A collector, and the coroutine function that `subscribe` wants."""
    collector = Collector()

    async def callback(message: Any) -> None:
        await collector(message)

    return collector, callback


@sees({"one": ALL, "another": ALL, "wildcard": ALL, "group": ALL})
async def subscribers_with_callbacks(client: Client) -> object:
    found: dict[str, list[int]] = {}
    collectors = {}
    for name, subject in (("one", "a.b"), ("another", "a.b"), ("wildcard", "a.*")):
        collectors[name], callback = collecting()
        await client.connection.subscribe(subject, cb=callback)
    # Each message of these goes to one of the three.
    members = []
    for _ in range(3):
        member, callback = collecting()
        members.append(member)
        await client.connection.subscribe("a.b", queue="group", cb=callback)
    await client.publish("a.b", range(COUNT))
    await client.settle()
    for name, collector in collectors.items():
        found[name] = await collector.until(COUNT)
    while sum(len(member.numbers) for member in members) < COUNT:
        await asyncio.sleep(0.001)
    for member in members:
        assert member.numbers == sorted(member.numbers)
    found["group"] = sorted(itertools.chain.from_iterable(member.numbers for member in members))
    return found


@sees([7, "Error"])
async def a_callback_that_raises(client: Client) -> object:
    """The messages after it are delivered, and a drain ends: each was accounted for."""
    seen = []

    async def callback(message: Any) -> None:
        seen.append(number(message))
        if number(message) == 3:
            raise errors.Error

    subscription = await client.connection.subscribe("raising", cb=callback)
    await client.publish("raising", range(7))
    await client.settle()
    await subscription.drain()
    told, client.errors = client.errors, []
    return [len(seen), *told]


@sees([ALL, ALL])
async def iterating_over_messages(client: Client) -> object:
    """Before they come, and after."""
    found = []
    for early in (True, False):
        subscription = await client.connection.subscribe("iterated", max_msgs=COUNT)
        if early:
            await client.publish("iterated", range(COUNT))
            await client.settle()
            assert subscription.pending_msgs == COUNT
        else:
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, client.publish("iterated", range(COUNT)))
        found.append([number(message) async for message in subscription.messages])
        assert (subscription.pending_msgs, subscription.pending_bytes) == (0, 0)
        await subscription.unsubscribe()
    return found


@sees([[0, 1, 2], [0, 1, 2, 3, 4]])
async def iterations_that_are_ended(client: Client) -> object:
    """By an unsubscribe, and by a limit set meanwhile."""
    found = []
    for limit in (0, 5):
        subscription = await client.connection.subscribe("ended")
        seen: list[int] = []

        async def read(subscription: Any = subscription, seen: list[int] = seen) -> None:
            async for message in subscription.messages:
                seen.append(number(message))

        reading = asyncio.ensure_future(read())
        await client.publish("ended", range(3))
        await client.settle()
        while len(seen) < 3:
            await asyncio.sleep(0)
        await subscription.unsubscribe(limit=limit)
        await client.publish("ended", range(3, 9))
        await client.settle()
        await reading
        found.append(seen)
    return found


@sees(["TimeoutError", "TimeoutError", 1, 2, "TimeoutError", 3])
async def next_msg_with_timeouts(client: Client) -> object:
    subscription = await client.connection.subscribe("next")
    found: list[Any] = []

    async def take(timeout: float) -> None:
        try:
            found.append(number(await subscription.next_msg(timeout)))
        except errors.TimeoutError as error:
            found.append(type(error).__name__)

    await take(0.001)
    await take(0.01)
    await client.publish("next", [1, 2])
    await take(LIMIT)
    await take(LIMIT)
    await take(0.001)
    waiting = asyncio.ensure_future(take(LIMIT))
    await ticks(3)
    await client.publish("next", [3])
    await waiting
    return found


@sees(ALL)
async def messages_near_the_deadline(client: Client) -> object:
    """S01: a `next_msg` that times out has taken none."""
    subscription = await client.connection.subscribe("deadline")

    async def publish() -> None:
        for item in range(COUNT):
            await client.publish("deadline", [item])
            await asyncio.sleep(0.001)

    publishing = asyncio.ensure_future(publish())
    found: list[int] = []
    while len(found) < COUNT:
        try:
            found.append(number(await subscription.next_msg(timeout=0.001)))
        except errors.TimeoutError:
            pass
    await publishing
    return found


@sees(["CancelledError", 0, 1])
async def a_next_msg_that_is_cancelled(client: Client) -> object:
    subscription = await client.connection.subscribe("cancelled")
    waiting = asyncio.ensure_future(subscription.next_msg(timeout=LIMIT))
    await ticks(3)
    waiting.cancel()
    found: list[Any] = []
    try:
        await waiting
    except asyncio.CancelledError:
        found.append("CancelledError")
    await client.publish("cancelled", [0, 1])
    return [*found, *[number(await subscription.next_msg(LIMIT)) for _ in range(2)]]


@sees([[n * n for n in range(50)], "NoRespondersError", "TimeoutError"])
async def requests(client: Client) -> object:
    async def square(message: Any) -> None:
        await message.respond(str(number(message) ** 2).encode())

    async def nothing(message: Any) -> None:
        pass

    await client.connection.subscribe("square", queue="workers", cb=square)
    await client.connection.subscribe("square", queue="workers", cb=square)
    await client.connection.subscribe("nothing", cb=nothing)
    replies = await asyncio.gather(
        *(client.connection.request("square", str(n).encode(), timeout=LIMIT) for n in range(50))
    )
    found: list[Any] = [[number(reply) for reply in replies]]
    for subject, timeout in (("nobody", LIMIT), ("nothing", 0.01)):
        try:
            await client.connection.request(subject, b"1", timeout=timeout)
        except errors.Error as error:
            found.append(type(error).__name__)
    return found


@sees([[*range(20)], 0, "BadSubscriptionError"])
async def draining_a_subscription(client: Client) -> object:
    """What has come is worked off first: a drain joins the queue."""
    seen = []

    async def slow(message: Any) -> None:
        await asyncio.sleep(0.001)
        seen.append(number(message))

    subscription = await client.connection.subscribe("drained", cb=slow)
    await client.publish("drained", range(20))
    await client.settle()
    await subscription.drain()
    await client.publish("drained", range(20, 25))
    await client.settle()
    found: list[Any] = [seen, subscription.pending_msgs]
    try:
        await subscription.drain()
    except errors.BadSubscriptionError as error:
        found.append(type(error).__name__)
    return found


@sees([[*range(20)], [*range(20)], True])
async def draining_a_connection(client: Client) -> object:
    seen: list[list[int]] = [[], []]

    def slow(index: int) -> Any:
        async def callback(message: Any) -> None:
            await asyncio.sleep(0.001)
            seen[index].append(number(message))

        return callback

    for index in range(2):
        await client.connection.subscribe("drained.*", cb=slow(index))
    await client.publish("drained.all", range(20))
    await client.settle()
    await client.connection.drain()
    return [*seen, client.connection.is_closed]


@sees([[0, 1, 2], 0])
async def unsubscribing(client: Client) -> object:
    collector, callback = collecting()
    subscription = await client.connection.subscribe("left", cb=callback)
    await client.publish("left", range(3))
    await client.settle()
    await collector.until(3)
    await subscription.unsubscribe()
    await client.publish("left", range(3, 9))
    await client.settle()
    return [collector.numbers, subscription.pending_msgs]


@sees([[0, 1, 2, 3, 4, 5], 5, {"SlowConsumerError"}, 15, 0])
async def a_slow_consumer(client: Client) -> object:
    """With one message in the callback and five in the queue, it is full: the rest is told of, and dropped."""
    seen = []
    entered, release = asyncio.Event(), asyncio.Event()

    async def callback(message: Any) -> None:
        seen.append(number(message))
        entered.set()
        await release.wait()

    subscription = await client.connection.subscribe("slow", cb=callback, pending_msgs_limit=5)
    await client.publish("slow", [0])
    await entered.wait()
    await client.publish("slow", range(1, 21))
    await client.settle()
    pending = subscription.pending_msgs
    release.set()
    await subscription.drain()
    told, client.errors = client.errors, []
    return [seen, pending, set(told), len(told), subscription.pending_bytes]


@sees([[0, 1, 2], {"SlowConsumerError"}])
async def a_consumer_that_is_slow_by_bytes(client: Client) -> object:
    """The queue is not full; what is counted beside it is."""
    subscription = await client.connection.subscribe("bytes", pending_bytes_limit=4)
    await client.publish("bytes", range(9))
    await client.settle()
    found = [number(await subscription.next_msg(LIMIT)) for _ in range(subscription.pending_msgs)]
    told, client.errors = client.errors, []
    return [found, set(told)]


@sees(ALL)
async def publishing_through_a_flush_queue_of_one(client: Client) -> object:
    """The client's flusher is fed through a queue too; here its senders have to wait."""
    collector, callback = collecting()
    await client.connection.subscribe("flushed", cb=callback)
    other = await nats.connect(client.connection.connected_url.geturl(), flusher_queue_size=1)
    try:
        await asyncio.gather(*(other.publish("flushed", str(n).encode()) for n in range(COUNT)))
        return sorted(await collector.until(COUNT))
    finally:
        await other.close()


@sees([[0, 1, 2], [3, 4, 5]])
async def a_connection_that_breaks(client: Client) -> object:
    """The subscriptions go on, on a new one."""
    collector, callback = collecting()
    await client.connection.subscribe("broken", cb=callback)
    iterated = await client.connection.subscribe("broken")
    await client.publish("broken", range(3))
    await client.settle()
    found = [list(await collector.until(3))]
    client.connection._transport._io_writer.transport.abort()
    await client.reconnects.get()
    await client.publish("broken", range(3, 6))
    await client.settle()
    assert [number(await iterated.next_msg(LIMIT)) for _ in range(6)] == await collector.until(6)
    client.errors.clear()
    return [*found, collector.numbers[3:]]


@contextlib.asynccontextmanager
async def stream(client: Client) -> AsyncIterator[tuple[Any, str]]:
    """A JetStream stream with all the numbers in it."""
    name = next(_names)
    jetstream = client.connection.jetstream(timeout=LIMIT)
    await jetstream.add_stream(name=name, subjects=[f"{name}.*"], storage=api.StorageType.MEMORY)
    try:
        for n in ALL:
            await jetstream.publish(f"{name}.x", str(n).encode())
        yield jetstream, name
    finally:
        await jetstream.delete_stream(name)


@sees([[*ALL, "TimeoutError"], 0])
async def pulling_from_a_stream(client: Client) -> object:
    async with stream(client) as (jetstream, name):
        subscription = await jetstream.pull_subscribe(f"{name}.x", durable="puller")
        found: list[Any] = []
        for batch in itertools.cycle((1, 7, 50)):
            messages = await subscription.fetch(batch, timeout=LIMIT)
            found += map(number, messages)
            for message in messages:
                await message.ack_sync(LIMIT)
            if len(found) >= COUNT:
                break
        try:
            await subscription.fetch(5, timeout=0.01)
        except asyncio.TimeoutError:  # sometimes the client's own, which is one
            found.append("TimeoutError")
        return [found, (await subscription.consumer_info()).num_ack_pending]


@sees([ALL, ALL])
async def pushed_by_a_stream(client: Client) -> object:
    async with stream(client) as (jetstream, name):
        collector, callback = collecting()
        await jetstream.subscribe(f"{name}.x", cb=callback)
        ordered = await jetstream.subscribe(f"{name}.x", ordered_consumer=True)
        return [[number(await ordered.next_msg(LIMIT)) for _ in ALL], await collector.until(COUNT)]


@sees([("a", 1), ("b", 2), None, ("a", 3), ("b", None)])
async def watching_keys(client: Client) -> object:
    """A watcher of the key-value store has a queue of its own."""
    jetstream = client.connection.jetstream(timeout=LIMIT)
    bucket = next(_names)
    store = await jetstream.create_key_value(bucket=bucket, storage=api.StorageType.MEMORY)
    try:
        await store.put("a", b"1")
        await store.put("b", b"2")
        watcher = await store.watchall()
        found: list[Any] = []
        async for entry in watcher:
            found.append(entry and (entry.key, int(entry.value) if entry.value else None))
            if entry is None:
                await store.put("a", b"3")
                await store.delete("b")
            if len(found) == 5:
                await watcher.stop()
        return found
    finally:
        await jetstream.delete_key_value(bucket)
