"""The pure-Python backend: the reference for the Rust one, and its fallback.

It offers what `_core.pyi` declares, file for file like `rust/`. Two things are
different by nature. The log is a linked list, so that CPython's reference counts do
the trimming that Rust does by hand. And the interpreter may run a signal handler or a
finaliser in the middle of Python code, which then may call into the same object. So
the lock is re-entrant, and what it guards is arranged so that it holds at every such
point: CPython looks for signals, garbage and other threads only at calls, backward
jumps and allocations, and 3.10 also where a condition is false. The statements marked
"one step" have none of these between the check, which holds, and the last store.
"""

from interlock._pure.callback import CallbackHandle
from interlock._pure.queue import Queue
from interlock._pure.subscription import Subscription
from interlock._pure.watcher import Watcher

__all__ = ["CallbackHandle", "Queue", "Subscription", "Watcher"]
