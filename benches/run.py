"""`make bench`: measures everything side by side and says which bars are met.

Run from the root of the repository: `python -m benches.run --help`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import TextIO

from . import bars, implementations, machine, report
from .measure import FULL, QUICK, run
from .scenarios import SCENARIOS


class ProgressBar:
    """A line that is written over where the output is a terminal, else a line for every tenth."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._tenths = -1

    def __call__(self, share: float, what: str) -> None:
        if self._terminal:
            filled = round(share * 24)
            line = f"[{'#' * filled}{'.' * (24 - filled)}] {share:4.0%} {what}"
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r{line[:width].ljust(width)}")
        elif int(share * 10) > self._tenths:
            self._tenths = int(share * 10)
            self._out.write(f"{share:4.0%} {what}\n")
        self._out.flush()

    def clear(self) -> None:
        if self._terminal:
            self._out.write(f"\r{' ' * (shutil.get_terminal_size().columns - 1)}\r")
            self._out.flush()


_PROGRAM = "python -m benches.run"


def _command(options: argparse.Namespace) -> str:
    """What to type for these figures; the names of files are nobody else's business."""
    words = [_PROGRAM, *options.scenarios]
    words += [f"--only {name}" for name in options.only or ()]
    if options.rounds is not None:
        words.append(f"--rounds {options.rounds}")
    if options.quick:
        words.append("--quick")
    return " ".join(words)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, allow_abbrev=False, description="Measure everything side by side, and say which bars are met."
    )
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"what to measure; all of it if none is named: {', '.join(SCENARIOS)}",
    )
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer and shorter rounds, smaller N")
    parser.add_argument("--rounds", type=int, help="rounds of each case, at least 2")
    parser.add_argument(
        "--only",
        action="append",
        choices=implementations.NAMES,
        metavar="IMPLEMENTATION",
        help=f"measure this implementation; may be given several times: {', '.join(implementations.NAMES)}",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as in benches/README.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything, samples included, to FILE")
    return parser


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; choose from {', '.join(SCENARIOS)}")
    effort = QUICK if options.quick else FULL
    if options.rounds is not None:
        if options.rounds < 2:
            parser.error("--rounds must be at least 2: one round has no spread")
        effort = dataclasses.replace(effort, rounds=options.rounds)

    load_before = machine.load()
    found, missing = implementations.available(options.only or implementations.NAMES)
    progress = ProgressBar(sys.stderr)
    try:
        results = run(found, options.scenarios or tuple(SCENARIOS), effort, progress)
    finally:
        progress.clear()
    verdicts = bars.judge(results)
    described = machine.describe(found, load_before, _command(options))
    show = report.markdown if options.markdown else report.text
    print(show(described, results, verdicts, missing))
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(described, results, verdicts, missing), indent=2) + "\n")


if __name__ == "__main__":
    main()
