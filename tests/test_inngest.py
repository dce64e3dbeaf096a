"""Inngest's SDK on our `ValueWatcher`: the surface, the SDK's own tests, and its connection over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import os
import signal
import sys
import threading
import unittest
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import pytest

from inngest_differences import DIFFERENCES, WAITING, Difference, in_thread, outcome, settle
from inngest_gateway import Gateway, Kind
from inngest_sdk import (
    LIMIT,
    LOGGER,
    ConnectionState,
    Theirs,
    bounded,
    conn_init_starter,
    connect_pb2,
    create_client,
    create_connection,
    create_state,
    drain_handler,
    execution_handler,
    heartbeat_handler,
    init_handshake_handler,
    isolated_worker,
    modules_with_watcher,
    running,
)

ACTIVE = ConnectionState.ACTIVE
CLOSED = ConnectionState.CLOSED
CLOSING = ConnectionState.CLOSING
CONNECTING = ConnectionState.CONNECTING
RECONNECTING = ConnectionState.RECONNECTING

AUTH = connect_pb2.AuthData(session_token="session", sync_token="sync")
PUBLIC = [name for name in dir(Theirs) if not name.startswith("_")]
THEIR_TESTS = "inngest.connect._internal.value_watcher_test"


@pytest.fixture
def ours(interlock: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our class, put in place of theirs wherever the SDK has it; making one of theirs fails the test."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the SDK has made a ValueWatcher of its own")

    for module in modules_with_watcher().values():
        assert module.ValueWatcher is Theirs
        monkeypatch.setattr(module, "ValueWatcher", interlock.ValueWatcher)
    monkeypatch.setattr(Theirs, "__init__", refuse)
    # Loopback only, whatever the environment says.
    for name in [name for name in os.environ if name.startswith("INNGEST_")]:
        monkeypatch.delenv(name)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    return interlock.ValueWatcher


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second that the SDK lets pass before it leaves a connection; only for speed."""
    monkeypatch.setattr(isolated_worker, "POST_CONNECT_SETTLE_SEC", 0)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)
    return caplog


def errors(log: pytest.LogCaptureFixture) -> list[str]:
    """What the SDK or asyncio found to complain about."""
    return [record.getMessage() for record in log.records if record.levelno >= logging.ERROR]


def path(transitions: Iterable[Any]) -> list[Any]:
    """The values gone through; fails if one transition does not begin where the one before ended."""
    values: list[Any] = []
    for old, new in transitions:
        assert not values or values[-1] is old, f"{old!r} follows {values[-1]!r}"
        values += [new] if values else [old, new]
    return values


def drain(subscription: Any) -> list[Any]:
    """What a subscription holds now."""
    held = []
    while subscription.pending:
        held.append(subscription.get_nowait())
    return held


# The surface.


@pytest.mark.parametrize("name", [*PUBLIC, "__init__"])
def test_surface_is_a_superset(interlock: Any, name: str) -> None:
    theirs: Any = Theirs if name == "__init__" else getattr(Theirs, name)
    ours: Any = interlock.ValueWatcher if name == "__init__" else getattr(interlock.ValueWatcher, name)
    if not callable(theirs):
        assert inspect.isdatadescriptor(theirs) and inspect.isdatadescriptor(ours)
        return
    wanted = inspect.signature(theirs).parameters
    offered = inspect.signature(ours).parameters
    as_called = [(p.name, p.kind, p.default) for p in wanted.values()]
    assert [(p.name, p.kind, p.default) for p in offered.values() if p.name in wanted] == as_called
    for extra in (p for p in offered.values() if p.name not in wanted):
        assert extra.default is not extra.empty, f"{extra} would have to be given"
        # Positional ones in front of theirs would take their arguments.
        assert extra.kind is extra.KEYWORD_ONLY or list(offered).index(extra.name) >= len(wanted)


def both(interlock: Any) -> tuple[Any, Any]:
    return Theirs, interlock.ValueWatcher


def test_same_value_property(interlock: Any) -> None:
    for watcher in both(interlock):
        w = watcher[int](initial_value=0)
        assert isinstance(w, watcher)
        w.value = 1
        assert w.value == 1
        with pytest.raises(TypeError):
            watcher()
        with pytest.raises(TypeError):
            watcher(0, print)  # on_change is keyword-only


