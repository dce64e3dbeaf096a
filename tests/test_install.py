"""`install()` and `uninstall()`: what they reach, what they cannot, and that nothing stays behind.

Each program is one of its own, for what they change is the whole process's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from storm import clean

START = """
import asyncio, asyncio.queues, sys, threading
import interlock
NAMES = ("Queue", "PriorityQueue", "LifoQueue", "QueueShutDown")
MODULES = (asyncio, asyncio.queues)

def state():
    return {(module, name): getattr(module, name, None) for module in MODULES for name in NAMES}

def everything():
    return [(module, dict(vars(module))) for module in MODULES]

before, all_before = state(), everything()
installed = {(module, name): getattr(interlock, name) for module in MODULES for name in NAMES}
"""


def test_they_are_exact_and_idempotent(interlock: Any) -> None:
    clean(
        interlock,
        START
        + """
assert state() == before  # importing changes nothing
interlock.uninstall()
assert everything() == all_before
for _ in range(2):
    interlock.install()
    assert state() == installed
    interlock.install()
    assert state() == installed
    interlock.uninstall()
    assert everything() == all_before
    interlock.uninstall()
    assert everything() == all_before
""",
    )


def test_there_is_a_queue_shut_down_before_3_13(interlock: Any) -> None:
    """S23. It is gone again afterwards where it was not there."""
    clean(
        interlock,
        START
        + """
async def main():
    queue = asyncio.Queue()
    queue.shutdown()
    try:
        await queue.get()
    except asyncio.QueueShutDown:
        return True

assert hasattr(asyncio, "QueueShutDown") == (sys.version_info >= (3, 13))
interlock.install()
assert asyncio.run(main())
interlock.uninstall()
assert hasattr(asyncio, "QueueShutDown") == hasattr(asyncio.queues, "QueueShutDown") == (sys.version_info >= (3, 13))
""",
    )


def test_what_others_have_put_there_stays(interlock: Any) -> None:
    """What was there at `install()` comes back; what came later is neither replaced nor removed."""
    clean(
        interlock,
        START
        + """
class Before(asyncio.Queue): pass
class QueueShutDown(Exception): pass
asyncio.Queue, asyncio.QueueShutDown = Before, QueueShutDown
interlock.install()
assert state() == installed

class After(asyncio.LifoQueue): pass
asyncio.LifoQueue = After
del asyncio.queues.PriorityQueue
interlock.install()
assert asyncio.LifoQueue is After and not hasattr(asyncio.queues, "PriorityQueue")
interlock.uninstall()
assert asyncio.LifoQueue is After and not hasattr(asyncio.queues, "PriorityQueue")
assert asyncio.Queue is Before and asyncio.QueueShutDown is QueueShutDown
assert asyncio.PriorityQueue is before[asyncio, "PriorityQueue"]
assert asyncio.queues.LifoQueue is before[asyncio.queues, "LifoQueue"]

# It goes on from there.
interlock.install()
assert state() == installed
interlock.uninstall()
assert asyncio.LifoQueue is After and asyncio.Queue is Before
""",
    )


def test_what_it_reaches(interlock: Any) -> None:
    clean(
        interlock,
        START
        + """
def late():
    return asyncio.Queue(3)

interlock.install()
from asyncio import Queue, queues
from asyncio.queues import LifoQueue
assert type(late()) is interlock.Queue
assert Queue is queues.Queue is interlock.Queue and LifoQueue is interlock.LifoQueue
star = {}
exec("from asyncio import *", star)
assert star["Queue"] is interlock.Queue and star["PriorityQueue"] is interlock.PriorityQueue
assert isinstance(asyncio.Queue[int](), asyncio.Queue)
assert issubclass(asyncio.LifoQueue, asyncio.Queue) and issubclass(asyncio.PriorityQueue, asyncio.Queue)
""",
    )


def test_what_it_cannot_reach(interlock: Any) -> None:
    """As documented; and all of that goes on working."""
    clean(
        interlock,
        START
        + """
from asyncio import Queue
class Derived(asyncio.Queue): pass
made = asyncio.Queue()
interlock.install()
assert Queue is before[asyncio, "Queue"]
assert issubclass(Derived, Queue) and not issubclass(Derived, asyncio.Queue)
assert type(made) is Queue and not isinstance(made, asyncio.Queue)
assert not hasattr(asyncio.Queue(), "_getters")
assert not hasattr(asyncio.Queue(), "_queue")

async def main():
    for queue in (Queue(), Derived(), made):
        get = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.put_nowait(1)
        assert await get == 1
        queue.task_done()
        await queue.join()

