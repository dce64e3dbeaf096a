"""Five ways of following the state of a connection, each as it is usually written.

Every one has two consumers: a logger that records the states it sees, and a drain
handler that must flush what is pending when the state is *closing*.
"""

from __future__ import annotations

import abc
import asyncio
import enum
from collections.abc import Awaitable, Callable

from interlock import ValueWatcher

POLL_SECONDS = 0.01


class State(enum.Enum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"


Record = Callable[[State], None]
Flush = Callable[[], Awaitable[None]]


class Method(abc.ABC):
    """How the connection publishes its state, and how two consumers follow it."""

    name: str

    @abc.abstractmethod
    async def publish(self, state: State) -> None:
        """Called by the connection, at each change."""

    @abc.abstractmethod
    async def log(self, record: Record) -> None:
        """The logger: records every state it sees, from the present one to the last."""

    @abc.abstractmethod
    async def drain(self, flush: Flush) -> None:
        """The drain handler: flushes when the state is *closing*."""


class Polling(Method):
    # Health checks and "wait until ready" helpers do it so: all it needs is an
    # attribute. 10 ms is brisk, most poll ten or a hundred times more slowly.
    name = "polling"

    def __init__(self) -> None:
        self.state: State = State.DISCONNECTED

    async def publish(self, state: State) -> None:
        self.state = state

    async def log(self, record: Record) -> None:
        last = None
        while last is not State.CLOSED:
            if self.state is not last:
                last = self.state
                record(last)
            await asyncio.sleep(POLL_SECONDS)

    async def drain(self, flush: Flush) -> None:
        while self.state is not State.CLOSED:
            if self.state is State.CLOSING:
                await flush()
                return
            await asyncio.sleep(POLL_SECONDS)


class Event(Method):
    # An attribute for the state and one Event for "it changed": wait, clear, look.
    # It is the usual step up from polling, and clearing before looking is the
    # careful order: a change made while looking sets the event again.
    name = "Event"

    def __init__(self) -> None:
        self.state: State = State.DISCONNECTED
        self.changed: asyncio.Event = asyncio.Event()

    async def publish(self, state: State) -> None:
        self.state = state
        self.changed.set()

    async def log(self, record: Record) -> None:
        record(self.state)
        while self.state is not State.CLOSED:
            await self.changed.wait()
            self.changed.clear()
            record(self.state)

    async def drain(self, flush: Flush) -> None:
        while self.state is not State.CLOSED:
            if self.state is State.CLOSING:
                await flush()
                return
            await self.changed.wait()
            self.changed.clear()


class Condition(Method):
    # The standard library's tool for waiting on a predicate over shared state,
    # used as its documentation does: change and notify under the lock, `wait_for`
    # the predicate.
    name = "Condition"

    def __init__(self) -> None:
        self.state: State = State.DISCONNECTED
        self.condition: asyncio.Condition = asyncio.Condition()

    async def publish(self, state: State) -> None:
        async with self.condition:
            self.state = state
            self.condition.notify_all()

    async def log(self, record: Record) -> None:
        last = self.state
        record(last)
        async with self.condition:
            while last is not State.CLOSED:
                while self.state is last:
                    await self.condition.wait()
                last = self.state
                record(last)

    async def drain(self, flush: Flush) -> None:
        async with self.condition:
            await self.condition.wait_for(lambda: self.state is State.CLOSING)
        await flush()


class SharedQueue(Method):
    # A queue of state changes with one reader is sound and common. This is that
    # code on the day a second consumer is added to it.
    name = "shared Queue"

    def __init__(self) -> None:
        self.changes: asyncio.Queue[State] = asyncio.Queue()

    async def publish(self, state: State) -> None:
        self.changes.put_nowait(state)

    async def log(self, record: Record) -> None:
        state = State.DISCONNECTED
        record(state)
        while state is not State.CLOSED:
            state = await self.changes.get()
            record(state)

    async def drain(self, flush: Flush) -> None:
        while (state := await self.changes.get()) is not State.CLOSED:
            if state is State.CLOSING:
                await flush()
                return


class Watcher(Method):
    # A subscription for the consumer that wants every state, a wait for the one
    # that wants a certain state.
    name = "ValueWatcher"

    def __init__(self) -> None:
        self.state: ValueWatcher[State] = ValueWatcher(State.DISCONNECTED)

    async def publish(self, state: State) -> None:
        self.state.value = state

    async def log(self, record: Record) -> None:
        with self.state.watch(initial=True) as transitions:
            async for _, state in transitions:
                record(state)
                if state is State.CLOSED:
                    return

    async def drain(self, flush: Flush) -> None:
        await self.state.wait_for(State.CLOSING)
        await flush()


METHODS: tuple[type[Method], ...] = (Polling, Event, Condition, SharedQueue, Watcher)
