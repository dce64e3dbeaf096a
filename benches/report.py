"""Results as tables: text for a terminal, Markdown for `results/`, JSON for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .bars import Verdict
from .candidates import label, possessive
from .measure import Result, Spread

Rows = list[list[str]]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _figure(spread: Spread, scale: float) -> str:
    median, low, high = (_number(value / scale) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} ({low}–{high})"


def _times(ratio: float) -> str:
    if ratio >= 100:
        return f"{ratio:,.0f}"
    return f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}"


def _ratio(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    median, low, high = (_times(value) for value in (spread.median, spread.low, spread.high))
    return f"{median}×" if spread.low == spread.high else f"{median}× ({low}–{high})"


def rows(result: Result) -> Rows:
    """The table of one scenario, with its head."""
    memory = result.scenario.case is None
    table = [["N"] if len(result.sizes) > 1 else []]
    table[0] += [
        "implementation",
        "KiB gained" if memory else f"ns per {result.scenario.unit}",
        *(f"{possessive(name)} ÷ this" for name in result.scenario.references),
    ]
    for size in result.sizes:
        for name in result.implementations:
            key = (name, size)
            row = [f"{size:,}"] if len(result.sizes) > 1 else []
            row += [
                label(name),
                _figure(result.spread(key), 1024 if memory else 1),
                *(_ratio(result.ratio((reference, size), key)) for reference in result.scenario.references),
            ]
            table.append(row)
    return table


def heading(result: Result) -> str:
    """What was measured."""
    size = f"{result.sizes[0]:,}" if len(result.sizes) == 1 else "N"
    return result.scenario.titled(size)


def remarks(result: Result) -> list[str]:
    """What a table of times does not show: growth with N, throughput, and broken chains."""
    told = []
    if result.scenario.scales and len(result.sizes) > 1:
        few, many = result.sizes[0], result.sizes[-1]
        for name in result.implementations:
            scaling = _ratio(result.scaling(name, few, many))
            told.append(f"{label(name)}: with N = {many}, {scaling} as much goes through as with {few}.")
    if result.scenario.flat:
        for name in result.implementations:
            growth = result.growth(name)
            if growth is not None:
                told.append(f"{label(name)}: the dearest N costs {_ratio(growth)} the cheapest.")
    for (name, _), (count, total) in result.broken.items():
        told.append(f"{label(name)}: broken chains: {count:,} in {total:,} transitions.")
    return told


def verdict_rows(verdicts: Sequence[Verdict]) -> Rows:
    """The bars with what became of them."""
    words = {True: "met", False: "**not met**", None: "not measured"}
    return [
        ["scenario", "bar", "measured", ""],
        *(
            [
                verdict.bar.scenario,
                f"{label(verdict.bar.implementation)}, {verdict.bar.claim}",
                _ratio(verdict.measured),
                words[verdict.met],
            ]
            for verdict in verdicts
        ),
    ]


def _markdown_table(table: Rows) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    lines.insert(1, "| " + " | ".join("---" for _ in table[0]) + " |")
    return "\n".join(lines)


def _text_table(table: Rows) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _summary(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "No bar is fixed for these scenarios on this interpreter."
    missed = sum(verdict.met is False for verdict in verdicts)
    met = sum(verdict.met is True for verdict in verdicts)
    skipped = len(verdicts) - met - missed
    return f"{met} bars met, {missed} not met, {skipped} not measured."


EXPLANATION = (
    "Medians over the rounds, quartiles in brackets. A ratio is taken within each round: "
    "2.00× means that the other took twice as long in the same round."
)


def text(
    machine: Mapping[str, str], results: Sequence[Result], verdicts: Sequence[Verdict], missing: Mapping[str, str]
) -> str:
    """The report for a terminal."""
    parts = ["\n".join(f"{what}: {value}" for what, value in machine.items())]
    if missing:
        parts.append("\n".join(f"Left out: {label(name)} ({why})" for name, why in missing.items()))
    parts.append(EXPLANATION)
    for result in results:
        parts.append("\n".join([heading(result), "", _text_table(rows(result)), *remarks(result)]))
    if verdicts:
        parts.append(_text_table(verdict_rows(verdicts)).replace("**not met**", "NOT MET"))
    parts.append(_summary(verdicts))
    return "\n\n".join(parts)


def markdown(
    machine: Mapping[str, str], results: Sequence[Result], verdicts: Sequence[Verdict], missing: Mapping[str, str]
) -> str:
    """The report for a page in `results/`, below its title."""
    parts = ["\n".join(f"- {what}: {f'`{value}`' if what == 'Command' else value}" for what, value in machine.items())]
    if missing:
        parts.append("\n".join(f"- Left out: {label(name)} ({why})" for name, why in missing.items()))
    parts.append(EXPLANATION)
    for result in results:
        parts += [f"## {heading(result)}", _markdown_table(rows(result))]
        told = remarks(result)
        if told:
            parts.append("\n".join(f"- {remark}" for remark in told))
    if verdicts:
        parts += ["## Bars", _markdown_table(verdict_rows(verdicts))]
    parts.append(_summary(verdicts))
    return "\n\n".join(parts)


def as_json(
    machine: Mapping[str, str], results: Sequence[Result], verdicts: Sequence[Verdict], missing: Mapping[str, str]
) -> dict[str, Any]:
    """Everything, samples included, as plain objects."""
    return {
        "machine": dict(machine),
        "missing": dict(missing),
        "scenarios": [
            {
                "name": result.scenario.name,
                "title": result.scenario.title,
                "unit": "byte" if result.scenario.case is None else f"nanosecond per {result.scenario.unit}",
                "series": [
                    {
                        "implementation": name,
                        "n": size,
                        "samples": samples,
                        "broken_chains": result.broken.get((name, size), (0, 0))[0],
                    }
                    for (name, size), samples in result.samples.items()
                ],
            }
            for result in results
        ],
        "bars": [
            {
                "scenario": verdict.bar.scenario,
                "implementation": verdict.bar.implementation,
                "claim": verdict.bar.claim,
                "limit": verdict.bar.limit,
                "at_least": verdict.bar.at_least,
                "measured": None if verdict.measured is None else verdict.measured.median,
                "met": verdict.met,
            }
            for verdict in verdicts
        ],
    }
