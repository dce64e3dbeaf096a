"""The exceptions of interlock. All of them survive `pickle` and `copy` (X15)."""

from __future__ import annotations

import asyncio
import sys
from asyncio import QueueEmpty, QueueFull
from queue import Empty as SyncQueueEmpty
from queue import Full as SyncQueueFull

if sys.version_info >= (3, 13):
    from asyncio import QueueShutDown
    from queue import ShutDown as SyncQueueShutDown
else:

    class QueueShutDown(Exception):
        """The queue was shut down: it takes no more items, and has none left to give.

        From Python 3.13 on this is `asyncio.QueueShutDown`.
        """

    class SyncQueueShutDown(Exception):
        """What `Queue.sync_q` raises in the place of `QueueShutDown`.

        From Python 3.13 on this is `queue.ShutDown`.
        """


__all__ = [
    "InterlockError",
    "Lagged",
    "QueueEmpty",
    "QueueFull",
    "QueueShutDown",
    "SyncQueueEmpty",
    "SyncQueueFull",
    "SyncQueueShutDown",
    "WatcherClosed",
]


class InterlockError(Exception):
    """Base of every exception that interlock defines."""


class Expired(asyncio.TimeoutError):
    """The time of a blocking call is up: for `SyncQueue`, to tell from a `TimeoutError` of the caller's own code."""


class WatcherClosed(InterlockError):
    """The watcher (or this subscription) was closed.

    Raised by sets and waits after `ValueWatcher.close`, and by
    `Subscription.get` once everything that was still held has been delivered.
    When the watcher was closed with an error, that error is the `__cause__`.
    """


class Lagged(InterlockError):
    """A bounded subscription fell behind and transitions were dropped for it.

    Raised once per gap; the subscription then goes on at the oldest transition
    it still holds.

    Attributes:
        missed: How many transitions were dropped.
    """

    def __init__(self, missed: int) -> None:
        super().__init__(missed)
        self.missed = missed

    def __str__(self) -> str:
        return (
            f"the reader fell behind and {self.missed} transitions were dropped; read faster, "
            "raise maxlen, or use overflow='latest' if only the newest state matters"
        )
