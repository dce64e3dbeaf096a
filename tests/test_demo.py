"""The demo: what it shows must be so, it ends in time, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import interlock
from interlock.demo import backends, benchmark, clients, contenders, fanout, runner, states, work
from interlock.demo.__main__ import main
from interlock.demo.methods import METHODS, State

SECONDS = 45
BACKENDS = sorted({"pure", interlock.backend})


def start(backend: str, *options: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "INTERLOCK_BACKEND": backend,
        # Where this package is, installed or not.
        "PYTHONPATH": str(Path(interlock.__file__).parent.parent),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "interlock.demo", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def demo(backend: str, *options: str) -> tuple[int, str, str]:
    with start(backend, *options) as process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    return process.returncode, output, errors


def assert_no_thread_left(before: set[threading.Thread]) -> None:
    """Those by which asyncio waits for a child process end a little later than the child."""
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in left)


def test_value_watcher_sees_every_state_and_drains_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    tallies = states.run(runs=4)
    watcher = states.watcher_tally(tallies)
    assert watcher.saw == dict.fromkeys(State, 4)
    assert (watcher.missed, watcher.drained, watcher.flushed) == (0, 4, 4)
    assert watcher.complete
    assert [tally.name for tally in tallies] == [method.name for method in METHODS]
    # What the others miss is the machine's business; that they got the close is not.
    assert all(tally.saw[State.DISCONNECTED] == 4 for tally in tallies)
    assert "ValueWatcher" in capsys.readouterr().out
    assert_no_thread_left(before)


def test_fan_out_delivers_everything_and_accounts_for_what_it_drops() -> None:
    before = set(threading.enumerate())
    delivery = fanout.run(clients=20, transitions=120)
    assert delivery is not None
    assert delivery.faults == []
    assert delivery.transitions == 120
    assert delivery.deliveries == len(delivery.lossless) * 120 == 19 * 120
    assert [account.transitions + account.missed for account in delivery.slow] == [120]
    assert sum(delivery.lags) == sum(account.missed for account in delivery.slow)
    assert_no_thread_left(before)


def test_a_feed_that_loses_repeats_or_swaps_is_found_out() -> None:
    def account(*pairs: tuple[int, int]) -> clients.Account:
        return clients.Account.of(b"".join(b"%d %d .\n" % pair for pair in pairs))

    good = account((0, 1), (1, 2), (2, 3))
    assert not good.fault
    for wrong in (account((0, 1), (2, 3)), account((0, 1), (0, 1), (1, 2)), account((1, 2), (0, 1), (2, 3))):
        assert wrong.fault
        assert fanout.Delivery(3, [good, wrong], [good], 1.0, []).faults
    assert fanout.Delivery(3, [account((0, 1), (1, 2))], [good], 1.0, []).faults

    told = clients.Account.of(b"0 1 .\nlagged 2\n3 4 .\n")
    assert (told.transitions, told.missed, told.gaps, told.fault) == (2, 2, 1, "")
    assert not fanout.Delivery(4, [], [told], 1.0, [2]).faults
    assert clients.Account.of(b"0 1 .\nlagged 1\n3 4 .\n").fault
    assert fanout.Delivery(5, [], [told], 1.0, [2]).faults


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_queue_keeps_all_work(
    backend: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S01, S19, Q2, Q3, Q5, Q6."""
    for name in ("Queue", "QueueStatistics"):
        monkeypatch.setattr(work, name, getattr(backends.load(backend), name))
    before = set(threading.enumerate())
    report = work.run(items=20)
    assert report is not None
    assert report.faults == []
    assert report.arrivals[-1] == work.Arrivals(put=20 + work.CANCELLATIONS, received=20 + work.CANCELLATIONS)
    stopped = report.stops[-1]
    ends = (len(stopped.done), len(stopped.returned), len(stopped.refused))
    assert ends == (work.WORKERS, work.PLACES, work.PRODUCERS)
    assert (stopped.lost, stopped.blocked, stopped.joined) == (0, 0, True)
    # What asyncio's loses is its version's business; that it was put to the same test is not.
    assert report.arrivals[0].put == report.arrivals[-1].put
    assert all(len(other.offered) == len(stopped.offered) for other in report.stops if other is not None)
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []
    assert_no_thread_left(before)


