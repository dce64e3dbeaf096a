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
from typing import Any, TextIO

from . import bars, machine, report
from .candidates import Implementation
from .cases import Scenario
from .groups import GROUPS, Group
from .measure import FULL, QUICK, run


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
    if options.group is not None:
        words.append(f"--group {options.group}")
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
    names = tuple(dict.fromkeys(name for group in GROUPS.values() for name in group.candidates.names))
    of_groups = "; ".join(f"{group.name}: {', '.join(group.scenarios)}" for group in GROUPS.values())
    parser.add_argument(
        "scenarios",
        nargs="*",
        metavar="SCENARIO",
        help=f"what to measure; all of it if none is named. {of_groups}",
    )
    parser.add_argument("--group", choices=GROUPS, help="only scenarios of this group")
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer and shorter rounds, smaller N")
    parser.add_argument("--rounds", type=int, help="rounds of each case, at least 2; where they are long, at most")
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="IMPLEMENTATION",
        help=f"measure this implementation; may be given several times: {', '.join(names)}",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as in benches/results/")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything, samples included, to FILE")
    return parser


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[tuple[Group, list[Scenario]]]:
    """The scenarios asked for, by their groups, in the order in which they were named."""
    groups = list(GROUPS.values()) if options.group is None else [GROUPS[options.group]]
    known = [name for group in groups for name in group.scenarios]
    unknown = [name for name in options.scenarios if name not in known]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; choose from {', '.join(known)}")
    wanted = options.scenarios or known
    chosen = [(group, [group.scenarios[name] for name in wanted if name in group.scenarios]) for group in groups]
    return [(group, scenarios) for group, scenarios in chosen if scenarios]


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    chosen = _chosen(parser, options)
    effort = QUICK if options.quick else FULL
    if options.rounds is not None:
        if options.rounds < 2:
            parser.error("--rounds must be at least 2: one round has no spread")
        effort = dataclasses.replace(effort, rounds=options.rounds)

    load_before = machine.load()
    taking_part: list[Implementation[Any]] = []
    missing: dict[str, str] = {}
    plan: list[tuple[Scenario, list[Implementation[Any]]]] = []
    promised: list[bars.Bar] = []
    for group, scenarios in chosen:
        found, not_found = group.candidates.available(options.only or group.candidates.names)
        taking_part += found
        missing |= not_found
        plan += [(scenario, found) for scenario in scenarios]
        promised += group.bars()
    progress = ProgressBar(sys.stderr)
    try:
        results = run(plan, effort, progress)
    finally:
        progress.clear()
    verdicts = bars.judge(promised, results)
    described = machine.describe(taking_part, load_before, _command(options))
    show = report.markdown if options.markdown else report.text
    print(show(described, results, verdicts, missing))
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(described, results, verdicts, missing), indent=2) + "\n")


if __name__ == "__main__":
    main()
