"""What a watcher should do, in plain Python, without any concern for speed, threads or memory.

The loop is modelled too, as far as it decides results: a task's first step and the
hub's one handle run in the order in which they were scheduled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from interlock.equality import equal
from interlock.errors import Lagged, WatcherClosed
from interlock.transition import Transition

NOTIFIED, EXPIRED, CANCELLED = "notified", "expired", "cancelled"

PREDICATES: dict[str, Callable[[Any], object]] = {
    "true of 2": lambda value: equal(value, 2),
    "true of what is true": bool,
    "raises on 1": lambda value: 1 // (0 if equal(value, 1) else 1) == 0,
}

EQUALS: dict[str, Callable[[Any, Any], object] | None] = {
    "default": equal,
    "never": None,
    "same type": lambda old, new: type(old) is type(new),
    "raises": lambda old, new: 1 // 0,
}


def behave(api: Any, kind: str, number: int, arguments: tuple[Any, ...]) -> None:
    """What callback `number` does, on the model as on a watcher."""
    api.calls.append((number, repr(arguments), repr(api.value)))
    if kind == "raise":
        raise ZeroDivisionError(number)
    if kind == "follow" and (not arguments or equal(arguments[1], 1)):
        api.set(2)
    elif kind == "cancel the next":
        api.cancel_callback(number + 1)
    elif kind == "cancel itself":
        api.cancel_callback(number)
    elif kind == "close" and arguments and equal(arguments[1], 0):
        api.close(None)
    elif kind == "register" and number < 8:
        api.on_change("log")


def describe(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, WatcherClosed | Lagged):
        return (type(error).__name__, str(error), repr(error.__cause__))
    return (type(error).__name__,)


class Callback:
    def __init__(self, kind: str, since: int, awaited: Any = None) -> None:
        self.kind = kind
        self.since = since
        self.awaited = awaited
        self.active = True


class Cursor:
    """A subscription."""

    def __init__(self, model: Model, initial: bool, maxlen: int | None, latest: bool) -> None:
        self.position = model.version
        self.limit = float("inf") if maxlen is None else maxlen
        self.latest = latest
        self.last = model.value
        self.initial = Transition(model.value, model.value) if initial else None
        self.closed = False
        self.reader: Task | None = None


class Task:
    """A task that awaits one wait (`accepts`) or one read (`cursor`)."""

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.accepts: Callable[[Any], object] | None = None
        self.since = 0
        self.cursor: Cursor | None = None
        self.iterating = False
        self.outcome: Any = None
        self.parked = False
        self.must_cancel = False
        self.deadline: float | None = None
        self.result: tuple[str, ...] | None = None


class Model:
    def __init__(self, equals: str) -> None:
        self.equals = EQUALS[equals]
        self.value: Any = 0
        self.closed = False
        self.error: BaseException | None = None
        self.history: list[Transition[Any]] = []
        self.cursors: list[Cursor] = []
        self.tasks: list[Task] = []
        self.waiting: list[Task] = []
        self.parked: list[Task] = []
        self.callbacks: list[Callback] = []
        self.calls: list[tuple[int, str, str]] = []
        self.failures = 0
        self.to_dispatch: deque[tuple[int, Any, Any]] = deque()
        self.dispatching = False
        self.now = 0.0
        self.queue: deque[Task | None] = deque()  # None is the hub's handle
        self.hub: list[Task] = []

    @property
    def version(self) -> int:
        return len(self.history)

    # Setting.

    def is_equal(self, old: Any, new: Any) -> bool:
        try:
            return self.equals is not None and bool(self.equals(old, new))
        except Exception:
            return False

    def set(self, new: Any) -> None:
        self.check_open()
        if not self.is_equal(self.value, new):
            self.commit(new)

    def set_if(self, new: Any, accepts: Callable[[Any], object]) -> bool:
        self.check_open()
        if not accepts(self.value):
            return False
        self.set(new)
        return True

    def update(self, function: Callable[[Any], Any]) -> Any:
        while True:
            self.check_open()
            seen, version = self.value, self.version
            new = function(seen)
            # If nothing is to be written, it happened when the value was read.
            if self.is_equal(seen, new):
                return new
            if version == self.version and not self.closed:
                self.commit(new)
                return new

    def check_open(self) -> None:
        if self.closed:
            raise self.closed_error()

    def closed_error(self) -> WatcherClosed:
        text = "the watcher is closed; its value stays readable, but it can no longer be set or waited for"
        error = WatcherClosed(text)
        error.__cause__ = self.error
        return error

    def commit(self, new: Any) -> None:
        old, self.value = self.value, new
        self.history.append(Transition(old, new))
        self.notify_readers()
        for task in list(self.waiting):
            self.try_wait(task)
        self.to_dispatch.append((self.version, old, new))
        self.dispatch()

    def close(self, error: BaseException | None) -> None:
        if self.closed:
            return
        self.closed, self.error = True, error
        self.notify_readers()
        for task in self.waiting:
            self.settle(task, describe(error or self.closed_error()))
        self.waiting.clear()
        self.dispatch()

    # Callbacks.

    def on_change(self, kind: str) -> int:
        self.callbacks.append(Callback(kind, self.version))
        self.callbacks[-1].active = not self.closed
        return len(self.callbacks) - 1

    def on_value(self, value: Any, kind: str) -> int:
        number = len(self.callbacks)
        self.callbacks.append(Callback(kind, self.version, (value,)))
        if equal(self.value, value):
            self.call(number, ())
        elif self.closed:
            self.callbacks[number].active = False
        return number

    def cancel_callback(self, number: int) -> None:
        if number < len(self.callbacks):
            self.callbacks[number].active = False

    def dispatch(self) -> None:
        if self.dispatching:
            return
        self.dispatching = True
        while self.to_dispatch:
            version, old, new = self.to_dispatch.popleft()
            found = list(enumerate(self.callbacks))
            for number, callback in found:
                if callback.awaited is None and callback.since < version:
                    self.call(number, (old, new))
            # An unhashable value is looked for last.
            for number, callback in sorted(found, key=lambda item: isinstance((item[1].awaited or (0,))[0], list)):
                if callback.awaited is not None and callback.since < version and equal(new, callback.awaited[0]):
                    self.call(number, ())
        self.dispatching = False
        if self.closed:
            for callback in self.callbacks:
                callback.active = False

    def call(self, number: int, arguments: tuple[Any, ...]) -> None:
        callback = self.callbacks[number]
        if not callback.active:
            return
        callback.active = callback.awaited is None
        try:
            behave(self, callback.kind, number, arguments)
        except Exception:
            self.failures += 1

    # Subscriptions.

    def watch(self, initial: bool, maxlen: int | None, latest: bool) -> None:
        self.cursors.append(Cursor(self, initial, maxlen, latest))

    def take(self, cursor: Cursor) -> Transition[Any] | None:
        if cursor.closed:
            raise WatcherClosed("this subscription is closed; open another one with watch()")
        first, cursor.initial = cursor.initial, None
        if first is not None:
            return first
        lag = self.version - cursor.position
        if lag > cursor.limit:
            if not cursor.latest:
                cursor.position = self.version - int(cursor.limit)
                raise Lagged(lag - int(cursor.limit))
            cursor.position = self.version
            old, cursor.last = cursor.last, self.value
            return Transition(old, self.value)
        if lag:
            cursor.position += 1
            cursor.last = self.history[cursor.position - 1].new
            return self.history[cursor.position - 1]
        self.check_open()
        return None

    def get_nowait(self, number: int) -> Transition[Any]:
        transition = self.take(self.cursors[number])
        if transition is None:
            raise asyncio.QueueEmpty
        return transition

    def pending(self, number: int) -> int:
        cursor = self.cursors[number]
        if cursor.closed:
            return 0
        lag = self.version - cursor.position
        if lag > cursor.limit:
            lag = 1 if cursor.latest else int(cursor.limit)
        return lag + (cursor.initial is not None)

    def close_subscription(self, number: int) -> None:
        cursor = self.cursors[number]
        if not cursor.closed:
            cursor.closed = True
            if cursor.reader is not None and cursor.reader in self.parked:
                self.parked.remove(cursor.reader)
                self.settle(cursor.reader, NOTIFIED)

    def retained(self) -> int:
        """What must be kept, and no more."""
        needed = [0]
        for cursor in self.cursors:
            lag = self.version - cursor.position
            if cursor.closed:
                continue
            if lag <= cursor.limit:
                needed.append(lag)
            elif not cursor.latest:
                needed.append(int(cursor.limit))
        return max(needed)

    # Tasks.

    def start_wait(self, kind: str, operand: Any, immediate: bool, timeout: float | None) -> None:
        task = Task(timeout)
        task.accepts = {
            "wait_for": lambda value: equal(value, operand),
            "wait_for_not": lambda value: not equal(value, operand),
            "wait_for_not_none": lambda value: value is not None,
            "wait_until": PREDICATES.get(str(operand)),
            "wait_for_change": lambda value: True,
        }[kind]
        self.tasks.append(task)
        self.waiting.append(task)
        task.since = -1
        if immediate:
            self.try_wait(task)
        task.since = self.version
        if task.outcome is None and self.closed:
            self.waiting.remove(task)
            task.outcome = describe(self.error or self.closed_error())
        self.queue.append(task)

    def try_wait(self, task: Task) -> None:
        assert task.accepts is not None
        if task.since >= self.version:
            return
        try:
            if not task.accepts(self.value):
                return
            outcome = ("value", repr(self.value))
        except Exception as error:
            outcome = describe(error)  # type: ignore[assignment]
        self.waiting.remove(task)
        self.settle(task, outcome)

    def start_get(self, number: int, timeout: float | None, iterating: bool) -> None:
        task = Task(timeout)
        task.cursor, task.iterating = self.cursors[number], iterating
        self.tasks.append(task)
        self.queue.append(task)

    def cancel(self, number: int) -> bool:
        task = self.tasks[number]
        if task.result is not None:
            return False
        if task.parked and task.outcome is None:
            self.settle(task, CANCELLED)
        else:
            task.must_cancel = True
        return True

    def notify_readers(self) -> None:
        parked, self.parked = self.parked, []
        for task in parked:
            self.settle(task, NOTIFIED)

    def settle(self, task: Task, outcome: Any) -> None:
        if task.outcome is not None:
            return
        task.outcome = outcome
        if task.parked:
            self.hub.append(task)
            if None not in self.queue:
                self.queue.append(None)

    def tick(self) -> None:
        """Run the loop until nothing is ready."""
        while True:
            due = [task for task in self.tasks if task.parked and task.deadline is not None]
            for task in sorted(due, key=lambda task: task.deadline or 0):
                if task.outcome is None and task.deadline is not None and task.deadline <= self.now:
                    self.settle(task, EXPIRED)
            if not self.queue:
                return
            task_or_hub = self.queue.popleft()
            if task_or_hub is not None:
                self.step(task_or_hub)
                continue
            ready, self.hub = self.hub, []
            for task in ready:
                self.step(task)

    def step(self, task: Task) -> None:
        first, task.parked = not task.parked, False
        cursor = task.cursor
        if task.must_cancel or task.outcome == CANCELLED:
            self.finish(task, (CANCELLED,), owner=not first)
        elif cursor is None:
            if task.outcome is not None:
                self.finish(task, ("TimeoutError",) if task.outcome == EXPIRED else task.outcome)
            elif task.timeout == 0:
                self.finish(task, ("TimeoutError",))
            else:
                self.park(task)
        elif first and cursor.reader is not None and not cursor.closed:
            self.finish(task, ("RuntimeError",), owner=False)
        else:
            cursor.reader = task
            self.read(task, cursor)

    def read(self, task: Task, cursor: Cursor) -> None:
        try:
            transition = self.take(cursor)
        except (WatcherClosed, Lagged) as error:
            ended = task.iterating and isinstance(error, WatcherClosed)
            self.finish(task, ("StopAsyncIteration",) if ended else describe(error))
            return
        late = task.deadline is not None and task.deadline <= self.now
        if transition is not None:
            self.finish(task, ("value", repr(transition)))
        elif task.outcome == EXPIRED or task.timeout == 0 or late:
            self.finish(task, ("TimeoutError",))
        else:
            self.parked.append(task)
            self.park(task)

    def park(self, task: Task) -> None:
        task.outcome = None
        task.parked = True
        if task.timeout is not None and task.deadline is None:
            task.deadline = self.now + task.timeout

    def finish(self, task: Task, result: tuple[str, ...], owner: bool = True) -> None:
        task.result = result
        if task in self.waiting:
            self.waiting.remove(task)
        if task in self.parked:
            self.parked.remove(task)
        if owner and task.cursor is not None:
            task.cursor.reader = None
