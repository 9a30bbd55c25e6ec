"""`headgate history`: the plans of all runs, read from what runs record; a spoiled run hides no other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from enactment_world import World

from headgate.controller.models.plan_data import plan_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, SlotKept, TaskKept
from headgate.controller.planning_commands.diff_command import diff
from headgate.controller.recording.prediction_ledger_file import LedgerFile
from headgate.controller.recording.recorder import Recorder
from headgate.dashboards.terminal.history_commands import explain, history, words_of
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.wording import utc_iso


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


def test_a_table_of_plans_and_one_with_its_reasons(traces: Path) -> None:
    lines = asked(traces).stdout.splitlines()
    assert len(lines) == 4 and max(map(len, lines)) <= 80 and "cccc2222" in lines[-1]
    said = asked(traces, "cccc").stdout
    assert "run one of a" in said and "because of second 9" in said and "rejected: none at all" in said
    assert len(json.loads(asked(traces, "aaaa", "-o", "json").stdout)["plans"]) == 2, "every one that fits"


@pytest.mark.parametrize(("words", "what"), [(["zzzz"], "no plan begins with"), (["aa"], "is too short")])
def test_what_names_no_plan_is_told(traces: Path, words: list[str], what: str) -> None:
    assert what in str(asked(traces, *words).exception)


def test_of_a_folder_of_runs_the_newest_is_explained(traces: Path) -> None:
    newest = traces / "b" / "two" / "decisions.jsonl"
    os.utime(newest, (later := newest.stat().st_mtime + 60, later))
    for folder, second, run in ((traces, 6, "b/two"), (traces / "a", 9, "a/one")):
        said = CliRunner().invoke(explain, ["--trace", str(folder)])
        assert f"because of second {second}" in said.stdout and f"this is from {traces / run}" in said.stderr


def test_evidence_is_shown_in_few_digits_and_without_what_is_empty() -> None:
    made = json.loads(decision(1, "none", None))
    made["evidence"] = {"demand": {"offered_tps": 4999.998111909663}, "residuals": {}, "backlog": 0}
    assert "    evidence: demand {offered_tps 5,000}, backlog 0" in words_of(made).splitlines()


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
    assert f"left out: cannot read trace {spoiled}" in result.stderr
    assert "because of second 6" in CliRunner().invoke(explain, ["--trace", str(torn.parent)]).stdout


# ── `history --predictions`: predicted beside measured, of all runs; a spoiled line hides no other ────────────

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
def ledger_traces(tmp_path: Path) -> Path:
    for one in (kept("bbbb2222", 2), kept("aaaa1111", 3, tested="short"), kept("cccc3333", 1, "b")):
        (tmp_path / one.topology).mkdir(exist_ok=True)
        LedgerFile(tmp_path / one.topology / "ledger.jsonl").append(one)
    return tmp_path


def asked_ledger(traces: Path, *words: str) -> Result:
    return asked(traces, "--predictions", *words)


def test_plans_of_all_topologies_by_their_time(ledger_traces: Path) -> None:
    found = json.loads(asked_ledger(ledger_traces, "-o", "json").stdout)
    assert found["schema"] == "headgate/ledger-list/v1" and found["faults"] == []
    assert [row["plan"][:4] for row in found["plans"]] == ["aaaa", "bbbb", "cccc"]
    first = found["plans"][0]
    assert (first["offered_tps"], first["carried_tps"], first["predicted_tps"]) == (150.0, 100.0, 160.0)
    assert first["cpu"] == pytest.approx(0.8) and first["predicted_cpu"] == pytest.approx(0.3)
    one = json.loads(asked_ledger(ledger_traces, "-o", "json", "--topology", "b").stdout)
    assert [row["plan"][:4] for row in one["plans"]] == ["cccc"]


def test_a_table_says_which_rates_were_tested_and_what_is_no_entry(ledger_traces: Path) -> None:
    with open(ledger_traces / "a" / "ledger.jsonl", "ab") as file:
        file.write(b"torn")
    found = asked_ledger(ledger_traces)
    assert found.exit_code == 0 and "falls short" in found.stdout
    assert len(found.stdout.splitlines()) == 4, "a head and three plans"
    assert "a/ledger.jsonl:3: no entry, left out" in found.stderr


def test_all_about_one_plan(ledger_traces: Path) -> None:
    text = asked(ledger_traces, "aaaa").stdout
    assert "predicted to carry 160 rows/s, 150 were offered; it did not keep up and carried 100" in text
    assert "parse" in text and "vm1/1" in text
    (plan,) = json.loads(asked(ledger_traces, "aaaa1111", "-o", "json").stdout)["predictions"]
    assert plan["tasks"][0]["vms"] == {"vm1": [1.5, 0.5]} and plan["schema"] == "headgate/ledger/v1"


def test_a_picture_of_predicted_and_measured(ledger_traces: Path) -> None:
    assert asked_ledger(ledger_traces, "--plot", str(ledger_traces / "a.svg")).exit_code == 0
    drawn = (ledger_traces / "a.svg").read_text()
    assert drawn.startswith("<?xml") and drawn.count("<use ") > 6, (
        "three plans of two slots each, and one short"
    )
    asked_ledger(ledger_traces, "--plot", str(ledger_traces / "b.svg"))
    assert (ledger_traces / "b.svg").read_text() == drawn
    assert asked_ledger(ledger_traces / "a", "--plot", str(ledger_traces / "c.svg")).exit_code == 0, (
        "of nothing, too"
    )
    assert asked_ledger(ledger_traces, "--plot", "x.bmp").exit_code != 0


def test_by_how_much_models_were_off(ledger_traces: Path) -> None:
    """Rows of xml took 1.5 slots where 0.5 were predicted, in every plan."""
    found = json.loads(asked(ledger_traces, "--model-errors", "-o", "json").stdout)
    (row,) = found["learned"]
    assert (row["what"], row["name"], row["version"], row["plans"]) == ("model", "xml", "v1", 3)
    assert row["measured"] == pytest.approx(3.0) and row["off"] and not row["bounded"]
    assert "off" in asked(ledger_traces, "--model-errors").stdout
    (ledger_traces / "a" / "ledger.jsonl").unlink()
    (ledger_traces / "b" / "ledger.jsonl").unlink()
    assert "nothing is known yet" in asked(ledger_traces, "--model-errors").stderr


def test_without_traces_it_says_who_writes_them(tmp_path: Path) -> None:
    error = asked_ledger(tmp_path / "none").exception
    assert isinstance(error, InvalidInput) and "headgate up" in str(error.hint)
    assert "no plan was in force for long enough" in asked_ledger(tmp_path).stderr
    assert "no traces" in str(asked(tmp_path / "nowhere").exception)
    assert "no plan was made" in asked(tmp_path).stdout


# ── Plans named by the beginning of their ids: `explain ID` and `diff ID ID`, over all recorded runs ────


def recorded(world: World, folder: Path) -> None:
    """A trace of what a made world decided, by the real recorder."""
    whole = {plan.id: plan for plan in world.plans}
    recorder = Recorder(folder, {"schema": "headgate/trace/v1"})
    for decision in world.traces:
        facts = decision["plan"]
        recorder.decision(decision, whole.pop(facts["id"], None) if isinstance(facts, dict) else None)
    assert not recorder.close().dropped


@pytest.fixture(scope="module")
def world() -> World:
    """A run that had a plan for 100 rows/s, and one for 300."""
    made = World(rate_tps=100.0).start().until("committed").run(10)
    made.ask("rate_set", rate_tps=300.0)
    made.run(30)
    assert len(made.plans) == 2
    return made


@pytest.fixture
def world_traces(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    recorded(world, tmp_path / "traces" / "line" / "one")
    return tmp_path / "traces"


def asked_plan(*words: str) -> Result:
    return CliRunner().invoke(explain, list(words))


def test_a_plan_is_explained_with_what_came_of_it(world: World, world_traces: Path) -> None:
    first, second = world.plans
    lines = (world_traces / "line" / "one" / "plans.jsonl").read_text().splitlines()
    whole = [json.loads(json.dumps(plan_data(plan))) for plan in world.plans]
    assert [json.loads(line)["plan"] for line in lines] == whole, "each once"
    found = json.loads(asked_plan(first.id[:6], "-o", "json").stdout)
    assert found["schema"] == "headgate/explained-plan/v1" and found["id"] == first.id
    assert found["plan"]["placement"] == plan_data(first)["placement"]
    (run,) = found["runs"]
    (decision,) = run["decisions"]
    assert decision["trigger"] == "start"
    assert decision["came"]["in_force"]
    assert decision["came"]["next"] == {"plan": second.id, "reason": "rate_changed"}
    said = asked_plan(first.id[:6]).stdout
    assert f"until plan {second.id[:8]} (rate_changed)" in said and "work" in said and "vm1/0×" in said


def test_plans_that_no_decision_brought_are_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator approved one; then one cannot be built, and it is gone back to."""
    monkeypatch.chdir(tmp_path)
    world = World(rate_tps=100.0, mode="approve").start().until("committed").run(10)
    world.ask("rate_set", rate_tps=300.0)
    world.run(20)
    assert world.ask("apply").error is None
    world.until("committed").run(20)
    for one in world.vms.values():
        one.failing.add("work")
    world.ask("resume", mode="auto")
    world.ask("rate_set", rate_tps=600.0)
    world.run(15)
    assert world.rollout.reason == "rolled_back"
    for one in world.vms.values():
        one.failing.clear()
    world.run(10)
    recorded(world, tmp_path / "traces" / "line" / "one")
    _, approved, failed = world.plans
    rows = json.loads(CliRunner().invoke(history, ["-o", "json"]).stdout)["plans"]
    told = [(row["reason"], row["plan"]) for row in rows[:4]]
    assert told[1:] == [
        ("rate_changed", approved.id),
        ("rate_changed", failed.id),
        ("rolled_back", approved.id),
    ]
    assert rows[1]["slots"] == approved.slots.used and rows[1]["stood_s"] >= 20
    assert CliRunner().invoke(history, []).exit_code == 0
    said = asked_plan(approved.id).stdout
    assert "rate_changed → plan: an operator approved it" in said and "rolled_back → plan" in said
    assert f"until plan {approved.id[:8]} (rolled_back)" in asked_plan(failed.id).stdout


