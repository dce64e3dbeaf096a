"""Bad input, X15 and X16: the exact exception, a text that says what to do, counts and items untouched."""

from __future__ import annotations

import asyncio
import copy
import pickle
import queue
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from conftest import Run
from queues import assert_account, drain, every_kind, make

CLASSES = pytest.mark.parametrize("cls", ["Queue", "PriorityQueue", "LifoQueue"])


@contextmanager
def unchanged(q: Any) -> Iterator[None]:
    before, representation = q.statistics(), repr(q)
    yield
    assert (q.statistics(), repr(q)) == (before, representation)


def half_full(package: Any, kind: str) -> Any:
    q = make(package, kind, 2)
    q.put_nowait(1)
    return q


TIMED: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda q, timeout: q.get(timeout=timeout),
    "put": lambda q, timeout: q.put(2, timeout=timeout),
    "join": lambda q, timeout: q.join(timeout=timeout),
    "sync get": lambda q, timeout: q.sync_q.get(timeout=timeout),
    "sync put": lambda q, timeout: q.sync_q.put(2, timeout=timeout),
    "sync join": lambda q, timeout: q.sync_q.join(timeout=timeout),
}


@every_kind
@pytest.mark.parametrize("name", TIMED)
def test_a_negative_timeout(interlock: Any, kind: str, name: str) -> None:
    """At the call, also where there is no need to wait."""
    q = half_full(interlock, kind)
    for timeout in (-1, -0.001, float("-inf"), float("nan"), Fraction(-1, 3), -(10**400)):
        with unchanged(q), pytest.raises(ValueError, match=r"timeout must be 0 or more seconds.*None"):
            TIMED[name](q, timeout)


@every_kind
@pytest.mark.parametrize("name", TIMED)
def test_a_timeout_that_is_no_number(interlock: Any, kind: str, name: str) -> None:
    q = half_full(interlock, kind)
    timeout: Any
    for timeout in ("1", b"1", [], (), object(), 1j, print):
        with unchanged(q), pytest.raises(TypeError, match=r"timeout must be a number of seconds or None, not \w+"):
            TIMED[name](q, timeout)


@CLASSES
@pytest.mark.parametrize("maxsize", ["1", None, [], 1j, True, False, Fraction(1), Decimal(1), b"1", object()])
def test_a_maxsize_that_is_no_int(interlock: Any, cls: str, maxsize: Any) -> None:
    with pytest.raises(TypeError, match=rf"maxsize must be an int, not {type(maxsize).__name__}.*0 is no limit"):
        getattr(interlock, cls)(maxsize)


@CLASSES
def test_a_maxsize_that_is_not_a_number(interlock: Any, cls: str) -> None:
    with pytest.raises(ValueError, match=r"maxsize must be an int, not nan"):
        getattr(interlock, cls)(float("nan"))


@every_kind
def test_truth_is_all_that_counts_of_immediate(interlock: Any, kind: str) -> None:
    class NoTruth:
        def __bool__(self) -> bool:
            raise ValueError("no truth")

    q = half_full(interlock, kind)
    with unchanged(q), pytest.raises(ValueError, match="no truth"):
        q.shutdown(NoTruth())
    q.shutdown([])
    assert q.is_shutdown and q.qsize() == 1
    q.shutdown("yes")
    assert q.qsize() == 0


@every_kind
def test_task_done_too_often(interlock: Any, kind: str) -> None:
    q = half_full(interlock, kind)
    q.task_done()
    for task_done in (q.task_done, q.sync_q.task_done):
        with unchanged(q), pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
            task_done()


def test_an_unorderable_priority(interlock: Any, run: Run) -> None:
    async def main() -> None:
        q = interlock.PriorityQueue(2)
        q.put_nowait(1)
        for item in ("text", None, [1], 1j, object()):
            for put in (q.put_nowait, q.sync_q.put):
                with unchanged(q), pytest.raises(TypeError, match="not supported between"):
                    put(item)
            with unchanged(q), pytest.raises(TypeError, match="not supported between"):
                await q.put(item)
        # Alone it need not be compared.
        assert drain(q) == [1]
        await q.put(None)
        with unchanged(q), pytest.raises(TypeError, match="not supported between"):
            await q.put(None)

    run(main())


def test_a_key_that_cannot_be_called(interlock: Any) -> None:
    class Own(interlock.PriorityQueue):  # type: ignore[misc, name-defined, unused-ignore]
        def _get(self) -> Any:
            return super()._get()

    key: Any
    for key in (1, "name", []):
        with pytest.raises(TypeError, match="key must be a callable or None, not"):
            interlock.PriorityQueue(key=key)
    with pytest.raises(TypeError, match=r"key= is for queues that order their items themselves.*_put and _get"):
        Own(key=len)
    assert Own(key=None).empty()
    with pytest.raises(TypeError):
        interlock.PriorityQueue(0, len)
    with pytest.raises(TypeError):
        interlock.Queue(key=len)


