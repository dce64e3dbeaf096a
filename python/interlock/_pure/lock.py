"""The lock around the state of all watchers and queues.

Held for a few instructions and never while a user's code is called. One for all, so
that a forked child can make sure that it does not inherit it held (X12). Re-entrant,
because a signal handler or a finaliser may run while it is held and use them.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

lock = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]

# CPython's GIL changes hands where signals are looked for, and so not within a step.
_STEPS_ARE_ATOMIC = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def locked(method: F) -> F:
    """Hold the lock during this method where its steps need it: where threads run in parallel."""
    if _STEPS_ARE_ATOMIC:
        return method

    @functools.wraps(method)
    def with_lock(*arguments: Any) -> Any:
        with lock:
            return method(*arguments)

    return with_lock  # type: ignore[return-value]
