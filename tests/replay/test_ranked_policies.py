"""Policies that were tried with a recorded run, ranked: who carries what was offered with the fewest slot-hours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import moments, write

from headgate.dashboards.analytics.policies import policies_tried, ranked
from headgate.dashboards.analytics.run_figures import PolicyTried
from headgate.topology_runtime.errors import HeadgateError

OFFERED = 10_000.0
NAMES = "static,mba+sam,static-max"


def row(policy: str, slot_hours: float, short: float, **more: Any) -> dict[str, Any]:
    return {
        "policy": policy, "slot_hours": slot_hours, "vm_hours": 0.1, "usd": None, "violations_s": short / 10,
        "violated_tuples": short, "replans": 1, "moves": 2, "seconds": 100.0, "offered": OFFERED, "measured_s": None,
        "measured_tuples": None,
    } | more  # fmt: skip


def order(*rows: dict[str, Any]) -> list[tuple[str, int | None]]:
    own = row("recorded", 0.2, 50.0, measured_s=10.0, measured_tuples=70.0)
    return [
        (tried.policy, tried.rank) for tried in ranked("demo/r", {"recorded": own, "policies": list(rows)})
    ]


def test_of_those_that_carry_what_was_offered_the_one_with_the_fewest_slot_hours_is_first() -> None:
    found = order(row("large", 0.4, 0.0), row("tight", 0.15, 100.0), row("exact", 0.2, 0.0))
    assert found == [("recorded", None), ("tight", 1), ("exact", 2), ("large", 3)]


def test_behind_them_are_those_that_fall_short_by_how_much() -> None:
    found = order(row("failing", 0.05, 900.0), row("near", 0.3, 101.0), row("large", 0.5, 0.0))
    assert found == [("recorded", None), ("large", 1), ("near", 2), ("failing", 3)]


def test_one_that_could_not_begin_is_last_and_has_no_rank() -> None:
    found = order(row("never", 0.0, 0.0, error="no plan came into force"), row("large", 0.5, 0.0))
    assert found == [("recorded", None), ("large", 1), ("never", None)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 tuples/s for 6 s, then 90, for which a first plan does not suffice."""
    return write(tmp_path_factory.mktemp("ranked") / "demo" / "run-1", moments(20.0))


def test_what_replay_says_is_ranked(trace: Path) -> None:
    said: list[str] = []
    found = {tried.policy: tried for tried in policies_tried([str(trace)], NAMES, said.append)}
    words = [
        sys.executable,
        "-P",
        "-m",
        "headgate.dashboards.cli",
        "replay",
        str(trace),
        "--policy",
        NAMES,
        "-o",
        "json",
    ]
    answer = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    rows = {line["policy"]: line for line in (answer["recorded"], *answer["policies"])}
    assert set(found) == set(rows) == {"recorded", *NAMES.split(",")} and said == []
    for name, line in rows.items():
        for figure in PolicyTried.__struct_fields__:
            if figure in line and figure != "policy":
                assert getattr(found[name], figure) == line[figure], (name, figure)
    carrying = {n: r["slot_hours"] for n, r in rows.items() if r["violated_tuples"] <= 0.01 * r["offered"]}
    carrying.pop("recorded", None)
    short = {n: r["violated_tuples"] for n, r in rows.items() if n not in {*carrying, "recorded"}}
    by_figures = [*sorted(carrying, key=carrying.__getitem__), *sorted(short, key=short.__getitem__)]
    assert [found[name].rank for name in by_figures] == [1, 2, 3]
    assert {name for name in short if found[name].carries} == set()


def test_what_cannot_be_tried_is_told_run_by_run_and_refused_if_that_is_all(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text((trace / "run.json").read_text("utf-8"), "utf-8")
    said: list[str] = []
    with pytest.raises(HeadgateError, match="no policy can be tried") as error:
        policies_tried([str(tmp_path / "other")], NAMES, said.append)
    assert error.value.exit_code == 3 and "error[HG-INVALID]" in capfd.readouterr().err
    with pytest.raises(HeadgateError) as error:
        policies_tried([str(trace)], "mba+nobody", said.append)
    assert error.value.exit_code == 3 and "mba+nobody" in capfd.readouterr().err
    assert all(line.startswith("no policy was tried with ") for line in said) and len(said) == 2
