"""Both backends in one process: the package, imported once for each."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

# What depends on the choice of the backend. The rest (errors, transitions) is shared.
_CHOOSING = ("", "._backend", ".watcher", ".subscription", ".sync", ".callback")


def load(backend: str) -> Any:
    """Import interlock on this backend, whatever is imported already."""
    names = [f"interlock{name}" for name in _CHOOSING]
    kept: dict[str, ModuleType] = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    wanted = os.environ.get("INTERLOCK_BACKEND")
    os.environ["INTERLOCK_BACKEND"] = backend
    try:
        return importlib.import_module("interlock")
    finally:
        if wanted is None:
            del os.environ["INTERLOCK_BACKEND"]
        else:
            os.environ["INTERLOCK_BACKEND"] = wanted
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(kept)
