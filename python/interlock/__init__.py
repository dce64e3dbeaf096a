"""interlock: asyncio state and work that do not get lost.

`ValueWatcher` gives every consumer every transition of a value, in order, from
any thread. The hot path is Rust; `interlock.backend` tells which backend runs.
"""

from interlock._backend import backend
from interlock.callback import CallbackHandle
from interlock.errors import InterlockError, Lagged, WatcherClosed
from interlock.subscription import Subscription
from interlock.sync import SyncSubscription, SyncView
from interlock.transition import Transition
from interlock.watcher import ValueWatcher, WatcherStatistics

__all__ = [
    "CallbackHandle",
    "InterlockError",
    "Lagged",
    "Subscription",
    "SyncSubscription",
    "SyncView",
    "Transition",
    "ValueWatcher",
    "WatcherClosed",
    "WatcherStatistics",
    "backend",
]