def test_same_set_if(interlock: Any) -> None:
    for watcher in both(interlock):
        seen: list[tuple[int, int]] = []
        w = watcher(0, on_change=lambda old, new, seen=seen: seen.append((old, new)))
        assert w.set_if(1, lambda value: value == 0) is True
        assert w.set_if(2, lambda value: value == 0) is False
        assert w.set_if(1, lambda value: value == 1) is True  # equal already: true, and no transition
        with pytest.raises(ZeroDivisionError):
            w.set_if(2, lambda value: bool(1 / 0))
        assert (w.value, seen) == (1, [(0, 1)])


def test_same_callbacks(interlock: Any) -> None:
    for watcher in both(interlock):
        seen: list[object] = []
        w = watcher(0, on_change=None)

        def register(old: int, new: int, w: Any = w, seen: list[object] = seen) -> None:
            seen.append((old, new))
            if new == 1:
                w.on_change(lambda old, new: seen.append(f"{old} to {new}"))

        w.on_change(register)
        w.value = 1  # a callback registered meanwhile is not called for this one
        w.value = 1
        w.value = 2
        assert seen == [(0, 1), (1, 2), "1 to 2"]


WAITS: list[Callable[[Any], Any]] = [
    lambda w: w.wait_for("other", timeout=0.01),
    lambda w: w.wait_for(None, immediate=False, timeout=0.01),
    lambda w: w.wait_for_not(None, timeout=0.01),
    lambda w: w.wait_for_not_none(timeout=0.01),
    lambda w: w.wait_for_change(timeout=0.01),
    lambda w: w.wait_for("other", timeout=0),
]


@pytest.mark.parametrize("wait", WAITS)
def test_same_timeout(interlock: Any, wait: Callable[[Any], Any]) -> None:
    async def main(watcher: Any) -> None:
        awaitable = wait(watcher(None))
        assert inspect.isawaitable(awaitable) and asyncio.iscoroutine(awaitable)
        with pytest.raises(asyncio.TimeoutError) as raised:
            await awaitable
        assert type(raised.value) is asyncio.TimeoutError

    for watcher in both(interlock):
        asyncio.run(bounded(main(watcher)))


def test_same_results_of_waits(interlock: Any) -> None:
    async def main(watcher: Any) -> None:
        w = watcher(None)
        assert await w.wait_for(None) is None
        assert await w.wait_for_not(1) is None
        tasks = [
            asyncio.create_task(wait)
            for wait in (w.wait_for(1), w.wait_for(True), w.wait_for_not(None), w.wait_for_not_none())
        ]
        tasks.append(asyncio.create_task(w.wait_for_change()))
        tasks.append(asyncio.create_task(w.wait_for_not(1, immediate=False)))
        await settle()
        w.value = 1
        w.value = 2
        # The value that was set, not the one that was asked for.
        assert [await task for task in tasks] == [1, 1, 1, 1, 1, 2]
        assert await w.wait_for_not_none() == 2

    for watcher in both(interlock):
        asyncio.run(bounded(main(watcher)))


# Where they differ.


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.probe.__name__)
def test_difference_on_their_side(difference: Difference) -> None:
    assert difference.probe(Theirs) == difference.theirs


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.probe.__name__)
def test_difference_on_our_side(interlock: Any, difference: Difference) -> None:
    assert difference.probe(interlock.ValueWatcher) == difference.ours


# Their own tests of the class.


def names_in(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(names_in, inner))


@pytest.fixture
def their_tests(request: pytest.FixtureRequest) -> Any:
    """Imported before `ours` puts another class in, so that this module is put right again as well."""
    # They carry the mark of a plugin that need not be installed.
    request.config.addinivalue_line("markers", "timeout(seconds, method): on the SDK's own tests")
    return pytest.importorskip(THEIR_TESTS, reason="this SDK does not ship the tests of its ValueWatcher")


def test_their_own_tests(their_tests: Any, ours: Any) -> None:
    assert their_tests.ValueWatcher is ours
    cases = their_tests.TestValueWatcher
    private = {name for name in vars(Theirs) if name.startswith("_")} | {"_watch_queues"}
    result = unittest.TestResult()
    for name in unittest.defaultTestLoader.getTestCaseNames(cases):
        test = getattr(cases, name)
        if names_in(test.__code__) & private:
            continue  # looks into their implementation

        async def within_limit(self: unittest.TestCase, test: Any = test) -> None:
            await bounded(test(self))

        type(name, (cases,), {name: within_limit, "__module__": __name__})(name).run(result)
    assert not result.errors and not result.failures, [text for _, text in result.errors + result.failures]
    assert result.testsRun >= 17


