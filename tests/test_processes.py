"""Fork, exit, interrupts and signals (X11, X12, S34, S58)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storm import LIMIT, SOURCE, clean

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

# A child that hangs is ended, and noticed, by its alarm. A fork while other threads
# run is what is tested here, so its warning is not wanted.
CHILD = """
import asyncio, os, signal, sys, threading, warnings
from interlock import Lagged, ValueWatcher
warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")

def child(body):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(20)
            body()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, ("hung" if os.WIFSIGNALED(status) else "failed", status)

async def use(w):
    with w.watch() as s:
        waiting = asyncio.ensure_future(w.wait_for("child", immediate=False, timeout=10))
        reading = asyncio.ensure_future(s.get(10))
        await asyncio.sleep(0)
        w.value = "before"
        w.value = "child"
        assert await waiting == "child"
        await reading
        assert (await s.get(10)).new == "child"
"""


@forks
def test_x12_forked_while_threads_do_everything(interlock: Any) -> None:
    clean(
        interlock,
        CHILD
        + """
sys.setswitchinterval(1e-6)
w = ValueWatcher(0)
stop = False

def storm(number):
    while not stop:
        with w.watch(maxlen=number + 1) as s:
            w.value = number
            w.on_change(lambda old, new: None).cancel()
            w.on_value(number, list).cancel()
            w.wait_for(-1).close()
            w.update(lambda value: number)
            try:
                s.pending and s.get_nowait()
            except Lagged:
                pass

threads = [threading.Thread(target=storm, args=(number,), daemon=True) for number in range(4)]
for thread in threads:
    thread.start()
for _ in range(40):
    child(lambda: asyncio.run(use(w)))
stop = True
for thread in threads:
    thread.join(20)
""",
    )


@forks
def test_x12_forked_in_the_middle_of_a_dispatch(interlock: Any) -> None:
    clean(
        interlock,
        CHILD
        + """
w = ValueWatcher(0)
seen = []
inside, go_on = threading.Event(), threading.Event()

def callback(old, new):
    seen.append(new)
    if new == 1:
        inside.set()
        go_on.wait(20)

w.on_change(callback)
thread = threading.Thread(target=w.set, args=(1,))
thread.start()
inside.wait(20)
# The thread that is dispatching does not exist in the child.
def body():
    asyncio.run(use(w))
    assert seen == [1, "before", "child"], seen
child(body)
go_on.set()
thread.join()

# And from within a callback.
handle = w.on_change(lambda old, new: child(lambda: asyncio.run(use(w))) if new == 2 else None)
w.value = 2
assert w.value == 2
assert seen == [1, 2], seen
""",
    )


@forks
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_x12_the_parents_waiters_are_not_woken_by_a_child(interlock: Any, loop: str) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    clean(
        interlock,
        CHILD
        + f"new_event_loop = __import__({loop!r}).new_event_loop"
        + """
w = ValueWatcher(0)
woken = []
loop = new_event_loop()

async def parent():
    with w.watch() as s:
        waits = [asyncio.ensure_future(awaitable) for awaitable in (w.wait_for("child"), s.get())]
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
    w.value = "child"
    w.value = "again"
    assert not called
    asyncio.run(use(w))
    assert not called
child(body)
leave.set()
thread.join(20)
assert len(woken) == 2 and w.version == 0
loop.close()
""",
    )


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(interlock: Any, method: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import asyncio, multiprocessing, sys, threading, warnings
from interlock import ValueWatcher, backend
w = ValueWatcher(0)

async def main():
    with w.watch() as s:
        threading.Thread(target=w.set, args=(1,)).start()
        return (await s.get(20)).new

def child(queue, expected):
    queue.put((backend, asyncio.run(main())))

if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    asyncio.run(main())
    w.value = 0
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, backend))
    process.start()
    assert queue.get(timeout=30) == (backend, 1)
    process.join(30)
    assert process.exitcode == 0
"""
    )
    if method not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip(f"no {method} here")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), method],
        env={**os.environ, "PYTHONPATH": SOURCE, "INTERLOCK_BACKEND": interlock.backend},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", ["set", "sync wait", "loop"])
