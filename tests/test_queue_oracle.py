"""CPython's own tests of asyncio's queues, with interlock's in their place (Q1).

They are run where CPython has put them, by a script beside this repository; none is copied.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from storm import LIMIT, SOURCE

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT.parent / "shared" / "oracle" / "cpython_queue_tests.py"
INTERPRETERS = ROOT / ".ci" / "interpreters"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason=f"there is no {SCRIPT.name} beside the repository")

RUN = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"

# What the tests of newer versions use and 3.10 lacks: it waits for its tasks, and raises what one of them has raised.
TASK_GROUP = """
import asyncio

class TaskGroup:
    async def __aenter__(self):
        self._tasks = []
        return self

    def create_task(self, coroutine):
        self._tasks.append(asyncio.create_task(coroutine))
        return self._tasks[-1]

    async def __aexit__(self, kind, error, traceback):
        if error is not None:
            for task in self._tasks:
                task.cancel()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found

asyncio.TaskGroup = TaskGroup
"""

STDLIB = "import sysconfig; print(sysconfig.get_path('stdlib'))"


def file_below(stdlib: str) -> Path:
    return Path(stdlib) / "test" / "test_asyncio" / "test_queues.py"


@functools.cache
def newest_file() -> Path:
    """That of the newest interpreter on this machine that has come with CPython's tests."""
    bash = shutil.which("bash")
    if bash is None or not INTERPRETERS.exists():
        pytest.skip("the interpreters of this machine cannot be listed here")
    listed = subprocess.run([bash, str(INTERPRETERS)], capture_output=True, text=True, check=True, timeout=LIMIT)
    for interpreter in reversed(listed.stdout.splitlines()):
        stdlib = subprocess.run([interpreter, "-c", STDLIB], capture_output=True, text=True, check=True, timeout=LIMIT)
        if (file := file_below(stdlib.stdout.strip())).exists():
            return file
    pytest.skip("no interpreter of this machine has come with CPython's tests")


def assert_pass(interlock: Any, *arguments: str) -> None:
    program = RUN if sys.version_info >= (3, 11) else TASK_GROUP + RUN
    done = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPT), "interlock", *arguments],
        env={**os.environ, "PYTHONPATH": SOURCE, "INTERLOCK_BACKEND": interlock.backend},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    summary = re.search(r"^\S+: (\d+) run, (\d+) failed, (\d+) errors$", done.stdout, re.M)
    assert summary is not None, done.stderr
    run, failed, errors = map(int, summary.groups())
    assert (done.returncode, failed, errors) == (0, 0, 0), done.stderr
    assert run > 0, done.stderr


def test_q1_the_tests_of_this_interpreter(interlock: Any) -> None:
    if not file_below(sysconfig.get_path("stdlib")).exists():
        pytest.skip("this interpreter has come without CPython's tests")
    assert_pass(interlock)


def test_q1_the_tests_of_the_newest_interpreter(interlock: Any) -> None:
    """Those of 3.13 and newer ask for `shutdown` (S15, S23), which older interpreters' own do not."""
    assert_pass(interlock, str(newest_file()))
