"""Chooses the backend, once, at import. Nothing else does.

`INTERLOCK_BACKEND=rust|pure` decides if set; asking for `rust` where it is not
built is an error. Otherwise Rust is taken if it is there, else pure Python.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock import _core as core

    backend: str
else:
    _wanted = os.environ.get("INTERLOCK_BACKEND", "")
    if _wanted not in ("", "rust", "pure"):
        raise ImportError(f"INTERLOCK_BACKEND={_wanted!r} is no backend; set it to 'rust' or 'pure', or unset it")
    if _wanted == "pure":
        import interlock._pure as core
    else:
        try:
            import interlock._core as core
        except ModuleNotFoundError as error:
            # Only the extension itself may be missing; anything else that fails
            # to import is a defect to be seen, not a reason to run slower.
            if error.name != "interlock._core":
                raise
            if _wanted == "rust":
                raise ImportError(
                    "INTERLOCK_BACKEND=rust, but interlock._core is not built for this interpreter; "
                    "install a wheel, build it with 'maturin develop --release', or set INTERLOCK_BACKEND=pure",
                    name="interlock._core",
                ) from error
            import interlock._pure as core
    backend = "pure" if core.__name__ == "interlock._pure" else "rust"

__all__ = ["backend", "core"]