def test_s58_exit_with_daemon_threads_inside(interlock: Any, what: str) -> None:
    program = """
import asyncio, sys, threading
from interlock import ValueWatcher
sys.setswitchinterval(1e-6)
w = ValueWatcher(0)
s = w.watch(maxlen=3)
w.on_change(lambda old, new: None)
running = threading.Semaphore(0)

def set_():
    while True:
        w.update(lambda number: number + 1)
        running.release()

def wait():
    running.release()
    while True:
        w.sync.wait_for(-1)

def read():
    running.release()
    for _ in w.sync.watch():
        pass

async def consume():
    with w.watch() as s:
        async for _ in s:
            running.release()

kind = sys.argv[1]
targets = {
    "set": [set_, set_, set_],
    "sync wait": [wait, read, read, set_],
    "loop": [lambda: asyncio.run(consume()), set_],
}[kind]
for target in targets:
    threading.Thread(target=target, daemon=True).start()
for _ in targets * 2:
    running.acquire()
print("leaving")
"""
    for _ in range(10):
        assert clean(interlock, program.replace("sys.argv[1]", repr(what))) == "leaving\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals to oneself are of POSIX")
@pytest.mark.parametrize("wait", ["w.sync.wait_for(1)", "w.sync.wait_for_change(timeout=60)", "next(s)", "s.get(60)"])
def test_a_blocking_wait_can_be_interrupted(interlock: Any, wait: str) -> None:
    """The signal comes while the thread waits inside the lock; nothing of the wait stays behind."""
    clean(
        interlock,
        f"""
import os, signal, threading, time
from interlock import ValueWatcher
w = ValueWatcher(0)
s = w.sync.watch()
main = threading.get_ident()
def interrupt():
    ready.wait(20)
    # However early it comes, the next one finds the thread waiting.
    while not interrupted.wait(0.05):
        signal.pthread_kill(main, signal.SIGINT)
def handler(signum, frame):
    # Once, even if the thread above has sent two by now.
    if not interrupted.is_set():
        interrupted.set()
        raise KeyboardInterrupt
ready, interrupted = threading.Event(), threading.Event()
signal.signal(signal.SIGINT, handler)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    ready.set()
    {wait}
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("not interrupted")
thread.join()
assert w.statistics().waiters == 0
w.value = 1
assert s.get(20) == (0, 1)
threading.Timer(0.01, w.set, [2]).start()
assert w.sync.wait_for(2, timeout=20) == 2
assert s.get(20) == (1, 2)
""",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals to oneself are of POSIX")
def test_a_signal_handler_may_set_while_its_own_thread_waits_or_sets(interlock: Any) -> None:
    clean(
        interlock,
        """
import asyncio, signal
from interlock import ValueWatcher
w = ValueWatcher(0)
seen = []
w.on_change(lambda old, new: seen.append((old, new)))
signal.signal(signal.SIGALRM, lambda *args: w.update(lambda number: number + 1))

# Again and again, because a signal that comes in the very moment in which CPython puts the
# thread to sleep does not end the sleep.
def alarms(interval):
    signal.setitimer(signal.ITIMER_REAL, interval, interval)

# A loop asleep is woken by a set in a handler that interrupted its sleep.
async def sleeper():
    alarms(0.02)
    await w.wait_until(lambda value: value >= 1, timeout=20)
    alarms(0)
asyncio.run(sleeper())

# A thread that waits in a lock.
awaited = w.value + 1
alarms(0.02)
assert w.sync.wait_until(lambda value: value >= awaited, timeout=20) >= awaited
alarms(0)

# Sets interrupted by sets: one signal at a time, at another place each time.
s, before = w.watch(), w.value
for number in range(2_000):
    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 100))
    for _ in range(10):
        w.update(lambda number: number + 1)
        with w.watch(maxlen=1):
            w.wait_for(-1).close()
signal.setitimer(signal.ITIMER_REAL, 0)
assert w.value == w.version == len(seen)
assert seen == [(number, number + 1) for number in range(w.value)]
assert s.pending == w.value - before
""",
    )
