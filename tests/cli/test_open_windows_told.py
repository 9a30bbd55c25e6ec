"""What `up` says of a run that was stopped with open windows or timers, and what it keeps of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.dashboards import headgate_command as cli
from headgate.dashboards.runs.open_windows import going_on, open_tasks
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.dashboards.up.up_preparation import SUMMARY, options_of_seconds, over
from headgate.dashboards.up.up_run import lines_of
from headgate.topology_runtime.wire.run_options import EVERY_SOURCE

DIR = Path("/tmp/run1")


def task(name: str, keys: int | None, watermark: float | None = 1_790_000_000.0) -> dict[str, Any]:
    known = "known" if watermark is not None else "none yet"
    more = {"rows_without_time": {"clicks": 0, "orders": 12}}
    return {"task": name, "open_keys": keys, "watermark": watermark, "state": known, **more}


def summary(*tasks: dict[str, Any], ended: str = "asked by a signal") -> dict[str, Any]:
    tuples = dict.fromkeys(
        ("offered", "acked", "lost", "dead_lettered", "replayed", "duplicates", "left", "left_on_vms"), 0
    )
    return {
        "schema": "headgate/run/v1",
        "topology": "minutes",
        "seconds": 3.0,
        "tuples": {**tuples, "duplicates_exact": True, "duplicates_why": []},
        "lag": {"rows": 0, "seconds": 0.0},
        "latency_ms": {"p50": None},
        "offered_tps": 0.0,
        "achieved_tps": 0.0,
        "ended": ended,
        "event_time": list(tasks),
    }


def test_the_summary_says_which_task_has_open_windows_and_up_to_where_the_watermark_came() -> None:
    text = lines_of(summary(task("minutes", 1_200), task("pairs", 1, None), task("done", 0)))
    assert text[-3:] == [
        "no time   12 rows of orders, which moved no watermark",
        "open      1,200 keys of minutes with open windows or timers, not given; watermark 2026-09-21 14:13:20 UTC",
        "open      1 key of pairs with open windows or timers, not given; no watermark yet",
    ]
    assert "open" not in "\n".join(lines_of(summary(task("done", 0))))


def test_the_summary_says_how_many_rows_were_late_and_what_part_of_the_rows_is_done() -> None:
    """862 rows/s of 1,800 was said to be 47.9 % of what was offered, beside 42,163 of 42,188 rows."""
    told = summary({**task("tumble", 0), "late_rows": 8}, task("sess", 0))
    told["tuples"] |= {"offered": 42_188, "acked": 42_163}
    told |= {"offered_tps": 1800.1, "achieved_tps": 862.4}
    lines = lines_of(told)
    assert "late      8 rows for tumble, from before its watermark" in lines
    assert not any(line.startswith("late") and "sess" in line for line in lines)
    assert "acked     42,163 (862.4 rows/s, 99.9% of what was offered)" in lines


def test_latencies_are_told_with_how_exact_they_are() -> None:
    told = summary()
    told["latency_ms"] = {"p50": 30.66, "p95": 32.2, "p99": 34.06, "max": 36.2, "error": 0.016}
    assert "latency   p50 30.7, p95 32.2, p99 34.1, max 36.2 ms (±1.6%)" in lines_of(told)
    told["latency_ms"] = {"p50": None, "error": 0.016}
    assert "latency   p50 N/A ms" in lines_of(told)


def test_keys_that_were_not_counted_are_not_taken_for_none() -> None:
    assert (
        "windows or timers of minutes may be open, they were not counted"
        in lines_of(summary(task("minutes", None)))[-1]
    )
    assert open_tasks(summary(task("minutes", None))) and not open_tasks(
        summary(task("minutes", None), ended=EVERY_SOURCE)
    )


def test_a_summary_of_before_and_one_without_event_time_have_nothing_open() -> None:
    old = summary()
    del old["event_time"]
    assert open_tasks(old) == [] and open_tasks(summary()) == []


@pytest.mark.parametrize(("keys", "is_over"), [(3, False), (0, True)])
def test_a_run_with_open_windows_can_be_resumed(tmp_path: Path, keys: int, is_over: bool) -> None:
    (tmp_path / SUMMARY).write_text(json.dumps(summary(task("minutes", keys))))
    assert over(tmp_path) == is_over


def settings(**more: Any) -> UpSettings:
    return UpSettings(topology="flow.py", slots=(4,), **more)


def test_the_commands_that_go_on_are_said_whole() -> None:
    assert going_on(settings(), DIR) == ["headgate up --resume --state-dir /tmp/run1"]
    assert going_on(settings(seconds=60.0), DIR) == [
        "headgate up --resume --state-dir /tmp/run1 --seconds inf"
    ]
    assert going_on(settings(state_to="s3://bucket/states"), DIR) == [
        "headgate up --resume --state-dir /tmp/run1",
        "headgate checkpoint create NAME --state s3://bucket/states --state-dir /tmp/run1",
        "headgate up flow.py --state-to s3://bucket/states --from-checkpoint s3://bucket/states/NAME",
    ]
    once = settings(state_to="s3://bucket/states", exactly_once=True)
    assert going_on(once, DIR)[-1].startswith("headgate up flow.py --exactly-once --state-to"), (
        "it is refused without"
    )


def test_a_run_that_is_resumed_may_end_later_than_it_was_to() -> None:
    words = ["--vms", "vm1=4", "--set", "seconds=60.0", "--set", "gap=2.0"]
    assert options_of_seconds(words, None) == ["--vms", "vm1=4", "--set", "gap=2.0"]
    assert options_of_seconds(words, 90.0) == ["--vms", "vm1=4", "--set", "gap=2.0", "--set", "seconds=90.0"]


def test_status_of_a_run_that_has_ended_says_what_is_open_and_how_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / ".headgate" / "a"
    state.mkdir(parents=True)
    (state / SUMMARY).write_text(json.dumps(summary(task("minutes", 3))))
    for words in ([], ["--controller", str(state)]):
        assert cli.main(["status", *words]) == 5
        said = capsys.readouterr().err
        assert ".headgate/a has ended: asked by a signal" in said
        assert "3 keys of minutes with open windows or timers, not given; watermark 2026" in said
    (state / SUMMARY).write_text(json.dumps(summary(task("minutes", 0))))
    assert cli.main(["status", "--controller", str(state)]) == 5
    said = capsys.readouterr().err
    assert "has ended" in said and "with open windows" not in said
