"""Queues under fork, exit, interrupts and signals (X11, X12, S34, S58)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from storm import clean
from test_processes import CHILD, forks

# Each kind of queue, and a use of one that needs two waits.
QUEUES = """
import asyncio, itertools, signal, sys, threading
from interlock import LifoQueue, PriorityQueue, Queue, QueueEmpty, QueueFull, QueueShutDown

class Hooked(Queue):
    def _put(self, item):
        super()._put(item)

class Slow(PriorityQueue):
    def _get(self):
        self.qsize()
        return super()._get()

KINDS = [Queue, LifoQueue, PriorityQueue, lambda maxsize=0: PriorityQueue(maxsize, key=abs), Hooked, Slow]

async def work(q):
    get = asyncio.ensure_future(q.get(timeout=20))
    await asyncio.sleep(0)
    await q.put(1, timeout=20)
    assert await get == 1
    q.sync_q.put(2, timeout=20)
    assert await q.get(timeout=20) == 2
    q.task_done()
    q.task_done()
    await q.join(timeout=20)
"""


@forks
def test_x12_forked_while_threads_do_everything(interlock: Any) -> None:
    """Whatever lock they hold at that moment, the child's is free."""
    clean(
        interlock,
        CHILD
        + QUEUES
        + """
sys.setswitchinterval(1e-6)
queues = [kind(3) for kind in KINDS]
stop = False

def storm(number):
    for count in itertools.count():
        if stop:
            return
        q = queues[count % len(queues)]
        try:
            q.put_nowait(count)
            q.sync_q.put(count, timeout=0.0001)
            q.sync_q.get(timeout=0.0001)
            q.get_nowait()
            q.put(1).close()
            q.statistics()
        except Exception:
            pass
        while q.unfinished_tasks > 9:
            try:
                q.task_done()
            except ValueError:
                pass

def body():
    for q in queues:
        while not q.empty():
            q.get_nowait()
        while q.unfinished_tasks:
            q.task_done()
        asyncio.run(work(q))
        q.put_nowait(5)
        assert q.abort() == [5]

threads = [threading.Thread(target=storm, args=(number,), daemon=True) for number in range(4)]
for thread in threads:
    thread.start()
for _ in range(40):
    child(body)
stop = True
for thread in threads:
    thread.join(20)
""",
    )


@forks
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_x12_the_parents_waiters_are_not_woken_by_a_child(interlock: Any, loop: str) -> None:
    """Nor do they stand in the way of the child's own."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    clean(
        interlock,
        CHILD
        + QUEUES
        + f"new_event_loop = __import__({loop!r}).new_event_loop"
        + """
for kind in KINDS:
    empty, full = kind(1), kind(1)
    full.put_nowait(0)
    loop = new_event_loop()
    woken = []

    async def parent():
        waits = [asyncio.ensure_future(wait) for wait in (empty.get(), full.put(9), full.join(), anext(empty))]
        for wait in waits:
            wait.add_done_callback(woken.append)
        await asyncio.sleep(0)
        # Only when the executor has its thread: a fork while it starts one is its own affair.
        await asyncio.to_thread(lambda: parked.set() or leave.wait(20))
        for wait in waits:
            assert not wait.done()
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    parked, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(parent()))
    thread.start()
    parked.wait(20)

    def body():
        # In the child nobody can be at this loop: a call would be a write into the parent's pipe.
        called = []
        if hasattr(loop, "_write_to_self"):
            loop._write_to_self = lambda: called.append(1)
        asyncio.run(work(empty))
        assert full.get_nowait() == 0
        full.task_done()
        asyncio.run(work(full))
        for q in (empty, full):
            q.shutdown()
            assert q.empty() and q.statistics().accepted == 2 + (q is full)
        assert not called
    child(body)
    leave.set()
    thread.join(20)
    assert len(woken) == 4 and empty.empty() and full.full() and not full.is_shutdown
    loop.close()
""",
    )


@forks
def test_x12_forked_from_within_a_hook_and_a_comparison(interlock: Any) -> None:
    """The child is the thread that is inside, so it goes on, and comes out."""
    clean(
        interlock,
        CHILD
        + QUEUES
        + """
