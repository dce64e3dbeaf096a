"""The feed's TCP clients, in a process of their own: asyncio and nothing of interlock.

Started by `fanout.py` as a script with the arguments PORT, LOSSLESS and SLOW (how
many of each kind). It prints `received` as soon as all lossless clients have read
to the end, and last a JSON report.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import sys
from typing import cast

CONNECTING_AT_ONCE = 50
SLOW_READ_BYTES = 256
SLOW_PAUSE_SECONDS = 0.1


@dataclasses.dataclass
class Account:
    """What one client received: lines of `OLD NEW PAYLOAD`, and `lagged MISSED` for a gap."""

    transitions: int = 0
    missed: int = 0
    gaps: int = 0
    last: int = 0
    fault: str = ""

    @classmethod
    def of(cls, received: bytes) -> Account:
        account = cls()
        announced = 0
        for line in received.splitlines():
            first, second = line.split()[:2]
            if first == b"lagged":
                account.gaps += 1
                announced += int(second)
                continue
            old, new = int(first), int(second)
            # The feed counts up by one, so a gap's size can be checked.
            if (old, new) != (account.last + announced, account.last + announced + 1) and not account.fault:
                account.fault = f"{old} -> {new} after {account.last}, with {announced} announced as missed"
            account.transitions += 1
            account.missed += announced
            account.last, announced = new, 0
        return account


class Reader(asyncio.Protocol):
    """A client that reads as fast as it can."""

    def __init__(self) -> None:
        self.received: bytearray = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"lossless\n")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def read_fast(port: int, gate: asyncio.Semaphore) -> Reader:
    async with gate:
        _, reader = await asyncio.get_running_loop().create_connection(Reader, "127.0.0.1", port)
    return reader


async def read_slowly(port: int, hurry: asyncio.Event) -> bytes:
    """Read a little, pause, read a little, so that the server's side fills up; without pauses once told to hurry."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    with socket.socket() as connection:
        connection.setblocking(False)
        # The smallest buffer the system grants; set before connecting, for it fixes the window.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        await loop.sock_sendall(connection, b"slow\n")
        while data := await loop.sock_recv(connection, SLOW_READ_BYTES):
            received += data
            if not hurry.is_set():
                await asyncio.sleep(SLOW_PAUSE_SECONDS)
    return bytes(received)


async def main(port: int, lossless: int, slow: int) -> None:
    hurry = asyncio.Event()
    slow_clients = [asyncio.create_task(read_slowly(port, hurry)) for _ in range(slow)]
    gate = asyncio.Semaphore(CONNECTING_AT_ONCE)
    readers = await asyncio.gather(*(read_fast(port, gate) for _ in range(lossless)))
    for reader in readers:
        await reader.done
    print("received", flush=True)
    hurry.set()
    report = {
        "lossless": [dataclasses.asdict(Account.of(bytes(reader.received))) for reader in readers],
        "slow": [dataclasses.asdict(Account.of(await client)) for client in slow_clients],
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(*(int(argument) for argument in sys.argv[1:4])))
    except ConnectionError:
        sys.exit(1)  # the server is gone or going, and says why
