"""Part 1: which consumer saw which state of a short connection.

A gateway closes every connection right after the handshake: the notice and the
close leave it in one segment, as from any server that shuts down with a buffered
writer. Its half of the connection is closed then; ours stays open for a short
grace, in which the pending message can still reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import queue
import socket
import threading
from collections.abc import Sequence
from types import TracebackType

from interlock.demo import runner
from interlock.demo.console import bad, good, heading, say
from interlock.demo.methods import METHODS, Method, State, Watcher

GRACE_SECONDS = 0.05
TIMEOUT_SECONDS = 5.0
PENDING_MESSAGE = b"result of the last job\n"
ANNOUNCED = {b"hello\n": State.CONNECTED, b"closing\n": State.CLOSING, b"bye\n": State.CLOSED}


@dataclasses.dataclass
class Tally:
    """What came of one method, in counts of runs."""

    name: str
    runs: int
    saw: dict[State, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(State, 0))
    drained: int = 0
    flushed: int = 0

    @property
    def missed(self) -> int:
        return sum(self.runs - count for count in self.saw.values())

    @property
    def complete(self) -> bool:
        return self.missed == 0 and self.drained == self.flushed == self.runs


class Gateway:
    """A TCP server in a thread of its own; `received` gets what each client sent after the close."""

    def __init__(self) -> None:
        self.received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stopping = False
        self._connection: socket.socket | None = None
        # Joined on leaving; a daemon in case a Ctrl-C strikes in the midst of that.
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)

    def __enter__(self) -> Gateway:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping = True
        if (connection := self._connection) is not None:
            # The demo is being broken off; the client's side may still be open.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        # Closing a listener does not wake a thread in accept(); a connection does.
        socket.create_connection(("127.0.0.1", self.port), TIMEOUT_SECONDS).close()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self._stopping:
                    return
                self._connection = connection
                try:
                    received = self._talk(connection)
                except OSError:
                    received = b""
                self._connection = None
            self.received.put(received)

    def _talk(self, connection: socket.socket) -> bytes:
        connection.settimeout(TIMEOUT_SECONDS)
        with connection.makefile("rb") as stream:
            connection.sendall(b"hello\n")
            stream.readline()
            connection.sendall(b"closing\nbye\n")
            connection.shutdown(socket.SHUT_WR)
            return stream.read()


async def connect_once(method: Method, port: int, drain_first: bool) -> tuple[set[State], bool]:
    """One connection from disconnected to closed; the states logged, and whether the drain handler ran."""
    seen: set[State] = set()
    drained = False
    writer: asyncio.StreamWriter | None = None

    async def flush() -> None:
        nonlocal drained
        drained = True
        if writer is not None:
            writer.write(PENDING_MESSAGE)
            await writer.drain()

    work = [method.log(seen.add), method.drain(flush)]
    # Where consumers compete, the first to wait has the advantage: let it alternate.
    consumers = [asyncio.create_task(coroutine) for coroutine in (reversed(work) if drain_first else work)]
    try:
        await asyncio.sleep(0)
        await method.publish(State.CONNECTING)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while line := await reader.readline():
            state = ANNOUNCED[line]
            if state is State.CONNECTED:
                writer.write(b"ready\n")
            await method.publish(state)
        await asyncio.wait(consumers, timeout=GRACE_SECONDS)
    finally:
        for task in consumers:
            task.cancel()
        outcomes = await asyncio.gather(*consumers, return_exceptions=True)
        if writer is not None:
            writer.close()
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return seen, drained


def measure(method: type[Method], gateway: Gateway, runs: int) -> Tally:
    tally = Tally(method.name, runs)
    for number in range(runs):
        connection = connect_once(method(), gateway.port, drain_first=number % 2 == 1)
        seen, drained = runner.run(connection, TIMEOUT_SECONDS)
        for state in seen:
            tally.saw[state] += 1
        tally.drained += drained
        tally.flushed += gateway.received.get(timeout=2 * TIMEOUT_SECONDS) == PENDING_MESSAGE
    return tally


def table(tallies: Sequence[Tally]) -> str:
    runs = tallies[0].runs
    lines = [
        f"              of {runs} runs, the logger saw the state     states  drain server",
        "method       disconn. connecting connected closing closed missed    ran got it",
    ]

    def mark(count: int, wanted: int, text: str) -> str:
        return good(text) if count == wanted else bad(text)

    for tally in tallies:
        cells = [f"{tally.name:<12}"]
        for state, width in zip(State, (8, 10, 9, 7, 6), strict=True):
            cells.append(mark(tally.saw[state], runs, f"{tally.saw[state]:>{width}}"))
        cells.append(mark(tally.missed, 0, f"{tally.missed:>6}"))
        for count in (tally.drained, tally.flushed):
            cells.append(mark(count, runs, f"{f'{count}/{runs}':>6}"))
        lines.append(" ".join(cells))
    return "\n".join(lines)


def run(runs: int = 20) -> list[Tally]:
    """Run part 1 and print its table."""
    heading("1. Who saw which state?")
    say("A TCP client goes disconnected, connecting, connected, closing, closed. The")
    say("server announces closing and closes at once. A logger wants every state; a")
    say("drain handler must send one last message to the server when it is closing.")
    say()
    with Gateway() as gateway:
        tallies = [measure(method, gateway, runs) for method in METHODS]
    say(table(tallies))
    say()
    say("All five got the same bytes from the same server. An Event, a Condition and a")
    say("poll look at what the state is by then; consumers of one queue take each")
    say("other's items. (One Event per state, never cleared, would have started the")
    say("drain handler as well; it tells no order and works once.)")
    return tallies


def watcher_tally(tallies: Sequence[Tally]) -> Tally:
    return next(tally for tally in tallies if tally.name == Watcher.name)