def well_kept() -> work.Report:
    stopped = work.Stopped([0, 1, 2], [0, 1], [0], [0], [1], [2], joined=True)
    stopped.statistics = interlock.QueueStatistics(0, 0, 2, 1, 1, 0, 0, 0)
    crossing = work.Crossing(0.1, False)
    return work.Report((work.Arrivals(2, 1, 1), None, work.Arrivals(2, 2)), (crossing, None, crossing), (stopped,) * 3)


@pytest.mark.parametrize(
    ("result", "name", "value"),
    [
        ("arrivals", "lost", 1),
        ("arrivals", "received", 3),
        ("arrivals", "went_on", 1),
        ("stops", "done", []),
        ("stops", "done", [0, 1]),
        ("stops", "returned", []),
        ("stops", "refused", []),
        ("stops", "accepted", [1, 0]),
        ("stops", "blocked", 1),
        ("stops", "joined", False),
        ("stops", "statistics", interlock.QueueStatistics(0, 1, 2, 1, 1, 0, 0, 0)),
    ],
)
def test_a_queue_that_loses_repeats_or_blocks_is_found_out(result: str, name: str, value: object) -> None:
    report = well_kept()
    assert report.faults == []
    setattr(getattr(report, result)[-1], name, value)
    assert report.faults


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_ends_well_and_fits_the_terminal(backend: str) -> None:
    code, output, errors = demo(backend, "--quick", "--no-benchmark", "--clients", "20")
    assert (code, errors) == (0, "")
    assert f"{backend} backend" in output
    assert "\x1b" not in output, "colours although it is no terminal"
    assert [line for line in output.splitlines() if len(line) > 80] == []
    assert "What to do next" in output


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
def test_ctrl_c_ends_it_in_the_middle_of_the_fan_out() -> None:
    # With the benchmark, which it never gets to, so that there is something left to interrupt.
    with start("pure", "--quick", "--clients", "20") as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("Slow readers"):
                    break
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, "")
    assert output.splitlines()[-1] == "Interrupted."


@pytest.mark.parametrize("lost", ["a state", "a transition", "time", "an item", "time with items", "nothing"])
def test_the_exit_code_tells_of_a_loss(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = states.Tally("ValueWatcher", 1, dict.fromkeys(State, 1), drained=1, flushed=1)
    if lost == "a state":
        watcher.saw[State.CLOSING] = 0
    arrived = clients.Account(transitions=4 if lost == "a transition" else 5, last=5)
    delivery = None if lost == "time" else fanout.Delivery(5, [arrived], [], 1.0, [])
    monkeypatch.setattr(states, "run", lambda runs: [watcher])
    monkeypatch.setattr(fanout, "run", lambda clients: delivery)
    report = well_kept()
    if lost == "an item":
        report.arrivals[-1].lost = 1
    monkeypatch.setattr(work, "run", lambda items: None if lost == "time with items" else report)
    assert main(["--no-benchmark"]) == (0 if lost == "nothing" else 1)


def test_a_bad_number_of_clients_is_refused() -> None:
    code, _, errors = demo("pure", "--clients", "1")
    assert code == 2
    assert "at least 2" in errors


def test_loading_the_other_backend_leaves_this_one_in_place() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("interlock")}
    for backend in BACKENDS:
        watcher = backends.load(backend).ValueWatcher("a")
        watcher.value = "b"
        assert (watcher.value, watcher.version) == ("b", 1)
    assert sys.modules.items() >= before.items()
    assert sys.modules["interlock"] is interlock


# One model of the SDK's is declared the old way, which pydantic deprecates as the module is imported.
@pytest.mark.filterwarnings("ignore:Support for class-based `config` is deprecated:DeprecationWarning")
def test_every_contender_takes_part_in_every_scenario_it_can() -> None:
    for name, make in contenders.contenders().items():
        for measure in benchmark.SCENARIOS.values():
            if (name, measure) not in benchmark.NOT_COMPARABLE:
                assert benchmark.once(measure, make) > 0


def test_the_table_of_the_benchmark_fits_the_terminal() -> None:
    names = ["rust", "pure", "Inngest", "queues", "futures"]
    results = {scenario: dict.fromkeys(names[:4], 0.0123) for scenario in benchmark.SCENARIOS}
    lines = benchmark.table(results, names).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert lines[1].split()[-5:] == ["12,300"] * 4 + ["-"]


def test_a_timeout_ends_what_runs() -> None:
    ended = False

    async def sleeper() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(60)
        finally:
            ended = True

    with pytest.raises(asyncio.TimeoutError):
        runner.run(sleeper(), timeout=0.01)
    assert ended