asyncio.run(main())
""",
    )


def test_what_was_made_meanwhile_goes_on_after_an_uninstall(interlock: Any) -> None:
    clean(
        interlock,
        START
        + """
async def main():
    interlock.install()
    queue = asyncio.Queue(1)
    class Derived(asyncio.Queue): pass
    interlock.uninstall()
    for queue in (queue, Derived(1)):
        get = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        await queue.put(1)
        assert await get == 1
        await queue.put(2)
        put = asyncio.ensure_future(queue.put(3))
        await asyncio.sleep(0)
        assert [await queue.get(), await queue.get()] == [2, 3]
        await put
        queue.shutdown()
        try:
            await queue.get()
        except interlock.QueueShutDown:
            pass
        else:
            raise AssertionError

asyncio.run(main())
""",
    )


def test_classes_derived_while_it_is_installed(interlock: Any) -> None:
    """S11: with and without the hooks, with arguments of their own, mixed in and slotted."""
    clean(
        interlock,
        START
        + """
import collections
interlock.install()

class Named(asyncio.Queue):
    def __init__(self, name, maxsize=0):
        super().__init__(maxsize)
        self.name = name

class Distinct(asyncio.Queue):
    def _init(self, maxsize):
        self.items = collections.OrderedDict()
        self.puts = 0
    def _put(self, item):
        self.puts += 1
        self.items[item] = None
    def _get(self):
        return self.items.popitem(last=False)[0]
    def qsize(self):
        return len(self.items)
    def empty(self):
        return not self.items

class Weighted(asyncio.Queue):
    def _init(self, maxsize):
        self._queue = []
    def qsize(self):
        return sum(self._queue)
    def _put(self, item):
        self._queue.append(item)
    def _get(self):
        return self._queue.pop(0)

class Counted(asyncio.PriorityQueue):
    def _init(self, maxsize):
        super()._init(maxsize)
        self.order = 0
    def _put(self, item):
        self.order += 1
        super()._put((item, self.order))
    def _get(self):
        return super()._get()[0]

class Mixin:
    def put_nowait(self, item):
        self.seen = [*getattr(self, "seen", ()), item]
        super().put_nowait(item)

class Mixed(Mixin, asyncio.LifoQueue):
    pass

async def through(queue, items):
    for item in items:
        await queue.put(item)
    assert f"tasks={len(items)}" in repr(queue)
    found = [await queue.get() for _ in range(len(items) if not isinstance(queue, Distinct) else len(set(items)))]
    for _ in items:
        queue.task_done()
    await queue.join()
    return found

async def main():
    named = Named("n", maxsize=3)
    assert (named.name, named.maxsize, await through(named, [3, 1, 2])) == ("n", 3, [3, 1, 2])
    distinct = Distinct()
    assert await through(distinct, [3, 1, 3, 2]) == [3, 1, 2] and distinct.puts == 4
    assert await through(Counted(), [3, 1, 2]) == [1, 2, 3]
    mixed = Mixed()
    assert await through(mixed, [3, 1, 2]) == [2, 1, 3] and mixed.seen == [3, 1, 2]

    weighted = Weighted(10)
    await weighted.put(6)
    await weighted.put(3)
    assert not weighted.full()
    await weighted.put(2)
    assert weighted.full() and weighted.qsize() == 11
    put = asyncio.ensure_future(weighted.put(1))
    await asyncio.sleep(0)
    assert not put.done()
    assert await weighted.get() == 6
    await asyncio.wait_for(put, 20)
    assert [await weighted.get() for _ in range(3)] == [3, 2, 1]

asyncio.run(main())
""",
    )


AS_COMPLETED = """
async def value(item):
    await asyncio.sleep(0.001 * item)
    if item == 2:
        raise ValueError(item)
    return item

async def results(aws, **options):
    found = []
    for next_one in asyncio.as_completed(aws, **options):
        try:
            found.append(await next_one)
        except (ValueError, asyncio.TimeoutError) as error:
            found.append(type(error).__name__)
    return found

async def main():
    assert sorted(map(str, await results([value(item) for item in range(5)], timeout=20))) == [
        "0", "1", "3", "4", "ValueError"
    ]
    never = [asyncio.ensure_future(asyncio.Event().wait()) for _ in range(2)]
    assert await results([*never, value(1)], timeout=0.2) == [1, "TimeoutError", "TimeoutError"]
    for task in never:
        task.cancel()
    await asyncio.wait(never)
    # Together, as it is used by many tasks at once.
    found = await asyncio.gather(*(results([value(item) for item in (0, 1)]) for _ in range(50)))
    assert found == [[0, 1]] * 50
    if sys.version_info >= (3, 13):
        tasks = [asyncio.create_task(value(item)) for item in (3, 0)]
        assert [task async for task in asyncio.as_completed(tasks)] == tasks[::-1]
