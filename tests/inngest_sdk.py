"""The parts of Inngest's SDK that the tests drive; skips whoever imports this where it is not installed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import pytest

try:
    with warnings.catch_warnings():
        # 0.5.19 declares one model the old way, which pydantic deprecates as the module is imported.
        warnings.filterwarnings(
            "ignore",
            message="Support for class-based `config` is deprecated",
            category=DeprecationWarning,
            module=r"inngest\._internal\.comm_lib\.models",
        )
        import inngest
        import websockets
        from inngest.connect import ConnectionState, connect
        from inngest.connect._internal import (
            conn_init_starter,
            connect_pb2,
            drain_handler,
            execution_handler,
            heartbeat_handler,
            init_handshake_handler,
            isolated_worker,
            models,
            value_watcher,
        )
except ImportError as error:
    pytest.skip(f"needs 'inngest[connect]', which cannot be imported here: {error}", allow_module_level=True)

__all__ = [
    "APP",
    "LIMIT",
    "LOGGER",
    "ConnectionState",
    "Theirs",
    "bounded",
    "conn_init_starter",
    "connect_pb2",
    "create_client",
    "create_connection",
    "create_state",
    "drain_handler",
    "execution_handler",
    "heartbeat_handler",
    "init_handshake_handler",
    "isolated_worker",
    "modules_with_watcher",
    "running",
    "websockets",
]

T = TypeVar("T")

APP = "app"
# Seconds. Nothing takes this long; it is there so that what hangs fails.
LIMIT = 30.0
LOGGER = logging.getLogger("tests.inngest")

# Kept from before any test puts another class in its place.
Theirs = value_watcher.ValueWatcher


async def bounded(awaitable: Awaitable[T], limit: float = LIMIT) -> T:
    return await asyncio.wait_for(awaitable, limit)


def modules_with_watcher() -> dict[str, Any]:
    """Every module of `inngest.connect` that has the name, by its full name."""
    return {
        name: module
        for name, module in list(sys.modules.items())
        if name.startswith("inngest.connect") and hasattr(module, "ValueWatcher")
    }


def create_client(origin: str) -> Any:
    return inngest.Inngest(app_id=APP, api_base_url=origin, is_production=False, logger=LOGGER)


def create_connection(origin: str, *handlers: Any, **options: Any) -> Any:
    """A connection of theirs that offers each handler as a function of that name."""
    client = create_client(origin)
    functions = [
        client.create_function(fn_id=handler.__name__, trigger=inngest.TriggerEvent(event="test/event"))(handler)
        for handler in handlers
    ]
    options.setdefault("shutdown_signals", [])
    return connect([(client, functions)], instance_id="tests", **options)


@contextlib.asynccontextmanager
async def running(worker_connection: Any) -> AsyncIterator[asyncio.Task[None]]:
    """Start it; at the end its thread is gone, however the test went. Yields the task of `start()`."""
    started = asyncio.create_task(worker_connection.start())
    try:
        # So that `start()` has made the thread before anything is asked of it.
        await asyncio.sleep(0)
        yield started
    finally:
        await bounded(worker_connection.close(wait=True))
        await asyncio.wait([started], timeout=LIMIT)


def create_state(watcher: Any, **values: Any) -> Any:
    """A state of theirs as after a connect, with other values where given."""
    initial: dict[str, Any] = {
        "conn_id": "connection",
        "conn_init": (connect_pb2.AuthData(session_token="session", sync_token="sync"), "ws://127.0.0.1"),
        "conn_state": ConnectionState.ACTIVE,
        "exclude_gateways": [],
        "extend_lease_interval": None,
        "fatal_error": None,
        "init_handshake_complete": False,
        "pending_request_count": 0,
        "ws": None,
    }
    return models.State(**{name: watcher(value) for name, value in {**initial, **values}.items()})
