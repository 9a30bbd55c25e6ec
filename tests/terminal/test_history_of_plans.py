"""`headgate history`: the plans of all runs, read from what runs record; a spoiled run hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headgate.dashboards.terminal.explain import explain
from headgate.dashboards.terminal.history import history


def decision(second: int, action: str, plan: str | None, slots: int = 2, reason: str = "rate_changed") -> str:
    made = {"id": plan, "rate_tps": 50.0, "predicted_tps": 61.5, "slots": slots, "moves": 3} if plan else None
    return json.dumps(
        {"time": f"2026-01-01T00:00:{second:02}.500000Z", "trigger": reason, "action": action, "plan": made,
         "text": f"because of second {second}", "evidence": {"offered_tps": 41.5}, "alternatives": ["none at all"]}
    )  # fmt: skip


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for topology, run, lines in (
        ("a", "one", [decision(1, "plan", "aaaa1111bb", 1, "start"), decision(2, "none", None),
                      decision(9, "plan", "cccc2222dd"), decision(20, "none", None)]),
        ("b", "two", [decision(5, "advise", "eeee3333ff"), decision(6, "adopt", "aaaa9999bb", 4)]),
    ):  # fmt: skip
        (tmp_path / topology / run).mkdir(parents=True)
        (tmp_path / topology / run / "decisions.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def asked(traces: Path, *words: str) -> Result:
    return CliRunner().invoke(history, ["--traces", str(traces), *words])


def test_plans_of_all_runs_by_their_time(traces: Path) -> None:
    found = json.loads(asked(traces, "-o", "json").stdout)
    assert found["schema"] == "headgate/history/v1"
    rows = [
        (row["run"], row["plan"][:4], row["reason"], row["slots"], row["stood_s"]) for row in found["plans"]
    ]
    assert rows == [
        ("one", "aaaa", "start", 1, 8.0),
        ("two", "aaaa", "rate_changed", 4, 0.0),
        ("one", "cccc", "rate_changed", 2, 11.0),
    ], "what was only advised was never in force"
    only = json.loads(asked(traces, "--topology", "b", "-o", "json").stdout)
    assert [row["run"] for row in only["plans"]] == ["two"]
    assert len(json.loads(asked(traces, "--last", "1", "-o", "json").stdout)["plans"]) == 1


def test_a_table_fits_eighty_columns(traces: Path) -> None:
    lines = asked(traces).stdout.splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= 80 and "cccc2222" in lines[-1]


def test_one_plan_with_its_reasons(traces: Path) -> None:
    said = asked(traces, "cccc").stdout
    assert "run one of a" in said and "because of second 9" in said and "rejected: none at all" in said
    assert len(json.loads(asked(traces, "aaaa", "-o", "json").stdout)["plans"]) == 2, "every one that fits"


@pytest.mark.parametrize(("words", "what"), [(["zzzz"], "no plan begins with"), (["aa"], "names no plan")])
def test_what_names_no_plan_is_told(traces: Path, words: list[str], what: str) -> None:
    assert what in str(asked(traces, *words).exception)


def test_no_traces(tmp_path: Path) -> None:
    assert "no traces" in str(asked(tmp_path / "nowhere").exception)
    assert "no plan was made" in asked(tmp_path).stdout


def test_a_spoiled_run_hides_no_other_and_a_torn_line_is_none(traces: Path) -> None:
    spoiled, torn = traces / "a" / "spoiled", traces / "b" / "two" / "decisions.jsonl"
    spoiled.mkdir()
    (spoiled / "decisions.jsonl").write_text("{not json}\n")
    torn.write_text(torn.read_text() + decision(7, "plan", "ffff0000aa")[:60])
    result = asked(traces, "-o", "json")
    assert len(json.loads(result.stdout)["plans"]) == 3
    assert f"left out: {spoiled}" in result.stderr
    assert "because of second 6" in CliRunner().invoke(explain, ["--trace", str(torn.parent)]).stdout