"""


@pytest.mark.parametrize("kind", ["plain", "debug", "eager", "uvloop"])
def test_as_completed(interlock: Any, kind: str) -> None:
    """asyncio's own user of its queue, on every version."""
    if kind == "eager" and sys.version_info < (3, 12):
        pytest.skip("there is no eager task factory before 3.12")
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    clean(
        interlock,
        START
        + AS_COMPLETED
        + f"""
interlock.install()
new_event_loop = __import__({"uvloop" if kind == "uvloop" else "asyncio"!r}).new_event_loop
made = []
init = interlock.Queue.__init__
interlock.Queue.__init__ = lambda self, *arguments: made.append(self) or init(self, *arguments)
loop = new_event_loop()
loop.set_debug({kind == "debug"})
loop.slow_callback_duration = 60
if {kind == "eager"}:
    loop.set_task_factory(asyncio.eager_task_factory)
problems = []
loop.set_exception_handler(lambda _, details: problems.append(details))
loop.run_until_complete(asyncio.wait_for(main(), 40))
loop.close()
assert problems == [], problems
assert len(made) >= 52, len(made)
""",
    )


def test_isolated_test_cases(interlock: Any) -> None:
    """Up to 3.10 `unittest` runs the methods of an asynchronous test case through a queue."""
    clean(
        interlock,
        START
        + """
import unittest
interlock.install()
called = []

class Case(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        called.append("set up")
        self.queue = asyncio.Queue()
        self.addAsyncCleanup(self.clean_up)
    async def clean_up(self):
        called.append("cleaned up")
    async def asyncTearDown(self):
        called.append("torn down")
    async def test_passes(self):
        task = asyncio.create_task(self.queue.get())
        await asyncio.sleep(0)
        self.queue.put_nowait(1)
        assert await task == 1
    async def test_raises(self):
        raise ZeroDivisionError

result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
assert (result.testsRun, len(result.failures), len(result.errors)) == (2, 0, 1), result
assert "ZeroDivisionError" in result.errors[0][1]
assert called == ["set up", "torn down", "cleaned up"] * 2, called
""",
    )


def test_threads_install_and_uninstall_at_once(interlock: Any) -> None:
    """All names change, or none."""
    clean(
        interlock,
        START
        + """
sys.setswitchinterval(1e-6)
ROUNDS = 200
together = threading.Barrier(5)
problems = []

def change(functions):
    try:
        for _ in range(ROUNDS):
            together.wait(20)
            for function in functions * 20:
                function()
            together.wait(20)
    except BaseException as error:
        problems.append(error)
        together.abort()

both = (interlock.install, interlock.uninstall)
threads = [threading.Thread(target=change, args=(functions,)) for functions in (both, both, both[::-1], both[::-1])]
for thread in threads:
    thread.start()
for _ in range(ROUNDS):
    together.wait(20)
    together.wait(20)
    assert state() in (before, installed)
for thread in threads:
    thread.join(20)
assert problems == []
interlock.uninstall()
assert everything() == all_before
""",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_x12_a_fork_while_another_thread_installs(interlock: Any) -> None:
    """The child has all names or none, and can change them."""
    clean(
        interlock,
        START
        + """
import os, signal, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
sys.setswitchinterval(1e-6)
stop = False

def change():
    while not stop:
        interlock.install()
        interlock.uninstall()

threads = [threading.Thread(target=change) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    for _ in range(50):
        pid = os.fork()
        if not pid:
            signal.alarm(20)  # a child that hangs is ended by it
            try:
                assert state() in (before, installed)
                interlock.install()
                assert state() == installed
                interlock.uninstall()
                assert state() == before
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
finally:
    stop = True
    for thread in threads:
        thread.join(20)
""",
    )


def test_a_module_imported_after_it(interlock: Any, tmp_path: Path) -> None:
    """The usual way: first thing in the program, then the imports."""
    (tmp_path / "a_client.py").write_text(
        "from asyncio import Queue, QueueShutDown\nclass Inbox(Queue): pass\nclass Typed(Queue[int]): pass\n"
    )
    clean(
        interlock,
        START
        + f"""
sys.path.append({str(tmp_path)!r})
interlock.install()
from a_client import Inbox, QueueShutDown, Typed
assert issubclass(Inbox, interlock.Queue) and issubclass(Typed, interlock.Queue)
assert QueueShutDown is interlock.QueueShutDown

async def main():
    for queue in (Inbox(), Typed(2)):
        queue.put_nowait(1)
        queue.shutdown()
        assert [item async for item in queue] == [1]

asyncio.run(main())
""",
    )