class Forking:
    def __init__(self, number):
        self.number = number

    def __lt__(self, other):
        fork()
        return self.number < other.number

class ForkingHook(Queue):
    def _put(self, item):
        fork()
        super()._put(item)

pid = None

def fork():
    global pid
    if pid is None:
        pid = os.fork()
        if not pid:
            signal.alarm(20)

for q in (PriorityQueue(), ForkingHook()):
    pid = None
    q.put_nowait(Forking(2))
    q.put_nowait(Forking(1))
    numbers = sorted([q.get_nowait().number, q.get_nowait().number])
    q.task_done()
    q.task_done()
    thread = threading.Thread(target=q.put_nowait, args=(Forking(3),))
    thread.start()
    thread.join(20)
    assert q.get_nowait().number == 3 and numbers == [1, 2]
    if not pid:
        sys.stderr.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
""",
    )


@pytest.mark.parametrize("what", ["put and get", "blocked", "loops", "hooked"])
def test_s58_exit_with_daemon_threads_inside(interlock: Any, what: str) -> None:
    """X11: as silent as an exit without them."""
    program = (
        QUEUES
        + """
sys.setswitchinterval(1e-6)
kind = sys.argv[1]
q, empty, full = (Hooked if kind == "hooked" else Queue)(3), PriorityQueue(), LifoQueue(1)
full.put_nowait(1)
running = threading.Semaphore(0)

def put():
    while True:
        q.sync_q.put(1)
        running.release()

def get():
    while True:
        q.sync_q.get()
        running.release()

def blocked(wait):
    def work():
        running.release(2)
        wait()
    return work

async def consume():
    async for _ in q:
        running.release()

async def produce():
    while True:
        await q.put(1)
        running.release()

targets = {
    "put and get": [put, get, put, get],
    "hooked": [put, get, put, get],
    "blocked": [blocked(empty.sync_q.get), blocked(lambda: full.sync_q.put(1)), blocked(full.sync_q.join), put, get],
    "loops": [lambda: asyncio.run(consume()), lambda: asyncio.run(produce()), put],
}[kind]
for target in targets:
    threading.Thread(target=target, daemon=True).start()
for _ in targets * 2:
    running.acquire()
print("leaving")
"""
    )
    for _ in range(10):
        assert clean(interlock, program.replace("sys.argv[1]", repr(what))) == "leaving\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no such signals")
def test_x2_a_signal_handler_may_use_the_queue_that_it_interrupts(interlock: Any) -> None:
    """At any place within an operation of the same thread."""
    clean(
        interlock,
        QUEUES
        + """
class Item:
    def __init__(self, number):
        self.number = number
    def __lt__(self, other):
        return self.number < other.number

# A loop asleep is woken by a put in a handler that interrupted its sleep, and a thread in a lock.
q = Queue()
signal.signal(signal.SIGALRM, lambda *args: q.put_nowait(1))
async def sleeper():
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    return await q.get(timeout=20)
assert asyncio.run(sleeper()) == 1
signal.setitimer(signal.ITIMER_REAL, 0.01)
assert q.sync_q.get(timeout=20) == 1

for kind in (Queue, LifoQueue, PriorityQueue, lambda: PriorityQueue(key=lambda item: item.number), Hooked):
    q = kind()
    put, got, by_handler = [], [], []

    def handler(*args):
        if len(by_handler) % 2:
            try:
                got.append(q.get_nowait())
            except QueueEmpty:
                pass
        item = Item(-len(by_handler))
        q.put_nowait(item)
        by_handler.append(item)

    signal.signal(signal.SIGALRM, handler)
    for number in range(1_000):
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 100))
        for _ in range(5):
            item = Item(number)
            q.put_nowait(item)
            put.append(item)
            q.get().close()
            if number % 3:
                got.append(q.sync_q.get(timeout=0))
    signal.setitimer(signal.ITIMER_REAL, 0)
    # One more may be due.
    for _ in range(100):
        pass
    got += q.abort()
    assert sorted(map(id, got)) == sorted(map(id, put + by_handler))
    assert by_handler
""",
    )