# Their code on our class: the parts.


async def echo(ctx: Any) -> object:
    """The function that the SDK runs for us."""
    return ctx.event.data["request"]


def test_our_class_is_everywhere(ours: Any) -> None:
    package = "inngest.connect._internal"
    names = ("connection", "execution_handler", "isolated_worker", "models", "value_watcher")
    replaced = modules_with_watcher()
    assert replaced.keys() >= {f"{package}.{name}" for name in names}
    assert all(module.ValueWatcher is ours for module in replaced.values())

    connection = create_connection("http://127.0.0.1:1", echo)
    state = connection._state
    watchers = [getattr(state, field.name) for field in dataclasses.fields(state)]
    watchers.append(connection._isolated_worker._handling_message_count)
    assert [type(watcher) for watcher in watchers] == [ours] * 10


def test_state_close_ws(ours: Any) -> None:
    state = create_state(ours, ws=object())
    transitions = state.conn_state.watch()
    assert state.allow_reconnect()
    state.close_ws()
    assert (state.conn_state.value, state.conn_init.value, state.ws.value) == (RECONNECTING, None, None)

    state.conn_state.value = CLOSED
    assert not state.allow_reconnect()
    state.close_ws()
    assert path(drain(transitions)) == [ACTIVE, RECONNECTING, CLOSED]


