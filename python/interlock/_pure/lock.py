"""The lock around the state of all watchers.

Held for a few instructions and never while a user's code is called. One for all, so
that a forked child can make sure that it does not inherit it held (X12). Re-entrant,
because a signal handler or a finaliser may run while it is held and use a watcher.
"""

from __future__ import annotations

import os
import threading

lock = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
