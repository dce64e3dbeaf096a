"""Both backends of interlock in one process."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType

_VARIABLE = "INTERLOCK_BACKEND"

# What is bound to one backend. Everything else (errors, transition, equality, the
# backends themselves) is imported once and shared, so that classes keep their identity.
_BOUND = (
    "interlock",
    "interlock._backend",
    "interlock.callback",
    "interlock.subscription",
    "interlock.sync",
    "interlock.watcher",
)


@functools.cache
def load(backend: str) -> ModuleType:
    """Import `interlock` over `backend` ("rust" or "pure") without touching what is already imported.

    Raises:
        ImportError: The backend is not built for this interpreter, or interlock is not installed.
    """
    outer = {name: sys.modules.pop(name) for name in _BOUND if name in sys.modules}
    wanted = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = backend
    try:
        return importlib.import_module("interlock")
    finally:
        for name in _BOUND:
            sys.modules.pop(name, None)
        sys.modules.update(outer)
        if wanted is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = wanted
