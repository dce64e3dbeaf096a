"""Plain output for a terminal of 80 columns: headings, colours, a progress bar."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

WIDTH = 80


def _wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _coloured(code: int, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _wants_colour() else text


def good(text: str) -> str:
    return _coloured(32, text)


def bad(text: str) -> str:
    return _coloured(31, text)


def bold(text: str) -> str:
    return _coloured(1, text)


def say(text: str = "") -> None:
    """Print at once, so that a part that takes seconds shows what it is at even through a pipe."""
    print(text, flush=True)


def heading(text: str) -> None:
    say()
    say(bold(text))
    say(bold("-" * len(text)))


class Progress:
    """A bar that is redrawn on a terminal, and grows by `#` where lines cannot be redrawn."""

    LENGTH = 28

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._drawn = 0
        self._redraws = sys.stdout.isatty()
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        if not self._redraws:
            print("[", end="", flush=True)
        return self

    def advance(self, what: str) -> None:
        self._done += 1
        filled = self.LENGTH * self._done // self._total
        if self._redraws:
            left = (time.monotonic() - self._started) * (self._total - self._done) / self._done
            bar = "#" * filled + "." * (self.LENGTH - filled)
            print(f"\r[{bar}] {left:3.0f} s left  {what:<36.36}", end="", flush=True)
        else:
            print("#" * (filled - self._drawn), end="", flush=True)
        self._drawn = filled

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        print("\r" + " " * (WIDTH - 1) + "\r" if self._redraws else "]\n", end="", flush=True)