@pytest.mark.parametrize("words", [("explain", "0000"), ("diff", "0000", "0000")])
def test_an_id_that_is_none_is_told_with_those_there_are(
    words: tuple[str, ...], world: World, world_traces: Path
) -> None:
    name, *rest = words
    result = CliRunner().invoke({"explain": explain, "diff": diff}[name], rest)
    assert isinstance(result.exception, InvalidInput) and result.exception.exit_code == 3
    assert all(plan.id[:8] in str(result.exception.cause) for plan in world.plans)


def test_an_id_that_could_be_several_is_told_with_them(world: World, world_traces: Path) -> None:
    first, second = world.plans
    twin = second.id[:4] + "0" * 12
    file = world_traces / "line" / "one" / "plans.jsonl"
    file.write_text(file.read_text() + file.read_text().replace(first.id, twin))
    result = asked_plan(second.id[:4])
    assert isinstance(result.exception, InvalidInput)
    assert "2 plans begin with" in result.exception.what and twin[:8] in str(result.exception.cause)
    assert isinstance(asked_plan(second.id, "--trace", "somewhere").exception, UsageError)


def test_diff_takes_ids_and_files(world: World, world_traces: Path) -> None:
    first, second = world.plans
    Path("old.json").write_text(json.dumps(plan_data(first)))
    by_file = CliRunner().invoke(diff, ["old.json", second.id[:5], "-o", "json"])
    by_id = CliRunner().invoke(diff, [first.id, second.id, "-o", "json"])
    assert by_file.exit_code == by_id.exit_code == 0
    assert json.loads(by_file.stdout) == json.loads(by_id.stdout)
    assert json.loads(by_id.stdout)["threads"]["start"] == threads_of(second) - threads_of(first) > 0


def threads_of(plan: Plan) -> int:
    return sum(bundle.threads for bundle in plan.placement.bundles)


def test_what_is_torn_or_spoiled_hides_no_other_plan(world: World, world_traces: Path) -> None:
    file = world_traces / "line" / "one" / "plans.jsonl"
    good = file.read_bytes()
    file.write_bytes(b'{"time":3}\n\xff\n[]\n' + good + good.splitlines()[0][:99])
    assert json.loads(asked_plan(world.plans[1].id, "-o", "json").stdout)["plan"]["id"] == world.plans[1].id
    file.unlink()
    said = asked_plan(world.plans[0].id[:8]).stdout
    assert "start → plan" in said and "its placement is not recorded" in said


@pytest.mark.parametrize(
    "words", [["--predictions", "--model-errors"], ["aaaa", "--predictions"], ["--plot", "x.svg"]]
)
def test_options_that_do_not_go_together_are_refused(ledger_traces: Path, words: list[str]) -> None:
    assert isinstance(asked(ledger_traces, *words).exception, UsageError)
