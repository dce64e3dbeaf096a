"""Both backends in one process: to compare them, and to test one against the other."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any

# What is bound to one backend. Everything else (errors, transitions, the backends
# themselves) is imported once and shared, so that classes keep their identity.
_BOUND = tuple(
    f"interlock{module}"
    for module in (
        "",
        "._backend",
        ".callback",
        ".patching",
        ".queue",
        ".subscription",
        ".sync",
        ".sync_queue",
        ".watcher",
    )
)
_VARIABLE = "INTERLOCK_BACKEND"


@functools.cache
def load(backend: str) -> Any:
    """Import `interlock` on this backend ("rust" or "pure"), once; what is imported already stays as it is.

    Raises:
        ImportError: The backend is not built for this interpreter.
    """
    importlib.import_module("interlock")  # so that what is shared is there to be shared
    ours = {name: sys.modules.pop(name) for name in _BOUND if name in sys.modules}
    wanted = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = backend
    try:
        return importlib.import_module("interlock")
    finally:
        if wanted is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = wanted
        for name in _BOUND:
            sys.modules.pop(name, None)
        sys.modules.update(ours)
