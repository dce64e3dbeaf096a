"""A queue's account: what is in it, what became of the rest, and who waits for what.

Who waits is notified, not handed an item: it takes one when its turn has come, so that no
item leaves the queue for somebody who has gone. The other side of that is a rule: who
was notified and does not take what there is passes that on.

Where a step ends with a call of a built-in, the call belongs to it: the interpreter looks
around when it has returned.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from interlock._pure import hub
from interlock._pure.fairness import Fairness, impatient
from interlock._pure.heap import Entry, Heap
from interlock._pure.lock import lock, locked
from interlock._pure.parker import NOTIFIED, Parker, notify_all
from interlock.errors import QueueShutDown

# What an attempt returns for which there was no item, or no place.
MISSED: Any = object()

# Who waits, in order, each with the generation that it belongs to: a forked child has copies of
# its parent's waiters (X12). Not a plain dictionary, in which what was removed from the front is
# passed over again and again.
Waiting = OrderedDict[Parker, int]


class Ledger:
    """The account of a queue whose items come in the order in which they were put."""

    __slots__ = (
        "_append",
        "_buffer",
        "capacity",
        "delivered",
        "dropped",
        "getters",
        "hooked",
        "is_shutdown",
        "joiners",
        "key",
        "limit",
        "maxsize",
        "putters",
        "size",
        "unfinished",
    )

    def __init__(self, maxsize: Any, capacity: int, key: Callable[[Any], Any] | None) -> None:
        self.maxsize = maxsize
        self.capacity = capacity or sys.maxsize
        # The capacity, until the shutdown; then 0.
        self.limit = self.capacity
        self.key = key
        # Whether the hooks of a subclass keep the items.
        self.hooked = False
        # `accepted` is `size + delivered + dropped`.
        self.size = self.unfinished = self.delivered = self.dropped = 0
        self.is_shutdown = False
        self.getters: Waiting = OrderedDict()
        self.putters: Waiting = OrderedDict()
        self.joiners: dict[Parker, int] = {}
        self._buffer: deque[Any] = deque()
        self._append = self._buffer.append

    # Items.

    @locked
    def put(self, item: Any, key: Any, parker: Parker | None) -> Any:
        """Put an item. If there is no place, let the parker, if any, wait for one, and return MISSED."""
        append = self._append
        while True:
            # One step.
            if self.size < self.limit:
                self.size += 1
                self.unfinished += 1
                return append(item)
            if self._no_place(parker):
                return MISSED

    @locked
    def get(self, parker: Parker | None) -> Any:
        """Take the next item. If there is none, let the parker, if any, wait for one, and return MISSED."""
        while True:
            # One step.
            if self.size:
                self.size -= 1
                self.delivered += 1
                return self._buffer.popleft()
            if self._no_item(parker):
                return MISSED

    def _no_place(self, parker: Parker | None) -> bool:
        """There seemed to be none. Return false if it is worth looking again."""
        if self.is_shutdown:
            raise QueueShutDown
        if parker is None:
            return True
        with lock:
            # One step.
            if not self.is_shutdown and self.size >= self.limit:
                self.putters[parker] = hub.generation
                return True
        return False

    def _no_item(self, parker: Parker | None) -> bool:
        """There seemed to be none. Return false if it is worth looking again."""
        # In this order: after the shutdown nothing is put.
        if self.is_shutdown and not self.size:
            raise QueueShutDown
        if parker is None:
            return True
        with lock:
            # One step.
            if not self.is_shutdown and not self.size:
                self.getters[parker] = hub.generation
                return True
        return False

    def shut_down(self) -> None:
        with lock:
            # One step.
            self.is_shutdown = True
            self.limit = 0

    def drop(self, ordered: bool) -> list[Any]:
        """After a shutdown, take out what is left. `ordered`: as it was to be got."""
        with lock:
            # One step. Then the buffer is nobody else's.
            count = self.size
            self.size = 0
            self.dropped += count
            self._discount(count)
            items = list(self._buffer)
            self._buffer.clear()
        return items

    def _discount(self, count: int) -> None:
        # One step each: after a shutdown this number only falls.
        if self.unfinished > count:
            self.unfinished -= count
        else:
            self.unfinished = 0

    def snapshot(self) -> list[Any]:
        """The items, in an order like that of the standard library's queues."""
        with lock:
            return list(self._buffer)

    # Who waits.

    def notify_getter(self) -> None:
        """Notify the one who has waited longest, if there is an item."""
        while self.hooked or self.size:
            if self._notify_first(self.getters):
                return

    def notify_putter(self) -> None:
        """Notify the one who has waited longest, if there is a place."""
        while self.hooked or self.size < self.capacity:
            if self._notify_first(self.putters):
                return

    def _notify_first(self, waiting: Waiting) -> bool:
        """Return false if another is to be tried: this one is of no use any more, or its loop is closed (X4)."""
        with lock:
            try:
                parker, generation = next(iter(waiting.items()), (None, 0))
            except RuntimeError:
                return False  # a signal handler has changed it in the middle
        if parker is None:
            return True
        # It stays on the list until it is settled: an interrupt in between must not strand it.
        try:
            notified = generation == hub.generation and parker.resolve(NOTIFIED)
        finally:
            if parker.settled or generation != hub.generation:
                with lock:
                    waiting.pop(parker, None)
        return notified

    def leave(self, parker: Parker) -> bool:
        """Somebody no longer waits. Return whether it had been notified, and so is to pass that on."""
        with lock:
            self.getters.pop(parker, None)
            self.putters.pop(parker, None)
            self.joiners.pop(parker, None)
        return parker.withdraw()

    def join(self, parker: Parker) -> bool:
        """Let the parker wait until nothing is unfinished; return false if it is so already."""
        with lock:
            # One step.
            if self.unfinished:
                self.joiners[parker] = hub.generation
                return True
        return False

    def task_done(self) -> None:
        """One item is finished. If it was the last one, notify all who wait for that."""
        joiners: list[Parker] = []
        with lock:
            # One step.
            if self.unfinished > 0:
                self.unfinished -= 1
                # At once: another thread may put the next item, and theirs was this one.
                if not self.unfinished:
                    joiners.extend(self.joiners)
            else:
                raise ValueError("task_done() called too many times")
        if joiners:
            self._notify_all(joiners)

    def notify_joiners(self) -> None:
        """After a shutdown, notify all who wait until nothing is unfinished, if that is so."""
        with lock:
            joiners = [] if self.unfinished else list(self.joiners)
        if joiners:
            self._notify_all(joiners)

    def notify_waiting(self) -> None:
        """After a shutdown, notify all who wait to get or to put."""
        with lock:
            waiting = [*self.getters, *self.putters]
        self._notify_all(waiting)

    def _notify_all(self, parkers: list[Parker]) -> None:
        interrupts: list[BaseException] = []
        notify_all(parkers, interrupts)
        # They stay on the lists until they are settled: an interrupt must not strand them.
        with lock:
            for parker in parkers:
                self.getters.pop(parker, None)
                self.putters.pop(parker, None)
                self.joiners.pop(parker, None)
        if interrupts:
            raise interrupts[0]

    def counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        with lock:
            # One step.
            size, delivered, dropped = self.size, self.delivered, self.dropped
            account = (size, self.unfinished, size + delivered + dropped, delivered, dropped)
            waiting = (self.getters, self.putters, self.joiners)
            getters, putters, joiners = (list(side.values()).count(hub.generation) for side in waiting)
        return (*account, getters, putters, joiners)


