"""`scripts/bench peers`: ratios against figures worked out by hand, verdicts, and runs whose output is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import bench_peers, benchmark_runner
from peers import peers_table as table
from peers import work
from peers.peers_table import CHAINED, GOALS, MEASURES, OURS, SHOWN, Run

RUNS = [
    Run(0, "W1", OURS, "1", 100.0, load=1.0), Run(0, "W1", CHAINED, "1", 300.0), Run(0, "W1", "ray", "2", 50.0),
    Run(1, "W1", OURS, "1", 100.0, load=3.5), Run(1, "W1", CHAINED, "1", 500.0), Run(1, "W1", "ray", "2", 25.0),
    Run(2, "W1", OURS, "1", 900.0), Run(2, "W1", CHAINED, "1", 900.0), Run(2, "W1", "ray", "2", 100.0),
    Run(0, "W3", OURS, "1", p50_ms=1.0, p99_ms=6.0), Run(0, "W3", CHAINED, "1", p50_ms=0.5, p99_ms=3.0),
    Run(0, "W3", "bytewax-items", "3", p50_ms=2.0, p99_ms=2.0),
    Run(0, "W4", OURS, "1", 7.0), Run(0, "W4", "flink", why="it said: no, never"),
]  # fmt: skip


def found(work: str, peer: str, measure: str = "per_s") -> table.Line:
    lines = table.lines(RUNS)
    return next(line for line in lines if (line.work, line.peer, line.measure) == (work, peer, measure))


def test_ratios_are_of_one_turn_and_their_median_is_told() -> None:
    line = found("W1", "ray")
    assert (line.n, line.ours, line.chained) == (3, (4.0, 2.0, 9.0), (9.0, 6.0, 20.0))


def test_a_goal_is_judged_by_the_chained_form_and_by_its_direction() -> None:
    assert (found("W1", "ray").goal, found("W1", "ray").met) == (4.0, True)
    assert found("W3", "bytewax-items", "p50_ms").met is True, "0.25 of at most 1"
    assert found("W3", "bytewax-items", "p99_ms").met is False, "1.5 of at most 1.2"
    assert found("W4", "flink").met is None


@pytest.mark.parametrize(
    ("peer_s", "peer_ms", "met"), [(75.0, 2.5, True), (75.1, 2.5, False), (75.0, 2.4, False)]
)
def test_a_goal_is_met_from_its_figure_on(peer_s: float, peer_ms: float, met: bool) -> None:
    runs = [
        Run(0, "W1", CHAINED, per_s=300.0), Run(0, "W1", "ray", per_s=peer_s),
        Run(0, "W3", CHAINED, p50_ms=1.0, p99_ms=1.0), Run(0, "W3", "ray", p50_ms=peer_ms, p99_ms=1.0),
    ]  # fmt: skip
    judged = [line.met for line in table.lines(runs) if line.goal]
    assert len(judged) == 2 and all(judged) == met


def test_what_did_not_run_says_why_and_has_no_figure() -> None:
    line = found("W4", "flink")
    assert (line.n, line.ours, line.chained, line.why) == (0, None, None, "it said: no, never")
    row = next(row for row in table.markdown(RUNS).splitlines() if "W4" in row and "PyFlink" in row)
    assert "it said: no, never" in row and "| 0 |" in row


def test_a_turn_without_a_partner_does_not_count() -> None:
    line = table.lines([*RUNS, Run(3, "W1", "ray", "2", 1.0), Run(4, "W1", OURS, "1", 1.0)])[0]
    assert line.n == 3


def test_the_table_tells_version_n_goal_verdict_and_load() -> None:
    told = table.markdown(RUNS)
    row = next(row for row in told.splitlines() if row.startswith("| W1 rows/s, ray"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0].endswith(" 2") and cells[1:] == ["3", "4 (2 to 9)", "9 (6 to 20)", "≥ 4", "met"]
    assert "Load at most, by turn: 1.0, 3.5, 0.0." in told


def test_runs_come_back_from_their_csv() -> None:
    assert table.read(table.written(RUNS)) == RUNS


def test_every_goal_is_of_a_peer_and_a_measure_that_there_are() -> None:
    assert set(bench_peers.PEERS) == set(SHOWN)
    for work_, peer, measure in GOALS:
        assert measure in MEASURES[work_] and bench_peers.rows_of(peer, work_) > 0


def test_one_command_tells_again_what_a_csv_says(tmp_path: Path) -> None:
    kept, plot = tmp_path / "runs.csv", tmp_path / "runs.svg"
    kept.write_text(table.written(RUNS))
    command = [sys.executable, "-P", benchmark_runner.__file__, "peers", "--kept", str(kept)]
    done = subprocess.run([*command, "--plot", str(plot)], capture_output=True, text=True, check=True)
    assert done.stdout == table.markdown(RUNS)
    assert "bytewax-items" in plot.read_text("utf-8")
    data = json.loads(subprocess.run([*command, "-o", "json"], capture_output=True, check=True).stdout)
    ray = next(one for one in data["results"][0]["lines"] if (one["work"], one["peer"]) == ("W1", "ray"))
    assert ray["chained"] == {"median": 9.0, "least": 6.0, "most": 20.0} and ray["met"]


def test_a_run_that_fails_or_says_nothing_has_a_reason() -> None:
    line = '{"per_s": 5.0, "version": "1", "delivery": "none"}'
    assert bench_peers.told(0, f"hello\n{line}\n", "")["per_s"] == 5.0
    assert bench_peers.told(1, line, "an Error: x\nbye")["why"] == "an Error: x"
    assert bench_peers.told(0, "hello", "")["why"] == "it told nothing"


# ── what comes out ───────────────────────────────────────────────────────────────────────────────


def summed(total: int) -> work.Sum:
    sink = work.Sum(total)
    work.begin()
    for row in work.numbers(0, total):
        sink(work.f3(work.f2(work.f1(row))))
    return sink


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_right_sum_is_told_and_a_wrong_one_has_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    work.tell("W1", summed(1000), "1", "none")
    assert bench_peers.told(0, capsys.readouterr().out, "")["per_s"] > 0
    twice = summed(1000)
    twice(work.numbers(0, 1)[0])
    wrong = summed(1000)
    wrong.sum += 1
    for sink in (twice, wrong):
        with pytest.raises(SystemExit, match="what came out"):
            work.tell("W1", sink, "1", "none")


def test_rows_that_crossed_no_process_have_no_figure() -> None:
    work.here()
    with pytest.raises(SystemExit, match="crossed no process"):
        work.tell("W2", summed(10), "1", "none")


def test_counts_come_one_by_one_or_many_at_once() -> None:
    total = work.POOL + 17
    sink = work.Counts(total)
    for user, count in work.exact_counts(total).items():
        sink((user, 1))
        sink((user, count))
    assert sink.done and sink.right() and sink.until_ns
    sink(("user-00000", 1))
    assert not sink.right()


def test_lateness_counts_from_when_a_row_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    total = work.SETTLING + 100
    sink, first = work.Lateness(total), 10**18
    for n in reversed(range(total)):
        due = first + n * work.GAP_NS
        late_ns = 10**9 if n < work.SETTLING else (n - work.SETTLING + 1) * 1_000_000
        monkeypatch.setattr(work.time, "time_ns", lambda at=due + late_ns: at)
        sink(work.f3(work.f2(work.f1((due, 0.5, "")))))
    assert sink.right()
    assert (sink.late_ms(0.5), sink.late_ms(0.99)) == (51.0, 100.0)
    sink.came[3] = sink.came[4]
    assert not sink.right()


def test_rows_in_time_are_due_one_gap_apart_and_never_come_before() -> None:
    rows = [(row, work.time.time_ns()) for row in work.in_time(5)]
    dues = [row[0] for row, _ in rows]
    assert dues == list(range(dues[0], dues[0] + 5 * work.GAP_NS, work.GAP_NS))
    assert all(came >= row[0] for row, came in rows)
