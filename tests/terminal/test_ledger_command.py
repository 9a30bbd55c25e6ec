"""`headgate ledger`: predicted beside measured, of all runs; a spoiled line hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner, Result

from headgate.controller.knowledge.prediction_ledger import LedgerEntry, RateKept, SlotKept, TaskKept
from headgate.controller.offline.ledger_commands import list_models, list_plans, show_plan
from headgate.controller.recording.ledger_file import LedgerFile
from headgate.topology_runtime.clock import wall_ns
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.utc import utc_iso

DAY_NS = 86_400 * 10**9


def kept(plan: str, days_ago: int, topology: str = "a", tested: str = "no") -> LedgerEntry:
    return LedgerEntry(
        time=utc_iso(wall_ns() - days_ago * DAY_NS),
        topology=topology,
        topology_digest="d",
        run="one",
        epoch=1,
        plan=plan,
        headgate="0.1.0",
        seconds=40.0,
        rate=RateKept(150.0, 100.0, 160.0, None, tested),
        latency_ms={"p50": 1.0, "p99": 9.0},
        slots=(SlotKept("vm1", 0, 0.9, 0.3, 0.2, 0.25), SlotKept("vm1", 1, 0.7, 0.3, 0.2, 0.25)),
        tasks=(TaskKept("parse", "xml", "v1", 100.0, 1.5, 0.5, 0.4, 0.4, False, {"vm1": (1.5, 0.5)}),),
        speeds={"vm1": 1.0},
    )


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for one in (kept("bbbb2222", 2), kept("aaaa1111", 3, tested="short"), kept("cccc3333", 1, "b")):
        (tmp_path / one.topology).mkdir(exist_ok=True)
        LedgerFile(tmp_path / one.topology / "ledger.jsonl").append(one)
    return tmp_path


def asked(command: Command, traces: Path, *words: str) -> Result:
    return CliRunner().invoke(command, [*words, "--traces", str(traces)])


def test_plans_of_all_topologies_by_their_time(traces: Path) -> None:
    found = json.loads(asked(list_plans, traces, "-o", "json").stdout)
    assert found["schema"] == "headgate/ledger-list/v1" and found["faults"] == []
    assert [row["plan"][:4] for row in found["plans"]] == ["aaaa", "bbbb", "cccc"]
    first = found["plans"][0]
    assert (first["offered_tps"], first["carried_tps"], first["predicted_tps"]) == (150.0, 100.0, 160.0)
    assert first["cpu"] == pytest.approx(0.8) and first["predicted_cpu"] == pytest.approx(0.3)
    one = json.loads(asked(list_plans, traces, "-o", "json", "--topology", "b").stdout)
    assert [row["plan"][:4] for row in one["plans"]] == ["cccc"]


def test_a_table_says_which_rates_were_tested_and_what_is_no_entry(traces: Path) -> None:
    with open(traces / "a" / "ledger.jsonl", "ab") as file:
        file.write(b"torn")
    found = asked(list_plans, traces)
    assert found.exit_code == 0 and "falls short" in found.stdout
    assert len(found.stdout.splitlines()) == 4, "a head and three plans"
    assert "a/ledger.jsonl:3: no entry, left out" in found.stderr


def test_all_about_one_plan(traces: Path) -> None:
    text = asked(show_plan, traces, "aaaa").stdout
    assert "predicted to carry 160 tuples/s, 150 were offered; it did not keep up and carried 100" in text
    assert "parse" in text and "vm1/1" in text
    (plan,) = json.loads(asked(show_plan, traces, "aaaa1111", "-o", "json").stdout)["plans"]
    assert plan["tasks"][0]["vms"] == {"vm1": [1.5, 0.5]} and plan["schema"] == "headgate/ledger/v1"


def test_a_picture_of_predicted_and_measured(traces: Path) -> None:
    assert asked(list_plans, traces, "--plot", str(traces / "a.svg")).exit_code == 0
    drawn = (traces / "a.svg").read_text()
    assert drawn.startswith("<?xml") and drawn.count("<use ") > 6, (
        "three plans of two slots each, and one short"
    )
    asked(list_plans, traces, "--plot", str(traces / "b.svg"))
    assert (traces / "b.svg").read_text() == drawn
    assert asked(list_plans, traces / "a", "--plot", str(traces / "c.svg")).exit_code == 0, "of nothing, too"
    assert asked(list_plans, traces, "--plot", "x.bmp").exit_code != 0


def test_by_how_much_models_were_off(traces: Path) -> None:
    """Rows of xml took 1.5 slots where 0.5 were predicted, in every plan."""
    found = json.loads(asked(list_models, traces, "-o", "json").stdout)
    (row,) = found["learned"]
    assert (row["what"], row["name"], row["version"], row["plans"]) == ("model", "xml", "v1", 3)
    assert row["measured"] == pytest.approx(3.0) and row["off"] and not row["bounded"]
    assert "off" in asked(list_models, traces).stdout
    (traces / "a" / "ledger.jsonl").unlink()
    (traces / "b" / "ledger.jsonl").unlink()
    assert "nothing is known yet" in asked(list_models, traces).stderr


@pytest.mark.parametrize(("plan", "words"), [("dddd", "no plan that begins"), ("a", "names no plan")])
def test_a_plan_that_is_not_there_is_named(traces: Path, plan: str, words: str) -> None:
    error = asked(show_plan, traces, plan).exception
    assert isinstance(error, InvalidInput) and words in str(error)


def test_without_traces_it_says_who_writes_them(tmp_path: Path) -> None:
    error = asked(list_plans, tmp_path / "none").exception
    assert isinstance(error, InvalidInput) and "headgate up" in str(error.hint)
    assert "no plan was in force for long enough" in asked(list_plans, tmp_path).stderr
