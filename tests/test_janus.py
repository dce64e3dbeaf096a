"""In the place of `janus.Queue` (Q9): the surface, and programs that run on both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from janus_programs import CASES, Case, Names, janus

CLASSES = ["Queue", "PriorityQueue", "LifoQueue"]
VIEWS = ["sync_q", "async_q"]


def public(subject: Any) -> Iterator[str]:
    return (name for name in dir(subject) if not name.startswith("_"))


def parameters(function: Any) -> list[inspect.Parameter]:
    # An annotation is for the reader; the two write the same in different ways.
    return [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]


def assert_covers(ours: Any, theirs: Any, where: str) -> None:
    """What can be called in their way, can be called in that way here."""
    if not callable(theirs):
        assert not callable(ours), where
        return
    wanted = parameters(theirs)
    offered = parameters(ours)
    assert offered[: len(wanted)] == wanted, where
    for extra in offered[len(wanted) :]:
        assert extra.default is not extra.empty, f"{where}: {extra} would have to be given"
    if inspect.iscoroutinefunction(theirs):
        coroutine = ours(*(None for _ in wanted))
        assert asyncio.iscoroutine(coroutine), where
        coroutine.close()


@pytest.mark.parametrize("name", CLASSES)
def test_q9_the_class_has_their_surface(interlock: Any, name: str) -> None:
    theirs, ours = getattr(janus, name), getattr(interlock, name)
    assert_covers(ours, theirs, name)
    their_queue, our_queue = theirs(3), ours(3)
    for method in public(their_queue):
        assert_covers(getattr(our_queue, method), getattr(their_queue, method), f"{name}.{method}")


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("view", VIEWS)
def test_q9_the_view_has_their_surface(interlock: Any, name: str, view: str) -> None:
    theirs, ours = (getattr(getattr(module, name)(3), view) for module in (janus, interlock))
    for method in public(theirs):
        assert_covers(getattr(ours, method), getattr(theirs, method), f"{name}.{view}.{method}")


def test_q9_the_exceptions_are_theirs(interlock: Any) -> None:
    """Those that both take from the standard library; before 3.13 it has none for a shutdown, and each has its own."""
    assert interlock.SyncQueueEmpty is janus.SyncQueueEmpty
    assert interlock.SyncQueueFull is janus.SyncQueueFull
    assert interlock.QueueEmpty is janus.AsyncQueueEmpty
    assert interlock.QueueFull is janus.AsyncQueueFull
    ours = interlock.SyncQueueShutDown, interlock.QueueShutDown
    theirs = janus.SyncQueueShutDown, janus.AsyncQueueShutDown
    if hasattr(__import__("queue"), "ShutDown"):
        assert ours == theirs
    assert ours[0] is not ours[1]


def named(case: Case) -> str:
    return case.program.__name__


@pytest.mark.parametrize("case", CASES, ids=named)
def test_q9_a_program_on_theirs(case: Case) -> None:
    assert case.program(Names(janus)) == case.theirs


@pytest.mark.parametrize("case", CASES, ids=named)
def test_q9_a_program_on_ours(interlock: Any, case: Case) -> None:
    assert case.program(Names(interlock)) == case.ours
