"""The recorded inputs give the recorded decisions, and one that is not the same is found."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from recorded_runs import input_of, later, moments, settings, submitted, write

from headgate.controller.core.loop import Loop
from headgate.controller.execute.end_of_input import EVERY_SOURCE
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import Record
from headgate.controller.models.model_data import model_data
from headgate.controller.recording.early_inputs import EarlyInputs
from headgate.controller.recording.trace_writer import PartedLines, TraceWriter
from headgate.controller.replay.exact_replay import (
    ExactReplay,
    Moment,
    PolicyComparison,
    compare,
    decisions_of,
    first_field,
)
from headgate.controller.replay.ideal_machines import IdealAccount, IdealWorld
from headgate.controller.replay.trace_reading import Recording
from headgate.controller.views.run_documents import summary
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.rates import offered_rates as rates
from headgate.topology_runtime.wire.messages import Request


def replayed(folder: Path) -> PolicyComparison:
    recording = Recording(folder)
    again = ExactReplay(recording.run)
    for _ in again.moments(recording.lines()):
        pass
    return compare(recording.decisions, again.lives)


def edited(path: Path, edit: Callable[[list[str]], None]) -> None:
    lines = path.read_text().splitlines()
    edit(lines)
    path.write_text("".join(line + "\n" for line in lines))


@pytest.fixture(scope="module")
def found() -> list[Moment]:
    return moments(14.0)


def test_a_run_whose_input_ends_ends_and_is_decided_the_same_again(tmp_path: Path) -> None:
    found = moments(60.0, rows=600)
    (finish,) = [i for moment in found for i in moment.instructions if isinstance(i, t.Finish)]
    assert finish.summary is not None and finish.summary["ended"] == EVERY_SOURCE
    tuples = finish.summary["tuples"]
    assert (tuples["acked"], tuples["left"], tuples["lost"]) == (600, 0, 0)
    comparison = replayed(write(tmp_path, found))
    lines = (tmp_path / "decisions.jsonl").read_text().splitlines()
    assert comparison == PolicyComparison(len(lines), 0, None)


def test_a_run_with_a_re_plan_is_decided_the_same_again(tmp_path: Path, found: list[Moment]) -> None:
    actions = {d["action"] for moment in found for d in decisions_of(moment.instructions)}
    assert actions == {"none", "plan"}
    comparison = replayed(write(tmp_path, found))
    assert comparison == PolicyComparison(
        len((tmp_path / "decisions.jsonl").read_text().splitlines()), 0, None
    )
    assert comparison.decisions >= 14


def test_a_decision_that_was_recorded_otherwise_is_found_with_its_field(
    tmp_path: Path, found: list[Moment]
) -> None:
    def other(lines: list[str]) -> None:
        decision = json.loads(lines[6])
        decision["evidence"]["demand"]["offered_tps"] += 1.0
        lines[6] = json.dumps(decision)

    edited(write(tmp_path, found) / "decisions.jsonl", other)
    difference = replayed(tmp_path).difference
    assert difference is not None
    assert (difference.number, difference.field) == (7, "evidence.demand.offered_tps")
    assert difference.recorded == difference.replayed + 1.0


def test_lines_written_otherwise_but_with_the_same_values_are_equal(
    tmp_path: Path, found: list[Moment]
) -> None:
    edited(
        write(tmp_path, found) / "decisions.jsonl",
        lambda lines: lines.__setitem__(2, json.dumps(json.loads(lines[2]), indent=None)),
    )
    assert replayed(tmp_path).equal


def test_inputs_in_parts_are_replayed_as_those_in_one_file(
    tmp_path: Path, found: list[Moment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.controller.recording.trace_writer.PART_BYTES", 20_000)
    folder = write(tmp_path, found)
    lines = (folder / "inputs.jsonl").read_bytes().splitlines(keepends=True)
    whole = list(Recording(folder).lines())
    (folder / "inputs.jsonl").unlink()
    parts = PartedLines(folder / "inputs.jsonl")
    for line in lines:
        parts.append(line)
        if parts.is_due:
            parts.put_aside()
    parts.close()
    assert len(list(folder.glob("inputs-*.jsonl.gz"))) >= 3
    assert list(Recording(folder).lines()) == whole
    assert replayed(folder).equal
    for packed in sorted(folder.glob("inputs-*.jsonl.gz"))[1:]:  # a kill before they were compressed
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert list(Recording(folder).lines()) == whole


def test_decisions_tell_when_the_plan_before_came_into_force(tmp_path: Path, found: list[Moment]) -> None:
    decisions = [d for moment in found for d in decisions_of(moment.instructions)]
    first, second = (d for d in decisions if d["action"] == "plan")
    assert first["enacted"] is None  # nothing was in force yet
    told = {d["enacted"]["epoch"]: d["enacted"] for d in decisions if d["enacted"]}
    assert [told[1]["decided"], told[2]["decided"]] == [first["time"], second["time"]]
    plans = {plan["epoch"]: plan for plan in summary(found[-1].loop.view(found[-1].now))["plans"]}
    for epoch, enacted in told.items():
        assert enacted["decided"] < enacted["in_force"]
        assert enacted["enacted_s"] == plans[epoch]["enacted_s"] > 0.0
        assert enacted["pause_ms"] == plans[epoch]["pause_ms"] >= 0.0


def test_a_plan_that_waited_for_its_machines_is_told_by_its_own_epoch() -> None:
    found = moments(8.0, ((0.0, 100.0),), initial=(Vm("vm1", 2),), spare=Vm("spare", 4), max_vms=2)
    decisions = [d for moment in found for d in decisions_of(moment.instructions)]
    assert (decisions[0]["trigger"], decisions[0]["epoch"]) == ("start", 0)
    enacted = decisions[-1]["enacted"]
    assert (enacted["epoch"], enacted["decided"]) == (1, decisions[0]["time"])
    assert enacted["enacted_s"] >= 2.0


def test_decisions_of_older_traces_do_not_say_what_was_enacted_nor_what_limits_a_plan(
    tmp_path: Path, found: list[Moment]
) -> None:
    def older(lines: list[str]) -> None:
        for number, line in enumerate(lines):
            decision = json.loads(line)
            del decision["enacted"]
            for key in ("limited_by", "limited_by_slot"):
                (decision["plan"] or {}).pop(key, None)
            lines[number] = json.dumps(decision)

    path = write(tmp_path, found) / "decisions.jsonl"
    edited(path, older)
    assert replayed(tmp_path).equal
    edited(path, lambda lines: lines.__setitem__(3, lines[3].replace('"none"', '"plan"')))
    difference = replayed(tmp_path).difference
    assert difference is not None and (difference.number, difference.field) == (4, "action")


def test_what_a_run_offered_comes_back_as_the_steps_it_was(tmp_path: Path, found: list[Moment]) -> None:
    writer = TraceWriter(write(tmp_path, found), {})
    for moment in found:
        for instruction in moment.instructions:
            if isinstance(instruction, t.Trace) and instruction.kind == "rates":
                writer.add_rates(instruction.data)
    writer.write(final=True)
    writer.close()
    steps = rates.read(str(tmp_path)).steps
    assert [tps for at_s, tps in steps if at_s < 5.0] == pytest.approx([30.0] * 5, rel=0.05)
    assert sum(31.0 < tps < 89.0 for _, tps in steps) <= 1  # the second of the step itself
    assert [tps for at_s, tps in steps if at_s > 7.0] == pytest.approx([90.0] * 6, rel=0.05)


def test_a_missing_decision_is_a_difference(tmp_path: Path, found: list[Moment]) -> None:
    edited(write(tmp_path, found) / "decisions.jsonl", lambda lines: lines.pop(3))
    difference = replayed(tmp_path).difference
    assert difference is not None and (difference.number, difference.field) == (4, "time")


def test_an_input_that_is_missing_shows(tmp_path: Path, found: list[Moment]) -> None:
    def lose_a_vm(lines: list[str]) -> None:
        lines[:] = [line for line in lines if '"vm":"vm2"' not in line]

    edited(write(tmp_path, found) / "inputs.jsonl", lose_a_vm)
    assert not replayed(tmp_path).equal


def test_questions_of_clients_change_no_decision(tmp_path: Path, found: list[Moment]) -> None:
    def ask(lines: list[str]) -> None:
        now = found[50].now
        question = t.Command(1, Request("status"))
        lines.insert(51, input_of(Moment(now, question, [], found[50].loop)).decode())

    edited(write(tmp_path, found) / "inputs.jsonl", ask)
    assert replayed(tmp_path).equal


# ── controllers that were started again ─────────────────────────────────────────────────────────


def restarted(seconds: float) -> list[Moment]:
    """A controller that is killed in the middle of a run, and the one that follows it: it knows the
    journal, and adopts what the VMs go on saying."""
    whole = moments(2 * seconds)
    begin_ns = whole[0].now.mono_ns
    first = [moment for moment in whole if moment.now.mono_ns < begin_ns + seconds * 1e9]
    records: list[Record] = []
    for moment in first:
        for instruction in moment.instructions:
            if isinstance(instruction, t.Persist):
                records += instruction.records
    loop = Loop(settings(), submitted())
    now = later(first[-1].now, 0.1)
    started = t.Started(tuple(records), None, 2)
    second = [Moment(now, started, loop.step(started, now), loop)]
    for moment in whole[len(first) :]:
        now = later(moment.now, 0.2)
        second.append(Moment(now, moment.event, loop.step(moment.event, now), loop))
    return [*first, *second]


def test_a_run_whose_controller_was_killed_is_replayed_life_by_life(tmp_path: Path) -> None:
    found = restarted(7.0)
    recording = Recording(write(tmp_path, found))
    again = ExactReplay(recording.run)
    loops = {id(moment.loop) for moment in list(again.moments(recording.lines()))}
    assert len(loops) == len(again.lives) == 2
    assert all(life.decisions for life in again.lives)
    assert compare(recording.decisions, again.lives).equal


def test_what_a_killed_controller_did_not_write_in_its_last_second_is_no_difference(tmp_path: Path) -> None:
    found = restarted(7.0)
    folder = write(tmp_path, found)
    restart = next(m.now for m in found[1:] if isinstance(m.event, t.Started))
    lines = (folder / "decisions.jsonl").read_text().splitlines()
    from headgate.topology_runtime.wording import utc_iso

    before = [n for n, line in enumerate(lines) if json.loads(line)["time"] < utc_iso(restart.wall_ns)]
    edited(folder / "decisions.jsonl", lambda lines: lines.pop(before[-1]))
    comparison = replayed(folder)
    assert comparison.equal and comparison.unverified == 1
    edited(folder / "decisions.jsonl", lambda lines: lines.pop(before[-2]))
    assert not replayed(folder).equal


def test_a_decision_whose_journal_failed_was_never_made(tmp_path: Path) -> None:
    loop = Loop(settings(), submitted())
    found = []
    failed = False
    for moment in IdealWorld(loop, IdealAccount(), wall_ns=1_790_000_001 * 10**9).moments(6.0):
        found.append(moment)
        if not failed and decisions_of(moment.instructions):
            failed = True
            event = t.JournalFailed("no space")
            found.append(Moment(moment.now, event, loop.step(event, moment.now), loop))
    folder = write(tmp_path, found)
    edited(folder / "decisions.jsonl", lambda lines: lines.pop(0))  # its Persist failed: it was not written
    assert replayed(folder).equal


def test_a_topology_submitted_by_a_command_is_replayed_from_that_command(tmp_path: Path) -> None:
    loop = Loop(settings(initial=()))
    arguments = submission()
    world = IdealWorld(loop, IdealAccount(), wall_ns=1_790_000_001 * 10**9)
    found: list[Moment] = []
    for moment in world.moments(3.0):
        found.append(moment)
        if len(found) == 8:
            command = t.Command(1, Request("submit", arguments))
            found.append(Moment(moment.now, command, loop.step(command, moment.now), loop))
            break
    folder = write(tmp_path, found)
    recording = Recording(folder)
    again = ExactReplay(recording.run)
    last = list(again.moments(recording.lines()))[-1].loop
    assert [event["kind"] for event in last.knowledge.events].count("submitted") == 1
    assert last.knowledge.durable.run is not None


def submission() -> dict[str, object]:
    """Arguments of `submit`."""
    given = submitted()
    return {
        "topology": msgspec.to_builtins(given.topology),
        "models": [model_data(model) for model in given.models],
        "steps": given.steps,
    }


def test_a_run_submitted_after_long_waiting_is_replayed_though_little_of_that_is_kept(tmp_path: Path) -> None:
    """Nobody has named its VMs beforehand: what they said of themselves once is what there is to plan with."""
    loop = Loop(settings(initial=()))
    world, early = (
        IdealWorld(loop, IdealAccount(), wall_ns=1_790_000_001 * 10**9),
        EarlyInputs(others_most=40),
    )
    for vm in (Vm("vm1", 4), Vm("vm2", 4)):
        world.asked[vm.vm] = vm
        world.add(vm)
    waiting: list[Moment] = []
    run: list[Moment] = []
    for moment in world.moments(20.0):
        (run if run else waiting).append(moment)
        if not run and len(waiting) == 400:
            command = t.Command(1, Request("submit", submission()))
            run.append(Moment(moment.now, command, loop.step(command, moment.now), loop))
            for one in waiting:
                early.add(one.now, one.event)
    kept = {id(event) for _, event in early.take()}
    assert 40 < len(kept) < 60 and not list(early.take())
    folder = write(tmp_path, [*(one for one in waiting if id(one.event) in kept), *run])
    assert loop.knowledge.durable.rollout is not None and replayed(folder).equal


def test_the_first_field_that_differs_is_named_in_order() -> None:
    assert first_field({"a": [1, {"b": 2.0}]}, {"a": [1, {"b": 2.5}]}) == (("a", "1", "b"), 2.0, 2.5)
    assert first_field({"a": 1}, {"a": 1, "c": 2}) == (("c",), "(missing)", 2)
    assert first_field([1], [1, 2]) == ((), [1], [1, 2])
    assert first_field({"a": None}, {"a": None}) is None
