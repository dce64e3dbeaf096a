"""`install`: interlock's queues in the place of asyncio's, for code not yet changed."""

from __future__ import annotations

import asyncio
import asyncio.queues
import os
import threading
from types import ModuleType
from typing import Any

from interlock.errors import QueueShutDown
from interlock.queue import LifoQueue, PriorityQueue, Queue

__all__ = ["install", "uninstall"]

_REPLACEMENTS: dict[str, Any] = {
    "Queue": Queue,
    "PriorityQueue": PriorityQueue,
    "LifoQueue": LifoQueue,
    # Before 3.13 asyncio has none; code that asks for it then finds it.
    "QueueShutDown": QueueShutDown,
}
_MODULES = (asyncio, asyncio.queues)
_ABSENT = object()

# What was there, by module and name; empty while nothing is installed.
_originals: dict[tuple[ModuleType, str], Any] = {}

# Held while the names change, so that they change all or none. A fork waits for it, so that a child
# neither inherits it held nor half of the names.
_changing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_changing.release)


def install() -> None:
    """Put interlock's three queue classes in the place of asyncio's, for the whole process.

    From then on `asyncio.Queue`, `asyncio.PriorityQueue` and `asyncio.LifoQueue` are
    interlock's, and before Python 3.13 there is an `asyncio.QueueShutDown`. Call it once,
    at the start of the program, before the modules that use queues are imported.

    It reaches whatever looks the names up in `asyncio` afterwards, the standard library
    included. It cannot reach

    - names imported already: `from asyncio import Queue` in a module that was imported before;
    - classes derived from asyncio's before;
    - queues made before. They go on working, but are no instances of what is now `asyncio.Queue`;
    - code that uses private attributes of asyncio's classes, such as `_getters`. Of those there
      are only the hooks for subclasses (`_init`, `_put`, `_get`, `_qsize`), and `_queue` in a
      subclass that overrides one of them.

    Idempotent: a second call changes nothing, not even what somebody else has put in the
    place of interlock's meanwhile. May be called from any thread.

    Example:
        >>> import asyncio
        >>> import interlock
        >>> interlock.install()
        >>> asyncio.Queue is interlock.Queue
        True
        >>> interlock.uninstall()
        >>> asyncio.Queue is interlock.Queue
        False
    """
    with _changing:
        if _originals:
            return
        for module in _MODULES:
            for name, replacement in _REPLACEMENTS.items():
                _originals[module, name] = getattr(module, name, _ABSENT)
                setattr(module, name, replacement)


def uninstall() -> None:
    """Undo `install()`: each name is again what it was before, or absent if it was.

    A name in whose place somebody else has put another object meanwhile keeps that.
    Queues made meanwhile, and classes derived from interlock's, go on working. Idempotent;
    may be called from any thread.
    """
    with _changing:
        while _originals:
            (module, name), original = _originals.popitem()
            if getattr(module, name, None) is not _REPLACEMENTS[name]:
                continue
            if original is _ABSENT:
                delattr(module, name)
            else:
                setattr(module, name, original)
