"""`Queue`, `PriorityQueue`, `LifoQueue`: the queues of CPython 3.13+, for tasks, loops and threads."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from interlock._backend import core
from interlock.sync_queue import SyncQueue

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["LifoQueue", "PriorityQueue", "Queue", "QueueStatistics"]

# What a subclass may override to keep its items in its own way.
_HOOKS = ("_init", "_put", "_get", "_qsize", "qsize", "empty", "full", "put_nowait", "get_nowait")


@dataclasses.dataclass(frozen=True)
class QueueStatistics:
    """A queue's account at one moment: `accepted == size + delivered + dropped`, unless a subclass merges items.

    Attributes:
        size: Items in the queue.
        unfinished: Accepted items without a `task_done()` that were not dropped: what `join()` waits for.
        accepted: Items put so far.
        delivered: Items that a `get` has returned so far.
        dropped: Items that an immediate shutdown has thrown away.
        getters: Waiting `get` calls, blocked threads and `async for` loops included.
        putters: Waiting `put` calls, blocked threads included.
        joiners: Waiting `join` calls, blocked threads included.
    """

    size: int
    unfinished: int
    accepted: int
    delivered: int
    dropped: int
    getters: int
    putters: int
    joiners: int


def _capacity(maxsize: Any) -> int:
    """How many items fit; 0 for no limit. Like the standard library, it takes any real number."""
    if isinstance(maxsize, bool) or not isinstance(maxsize, (int, float)):
        raise TypeError(f"maxsize must be an int, not {type(maxsize).__name__}; 0 is no limit")
    if math.isnan(maxsize):
        raise ValueError("maxsize must be an int, not nan; 0 is no limit")
    # One beyond all memory is no limit either.
    return math.ceil(maxsize) if 0 < maxsize < 2**62 else 0


class _Computed(Generic[R]):
    """A property that an attribute set on the instance wins over.

    Subclasses of asyncio's queue, written before it had a shutdown, have a `closed` of their own.
    """

    def __init__(self, function: Callable[[Any], R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any]) -> R: ...

    def __get__(self, instance: object | None, owner: type[Any]) -> Self | R:
        return self if instance is None else self._function(instance)


class Queue(core.Queue[T], Generic[T]):
    """A first-in, first-out queue that shuts down, for tasks of any loop and for threads.

    A drop-in for `asyncio.Queue` of CPython 3.13 and newer, on every version (Q1).

    - **Items.** A `get` that is cancelled or times out took nothing; a `put` that
      raises has not inserted and never will (Q2, Q3). Each producer's items arrive
      in its order, each of them once (Q10).
    - **Account.** Every accepted item is unfinished until `task_done()`, and `join()`
      waits until there is none (Q4).
    - **Shutdown.** `shutdown()` ends the intake and lets the getters drain what is
      there; `shutdown(immediate=True)` and `abort()` drop it (Q5, Q6). Everybody who
      waits is woken.
    - **Order of waiters.** As in the standard library, a `put_nowait` may take the slot
      for which a blocked `put` has just been woken; that one then waits again.
    - **Yielding.** As there, a `get` or `put` that need not wait does not yield to the loop.
    - **Thread safety.** Every method may be called from any thread; a task is resumed
      only in its own loop's thread (X2). Threads without a loop wait with `sync_q`.
      No loop is needed to create one.
    - **Subclasses** may override `_init(maxsize)`, `_put(item)`, `_get()` and `_qsize()`,
      by convention over an attribute `_queue`. One thread at a time runs them, each once
      per operation.

    Args:
        maxsize: How many items fit before `put` waits; 0 or less is no limit.

    Raises:
        TypeError: `maxsize` is no number.

    Example:
        >>> import asyncio
        >>> async def main():
        ...     q = Queue()
        ...     for item in "abc":
        ...         q.put_nowait(item)
        ...     q.shutdown()
        ...     async for item in q:
        ...         print(item)
        ...         q.task_done()
        ...     await q.join()
        >>> asyncio.run(main())
        a
        b
        c
    """

    def __init__(self, maxsize: int = 0) -> None:
        _start(self, maxsize, None)

    # Here for subclasses, which may call them; without one, the core keeps the items.

    _queue: Any

    def _init(self, maxsize: int) -> None:
        self._queue = deque()

    def _put(self, item: T) -> None:
        self._queue.append(item)

    def _get(self) -> T:
        item: T = self._queue.popleft()
        return item

    def _qsize(self) -> int:
        return len(self._queue)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. asyncio's queues bind themselves by this, these do not; CPython 3.10's tests call it."""
        return asyncio.get_running_loop()

    @_Computed
    def sync_q(self) -> SyncQueue[T]:
        """The queue for threads without a loop: the methods of `queue.Queue`, which block the thread (Q9)."""
        return SyncQueue(self)

    @_Computed
    def async_q(self) -> Queue[T]:
        """The queue for tasks: this one. Here for code written for `janus.Queue` (Q9)."""
        return self

    @_Computed
    def unfinished_tasks(self) -> int:
        """How many accepted items `join()` waits for."""
        return core.Queue._counts(self)[1]

    def close(self) -> None:
        """Shut down and drop what is queued: `shutdown(immediate=True)`, by the name that `janus.Queue` has for it."""
        self.shutdown(immediate=True)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left under way. Here for code written for `janus.Queue`.

        Raises:
            RuntimeError: The queue was not shut down.
        """
        if not self.is_shutdown:
            raise RuntimeError("the queue is not shut down; call close() or shutdown() first")

    async def aclose(self) -> None:
        """`close()`, for code written for `janus.Queue`."""
        self.close()

    @_Computed
    def closed(self) -> bool:
        """Whether the queue was shut down: `is_shutdown`, by the name that `janus.Queue` has for it."""
        return self.is_shutdown

    def statistics(self) -> QueueStatistics:
        """Return the queue's account, all figures of the same moment."""
        return QueueStatistics(*core.Queue._counts(self))

    def __aiter__(self) -> Self:
        """Iterate until the queue is shut down and drained (Q7). Any number of consumers may."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} {self._format()}>"

    def __str__(self) -> str:
        return f"<{type(self).__name__} {self._format()}>"

    def _format(self) -> str:
        account = Queue.statistics(self)
        parts = [f"maxsize={self.maxsize!r}"]
        # A subclass with hooks has them itself.
        items = core.Queue._snapshot(self) or list(getattr(self, "_queue", ()))
        if items:
            parts.append(f"_queue={items!r}")
        if account.getters:
            parts.append(f"_getters[{account.getters}]")
        if account.putters:
            parts.append(f"_putters[{account.putters}]")
        if account.unfinished:
            parts.append(f"tasks={account.unfinished}")
        if self.is_shutdown:
            parts.append("shutdown")
        return " ".join(parts)

    def __reduce__(self) -> str:
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied; send its items")


class LifoQueue(Queue[T]):
    """A `Queue` that returns the item put last first.

    Example:
        >>> q = LifoQueue()
        >>> q.put_nowait(1)
        >>> q.put_nowait(2)
        >>> q.get_nowait()
        2
    """

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)

    def _init(self, maxsize: int) -> None:
        self._queue = []

    def _get(self) -> T:
        item: T = self._queue.pop()
        return item


class PriorityQueue(Queue[T]):
    """A `Queue` that returns the lowest item first.

    Items are compared with `<`, or, with `key`, the keys that it gives for them;
    equal ones come out in the order in which they were put, unless they have to be
    compared beyond that, as the payloads of `(priority, payload)` pairs are. (A subclass
    that overrides hooks has a plain heap, as in the standard library.) A comparison runs
    without any lock and may use the queue. If it raises, so does the operation, and items
    and counts are as before (Q8).

    Args:
        maxsize: As for `Queue`.
        key: Called once per item, when it is put. The items themselves are then never
            compared, so they need no order.

    Example:
        >>> q = PriorityQueue(key=len)
        >>> for item in ["ccc", "a", "bb", "b"]:
        ...     q.put_nowait(item)
        >>> [q.get_nowait() for _ in range(4)]
        ['a', 'b', 'bb', 'ccc']
    """

    def __init__(self, maxsize: int = 0, *, key: Callable[[T], Any] | None = None) -> None:
        if key is not None and not callable(key):
            raise TypeError(f"key must be a callable or None, not {type(key).__name__}")
        _start(self, maxsize, key)

    def _init(self, maxsize: int) -> None:
        self._queue = []

    # Not by `heapq`, which leaves the heap half changed when a comparison raises (Q8): first
    # the path is found along which entries move, then they are moved.

    def _put(self, item: T) -> None:
        heap = self._queue
        path = [len(heap)]
        while path[-1] and item < heap[(path[-1] - 1) // 2]:
            path.append((path[-1] - 1) // 2)
        heap.append(item)
        _move_along(heap, path, item)

    def _get(self) -> T:
        heap = self._queue
        first: T = heap[0]
        last, end = heap[-1], len(heap) - 1
        path, child = [0], 1
        while child < end:
            child += child + 1 < end and heap[child + 1] < heap[child]
            if not heap[child] < last:
                break
            path.append(child)
            child = 2 * child + 1
        heap.pop()
        if heap:
            _move_along(heap, path, last)
        return first


def _move_along(heap: list[Any], path: list[int], item: Any) -> None:
    """Move the entries one place along the path, and put the item where it ends."""
    for place, following in itertools.pairwise(path):
        heap[place] = heap[following]
    heap[path[-1]] = item


_ORDERS: dict[type[Queue[Any]], str] = {Queue: "fifo", LifoQueue: "lifo", PriorityQueue: "priority"}


def _start(queue: Queue[T], maxsize: int, key: Callable[[T], Any] | None) -> None:
    """Initialise the core: it keeps the items, unless the queue's class has hooks of its own.

    A function, and what it calls is called on the core's class, so that a subclass may use any name for itself.
    """
    cls = type(queue)
    order = _ORDERS.get(cls)
    if order is None:
        ours = next(base for base in cls.__mro__ if base in _ORDERS)
        hooked = any(getattr(cls, name) is not getattr(ours, name) for name in _HOOKS)
        if hooked and key is not None:
            raise TypeError("key= is for queues that order their items themselves; this subclass does in _put and _get")
        order = "hooked" if hooked else _ORDERS[ours]
    core.Queue._setup(queue, maxsize, _capacity(maxsize), order, key)
    if order == "hooked":
        queue._init(maxsize)
