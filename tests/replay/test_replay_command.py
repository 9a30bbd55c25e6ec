"""`headgate replay TRACE`: its answer, its exit codes, its pace."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from recorded_runs import moments, write

from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.models.plans import PlanLatency, RowLatency
from headgate.controller.replay.exact_replay import Moment
from headgate.controller.replay.ideal_machines import NS, IdealAccount, LatencySpan
from headgate.controller.replay.replay_command import (
    latency_measured,
    lines_of,
    measured_of,
    paced,
    replay,
    violations_of,
    vms_of,
)
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import CheckFailed, HeadgateError, InvalidInput


@pytest.fixture(scope="module")
def found() -> list[Moment]:
    return moments(9.0)


@pytest.fixture
def trace(tmp_path: Path, found: list[Moment]) -> Path:
    return write(tmp_path / "run1", found)


def ran(*words: object) -> Result:
    return CliRunner().invoke(replay, [str(word) for word in words], prog_name="headgate replay")


def answer(*words: object) -> dict[str, Any]:
    result = ran(*words, "-o", "json")
    assert result.exception is None, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def failure(*words: object) -> HeadgateError:
    error = ran(*words).exception
    assert isinstance(error, HeadgateError), error
    return error


def test_equal_decisions_in_json(trace: Path) -> None:
    got = answer(trace)
    assert got["schema"] == "headgate/replay/v1"
    assert got["equal"] is True and got["first_difference"] is None
    assert got["decisions"] == len((trace / "decisions.jsonl").read_text().splitlines())
    assert "policies" not in got


def test_equal_decisions_in_a_sentence(trace: Path) -> None:
    assert ran(trace).stdout.startswith("Equal: run run1 decides the same again, ")


def test_a_difference_is_shown_and_ends_with_8(trace: Path) -> None:
    path = trace / "decisions.jsonl"
    path.write_text(path.read_text().replace('"action":"none"', '"action":"plan"', 1))
    result = ran(trace)
    assert isinstance(result.exception, CheckFailed) and result.exception.exit_code == 8
    assert "Different: run run1" in result.stdout and "action" in result.stdout
    assert '"plan"' in result.stdout and '"none"' in result.stdout


def test_a_half_written_last_line_is_said(trace: Path) -> None:
    path = trace / "decisions.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    result = ran(trace)
    assert result.exception is None and result.stdout.startswith("Equal: ")
    assert "the last line of decisions.jsonl is half written and left out" in result.stderr


def test_vms_of_a_run_that_asked_for_all_of_them_are_like_those_it_asked_for() -> None:
    run = ControllerSettings(run="r", spare=Vm("spare", 4, slot_cores=0.2, usd_per_hour=0.4))
    found = vms_of("2,1", IdealAccount(), run)
    assert found == (Vm("vm1", 2, 0.2, usd_per_hour=0.2), Vm("vm2", 1, 0.2, usd_per_hour=0.1))
    assert vms_of("2", IdealAccount(), ControllerSettings(run="r")) == (Vm("vm1", 2),)


def test_policies_stand_beside_what_was_recorded(trace: Path) -> None:
    got = answer(trace, "--policy", "mba+sam,static", "--policy", "static-max")
    assert [row["policy"] for row in got["policies"]] == ["mba+sam", "static", "static-max"]
    assert got["recorded"]["policy"] == "recorded" and got["recorded"]["replans"] == 1
    keys = {"slot_hours", "vm_hours", "usd", "violations_s", "violated_tuples", "replans", "moves"}
    assert all(keys <= row.keys() for row in got["policies"])
    table = ran(trace, "--policy", "static").stdout
    assert "violations_s" in table and "recorded" in table and "static" in table


def test_other_vms_alone_ask_for_the_runs_own_policy(trace: Path) -> None:
    got = answer(trace, "--vms", "2", "--max-vms", "2")
    assert [row["policy"] for row in got["policies"]] == ["mba+sam"]


def test_models_that_lack_a_task_are_refused(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    error = failure(trace, "--models", tmp_path / "models")
    assert isinstance(error, InvalidInput) and "work" in "\n".join(error.faults)


def test_senseless_options_and_traces_are_refused(trace: Path, tmp_path: Path) -> None:
    for words, says in (
        (["--speed", "0"], "0.0 is not in the range x>0"),
        (["--speed", "inf"], "inf is not a finite number"),
        (["--usd-per-slot-hour", "nan"], "nan is not a finite number"),
        (["--usd-per-slot-hour", "-1"], "-1.0 is not in the range x>=0"),
    ):
        refused = ran(trace, *words)
        assert refused.exit_code == 2 and says in refused.output
    assert failure(tmp_path / "none").exit_code == 3
    assert failure(trace, "--policy", "mba+smm").exit_code == 3


def test_at_a_pace_what_happens_comes_as_lines(trace: Path) -> None:
    result = ran(trace, "--speed", "1e9", "-o", "jsonl")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert {line["schema"] for line in lines[:-1]} == {"headgate/replayed/v1"}
    assert {line["kind"] for line in lines[:-1]} == {"decision", "said", "rates"}
    assert lines[-1]["schema"] == "headgate/replay/v1" and lines[-1]["equal"] is True


def test_moments_wait_until_they_are_due(found: list[Moment]) -> None:
    now_s = 100.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        slept.append(seconds)

    got = list(paced(found, 4.0, lambda: now_s, sleep))
    long_s = (found[-1].now.mono_ns - found[0].now.mono_ns) / 1e9
    assert got == found
    assert sum(slept) == pytest.approx(long_s / 4.0)


def test_every_decision_gives_a_line(found: list[Moment]) -> None:
    lines = [line for moment in found for line in lines_of(moment) if line["kind"] == "decision"]
    assert lines[0]["trigger"] == "start" and lines[0]["action"] == "plan"
    assert len(lines) >= 9


# ── What a recorded run failed to finish, by the counts of its trace ────────────────────────────────────

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_stretches_in_which_less_was_finished_than_offered_are_told() -> None:
    """From the 20th to the 40th second 40 of 100 are missing, and are done later."""
    seconds = [(float(n), 100, 60 if 20 <= n < 40 else 140 if 40 <= n < 60 else 100) for n in range(100)]
    assert violations_of(seconds) == (20.0, 800.0)


def test_what_is_on_its_way_is_no_violation() -> None:
    seconds = [(float(n), 100, 97 if n % 2 else 101) for n in range(60)]
    assert violations_of(seconds) == (0.0, 0.0)


def rates(folder: Path, name: str, columns: dict[str, list[object]]) -> None:
    (folder / "rates").mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "rates" / name)


def test_the_sources_of_a_trace_are_put_together_and_what_was_not_finished_is_left_out(
    tmp_path: Path,
) -> None:
    times: list[object] = [BEGIN + timedelta(seconds=n // 2) for n in range(80)]
    offered: list[object] = [0 if n < 20 else 50 for n in range(80)]
    acked: list[object] = [0 if n < 20 else 20 for n in range(80)]
    rates(tmp_path, "1-000001.parquet", {"time": times, "offered": offered, "acked": acked})
    (tmp_path / "rates" / "_1-000002.parquet").write_bytes(b"half")
    assert measured_of(tmp_path) == (30.0, pytest.approx(30 * 60))


def test_what_rows_took_is_measured_in_the_stretches_in_which_it_was_predicted(tmp_path: Path) -> None:
    """Two stretches, one three times as long; rows before, between and after them do not count."""
    span = partial(LatencySpan, latency=PlanLatency(1.0, RowLatency(1.0, 1.0, 1.0), ()))
    spans = [span(10 * NS, 20 * NS), span(30 * NS, 60 * NS)]
    rows = [(at_s, 5.0, 1.0) for at_s in (9, 10, 21, 29, 61)]
    rows += [(15, n / 1000, 1.0) for n in range(1, 101)]  # 1 to 100 ms
    rows += [(40, 0.2, 98.0), (41, 0.3, 2.0)]
    at_us, latency_s, tuples = zip(*((int(at_s * 1e6), *more) for at_s, *more in rows), strict=True)
    (tmp_path / "latency").mkdir()
    times = pa.array(at_us, pa.timestamp("us", tz="UTC"))
    table = pa.table({"time": times, "latency_s": latency_s, "tuples": tuples})
    pq.write_table(table, tmp_path / "latency" / "1-000000.parquet")
    found = latency_measured(tmp_path, spans)
    assert found == pytest.approx(
        {
            "measured_p50_ms": (50 + 3 * 200) / 4,
            "measured_p95_ms": (95 + 3 * 200) / 4,
            "measured_p99_ms": (99 + 3 * 300) / 4,
        }
    )
    assert set(latency_measured(tmp_path, []).values()) == {None}


def test_of_a_trace_without_counts_nothing_is_known(tmp_path: Path) -> None:
    rates(tmp_path, "1-000001.parquet", {"time": [BEGIN], "offered_tps": [10.0]})
    assert measured_of(tmp_path) is None and measured_of(tmp_path / "none") is None
