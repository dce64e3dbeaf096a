"""What `interlock.install()` does for a program that uses `nats-py`, whose subscriptions are asyncio queues.

A real `nats-server` on loopback; its messages per second with asyncio's queues and with interlock's, in
interleaved rounds of one run. Each round checks that every message has arrived, and in order.

Run from the root of the repository: `python -m benches.nats --help`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import importlib.metadata
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from interlock.demo.backends import load

from . import machine, nats_server
from .measure import Spread

# Seconds for a round; far above what one takes, so that only a hang reaches it.
_LIMIT = 120.0
_PAYLOAD = 64

# asyncio's own stands in the race twice: what it gains on itself is noise.
ASYNCIO, AGAIN, INTERLOCK = "asyncio", "asyncio, again", "interlock"
CONTENDERS = (ASYNCIO, INTERLOCK, AGAIN)


class Flood:
    """A publisher that costs the loop next to nothing: a socket in a thread, with all commands made before."""

    def __init__(self, url: str, subject: str, messages: int) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=_LIMIT)
        commands = (f"PUB {subject} {_PAYLOAD}\r\n{number:0{_PAYLOAD}}\r\n" for number in range(messages))
        self._commands = "".join(commands).encode()
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        self._read_pong()

    def _read_pong(self) -> None:
        told = b""
        while not told.endswith(b"PONG\r\n"):
            part = self._socket.recv(4096)
            if not part or b"-ERR" in part:
                raise RuntimeError(f"nats-server has refused the publisher: {part!r}")
            told += part

    def start(self) -> None:
        threading.Thread(target=self._socket.sendall, args=(self._commands,), daemon=True).start()

    def close(self) -> None:
        self._socket.close()


def _check(seen: Sequence[int], messages: int) -> None:
    if list(seen) != list(range(messages)):
        raise AssertionError(f"{len(seen)} of {messages} messages have arrived, or not in order")


async def _flooded(url: str, connection: Any, messages: int, consume: Callable[[], Awaitable[object]]) -> float:
    """Seconds from the first message sent until `consume` has returned."""
    # The server knows of the subscriptions once a message comes back through it.
    ready = asyncio.get_running_loop().create_future()
    inbox = connection.new_inbox()
    await connection.subscribe(inbox, future=ready)
    await connection.publish(inbox)
    await ready
    flood = await asyncio.to_thread(Flood, url, "bench", messages)
    try:
        begun = time.perf_counter()
        flood.start()
        await consume()
        return time.perf_counter() - begun
    finally:
        flood.close()


async def callbacks(url: str, connection: Any, messages: int) -> float:
    """Four subscriptions to one subject; each gets a quarter of the count, so that so many are delivered."""
    each = messages // 4
    done = asyncio.Event()
    seen: list[list[int]] = [[] for _ in range(4)]
    left = 4

    def counting(numbers: list[int]) -> Callable[[Any], Awaitable[None]]:
        async def callback(message: Any) -> None:
            nonlocal left
            numbers.append(int(message.data))
            if len(numbers) == each:
                left -= 1
                if not left:
                    done.set()

        return callback

    for numbers in seen:
        await connection.subscribe("bench", cb=counting(numbers))
    seconds = await _flooded(url, connection, each, done.wait)
    for numbers in seen:
        _check(numbers, each)
    return seconds


async def iteration(url: str, connection: Any, messages: int) -> float:
    subscription = await connection.subscribe("bench")
    seen: list[int] = []

    async def consume() -> None:
        async for message in subscription.messages:
            seen.append(int(message.data))
            if len(seen) == messages:
                return

    seconds = await _flooded(url, connection, messages, consume)
    _check(seen, messages)
    return seconds


async def next_msg(url: str, connection: Any, messages: int) -> float:
    subscription = await connection.subscribe("bench")
    seen: list[int] = []

    async def consume() -> None:
        for _ in range(messages):
            seen.append(int((await subscription.next_msg(_LIMIT)).data))

    seconds = await _flooded(url, connection, messages, consume)
    _check(seen, messages)
    return seconds


async def requests(url: str, connection: Any, messages: int) -> float:
    """Request and reply on one connection, a hundred under way at a time."""

    async def respond(message: Any) -> None:
        await message.respond(message.data)

    await connection.subscribe("bench", cb=respond)
    seen: list[int] = []

    async def ask(first: int) -> None:
        for number in range(first, messages, 100):
            seen.append(int((await connection.request("bench", b"%d" % number, timeout=_LIMIT)).data))

    begun = time.perf_counter()
    await asyncio.gather(*map(ask, range(100)))
    seconds = time.perf_counter() - begun
    _check(sorted(seen), messages)
    return seconds


@dataclass(frozen=True)
class Workload:
    """What is measured, and with how many messages a round."""

    title: str
    run: Callable[[str, Any, int], Awaitable[float]]
    messages: int


WORKLOADS = {
    "callbacks": Workload("four subscriptions with callbacks", callbacks, 40_000),
    "iteration": Workload("`async for message in subscription.messages`", iteration, 10_000),
    "next_msg": Workload("`await subscription.next_msg(timeout)`", next_msg, 10_000),
    "requests": Workload("request and reply, 100 at a time", requests, 5_000),
}


@contextlib.contextmanager
def _queues_of(contender: str, interlock: Any) -> Iterator[None]:
    if contender == INTERLOCK:
        interlock.install()
    try:
        yield
    finally:
        interlock.uninstall()


def _round(url: str, workload: Workload, messages: int) -> float:
    """Messages per second, with whatever queues asyncio has now."""
    client: Any = importlib.import_module("nats")

    async def main() -> float:
        connection = await client.connect(url, allow_reconnect=False)
        try:
            return await workload.run(url, connection, messages)
        finally:
            await connection.close()

    # No round pays for what another one has left.
    gc.collect()
    return messages / asyncio.run(asyncio.wait_for(main(), _LIMIT))


def measure(url: str, interlock: Any, workload: Workload, messages: int, rounds: int) -> dict[str, list[float]]:
    """Messages per second of each round, by contender. A round that warms up is not counted."""
    samples: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    for number in range(rounds + 1):
        # Each is first, second and last equally often.
        turn = number % len(CONTENDERS)
        for contender in (*CONTENDERS[turn:], *CONTENDERS[:turn]):
            with _queues_of(contender, interlock):
                rate = _round(url, workload, messages)
            if number:
                samples[contender].append(rate)
    return samples


def _ratio(samples: dict[str, list[float]], of: str) -> Spread:
    """How many times the messages per second of asyncio's, round by round."""
    return Spread.of([one / other for one, other in zip(samples[of], samples[ASYNCIO], strict=True)])


