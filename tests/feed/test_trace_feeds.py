"""A trace gives the same documents as a controller: sought, paused, ended; what is broken in it is left out."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from dashboards.feed import Change, TraceFeed, Whole, from_trace
from topology_runtime.errors import InvalidInput
from topology_runtime.picturing.merge_patch import advanced
from topology_runtime.snapshot import Snapshot

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from generate_trace import Wanted, generate

FAST = 1e6  # the whole trace between two items


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    generate(folder, Wanted(6_000, threads=20, slots=8, runs=1, segment_rows=2_000))
    return next(folder.glob("*/*/run.json")).parent


def whole_at(feed: TraceFeed, seconds: float) -> dict[str, object]:
    feed.control(seconds, None, True)
    item = feed.next(1.0)
    assert isinstance(item, Whole)
    msgspec.json.decode(item.data, type=Snapshot)
    return item.document


def test_it_begins_with_a_whole_document_of_the_run(trace: Path) -> None:
    first = TraceFeed(trace).next(1.0)
    assert isinstance(first, Whole)
    now = msgspec.json.decode(first.data, type=Snapshot)
    run = json.loads((trace / "run.json").read_bytes())
    assert (now.run, now.origin) == (run["run"], "trace")
    assert now.topology is not None and set(now.topology.tasks) == {
        t["name"] for t in run["topology"]["tasks"]
    }
    assert now.replay is not None and now.replay.length_s > 100 and now.models


def test_in_the_middle_there_are_rates_slots_and_a_history(trace: Path) -> None:
    feed = TraceFeed(trace)
    now = msgspec.convert(whole_at(feed, feed.length_s / 2), Snapshot)
    assert now.rates.offered_tps and now.rates.predicted_tps and now.latency_ms.p50
    threads = sum(sum(slot.threads.values()) for slot in now.slots.values())
    assert threads == 20 and now.plan is not None
    assert any(slot.cpu for slot in now.slots.values())
    assert len(now.history.time) > 60 and now.history.time[-1] - now.history.time[0] > 60
    assert len(now.history.offered_tps) == len(now.history.time)


def test_changes_add_up_to_what_seeking_gives(trace: Path) -> None:
    feed, known, changes = TraceFeed(trace, speed=40.0), None, 0
    while changes < 3:
        item = feed.next(1.0)
        if isinstance(item, Whole):
            known = json.loads(item.data)
        elif isinstance(item, Change):
            known = advanced(known, json.loads(item.data))
            changes += 1
            assert known == item.document
    assert known is not None
    sought = json.loads(json.dumps(whole_at(TraceFeed(trace), known["replay"]["at_s"])))
    for part in ("slots", "topology", "rates", "latency_ms", "plan", "decisions", "header"):
        assert sought.get(part) == known.get(part), part


def test_back_and_forth_gives_the_same_document(trace: Path) -> None:
    feed = TraceFeed(trace)
    first = whole_at(feed, 60.0)
    whole_at(feed, 200.0)
    again = whole_at(feed, 60.0)
    assert {**first, "number": 0} == {**again, "number": 0}


def test_a_pause_changes_nothing_and_a_leap_is_kept_inside(trace: Path) -> None:
    feed = TraceFeed(trace, speed=100.0)
    whole_at(feed, 30.0)
    item = feed.next(1.0)
    assert isinstance(item, Change) and item.delta["patch"] == {} == item.delta["history"]
    assert whole_at(feed, 1e9)["replay"]["at_s"] == feed.length_s  # type: ignore[index]
    assert whole_at(feed, float("inf"))["replay"]["at_s"] == feed.length_s  # type: ignore[index]
    assert whole_at(feed, -5.0)["replay"]["at_s"] == 1.0  # type: ignore[index]


def test_whether_it_is_paused_or_at_its_end_is_told(trace: Path) -> None:
    feed = TraceFeed(trace, speed=100.0)
    held = whole_at(feed, 30.0)["replay"]
    assert held["paused"] and "ended" not in held  # type: ignore[index,operator]
    assert not feed.ended
    assert whole_at(feed, 1e9)["replay"]["ended"] and feed.ended  # type: ignore[index]
    whole_at(feed, 30.0)
    assert not feed.ended


def test_a_task_is_as_near_to_its_limit_as_the_models_say(trace: Path) -> None:
    feed = TraceFeed(trace)
    now = msgspec.convert(whole_at(feed, feed.length_s / 2), Snapshot)
    assert now.topology is not None
    for name, task in now.topology.tasks.items():
        points = now.models[name].points if name in now.models else ()
        found = [slot.predicted_cpu or 0.0 for slot in now.slots.values() if name in slot.threads]
        for slot in now.slots.values():
            if points and name in slot.threads:
                peak = np.interp(
                    slot.threads[name], [0, *(p[0] for p in points)], [0, *(p[1] for p in points)]
                )
                found.append((task.rate_tps or 0.0) * slot.threads[name] / task.threads / peak)
        assert task.load == pytest.approx(max(found), rel=0.02), name
        assert not task.grows
        assert (task.busy is None) == (task.kind == "source")
    assert all(vm.cpu and vm.memory for vm in now.vms.values() if vm.slots_used)


def test_what_the_plan_says_saturates_first_is_told_once_it_is_recorded(trace: Path, tmp_path: Path) -> None:
    whole = whole_at(TraceFeed(trace), 100.0)
    assert "next_bottleneck" not in whole and "limited_by" not in whole["plan"]  # type: ignore[operator]
    copy = shutil.copytree(trace, tmp_path / "copy")
    decisions = [json.loads(line) for line in (copy / "decisions.jsonl").read_text().splitlines()]
    for decision in decisions:
        if decision["plan"]:
            decision["plan"] |= {"limited_by": "score", "limited_by_slot": "vm1/2"}
    (copy / "decisions.jsonl").write_text("".join(json.dumps(d) + "\n" for d in decisions))
    now = msgspec.convert(whole_at(TraceFeed(copy), 100.0), Snapshot)
    assert now.plan is not None and now.next_bottleneck is not None
    assert (now.plan.limited_by, now.plan.limited_by_slot) == ("score", "vm1/2")
    assert (now.next_bottleneck.task, now.next_bottleneck.slot) == ("score", "vm1/2")
    assert now.next_bottleneck.at_tps == now.plan.predicted_tps
    assert now.header.endswith("next bottleneck score on vm1/2, replay")


def test_the_pause_of_a_plan_is_told_when_it_is_recorded(trace: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trace, tmp_path / "copy")
    decisions = [json.loads(line) for line in (copy / "decisions.jsonl").read_text().splitlines()]
    plan = next(decision for decision in decisions if decision["action"] == "plan")
    for decision in decisions[decisions.index(plan) + 1 :]:
        decision["enacted"] = {"epoch": 1, "decided": plan["time"], "in_force": plan["time"], "enacted_s": 1.0,
                               "pause_ms": 84.0}  # fmt: skip
    (copy / "decisions.jsonl").write_text("".join(json.dumps(d) + "\n" for d in decisions))
    told = msgspec.convert(whole_at(TraceFeed(copy), 1e9), Snapshot).decisions
    assert [d.pause_ms for d in told.values() if d.time == plan["time"]] == [84.0]


def decided(trace: Path, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A copy of a trace, and its decisions, to be changed."""
    copy = shutil.copytree(trace, folder / "copy")
    return copy, [json.loads(line) for line in (copy / "decisions.jsonl").read_text().splitlines()]


