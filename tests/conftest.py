"""Every test runs on both backends, and what awaits, on every kind of loop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import sys
import sysconfig
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from helpers import LIMIT
from interlock.demo.backends import load

uvloop: Any
try:
    uvloop = importlib.import_module("uvloop")
except ImportError:  # no wheel for this interpreter
    uvloop = None

LOOPS = ["plain", "debug"]
if sys.version_info >= (3, 12):
    LOOPS.append("eager")
if uvloop is not None:
    LOOPS.append("uvloop")

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backend", choices=["rust", "pure", "both"], default="both", help="which backend to test")
    parser.addoption("--storms", type=int, default=1, help="how many queue storms to run of each kind")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "interlock" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--backend")
        metafunc.parametrize("interlock", ["rust", "pure"] if wanted == "both" else [wanted], indirect=True)
    if "storm_seed" in metafunc.fixturenames:
        metafunc.parametrize("storm_seed", range(metafunc.config.getoption("--storms")))


def pytest_collection_finish(session: pytest.Session) -> None:
    # What is there by now stays; looking through it after each test would take most of the time.
    gc.collect()
    gc.freeze()


@pytest.fixture
def interlock(request: pytest.FixtureRequest) -> Any:
    """The package on one backend."""
    return load(request.param)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine as `asyncio.run` does, on one kind of loop.

    It fails the test if anything reached the loop's exception handler.
    """
    kind: str = request.param
    problems: list[dict[str, Any]] = []

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        loop = uvloop.new_event_loop() if kind == "uvloop" else asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, details: problems.append(details))
        loop.set_debug(kind == "debug")
        # Slow handles are the machine's business, not the test's.
        loop.slow_callback_duration = 60
        if kind == "eager" and sys.version_info >= (3, 12):
            loop.set_task_factory(asyncio.eager_task_factory)
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LIMIT))
        finally:
            try:
                left = asyncio.all_tasks(loop)
                for task in left:
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.wait(left, timeout=LIMIT))
                loop.run_until_complete(loop.shutdown_asyncgens())
            finally:
                loop.close()

    yield run
    assert problems == []


_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def _no_garbage_left() -> Iterator[None]:
    """What a test drops must not warn in a later one."""
    yield
    # The free-threaded collector looks through everything, frozen or not, which would take most of the time.
    if _FREE_THREADED and next(_tests) % 20:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    # What is left is pytest's, which keeps ever more; it need not be looked through after each test.
    gc.freeze()
