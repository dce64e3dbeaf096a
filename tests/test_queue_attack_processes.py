"""Queues where the interpreter ends, is one of several, or is interrupted (X11, X16, S58, S59)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from storm import IN_A_SUBINTERPRETER, clean, python

FINALISER = """
import asyncio, builtins, os
import interlock

class Hooked(interlock.Queue):
    def _put(self, item):
        super()._put(item)

SHOWN = asyncio.QueueEmpty, asyncio.QueueFull, interlock.QueueShutDown, StopIteration

class Last:
    def __init__(self, calls):
        self.calls = calls
    # Whatever it needs it takes along: the modules are being cleared.
    def __del__(self, write=os.write, Shown=SHOWN):
        for call in self.calls:
            try:
                call()
            except Shown:
                pass
            except BaseException as error:
                write(2, f"{type(error).__name__}: {error}\\n".encode())

q, hooked, priority = interlock.Queue(1), Hooked(1), interlock.PriorityQueue()
builtins.last = Last([
    lambda q=q: q.get_nowait(),
    lambda q=q: (q.put_nowait(1), q.put_nowait(2)),
    lambda q=q: q.get().send(None),
    lambda q=q: q.put(1).send(None),
    lambda q=q: next(q.get().__await__()),
    lambda q=q: q.get(timeout=1).close(),
    lambda q=priority: (q.put_nowait("b"), q.put_nowait("a"), q.get_nowait()),
    lambda q=hooked: (q.put_nowait(1), q.get_nowait()),
    lambda q=q: q.shutdown(immediate=True),
])
"""


def test_x16_a_queue_works_while_the_interpreter_is_finalised(interlock: Any) -> None:
    clean(interlock, FINALISER)


ITEM = """
import itertools, sys, threading, time, warnings
from interlock import Queue

sys.setswitchinterval(1e-6)
running = threading.Event()

class Item:
    def __del__(self):
        for _ in range(50):
            pass

class Seconds:
    def __float__(self):
        for _ in range(50):
            pass
        return 1.0

def shutdown():
    q = Queue()
    for _ in range(20):
        q.put_nowait(Item())
    q.shutdown(immediate=True)

def release():
    q = Queue()
    for _ in range(20):
        q.put_nowait(Item())

def unawaited():
    q.get()

def timeout():
    q.get(timeout=Seconds()).close()

def show(*arguments, **keywords):
    for _ in range(50):
        pass

q = Queue()
warnings.simplefilter("always")
warnings.showwarning = show

def work(body):
    while True:
        body()
        running.set()

threading.Thread(target=work, args=(globals()[sys.argv[1]],), daemon=True).start()
running.wait(30)
time.sleep(0.02)
"""


@pytest.mark.parametrize("what", ["shutdown", "release", "unawaited", "timeout"])
def test_s58_exit_with_a_daemon_thread_in_code_of_the_users(interlock: Any, what: str) -> None:
    """X11: what the queue calls for the thread is Python code, in which the thread is ended."""
    for _ in range(3):
        clean(interlock, ITEM.replace("sys.argv[1]", repr(what)))


def test_s59_a_queue_in_a_subinterpreter_works_or_cannot_be_imported(interlock: Any) -> None:
    program = (
        """
import os
program = '''
try:
    import interlock
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    import asyncio
    async def main():
        q = interlock.Queue(1)
        get = asyncio.ensure_future(q.get())
        await asyncio.sleep(0)
        await q.put(1)
        assert await get == 1
    asyncio.run(main())
'''
"""
        + IN_A_SUBINTERPRETER
        + """
print("done", flush=True)
# Without the interpreters' end: on 3.12 it aborts if asyncio has run in one, whosever queue it was.
os._exit(0)
"""
    )
    done = python(interlock, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no interval timers")
@pytest.mark.parametrize("kind", ["Queue", "PriorityQueue", "Hooked"])
def test_q5_an_interrupted_put_loses_no_waiter(interlock: Any, kind: str) -> None:
    """Whenever a signal handler raises, the thread that waits is woken by the shutdown at the latest."""
    if interlock.backend == "pure" and sys.version_info >= (3, 14):
        pytest.skip("there an exception between a lock's __enter__ and the body of `with` leaves the lock held")
    clean(
        interlock,
        """
import interlock, random, signal, sys, threading, time

class Boom(BaseException):
    pass

class Hooked(interlock.Queue):
    pass

Hooked._get = lambda self: interlock.Queue._get(self)
armed = False

def handler(*_):
    global armed
    if armed:
        armed = False
        raise Boom

signal.signal(signal.SIGALRM, handler)
rounds = random.Random(1)
for _ in range(150):
    q = {"Queue": interlock.Queue, "PriorityQueue": interlock.PriorityQueue, "Hooked": Hooked}[KIND]()

    def consume():
        while True:
            try:
                q.sync_q.get()
            except interlock.SyncQueueShutDown:
                return

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    for _ in range(20):
        try:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + rounds.random() * 1e-4)
                for number in range(30):
                    q.put_nowait(number)
            finally:
                armed = False
        except Boom:
            pass
    signal.setitimer(signal.ITIMER_REAL, 0)
    q.shutdown()
    thread.join(10)
    assert not thread.is_alive(), q
""".replace("KIND", repr(kind)),
    )