class LifoLedger(Ledger):
    """The account of a queue whose items come in the reverse order."""

    __slots__ = ()

    def __init__(self, maxsize: Any, capacity: int, key: Callable[[Any], Any] | None) -> None:
        super().__init__(maxsize, capacity, key)
        self._append = self._buffer.appendleft

    def snapshot(self) -> list[Any]:
        return super().snapshot()[::-1]


class PriorityLedger(Ledger):
    """The account of a queue whose items are in a heap."""

    __slots__ = ("_fairness", "_heap")

    def __init__(self, maxsize: Any, capacity: int, key: Callable[[Any], Any] | None) -> None:
        super().__init__(maxsize, capacity, key)
        self._heap = Heap()
        self._fairness = Fairness()

    def put(self, item: Any, key: Any, parker: Parker | None) -> Any:
        heap = self._heap
        for _ in self._fairness.tries():
            if self.size >= self.limit:
                if self._no_place(parker):
                    return MISSED
                continue
            change = heap.adding(key, item)
            if change is None:
                continue
            version, places = change
            with lock:
                # One step.
                if self.size < self.limit and heap.version == version:
                    self.size += 1
                    self.unfinished += 1
                    heap.version = version + 1
                    return heap.entries.update(places)
        raise impatient()

    def get(self, parker: Parker | None) -> Any:
        heap = self._heap
        for _ in self._fairness.tries():
            if not self.size:
                if self._no_item(parker):
                    return MISSED
                continue
            change = heap.removing()
            if change is None:
                continue
            version, places = change
            with lock:
                # One step.
                if self.size and heap.version == version:
                    self.size -= 1
                    self.delivered += 1
                    heap.version = version + 1
                    first = heap.entries[0]
                    del heap.entries[self.size]
                    heap.entries.update(places)
                    return first[2]
        raise impatient()

    def drop(self, ordered: bool) -> list[Any]:
        heap = self._heap
        nothing: dict[int, Entry] = {}
        while True:
            copied = heap.copy()
            # Before anything is dropped, because a comparison may be interrupted.
            version, items = copied.version, copied.drain() if ordered else []
            with lock:
                # One step.
                if heap.version == version:
                    heap.version = version + 1
                    count = self.size
                    self.size = 0
                    self.dropped += count
                    # Dropped without the lock, when this returns.
                    nothing, heap.entries = heap.entries, nothing
                    self._discount(count)
                    return items

    def snapshot(self) -> list[Any]:
        entries = self._heap.copy().entries
        return [entries[position][2] for position in range(len(entries))]


