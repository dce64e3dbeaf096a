"""Part 2: one feed, a thousand TCP clients, a subscription for each.

A plain thread sets the feed. The server's loop writes each transition as a line to
each client. Some clients read slowly: their subscriptions are bounded, and tell how
much was dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import sys
import time
from collections.abc import AsyncIterator

from interlock import Lagged, ValueWatcher, WatcherClosed
from interlock.demo import clients as client_program
from interlock.demo import runner
from interlock.demo.console import bad, good, heading, say

TIMEOUT_SECONDS = 15.0
PRODUCING_SECONDS = 8.0
BURST = 5
PAUSE_SECONDS = 0.005
# The producer goes no further ahead of the lossless clients than this. A slow machine
# then takes longer, and who lags, by more than SLOW_MAXLEN, does so by reading slowly.
BACKLOG = 10
SLOW_MAXLEN = 50
# What a line carries beside the two numbers: about as much as a small JSON message.
PAYLOAD = b"." * 60


@dataclasses.dataclass
class Delivery:
    """What came of part 2."""

    transitions: int
    lossless: list[client_program.Account]
    slow: list[client_program.Account]
    seconds: float
    lags: list[int]

    @property
    def deliveries(self) -> int:
        return sum(account.transitions for account in self.lossless)

    @property
    def faults(self) -> list[str]:
        """What interlock lost, repeated or told wrongly; empty if all is well."""
        found = [
            account.fault or f"only {account.transitions} of {self.transitions} transitions arrived"
            for account in self.lossless
            if account.fault or account.transitions != self.transitions
        ]
        found += [
            account.fault or f"{account.transitions} read + {account.missed} reported missing != {self.transitions}"
            for account in self.slow
            if account.fault or account.transitions + account.missed != self.transitions
        ]
        return found


class FeedServer:
    """Writes every transition of `feed` to every client."""

    def __init__(self, lossless: int) -> None:
        self.feed: ValueWatcher[int] = ValueWatcher(0)
        self.subscribed: ValueWatcher[int] = ValueWatcher(0)
        self.lags: list[int] = []
        self._lossless = lossless
        self._written = 0
        self.handlers: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers.add(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            slow = await reader.readline() == b"slow\n"
            if slow:
                # Small buffers, so that a slow reader is felt here at once.
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
                writer.transport.set_write_buffer_limits(high=0)
            with self.feed.watch(maxlen=SLOW_MAXLEN if slow else None) as transitions:
                self.subscribed.update(lambda count: count + 1)
                while True:
                    try:
                        old, new = await transitions.get()
                    except Lagged as lag:
                        self.lags.append(lag.missed)
                        writer.write(b"lagged %d\n" % lag.missed)
                        continue
                    writer.write(b"%d %d %s\n" % (old, new, PAYLOAD))
                    self._written += not slow
                    await writer.drain()
        except (WatcherClosed, ConnectionError):
            pass  # the feed has ended and all of it is written, or the client has gone
        finally:
            writer.close()

    def produce(self, transitions: int) -> None:
        """Set the feed from a thread that has no event loop."""
        deadline = time.monotonic() + PRODUCING_SECONDS
        try:
            while not self.feed.closed and self.feed.value < transitions and time.monotonic() < deadline:
                if self.feed.value - self._written // self._lossless < BACKLOG:
                    for _ in range(min(BURST, transitions - self.feed.value)):
                        self.feed.update(lambda number: number + 1)
                time.sleep(PAUSE_SECONDS)
        except WatcherClosed:
            pass  # the demo is being broken off
        self.feed.close()


@contextlib.asynccontextmanager
async def running_clients(port: int, lossless: int, slow: int) -> AsyncIterator[asyncio.subprocess.Process]:
    # Isolated (-I): the clients need the standard library only. In a session of their
    # own, so that Ctrl-C reaches only this process, which then ends them.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", client_program.__file__, str(port), str(lossless), str(slow)),
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def deliver(lossless: int, slow: int, transitions: int) -> Delivery:
    server = FeedServer(lossless)
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0, backlog=lossless + slow)
    port = listener.sockets[0].getsockname()[1]
    try:
        async with running_clients(port, lossless, slow) as process:
            assert process.stdout is not None
            await server.subscribed.wait_for(lossless + slow)
            started = time.monotonic()
            producing = asyncio.get_running_loop().run_in_executor(None, server.produce, transitions)
            await process.stdout.readline()
            seconds = time.monotonic() - started
            report = await process.stdout.readline()
            await asyncio.gather(producing, process.wait(), *server.handlers)
    finally:
        # Ends a producer that is still at it and, with the clients gone, every handler.
        server.feed.close()
        listener.close()
        if server.handlers:
            await asyncio.wait(server.handlers, timeout=1)
    if not report:
        raise RuntimeError("the clients' process ended without a report; its own message is above")
    accounts = {
        kind: [client_program.Account(**fields) for fields in clients] for kind, clients in json.loads(report).items()
    }
    return Delivery(server.feed.value, accounts["lossless"], accounts["slow"], seconds, server.lags)


def affordable(wanted: int) -> int:
    """How many clients the limit on open files allows, after raising it as far as it goes."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    spare = 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted + spare:
        return wanted
    limit = wanted + spare if hard == resource.RLIM_INFINITY else min(wanted + spare, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(1, min(wanted, limit - spare))


def run(clients: int = 1000, transitions: int = 300) -> Delivery | None:
    """Run part 2 and print what came of it; `None` if it was not finished in time."""
    heading("2. One feed to many clients")
    count = affordable(clients)
    if count < clients:
        say(f"The limit on open files allows {count} clients, not {clients}; `ulimit -Hn` shows it.")
    slow = max(1, count // 100)
    lossless = max(1, count - slow)
    say(f"{lossless + slow:,} TCP clients in another process, each with a subscription of its own.")
    say(f"Slow readers among them: {slow}, with maxlen={SLOW_MAXLEN}. A thread sets the feed {transitions} times.")
    say()
    try:
        delivery = runner.run(deliver(lossless, slow, transitions), TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        say(bad(f"Not finished within {TIMEOUT_SECONDS:.0f} s; try fewer with --clients."))
        return None
    if delivery.transitions < transitions:
        say(f"After {PRODUCING_SECONDS:.0f} s the thread stopped at {delivery.transitions} transitions.")
    describe(delivery)
    return delivery


def describe(delivery: Delivery) -> None:
    expected = len(delivery.lossless) * delivery.transitions
    verdict = bad("NOT AS IT SHOULD BE") if delivery.faults else good("all, in order, at every client")
    say(f"lossless clients  {delivery.deliveries:,} of {expected:,} transitions: {verdict}")
    rate = delivery.deliveries / delivery.seconds
    say(f"rate              {rate:,.0f} deliveries/s over TCP, {delivery.seconds:.1f} s in all")
    missed = sum(account.missed for account in delivery.slow)
    read = sum(account.transitions for account in delivery.slow)
    if delivery.lags:
        say(f"slow clients      {read:,} read, {missed:,} dropped, told by {len(delivery.lags)} x Lagged:")
        say(f"                  the first lag was {delivery.lags[0]} transitions, the longest {max(delivery.lags)}")
    else:
        say(f"slow clients      {read:,} read, none dropped: the system's buffers held them all")
    for fault in delivery.faults[:5]:
        say(bad(f"  {fault}"))
