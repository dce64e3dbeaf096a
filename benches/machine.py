"""Where figures come from: without it they say nothing."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .candidates import Implementation


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return f"{platform.system()} {platform.release()}"


def _interpreter() -> str:
    traits = [platform.python_compiler()]
    settings = f"{sysconfig.get_config_var('CONFIG_ARGS')} {sysconfig.get_config_var('PY_CFLAGS')}"
    if "--enable-optimizations" in settings or "-fprofile-use" in settings:
        traits.append("profile-guided")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        # An extension that is not made for it turns the GIL on when it is imported.
        with_gil = getattr(sys, "_is_gil_enabled", bool)()
        traits.append("free-threaded, but the GIL is on" if with_gil else "free-threaded")
    return f"{platform.python_implementation()} {platform.python_version()} ({', '.join(traits)})"


def load() -> float | None:
    """The load average of the last minute, where the system tells."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def describe(implementations: Iterable[Implementation[Any]], load_before: float | None, command: str) -> dict[str, str]:
    """Machine, interpreter, versions; and how busy the machine was with other things."""
    # Once each: some take part in more than one group.
    versions = dict.fromkeys(f"{each.label} {each.version}" for each in implementations if each.version)
    described = {
        "Machine": f"{_processor()}, {os.cpu_count()} cores, {platform.machine()}",
        "System": _system(),
        "Interpreter": _interpreter(),
        "Versions": ", ".join(versions) or "none but interlock",
        "Command": command,
    }
    if load_before is not None:
        described["Load before the run"] = f"{load_before:.2f}"
    return described