class HookedLedger(Ledger):
    """The account of a queue whose items are kept by the hooks of a subclass.

    The hooks run in turn; what is in here is changed with the lock, as ever.
    """

    __slots__ = ("_generation", "_turn")

    def __init__(self, maxsize: Any, capacity: int, key: Callable[[Any], Any] | None) -> None:
        super().__init__(maxsize, capacity, key)
        self.hooked = True
        self._turn = threading.RLock()
        self._generation = hub.generation

    @property
    def turn(self) -> AbstractContextManager[Any]:
        if self._generation != hub.generation:
            # Of the parent of a fork, another thread may have held it (X12).
            turn = threading.RLock()
            with lock:
                # One step.
                if self._generation != hub.generation:
                    self._generation = hub.generation
                    self._turn = turn
        return self._turn

    def count_put(self) -> None:
        with lock:
            # One step.
            self.size += 1
            self.unfinished += 1

    def count_get(self) -> None:
        with lock:
            # One step.
            self.size -= 1
            self.delivered += 1

    def count_dropped(self) -> None:
        with lock:
            # One step.
            self.size -= 1
            self.dropped += 1
            self._discount(1)

    def traffic(self) -> tuple[int, int]:
        """What changes with every put and get."""
        return self.size, self.delivered

    def wait(self, waiting: Waiting, parker: Parker, traffic: tuple[int, int]) -> bool:
        """Let the parker wait, unless there was traffic since, or a shutdown: it is worth looking again then."""
        size, delivered = traffic
        with lock:
            # One step.
            if not self.is_shutdown and self.size == size and self.delivered == delivered:
                waiting[parker] = hub.generation
                return True
        return False
