"""The blocking view of a queue, for threads without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from interlock._backend import core
from interlock.errors import (
    Expired,
    QueueEmpty,
    QueueFull,
    QueueShutDown,
    SyncQueueEmpty,
    SyncQueueFull,
    SyncQueueShutDown,
)

if TYPE_CHECKING:
    from interlock.queue import Queue

T = TypeVar("T")

__all__ = ["SyncQueue"]


class SyncQueue(Generic[T]):
    """`Queue.sync_q`: the queue with the methods and exceptions of `queue.Queue`, for threads (Q9).

    They release the GIL while they block, obey `timeout`, are woken by a shutdown, and
    can be interrupted by signals. In a thread that runs an event loop they raise
    `RuntimeError` where they would have to block it, and work where they need not. All
    views of one queue are equal.

    Example:
        >>> import threading
        >>> from interlock import Queue
        >>> q = Queue()
        >>> threading.Timer(0.01, q.put_nowait, [1]).start()
        >>> q.sync_q.get(timeout=5)
        1
    """

    __slots__ = ("_parent",)

    def __init__(self, parent: Queue[T]) -> None:
        self._parent = parent

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue, and block the thread while it is full.

        Args:
            item: The item.
            block: False: raise `queue.Full` rather than block.
            timeout: Seconds until `queue.Full`; `None` waits for ever.

        Raises:
            queue.Full: There was no place, in time.
            SyncQueueShutDown: The queue was shut down. The item is not in it.
            ValueError: `timeout` is negative.
            RuntimeError: It would block the event loop that runs in this thread.
        """
        if not block:
            self.put_nowait(item)
            return
        try:
            core.Queue._block_put(self._parent, item, timeout)
        except (Expired, QueueFull):
            # The latter is a subclass's, which has another idea of what fits.
            raise SyncQueueFull from None
        except QueueShutDown:
            raise SyncQueueShutDown from None

    def put_nowait(self, item: T) -> None:
        """Put an item into the queue, or raise `queue.Full`."""
        try:
            self._parent.put_nowait(item)
        except QueueFull:
            raise SyncQueueFull from None
        except QueueShutDown:
            raise SyncQueueShutDown from None

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Remove the next item and return it; block the thread while there is none.

        Args:
            block: False: raise `queue.Empty` rather than block.
            timeout: Seconds until `queue.Empty`; `None` waits for ever.

        Raises:
            queue.Empty: There was no item, in time. None was taken.
            SyncQueueShutDown: The queue was shut down and has no items left.
            ValueError: `timeout` is negative.
            RuntimeError: It would block the event loop that runs in this thread.
        """
        if not block:
            return self.get_nowait()
        try:
            return core.Queue._block_get(self._parent, timeout)
        except (Expired, QueueEmpty):
            raise SyncQueueEmpty from None
        except QueueShutDown:
            raise SyncQueueShutDown from None

    def get_nowait(self) -> T:
        """Remove the next item and return it, or raise `queue.Empty`."""
        try:
            return self._parent.get_nowait()
        except QueueEmpty:
            raise SyncQueueEmpty from None
        except QueueShutDown:
            raise SyncQueueShutDown from None

    def task_done(self) -> None:
        """Account for one item that was got: it is finished. As `Queue.task_done`."""
        self._parent.task_done()

    def join(self, timeout: float | None = None) -> None:
        """Block the thread until every item accepted is accounted for.

        Args:
            timeout: Seconds until `asyncio.TimeoutError`; `None` waits for ever.

        Raises:
            asyncio.TimeoutError: Time is up.
            RuntimeError: It would block the event loop that runs in this thread.
        """
        try:
            core.Queue._block_join(self._parent, timeout)
        except Expired:
            raise asyncio.TimeoutError from None

    def shutdown(self, immediate: bool = False) -> None:
        """Shut the queue down, for tasks and threads alike. As `Queue.shutdown`."""
        self._parent.shutdown(immediate)

    def qsize(self) -> int:
        """Return how many items are in the queue. With other threads at work it may be outdated at once."""
        return self._parent.qsize()

    def empty(self) -> bool:
        """Return whether there is no item in the queue."""
        return self._parent.empty()

    def full(self) -> bool:
        """Return whether there is no place in the queue."""
        return self._parent.full()

    @property
    def maxsize(self) -> int:
        """As given to the queue."""
        return self._parent.maxsize

    @property
    def unfinished_tasks(self) -> int:
        """How many accepted items `join()` waits for."""
        return core.Queue._counts(self._parent)[1]

    @property
    def is_shutdown(self) -> bool:
        """Whether the queue was shut down."""
        return self._parent.is_shutdown

    @property
    def closed(self) -> bool:
        """`is_shutdown`, by the name that `janus.Queue` has for it."""
        return self._parent.is_shutdown

    def __iter__(self) -> Iterator[T]:
        """Get items until the queue is shut down and drained."""
        while True:
            try:
                item = self.get()
            except SyncQueueShutDown:
                return
            yield item

    def __eq__(self, other: object) -> bool:
        return self._parent is other._parent if isinstance(other, SyncQueue) else NotImplemented

    def __hash__(self) -> int:
        return hash((SyncQueue, id(self._parent)))

    def __reduce__(self) -> str:
        raise TypeError("a SyncQueue cannot be pickled or copied; send its items")

    def __repr__(self) -> str:
        return f"<SyncQueue of {self._parent!r}>"
