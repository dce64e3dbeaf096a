"""Both backends of interlock in one process, to compare them in interleaved rounds."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import interlock
from interlock import ValueWatcher

# What is bound to the backend when it is imported; the rest is shared by both.
_BOUND = ("", "._backend", ".callback", ".subscription", ".sync", ".watcher")
_VARIABLE = "INTERLOCK_BACKEND"


def watcher_class(backend: str) -> type[ValueWatcher[Any]] | None:
    """`ValueWatcher` on this backend (`"rust"` or `"pure"`); `None` where it is not built.

    The package is imported a second time for the other backend, and `sys.modules` put
    back as it was: everybody else keeps the backend they have.
    """
    if backend == interlock.backend:
        return ValueWatcher
    names = ["interlock" + suffix for suffix in _BOUND]
    ours = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    wanted = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = backend
    try:
        other: type[ValueWatcher[Any]] = importlib.import_module("interlock").ValueWatcher
    except ImportError:
        return None
    finally:
        if wanted is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = wanted
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(ours)
    return other
