"""`python -m interlock.demo`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import interlock
from interlock.demo import benchmark, fanout, states, work
from interlock.demo.console import bad, heading, say


def positive(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("at least 2: one that reads fast and one that reads slowly")
    return number


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m interlock.demo",
        description="Shows on your machine, over real sockets on 127.0.0.1, which state changes get lost with "
        "polling, Event, Condition and a shared Queue, and that interlock.ValueWatcher loses none; sends one feed "
        "to many TCP clients; shows what becomes of work in asyncio.Queue and in interlock.Queue; and measures what "
        "it costs.",
        epilog="INTERLOCK_BACKEND=rust or =pure chooses the backend. Exit code: 0 if interlock delivered "
        "everything, 1 if not, 130 if interrupted.",
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs, clients and rounds: about ten seconds")
    parser.add_argument("--no-benchmark", action="store_true", help="leave out part 4, the benchmark")
    parser.add_argument(
        "--clients",
        type=positive,
        metavar="N",
        help="TCP clients in part 2 (default: 1000, with --quick 100; fewer if the limit on open files is lower)",
    )
    return parser.parse_args(arguments)


def demonstrate(options: argparse.Namespace) -> bool:
    """Run the parts; whether interlock delivered everything."""
    quick: bool = options.quick
    say(f"interlock on {platform.python_implementation()} {platform.python_version()}, {interlock.backend} backend")
    watcher = states.watcher_tally(states.run(runs=5 if quick else 20))
    delivery = fanout.run(options.clients or (100 if quick else 1000))
    report = work.run(items=100 if quick else 300)
    if not options.no_benchmark:
        benchmark.run(rounds=3 if quick else benchmark.ROUNDS)
    what_next()
    complete = (
        watcher.complete
        and (delivery is not None and not delivery.faults)
        and (report is not None and not report.faults)
    )
    if not complete:
        say()
        say(bad("interlock did not deliver everything: that is a defect (or a machine too slow"))
        say(bad("for the time limits). Please report it with the output above."))
    return complete


def what_next() -> None:
    heading("What to do next")
    say("install       pip install .   (in a clone; it builds the Rust backend)")
    say("replace       from interlock import Queue, ValueWatcher")
    say("read          README.md, help(interlock.ValueWatcher) and help(interlock.Queue)")
    say("in a clone    make bench (every scenario and contender), make test")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return 0 if demonstrate(options) else 1
    except KeyboardInterrupt:
        say()
        say("Interrupted.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
