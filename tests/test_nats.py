"""`nats-py` against a real `nats-server`, with asyncio's queues and with interlock's in their place: same messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from benches import nats_server
from conftest import Run
from nats_scenarios import CASES, Case, connected


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    program = nats_server.find()
    if program is None:
        pytest.skip("needs 'nats-server'; on Debian and Ubuntu: apt-get install nats-server")
    with nats_server.running(program) as url:
        yield url


@pytest.fixture
def ours(interlock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """interlock's queues are installed; making one of asyncio's fails the test."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("nats-py has made a queue of asyncio's own")

    monkeypatch.setattr(asyncio.Queue, "__init__", refuse)
    interlock.install()
    try:
        yield
    finally:
        interlock.uninstall()


async def seen(case: Case, url: str) -> object:
    async with connected(url) as client:
        found = await case.scenario(client)
        assert client.errors == []
        return found


def named(case: Case) -> str:
    return case.scenario.__name__


@pytest.mark.parametrize("case", CASES, ids=named)
def test_q1_nats_on_asyncios_queues(run: Run, url: str, case: Case) -> None:
    assert run(seen(case, url)) == case.expected


@pytest.mark.parametrize("case", CASES, ids=named)
def test_q1_nats_on_ours(run: Run, ours: None, url: str, case: Case) -> None:
    assert run(seen(case, url)) == case.expected