def test_the_first_plan_has_the_number_that_it_came_into_force_with(trace: Path, tmp_path: Path) -> None:
    """When it is decided there is no plan yet: a real trace says epoch 0 there."""
    copy, decisions = decided(trace, tmp_path)
    first = next(decision for decision in decisions if decision["action"] == "plan")
    first |= {"epoch": 0, "trigger": "start"}
    (copy / "decisions.jsonl").write_text("".join(json.dumps(d) + "\n" for d in decisions))
    now = msgspec.convert(whole_at(TraceFeed(copy), 1e9), Snapshot)
    assert [d.epoch for d in now.decisions.values() if d.time == first["time"]] == [1]
    begun = msgspec.convert(whole_at(TraceFeed(copy), 1.0), Snapshot)
    assert begun.plan is not None and begun.plan.epoch == 1


def test_what_became_of_the_tuples_is_told_as_the_newest_decision_knew_it(
    trace: Path, tmp_path: Path
) -> None:
    copy, decisions = decided(trace, tmp_path)
    for number, decision in enumerate(decisions):
        decision["tuples"] = {"emitted": 9 * number, "acked": 8 * number, "in_flight": number, "lost": 0,
                              "dead_lettered": 3, "replayed": 2}  # fmt: skip
    (copy / "decisions.jsonl").write_text("".join(json.dumps(d) + "\n" for d in decisions))
    now = msgspec.convert(whole_at(TraceFeed(copy), 1e9), Snapshot).tuples
    last = len(decisions) - 1
    assert (now.emitted, now.acked, now.in_flight) == (9 * last, 8 * last, last)
    assert (now.lost, now.dead_lettered, now.replayed) == (0, 3, 2)


def test_a_plan_is_never_on_more_slots_than_there_are(trace: Path, tmp_path: Path) -> None:
    """Samples begin after the first plan, and end before the last rates."""
    copy, _decisions = decided(trace, tmp_path)
    segments = sorted((copy / "samples").iterdir())
    for segment in (segments[0], segments[-1]):
        segment.unlink()
    feed = TraceFeed(copy)
    for at_s in (1.0, 60.0, feed.length_s):
        now = msgspec.convert(whole_at(feed, at_s), Snapshot)
        slots = sum(vm.slots for vm in now.vms.values())
        assert now.plan is not None and 0 < now.plan.slots.used <= slots, at_s
        assert f"{now.plan.slots.used} of {slots} slots" in now.header


def test_it_ends_with_the_trace(trace: Path) -> None:
    items = list(from_trace(trace, FAST))
    assert isinstance(items[0], Whole) and items[-1].document["replay"]["at_s"] > 100  # type: ignore[union-attr]


def test_a_broken_segment_is_left_out_and_named(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(trace, tmp_path / "copy")
    (copy / "samples" / "9-000000.parquet").write_bytes(b"PAR1 no")
    with (copy / "decisions.jsonl").open("ab") as file:
        file.write(b'{"time": "later"}\n{')
    TraceFeed(copy).next(1.0)
    said = capsys.readouterr().err
    assert "samples/9-000000.parquet" in said and "decisions.jsonl: line" in said


@pytest.mark.parametrize(
    "text", [None, b"{", b"[]", b'{"schema": "headgate/trace/v9"}'], ids=["none", "torn", "list", "newer"]
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(InvalidInput):
        TraceFeed(tmp_path)


def test_a_trace_without_samples_is_refused(trace: Path, tmp_path: Path) -> None:
    shutil.copy(trace / "run.json", tmp_path)
    with pytest.raises(InvalidInput, match="no samples"):
        TraceFeed(tmp_path)