def _row(workload: Workload, samples: dict[str, list[float]]) -> tuple[str, bool]:
    gained, noise = _ratio(samples, INTERLOCK), _ratio(samples, AGAIN)
    # No slower than asyncio's is than itself.
    met = gained.median >= min(1.0, noise.low)
    cells = [
        workload.title,
        *(f"{Spread.of(samples[contender]).median:,.0f}" for contender in (ASYNCIO, INTERLOCK)),
        *(f"{spread.median:.2f}× [{spread.low:.2f}–{spread.high:.2f}]" for spread in (gained, noise)),
        "met" if met else "**not met**",
    ]
    return "| " + " | ".join(cells) + " |", met


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benches.nats",
        allow_abbrev=False,
        description="nats-py's messages per second with interlock.install() off and on; fails if it is slower with it",
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"all of them if none is named: {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--rounds", type=int, default=15, help="of each contender, at least 2 (15)")
    parser.add_argument("--quick", action="store_true", help="5 rounds with a quarter of the messages")
    parser.add_argument("--backend", choices=["rust", "pure"], default="rust")
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; choose from {', '.join(WORKLOADS)}")
    rounds = min(options.rounds, 5) if options.quick else options.rounds
    if rounds < 2:
        parser.error("--rounds must be at least 2: one round has no spread")
    program = nats_server.find()
    if program is None:
        parser.error("nats-server is not here; on Debian and Ubuntu: apt-get install nats-server")

    command = " ".join(["python -m benches.nats", *sys.argv[1:]])
    described = machine.describe([], machine.load(), command)
    described["Versions"] = f"nats-py {importlib.metadata.version('nats-py')}, {nats_server.version(program)}"
    print(*(f"- {what}: {value}" for what, value in described.items()), sep="\n")
    print("\nMessages per second, medians over the rounds; ratios are taken round by round, quartiles in brackets.\n")
    print(
        f"| workload | asyncio | interlock ({options.backend}) | interlock / asyncio | asyncio / asyncio | no slower |"
    )
    print("| --- " * 6 + "|", flush=True)
    interlock = load(options.backend)
    all_met = True
    with nats_server.running(program) as url:
        for name in options.workloads or WORKLOADS:
            workload = WORKLOADS[name]
            messages = workload.messages // 4 if options.quick else workload.messages
            row, met = _row(workload, measure(url, interlock, workload, messages, rounds))
            print(row, flush=True)
            all_met = all_met and met
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
