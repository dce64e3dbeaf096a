"""A `nats-server` on loopback, for as long as it is needed. The tests use it as well."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# Seconds. It starts within a tenth of one; this is for the machine that is busy.
_LIMIT = 50.0


def find() -> str | None:
    """The program, if it is here. Debian puts it where only root looks."""
    return shutil.which("nats-server", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


def version(program: str) -> str:
    """As it gives it itself."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def running(program: str) -> Iterator[str]:
    """Run it, with JetStream, on a free port of 127.0.0.1; yield its URL. It is gone afterwards, and its files.

    Raises:
        RuntimeError: It has not started; the text has its log.
    """
    with tempfile.TemporaryDirectory(prefix="nats-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        command = [program, "--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir", folder]
        command += ["--jetstream", "--store_dir", folder, "--log", str(log)]
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield _url(server, Path(folder), log)
        finally:
            server.terminate()
            try:
                server.wait(_LIMIT)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _url(server: subprocess.Popen[bytes], folder: Path, log: Path) -> str:
    """Where it listens, as it tells in a file once it does."""
    end = time.monotonic() + _LIMIT
    while server.poll() is None and time.monotonic() < end:
        for ports in folder.glob("*.ports"):
            # It may be written just now.
            with contextlib.suppress(ValueError, LookupError):
                url: str = json.loads(ports.read_text())["nats"][0]
                return url
        time.sleep(0.01)
    told = log.read_text() if log.exists() else ""
    raise RuntimeError(f"nats-server has not started (exit code {server.poll()}); its log:\n{told}")