@every_kind
def test_arguments_that_do_not_exist(interlock: Any, kind: str) -> None:
    q = half_full(interlock, kind)
    calls: list[Callable[[], Any]] = [
        lambda: q.put(),
        lambda: q.put(1, 2),
        lambda: q.put_nowait(),
        lambda: q.put_nowait(1, timeout=1),
        lambda: q.get(1),
        lambda: q.get(True, 1),
        lambda: q.get(block=False),
        lambda: q.get_nowait(0),
        lambda: q.join(1),
        lambda: q.task_done(1),
        lambda: q.abort(True),
        lambda: q.shutdown(True, True),
        lambda: q.shutdown(now=True),
        lambda: type(q)(1, 2, 3),
        lambda: type(q)(loop=None),
    ]
    for call in calls:
        with unchanged(q), pytest.raises(TypeError):
            call()
    for name in ("maxsize", "is_shutdown"):
        with unchanged(q), pytest.raises(AttributeError):
            setattr(q, name, 1)


@pytest.mark.parametrize("hooks", [False, True])
@CLASSES
def test_an_init_that_was_not_called(interlock: Any, cls: str, hooks: bool) -> None:
    base = getattr(interlock, cls)

    class Forgetful(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            pass

    class ForgetfulWithHooks(Forgetful):
        def _put(self, item: Any) -> None:
            raise AssertionError("never set up")

    q = (ForgetfulWithHooks if hooks else Forgetful)()
    uses: list[Callable[[], Any]] = [
        lambda: q.put_nowait(1),
        lambda: asyncio.run(q.put(1)),
        lambda: q.get_nowait(),
        lambda: asyncio.run(q.get()),
        lambda: asyncio.run(q.join()),
        lambda: q.task_done(),
        lambda: q.shutdown(),
        lambda: q.abort(),
        lambda: q.qsize(),
        lambda: q.empty(),
        lambda: q.full(),
        lambda: q.maxsize,
        lambda: q.is_shutdown,
        lambda: q.statistics(),
        lambda: repr(q),
        lambda: q.sync_q.put(1),
        lambda: q.sync_q.get(timeout=0),
        lambda: q.sync_q.join(),
        lambda: base.__new__(base).get_nowait(),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=r"__init__"):
            use()


def test_x15_exceptions_survive_pickle_and_copy(interlock: Any) -> None:
    """S24."""
    names = ["QueueEmpty", "QueueFull", "QueueShutDown", "SyncQueueEmpty", "SyncQueueFull", "SyncQueueShutDown"]
    for name in names:
        for original in (getattr(interlock, name)(), getattr(interlock, name)("text", 1)):
            round_trips = [pickle.loads(pickle.dumps(original, protocol)) for protocol in range(6)]
            for twin in (*round_trips, copy.copy(original), copy.deepcopy(original)):
                assert type(twin) is type(original) and twin.args == original.args


def test_s23_the_exceptions_are_those_of_the_standard_library(interlock: Any) -> None:
    assert interlock.QueueEmpty is asyncio.QueueEmpty and interlock.QueueFull is asyncio.QueueFull
    assert interlock.SyncQueueEmpty is queue.Empty and interlock.SyncQueueFull is queue.Full
    if sys.version_info >= (3, 13):
        assert interlock.QueueShutDown is asyncio.QueueShutDown
        assert interlock.SyncQueueShutDown is queue.ShutDown


@every_kind
def test_x15_a_queue_refuses_pickling_and_copying(interlock: Any, kind: str) -> None:
    q = half_full(interlock, kind)
    waits = [q.get(), q.put(2), q.join(), anext(q)]
    with unchanged(q):
        for item in (q, q.sync_q, *waits):
            for protocol in range(6):
                with pytest.raises(TypeError, match=r"cannot (be )?pickle"):
                    pickle.dumps(item, protocol)
            for copying in (copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"cannot (be )?(pickle|copied)"):
                    copying(item)
    for wait in waits:
        wait.close()


def test_x15_statistics_are_data(interlock: Any) -> None:
    figures = half_full(interlock, "fifo").statistics()
    assert copy.deepcopy(figures) == figures and figures.__reduce_ex__(4)
    with pytest.raises(AttributeError):
        figures.size = 2


def test_x16_methods_taken_from_the_class_refuse_other_objects(interlock: Any) -> None:
    for name in ("put_nowait", "get_nowait", "put", "get", "task_done", "join", "shutdown", "abort", "statistics"):
        arguments = (object(), 1) if name.startswith("put") else (object(),)
        with pytest.raises((TypeError, AttributeError)):
            result = getattr(interlock.Queue, name)(*arguments)
            asyncio.run(result)


FAULTS: list[type[BaseException]] = [MemoryError, RecursionError, SystemError, StopIteration, GeneratorExit]
# What the queue itself raises, and the view translates.
FAULTS += [asyncio.TimeoutError, asyncio.CancelledError]


@pytest.mark.parametrize("fault", FAULTS)
def test_x16_what_user_code_raises_comes_out_as_it_is(interlock: Any, run: Run, fault: type[BaseException]) -> None:
    def bad(item: Any) -> Any:
        raise fault("from the user's code")

    async def main() -> None:
        q = interlock.PriorityQueue(key=bad)
        with pytest.raises(fault, match="from the user"):
            q.put_nowait(1)
        with pytest.raises(fault, match="from the user"):
            q.sync_q.put(1)
        # In a coroutine, PEP 479.
        with pytest.raises(RuntimeError if fault is StopIteration else fault):
            await q.put(1)
        assert_account(q, accepted=0)

    run(main())
