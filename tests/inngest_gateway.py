"""The Inngest server's side of Connect, on loopback: the HTTP API and the WebSocket gateway.

It speaks the protocol with the SDK's own protobuf messages. Everything runs in the
loop of the test; the SDK's worker thread comes in over real sockets.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from types import TracebackType
from typing import Any

from inngest_sdk import APP, bounded, connect_pb2, websockets

Kind = connect_pb2.GatewayMessageType
PROTOCOL = websockets.Subprotocol("v0.connect.inngest.com")


class Peer:
    """One accepted WebSocket connection."""

    def __init__(self, socket: websockets.ServerConnection) -> None:
        self._socket = socket
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()

    async def read(self) -> None:
        """Run for as long as the connection lives."""
        try:
            async for data in self._socket:
                message = connect_pb2.ConnectMessage()
                message.ParseFromString(data)
                self._inbox.put_nowait(message)
        except websockets.ConnectionClosed:
            pass  # aborted by the test
        self._inbox.put_nowait(None)

    async def send(self, kind: Any, payload: Any = None) -> None:
        data = b"" if payload is None else payload.SerializeToString()
        await bounded(self._socket.send(connect_pb2.ConnectMessage(kind=kind, payload=data).SerializeToString()))

    async def receive(self, kind: Any, payload: Any = None) -> Any:
        """The next message, which must be of this kind (heartbeats in between are skipped), parsed into `payload`."""
        while True:
            message = await bounded(self._inbox.get())
            assert message is not None, f"connection closed before {Kind.Name(kind)}"
            if message.kind == kind:
                break
            assert message.kind == Kind.WORKER_HEARTBEAT, f"{Kind.Name(message.kind)}, not {Kind.Name(kind)}"
        if payload is not None:
            payload.ParseFromString(message.payload)
        return payload

    async def receive_close(self) -> None:
        """The end of the connection, with nothing but heartbeats before it."""
        while (message := await bounded(self._inbox.get())) is not None:
            assert message.kind == Kind.WORKER_HEARTBEAT, Kind.Name(message.kind)

    def abort(self) -> None:
        """Break the connection without a closing handshake."""
        self._socket.transport.abort()

    async def greet(self, *, again: bool = False, lease: str = "60s") -> Any:
        """The handshake. Returns what the worker introduces itself with."""
        await self.send(Kind.GATEWAY_HELLO)
        introduction = await self.receive(Kind.WORKER_CONNECT, connect_pb2.WorkerConnectRequestData())
        await self.send(
            Kind.GATEWAY_CONNECTION_READY,
            connect_pb2.GatewayConnectionReadyData(heartbeat_interval="10s", extend_lease_interval=lease),
        )
        if not again:
            # Sent at once the first time, and at intervals from then on. Waited for, because
            # a connection that ended in the middle of it would be given up twice by the SDK.
            await self.receive(Kind.WORKER_HEARTBEAT)
        return introduction

    async def execute(self, function: str, request_id: str) -> None:
        """Ask for one run of a function; return when the worker has acknowledged it."""
        event = {"name": "test/event", "data": {"request": request_id}}
        body = {
            "ctx": {"attempt": 0, "disable_immediate_execution": True, "run_id": "run", "stack": {"stack": []}},
            "event": event,
            "events": [event],
            "steps": {},
            "use_api": False,
        }
        await self.send(
            Kind.GATEWAY_EXECUTOR_REQUEST,
            connect_pb2.GatewayExecutorRequestData(
                app_name=APP,
                function_slug=f"{APP}-{function}",
                lease_id="lease",
                request_id=request_id,
                request_payload=json.dumps(body).encode(),
                step_id="step",
            ),
        )
        acknowledged = await self.receive(Kind.WORKER_REQUEST_ACK, connect_pb2.WorkerRequestAckData())
        assert acknowledged.request_id == request_id

    async def reply(self, request_id: str) -> Any:
        """What the function returned."""
        response = await self.receive(Kind.WORKER_REPLY, connect_pb2.SDKResponse())
        assert (response.request_id, response.status) == (request_id, connect_pb2.SDKResponseStatus.DONE), response
        try:
            await self.send(Kind.WORKER_REPLY_ACK, connect_pb2.WorkerReplyAckData(request_id=request_id))
        except websockets.ConnectionClosed:
            pass  # a worker that is closing need not wait for it
        return json.loads(response.body)


class Gateway:
    """Use it as a context manager; `origin` is the client's API base URL."""

    def __init__(self) -> None:
        # Statuses to answer the next start requests with; 200 when there is none left.
        self.refusals: deque[int] = deque()
        self.starts = 0
        self.flushed: asyncio.Queue[Any] = asyncio.Queue()
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()
        self._api: asyncio.Server
        self._gateway: websockets.Server

    async def __aenter__(self) -> Gateway:
        self._gateway = await websockets.serve(self._accept, "127.0.0.1", 0, subprotocols=[PROTOCOL])
        self.endpoint = f"ws://127.0.0.1:{self._gateway.sockets[0].getsockname()[1]}"
        self._api = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._api.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._api.close()
        self._gateway.close()
        await bounded(self._api.wait_closed())
        await bounded(self._gateway.wait_closed())

    def connect(self) -> websockets.connect:
        """A connection as a client, for what is tested without the SDK's own connecting."""
        return websockets.connect(self.endpoint, subprotocols=[PROTOCOL])

    async def accept(self) -> Peer:
        """The next WebSocket connection."""
        return await bounded(self._accepted.get())

    async def _accept(self, socket: websockets.ServerConnection) -> None:
        peer = Peer(socket)
        self._accepted.put_nowait(peer)
        await peer.read()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await bounded(reader.readuntil(b"\r\n\r\n"))
        request, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await bounded(reader.readexactly(int(headers["content-length"])))
        status, answer = self._dispatch(request, body)
        writer.write(b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(answer)))
        writer.write(answer)
        writer.close()
        await bounded(writer.wait_closed())

    def _dispatch(self, request: str, body: bytes) -> tuple[int, bytes]:
        if request.startswith("POST /v0/connect/start "):
            self.starts += 1
            if self.refusals:
                return self.refusals.popleft(), b""
            response = connect_pb2.StartResponse(
                connection_id=f"connection-{self.starts}",
                gateway_endpoint=f"{self.endpoint}/{self.starts}",
                session_token="session",
                sync_token="sync",
            )
            return 200, response.SerializeToString()
        if request.startswith("POST /v0/connect/flush "):
            flushed = connect_pb2.SDKResponse()
            flushed.ParseFromString(body)
            self.flushed.put_nowait(flushed)
            return 200, b""
        return 404, b""
