"""What the storms share: threads with a tiny switch interval, ticks, and what must not happen meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import interlock as _interlock

# Where the package under test is imported from.
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(_interlock.__file__)))

# What ends a test that hangs; never what makes one pass.
LIMIT = 50.0

kinds = pytest.mark.parametrize("kind", ["plain", "uvloop"])


def assert_chains(pairs: list[tuple[Any, Any]]) -> None:
    """Each pair begins where the one before it ended (W1)."""
    for (_, new), (old, _) in itertools.pairwise(pairs):
        assert new == old


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@contextlib.contextmanager
def switching() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def nothing_unraisable() -> Iterator[None]:
    """Nothing reaches `sys.unraisablehook` or `threading.excepthook`."""
    found: list[Any] = []
    before = sys.unraisablehook, threading.excepthook
    # Only the texts, so that no object is kept alive.
    sys.unraisablehook = lambda args: found.append(f"{args.exc_value!r} in {args.object!r}")
    threading.excepthook = lambda args: found.append(f"{args.exc_value!r} in {args.thread!r}")
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before
    assert found == []


def together(*functions: Callable[[], object], meanwhile: Sequence[Callable[[], object]] = ()) -> None:
    """Run each in a thread of its own; raise the first error of any.

    Those in `meanwhile` are called again and again until the others have ended.
    """
    errors: list[BaseException] = []
    start = threading.Barrier(len(functions) + len(meanwhile))
    stop = threading.Event()

    def guarded(function: Callable[[], object], again: bool) -> None:
        try:
            start.wait(LIMIT)
            function()
            while again and not stop.is_set():
                time.sleep(0)  # or the loops under test would rarely have their turn
                function()
        except BaseException as error:
            errors.append(error)

    def started(function: Callable[[], object], again: bool) -> threading.Thread:
        thread = threading.Thread(target=guarded, args=(function, again), daemon=True)
        thread.start()
        return thread

    with switching():
        background = [started(function, True) for function in meanwhile]
        threads = [started(function, False) for function in functions]
        try:
            for thread in threads:
                thread.join(LIMIT)
        finally:
            stop.set()
        for thread in background:
            thread.join(LIMIT)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in [*threads, *background]), "deadlock"


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    return loop


def run_on(kind: str, main: Coroutine[Any, Any, Any]) -> Any:
    """As `asyncio.run`, in any thread; fails if anything reaches the exception handler."""
    problems: list[Any] = []
    loop = new_loop(kind)
    loop.set_exception_handler(lambda _, details: problems.append(details))
    try:
        result = loop.run_until_complete(asyncio.wait_for(main, LIMIT))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert problems == []
    return result


def python(interlock: Any, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program on this backend in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "faulthandler", "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([SOURCE, str(Path(__file__).parent)]),
            "INTERLOCK_BACKEND": interlock.backend,
            **environment,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


# For a program: a subinterpreter, `inner`, in which it runs what is in `program`.
IN_A_SUBINTERPRETER = """
try:
    from concurrent import interpreters
except ImportError:
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
inner = interpreters.create()
if hasattr(inner, "exec"):
    inner.exec(program)
else:
    failed = (getattr(interpreters, "exec", None) or interpreters.run_string)(inner, program)
    assert not failed, failed
"""


def clean(interlock: Any, program: str, **environment: str) -> str:
    """The output of a program that must end well, and silently."""
    done = python(interlock, program, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
