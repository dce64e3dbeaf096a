"""interlock: asyncio state and work that do not get lost.

`ValueWatcher` gives every consumer every transition of a value, in order, from
any thread. `Queue`, `PriorityQueue` and `LifoQueue` shut down without losing an item
or leaving anybody blocked, across tasks, loops and threads. The hot path is Rust;
`interlock.backend` tells which backend runs.
"""

from interlock._backend import backend
from interlock.callback import CallbackHandle
from interlock.errors import (
    InterlockError,
    Lagged,
    QueueEmpty,
    QueueFull,
    QueueShutDown,
    SyncQueueEmpty,
    SyncQueueFull,
    SyncQueueShutDown,
    WatcherClosed,
)
from interlock.patching import install, uninstall
from interlock.queue import LifoQueue, PriorityQueue, Queue, QueueStatistics
from interlock.subscription import Subscription
from interlock.sync import SyncSubscription, SyncView
from interlock.sync_queue import SyncQueue
from interlock.transition import Transition
from interlock.watcher import ValueWatcher, WatcherStatistics

__all__ = [
    "CallbackHandle",
    "InterlockError",
    "Lagged",
    "LifoQueue",
    "PriorityQueue",
    "Queue",
    "QueueEmpty",
    "QueueFull",
    "QueueShutDown",
    "QueueStatistics",
    "Subscription",
    "SyncQueue",
    "SyncQueueEmpty",
    "SyncQueueFull",
    "SyncQueueShutDown",
    "SyncSubscription",
    "SyncView",
    "Transition",
    "ValueWatcher",
    "WatcherClosed",
    "WatcherStatistics",
    "backend",
    "install",
    "uninstall",
]