def test_connection_before_start(ours: Any, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        connection = create_connection("http://127.0.0.1:1", echo)
        conn_state = connection._state.conn_state
        assert connection.get_state() is CONNECTING
        await bounded(connection.wait_for_state(CONNECTING))
        with pytest.raises(Exception, match="connection not established"):
            connection.get_connection_id()

        waiting = asyncio.create_task(connection.wait_for_state(CLOSING))
        await asyncio.sleep(0)
        await connection.close()
        await connection.close()
        await bounded(waiting)
        assert connection.get_state() is CLOSING
        assert conn_state.version == 1

        # Nothing will ever close it, so this waits until it is given up, and leaves nothing behind.
        assert await outcome(connection.closed()) == WAITING
        assert conn_state.statistics().waiters == 0

    asyncio.run(bounded(main()))
    changes = [record for record in log.records if record.getMessage() == "Connection state changed"]
    assert [(vars(record)["old"], vars(record)["new"]) for record in changes] == [("CONNECTING", "CLOSING")]


def test_pending_requests(ours: Any) -> None:
    async def main() -> None:
        count = ours(0)
        counts = count.watch()
        manager = execution_handler._PendingRequestManager(count)
        task = asyncio.create_task(asyncio.sleep(0))
        for request_id in ("a", "b"):
            manager.add(request_id, connect_pb2.GatewayExecutorRequestData(request_id=request_id), task)
        drained = asyncio.create_task(count.wait_for(0))
        await asyncio.sleep(0)
        assert manager.pop("unknown") is None
        assert manager.pop("a") is not None
        assert not drained.done()
        assert manager.pop("b") is not None
        manager.add("c", connect_pb2.GatewayExecutorRequestData(request_id="c"), task)
        # It was 0 for a moment, between two steps of the waiting task: that counts.
        assert await bounded(drained) == 0
        assert count.value == manager.count() == 1
        manager.clear()
        assert path(drain(counts)) == [0, 1, 2, 1, 0, 1, 0]
        await task

    asyncio.run(bounded(main()))


def message(kind: Any) -> Any:
    return connect_pb2.ConnectMessage(kind=kind)


def test_drain_handler(ours: Any) -> None:
    async def main() -> None:
        state = create_state(ours, ws=object(), pending_request_count=1)
        handler = drain_handler.DrainHandler(LOGGER, state)
        handler.start()
        transitions = state.conn_state.watch()
        handler.handle_msg(message(Kind.GATEWAY_HEARTBEAT), AUTH, "")
        assert not transitions.pending
        handler.handle_msg(message(Kind.GATEWAY_CLOSING), AUTH, "")
        assert path(drain(transitions)) == [ACTIVE, RECONNECTING]
        assert state.ws.value is None

        # It closes when the last request is done, and not before.
        handler.close()
        closed = asyncio.create_task(handler.closed())
        await settle()
        assert not closed.done()
        state.pending_request_count.value = 0
        await bounded(closed)

    asyncio.run(bounded(main()))


def test_heartbeat_handler(ours: Any, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Gateway() as gateway, gateway.connect() as ws:
            peer = await gateway.accept()
            state = create_state(ours, pending_request_count=1)
            handler = heartbeat_handler.HeartbeatHandler(LOGGER, state, heartbeat_interval_sec=0)
            handler.start()
            await settle()
            assert "Sending heartbeat" not in log.messages
            state.init_handshake_complete.value = True
            state.ws.value = ws
            for _ in range(3):
                await peer.receive(Kind.WORKER_HEARTBEAT)
            # Requests are pending, so it goes on for now.
            handler.close()
            for _ in range(3):
                await peer.receive(Kind.WORKER_HEARTBEAT)
            # From another thread, as when the last request ends.
            in_thread(lambda: setattr(state.pending_request_count, "value", 0))
            await bounded(handler.closed())

    asyncio.run(bounded(main()))
    assert errors(log) == []


def test_init_handshake_handler(ours: Any, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Gateway() as gateway, gateway.connect() as ws:
            peer = await gateway.accept()
            state = create_state(ours, conn_state=CONNECTING)
            handler = init_handshake_handler.InitHandshakeHandler(LOGGER, state, {}, None, "tests", None)
            handler.start()
            transitions, complete = state.conn_state.watch(), state.init_handshake_complete.watch()
            ready = connect_pb2.ConnectMessage(
                kind=Kind.GATEWAY_CONNECTION_READY,
                payload=connect_pb2.GatewayConnectionReadyData(extend_lease_interval="7s").SerializeToString(),
            )
            for _ in range(2):
                handler.handle_msg(message(Kind.GATEWAY_HELLO), AUTH, "id")
                await asyncio.sleep(0)
                state.ws.value = ws
                introduction = await peer.receive(Kind.WORKER_CONNECT, connect_pb2.WorkerConnectRequestData())
                assert (introduction.connection_id, introduction.auth_data.sync_token) == ("id", "sync")
                handler.handle_msg(ready, AUTH, "id")
                assert state.extend_lease_interval.value == 7
                # A new connection begins with a new handshake, however short the time without one.
                state.close_ws()
                state.conn_init.value = (AUTH, gateway.endpoint)
                await settle()
            handler.close()
            await bounded(handler.closed())
            assert path(drain(transitions)) == [CONNECTING, ACTIVE, RECONNECTING, ACTIVE, RECONNECTING]
            assert path(drain(complete)) == [False, True, False, True]

    asyncio.run(bounded(main()))
    assert errors(log) == []


def test_conn_init_handler(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conn_init_starter, "CONN_INIT_RETRY_INTERVAL_SEC", 0)

    async def main() -> None:
        async with Gateway() as gateway:
            gateway.refusals.extend([500, 503])
            state = create_state(ours, conn_id=None, conn_init=None, conn_state=RECONNECTING)
            client = create_client(gateway.origin)
            handler = conn_init_starter.ConnInitHandler(
                api_origin=gateway.origin,
                env=None,
                http_client=client._http_client._http_client,
                http_client_sync=client._http_client._http_client_sync,
                logger=LOGGER,
                rewrite_gateway_endpoint=lambda endpoint: f"{endpoint}/rewritten",
                signing_key=None,
                signing_key_fallback=None,
                state=state,
            )
            ids = state.conn_id.watch()
            handler.start()
            _, endpoint = await bounded(state.conn_init.wait_for_not_none())
            assert endpoint == f"{gateway.endpoint}/3/rewritten"
            # Asks again as soon as the connection is given up.
            state.close_ws()
            await bounded(state.conn_id.wait_for("connection-4"))
            await bounded(state.conn_init.wait_for_not_none())
            gateway.refusals.append(401)
            state.close_ws()
            assert str(await bounded(state.fatal_error.wait_for_not_none())) == "unauthorized"
            handler.close()
            await bounded(handler.closed())
            assert path(drain(ids)) == [None, "connection-3", "connection-4"]
            await client._http_client._http_client.aclose()

    asyncio.run(bounded(main()))


def test_isolated_worker_in_one_loop(ours: Any, quick: None, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            state = create_state(ours, conn_init=(AUTH, gateway.endpoint))
            worker = isolated_worker.IsolatedWorker([drain_handler.DrainHandler(LOGGER, state)], state, LOGGER)
            count: Any = worker._handling_message_count
            handling = count.watch()
            transitions = state.conn_state.watch()
            run = asyncio.create_task(worker.run())
            first = await gateway.accept()
            await bounded(state.ws.wait_for_not_none())
            await first.send(Kind.GATEWAY_HEARTBEAT)
            await first.send(Kind.GATEWAY_CLOSING)
            await first.receive_close()
            state.conn_init.value = (AUTH, gateway.endpoint)
            second = await gateway.accept()
            await bounded(state.ws.wait_for_not_none())
            worker.schedule_close()
            await second.receive(Kind.WORKER_PAUSE)
            await second.receive_close()
            await bounded(run)
            assert path(drain(handling)) == [0, 1, 0, 1, 0]
            assert path(drain(transitions)) == [ACTIVE, RECONNECTING, CLOSED]

    asyncio.run(bounded(main()))
    assert errors(log) == []


# Their code on our class: all of it, over real sockets, in its two threads.


async def follow(transitions: Any) -> list[Any]:
    """Everything up to the end of the connection."""
    seen: list[Any] = []
    while not seen or seen[-1].new is not CLOSED:
        seen.append(await bounded(transitions.get()))
    return seen


def follow_blocking(transitions: Any) -> list[Any]:
    seen: list[Any] = []
    while not seen or seen[-1].new is not CLOSED:
        seen.append(transitions.get(timeout=LIMIT))
    return seen


def test_connection_end_to_end(ours: Any, log: pytest.LogCaptureFixture) -> None:
    """Connects, runs a request, is told to drain, reconnects, runs another, is closed: nobody misses a state."""

    async def main() -> None:
        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, echo)
            conn_state = connection._state.conn_state
            called_back: list[Any] = []
            conn_state.on_change(lambda old, new: called_back.append((old, new)))
            pending = connection._state.pending_request_count.watch()
            never_read = conn_state.watch()
            followers = [
                asyncio.create_task(follow(conn_state.watch())),
                asyncio.ensure_future(asyncio.to_thread(asyncio.run, follow(conn_state.watch()))),
                asyncio.ensure_future(asyncio.to_thread(follow_blocking, conn_state.sync.watch())),
            ]
            async with running(connection) as started:
                reconnecting = asyncio.create_task(connection.wait_for_state(RECONNECTING))
                first = await gateway.accept()
                introduction = await first.greet()
                assert [app.app_name for app in introduction.apps] == ["app"]
                await bounded(connection.wait_for_state(ACTIVE))
                assert connection.get_connection_id() == "connection-1"
                await first.execute("echo", "first")
                assert await first.reply("first") == "first"

                await first.send(Kind.GATEWAY_CLOSING)
                # Left again within a few steps of the other thread; still seen here.
                await bounded(reconnecting)
                await first.receive_close()
                second = await gateway.accept()
                await second.greet(again=True)
                await bounded(connection.wait_for_state(ACTIVE))
                assert connection.get_connection_id() == "connection-2"
                await second.execute("echo", "second")
                assert await second.reply("second") == "second"
                await bounded(connection._state.pending_request_count.wait_for(0))

                await bounded(connection.close(wait=True))
                await second.receive(Kind.WORKER_PAUSE)
                await second.receive_close()
                await bounded(started)
            assert gateway.starts == 2
            assert not connection._thread.is_alive()
            expected = [CONNECTING, ACTIVE, RECONNECTING, CONNECTING, ACTIVE, CLOSING, CLOSED]
            assert path(called_back) == path(drain(never_read)) == expected
            for follower in followers:
                assert path(await bounded(follower)) == expected
            assert path(drain(pending)) == [0, 1, 0, 1, 0]
            assert conn_state.statistics().waiters == 0
            changes = [vars(record) for record in log.records if record.getMessage() == "Connection state changed"]
            assert path((change["old"], change["new"]) for change in changes) == [state.value for state in expected]

    asyncio.run(bounded(main()))
    assert errors(log) == []


def test_graceful_close_waits_for_the_request_in_flight(ours: Any, quick: None, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        finish = asyncio.Event()

        async def slow(ctx: Any) -> str:
            await finish.wait()
            return "done"

        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, slow)
            state = connection._state
            async with running(connection) as started:
                peer = await gateway.accept()
                await peer.greet()
                await peer.execute("slow", "request")
                await bounded(state.pending_request_count.wait_for(1))
                closed = asyncio.create_task(connection.close(wait=True))
                drained = asyncio.create_task(state.pending_request_count.wait_for(0))
                await peer.receive(Kind.WORKER_PAUSE)
                assert connection.get_state() is CLOSING
                assert not (closed.done() or drained.done() or started.done())
                finish.set()
                assert await peer.reply("request") == "done"
                await bounded(asyncio.gather(drained, closed, started))
                assert connection.get_state() is CLOSED

    asyncio.run(bounded(main()))
    assert errors(log) == []


def test_reply_that_found_no_connection_is_flushed(ours: Any, quick: None) -> None:
    """The gateway closes while a request runs: the reply goes out over HTTP, and the count comes down."""

    async def main() -> None:
        finish = asyncio.Event()

        async def slow(ctx: Any) -> str:
            await finish.wait()
            return "done"

        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, slow)
            state = connection._state
            async with running(connection) as started:
                peer = await gateway.accept()
                await peer.greet(lease="1s")
                await peer.execute("slow", "request")
                # No other gateway to go to, for now.
                gateway.refusals.append(500)
                drained = asyncio.create_task(state.pending_request_count.wait_for(0))
                await peer.send(Kind.GATEWAY_CLOSING)
                await bounded(state.ws.wait_for(None))
                finish.set()
                assert await bounded(drained) == 0
                flushed = await bounded(gateway.flushed.get())
                assert (flushed.request_id, flushed.body) == ("request", b'"done"')
                await bounded(connection.close(wait=True))
                await bounded(started)

    asyncio.run(bounded(main()))


def test_request_whose_lease_is_lost_is_cancelled(ours: Any, quick: None, log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def endless(ctx: Any) -> None:
            try:
                await asyncio.sleep(LIMIT * 2)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, endless)
            pending = connection._state.pending_request_count
            async with running(connection) as started:
                peer = await gateway.accept()
                await peer.greet(lease="1s")
                await peer.execute("endless", "request")
                await bounded(pending.wait_for(1))
                extend = await peer.receive(
                    Kind.WORKER_REQUEST_EXTEND_LEASE, connect_pb2.WorkerRequestExtendLeaseData()
                )
                assert extend.lease_id == "lease"
                # Without a new lease: it is lost.
                lost = connect_pb2.WorkerRequestExtendLeaseAckData(request_id="request")
                await peer.send(Kind.WORKER_REQUEST_EXTEND_LEASE_ACK, lost)
                await bounded(cancelled.wait())
                assert await bounded(pending.wait_for(0)) == 0
                await bounded(connection.close(wait=True))
                await bounded(started)

    asyncio.run(bounded(main()))
    assert errors(log) == []


def test_broken_connection_is_made_again(ours: Any, quick: None) -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, echo)
            transitions = connection._state.conn_state.watch()
            async with running(connection) as started:
                first = await gateway.accept()
                await first.greet()
                await bounded(connection.wait_for_state(ACTIVE))
                first.abort()
                second = await gateway.accept()
                await second.greet(again=True)
                await second.execute("echo", "after")
                assert await second.reply("after") == "after"
                await bounded(connection.close(wait=True))
                await bounded(started)
            expected = [CONNECTING, ACTIVE, RECONNECTING, CONNECTING, ACTIVE, CLOSING, CLOSED]
            assert path(drain(transitions)) == expected

    asyncio.run(bounded(main()))


def test_refused_connection_ends_closed(ours: Any, quick: None) -> None:
    async def main() -> None:
        async with Gateway() as gateway:
            gateway.refusals.append(401)
            connection = create_connection(gateway.origin, echo)
            transitions = connection._state.conn_state.watch()
            async with running(connection) as started:
                with pytest.raises(Exception, match="unauthorized"):
                    await bounded(started)
                await bounded(connection.closed())
            assert path(drain(transitions)) == [CONNECTING, CLOSED]
            assert not connection._thread.is_alive()

    asyncio.run(bounded(main()))


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself SIGTERM on Windows")
@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signal handlers need the main thread"
)
def test_closed_by_a_signal(ours: Any, quick: None, log: pytest.LogCaptureFixture) -> None:
    """The SDK sets the state from inside a signal handler, which may interrupt the loop anywhere."""

    async def main() -> None:
        async with Gateway() as gateway:
            connection = create_connection(gateway.origin, echo, shutdown_signals=[signal.SIGTERM])
            async with running(connection) as started:
                peer = await gateway.accept()
                await peer.greet()
                await bounded(connection.wait_for_state(ACTIVE))
                closing = asyncio.create_task(connection.wait_for_state(CLOSING))
                # So that it waits before the signal comes, and does not find the state after that one.
                await asyncio.sleep(0)
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
                await bounded(closing)
                await peer.receive(Kind.WORKER_PAUSE)
                await bounded(started)
                assert connection.get_state() is CLOSED

    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(bounded(main()))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert errors(log) == []
