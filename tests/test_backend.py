"""Which backend is taken, and where the package can be imported at all (X11, S59)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from storm import IN_A_SUBINTERPRETER, SOURCE, clean, python


def test_s59_import_in_a_subinterpreter(interlock: Any) -> None:
    clean(
        interlock,
        """
import interlock
program = '''
try:
    import interlock
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    w = interlock.ValueWatcher(0)
    s = w.watch()
    w.value = 1
    assert s.get_nowait() == (0, 1)
'''
"""
        + IN_A_SUBINTERPRETER
        + """
inner.close() if hasattr(inner, "close") else interpreters.destroy(inner)
# And the first one goes on.
w = interlock.ValueWatcher(0)
w.value = 1
""",
    )


def test_the_backend_is_what_was_asked_for(interlock: Any) -> None:
    program = "import interlock; print(interlock.backend)"
    assert clean(interlock, program) == f"{interlock.backend}\n"
    if interlock.backend == "rust":
        assert clean(interlock, program, INTERLOCK_BACKEND="") == "rust\n"
    done = python(interlock, program, INTERLOCK_BACKEND="fast")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "'fast'" in done.stderr
    assert "'rust' or 'pure'" in done.stderr


MISSING = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import interlock
print(interlock.backend)
"""


def test_the_fallback_is_taken_only_if_the_extension_is_missing(interlock: Any) -> None:
    missing = MISSING.format(name="interlock._core")
    assert clean(interlock, missing, INTERLOCK_BACKEND="") == "pure\n"
    assert clean(interlock, missing, INTERLOCK_BACKEND="pure") == "pure\n"
    done = python(interlock, missing, INTERLOCK_BACKEND="rust")
    assert done.returncode == 1
    assert "ImportError: INTERLOCK_BACKEND=rust, but interlock._core is not built" in done.stderr
    done = python(interlock, MISSING.format(name="interlock.errors"), INTERLOCK_BACKEND="")
    assert done.returncode == 1
    assert "No module named 'interlock.errors'" in done.stderr


def test_an_extension_that_is_broken_is_not_passed_over(interlock: Any, tmp_path: Path) -> None:
    shutil.copytree(Path(SOURCE) / "interlock", tmp_path / "interlock", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    (tmp_path / "interlock" / "_core.py").write_text("import a_module_that_is_not_there\n")
    done = python(interlock, "import interlock", INTERLOCK_BACKEND="", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "a_module_that_is_not_there" in done.stderr
    (tmp_path / "interlock" / "_core.py").unlink()
    assert (
        clean(interlock, "import interlock; print(interlock.backend)", INTERLOCK_BACKEND="", PYTHONPATH=str(tmp_path))
        == "pure\n"
    )
