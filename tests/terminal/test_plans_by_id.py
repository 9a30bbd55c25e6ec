"""Plans named by the beginning of their ids: `explain ID` and `diff ID ID`, over all recorded runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from enactment_world import World

from headgate.controller.knowledge.plan_data import plan_data
from headgate.controller.knowledge.plans import Plan
from headgate.controller.offline.diff import diff
from headgate.controller.recording.recorder import Recorder
from headgate.dashboards.cli import explains_a_plan
from headgate.dashboards.terminal.explain import explain
from headgate.dashboards.terminal.history import history
from headgate.topology_runtime.errors import InvalidInput, UsageError


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
    """A run that had a plan for 100 tuples/s, and one for 300."""
    made = World(rate_tps=100.0).start().until("committed").run(10)
    made.ask("rate_set", rate_tps=300.0)
    made.run(30)
    assert len(made.plans) == 2
    return made


@pytest.fixture
def traces(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    recorded(world, tmp_path / "traces" / "line" / "one")
    return tmp_path / "traces"


def asked(*words: str) -> Result:
    return CliRunner().invoke(explain, list(words))


def test_the_trace_holds_each_plan_once_and_whole(world: World, traces: Path) -> None:
    lines = (traces / "line" / "one" / "plans.jsonl").read_text().splitlines()
    assert [json.loads(line)["plan"] for line in lines] == [
        json.loads(json.dumps(plan_data(plan))) for plan in world.plans
    ]


def test_a_plan_is_explained_with_what_came_of_it(world: World, traces: Path) -> None:
    first, second = world.plans
    found = json.loads(asked(first.id[:6], "-o", "json").stdout)
    assert found["schema"] == "headgate/explained-plan/v1" and found["id"] == first.id
    assert found["plan"]["placement"] == plan_data(first)["placement"]
    (run,) = found["runs"]
    (decision,) = run["decisions"]
    assert decision["trigger"] == "start"
    assert decision["came"]["in_force"]
    assert decision["came"]["next"] == {"plan": second.id, "reason": "rate_changed"}
    said = asked(first.id[:6]).stdout
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
    said = asked(approved.id).stdout
    assert "rate_changed → plan: an operator approved it" in said and "rolled_back → plan" in said
    assert f"until plan {approved.id[:8]} (rolled_back)" in asked(failed.id).stdout


@pytest.mark.parametrize("words", [("explain", "0000"), ("diff", "0000", "0000")])
def test_an_id_that_is_none_is_told_with_those_there_are(
    words: tuple[str, ...], world: World, traces: Path
) -> None:
    name, *rest = words
    result = CliRunner().invoke({"explain": explain, "diff": diff}[name], rest)
    assert isinstance(result.exception, InvalidInput) and result.exception.exit_code == 3
    assert all(plan.id[:8] in str(result.exception.cause) for plan in world.plans)


def test_an_id_that_could_be_several_is_told_with_them(world: World, traces: Path) -> None:
    first, second = world.plans
    twin = second.id[:4] + "0" * 12
    file = traces / "line" / "one" / "plans.jsonl"
    file.write_text(file.read_text() + file.read_text().replace(first.id, twin))
    result = asked(second.id[:4])
    assert isinstance(result.exception, InvalidInput)
    assert "2 plans begin with" in result.exception.what and twin[:8] in str(result.exception.cause)
    assert isinstance(asked(second.id, "--trace", "somewhere").exception, UsageError)


def test_diff_takes_ids_and_files(world: World, traces: Path) -> None:
    first, second = world.plans
    Path("old.json").write_text(json.dumps(plan_data(first)))
    by_file = CliRunner().invoke(diff, ["old.json", second.id[:5], "-o", "json"])
    by_id = CliRunner().invoke(diff, [first.id, second.id, "-o", "json"])
    assert by_file.exit_code == by_id.exit_code == 0
    assert json.loads(by_file.stdout) == json.loads(by_id.stdout)
    assert json.loads(by_id.stdout)["threads"]["start"] == threads_of(second) - threads_of(first) > 0


def threads_of(plan: Plan) -> int:
    return sum(bundle.threads for bundle in plan.placement.bundles)


def test_what_is_torn_or_spoiled_hides_no_other_plan(world: World, traces: Path) -> None:
    file = traces / "line" / "one" / "plans.jsonl"
    good = file.read_bytes()
    file.write_bytes(b'{"time":3}\n\xff\n[]\n' + good + good.splitlines()[0][:99])
    assert json.loads(asked(world.plans[1].id, "-o", "json").stdout)["plan"]["id"] == world.plans[1].id


def test_a_run_without_plans_file_is_explained_without_its_placement(world: World, traces: Path) -> None:
    (traces / "line" / "one" / "plans.jsonl").unlink()
    said = asked(world.plans[0].id[:8]).stdout
    assert "start → plan" in said and "its placement is not kept" in said


def test_ids_and_topologies_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not explains_a_plan(["ab12cd34", "-o", "json"])
    assert explains_a_plan(["linear", "--rate", "100"])
    assert explains_a_plan(["ab12cd34", "--rate", "100"])
    (tmp_path / "ab12").write_text("{}")
    assert explains_a_plan(["ab12"]), "what is a file is a topology"
