"""The picture that the controller makes: complete, numbered, small, and no burden."""

from __future__ import annotations

import itertools
import json
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from enactment_world import World, t

from benchmarks.picture_cluster import Cluster, models_of
from headgate.controller.core.plan_choice import rates_asked, whatif
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.monitor.sample_intake import TaskLatency
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.schedulers import each_once
from headgate.controller.planning_commands.plan_command import plan as plan_command
from headgate.controller.views.run_documents import RateRows, explain, status, summary
from headgate.controller.views.run_snapshots import SnapshotMaker
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, PER_DOUBLING, bucket_of
from headgate.topology_runtime.platform.planning_time import clocked
from headgate.topology_runtime.wire.messages import ProfileSpec, Request, SampleBlock
from headgate.topology_runtime.wire.run_snapshot import Delta, Snapshot, advanced

ROOT = Path(__file__).resolve().parents[2]


TICK_MOST_BYTES = 2000


def received(delta: Delta) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(delta))
    return found


def sent(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return found


def test_whoever_applies_every_delta_has_the_snapshot() -> None:
    cluster, picture = Cluster(), SnapshotMaker()
    picture.advance(cluster.at(1.0))
    known: dict[str, Any] | None = sent(picture.snapshot())
    for n in range(2, 60):
        delta = received(picture.advance(cluster.at(n / 2)))
        assert known is not None
        known = advanced(known, delta)
    assert known == sent(picture.snapshot())
    picture.advance(cluster.at(30.5))
    assert known is not None and advanced(known, received(picture.advance(cluster.at(31.0)))) is None, (
        "one is missing"
    )
    for n in range(32, 130):
        picture.look(cluster.at(float(n)))
    picture.advance(cluster.at(130.0), whole=True)
    assert len(picture.snapshot()["history"]["time"]) > 90, "also what nobody was told"
    assert known is not None and known["number"] == 59
    msgspec.convert(known, Snapshot)


def test_a_tick_of_ten_tasks_and_twenty_slots_is_below_two_kilobytes_though_everything_moves() -> None:
    cluster, picture = Cluster(10, 20), SnapshotMaker()
    picture.advance(cluster.at(1.0))
    sizes = [len(msgspec.json.encode(picture.advance(cluster.at(1 + n / 2)))) for n in range(1, 200)]
    assert max(sizes) < TICK_MOST_BYTES
    slots = picture.snapshot()["slots"]
    assert len(slots) == 20 and sum(bool(slot["threads"]) for slot in slots.values()) > 15


def test_a_picture_says_where_every_thread_is_and_what_limits() -> None:
    cluster, picture = Cluster(), SnapshotMaker()
    picture.advance(cluster.at(1.0))
    now = picture.snapshot()
    in_slots = sum(sum(slot["threads"].values()) for slot in now["slots"].values())
    in_tasks = sum(task["threads"] for task in now["topology"]["tasks"].values())
    assert in_slots == in_tasks == cluster.threads
    limit = cluster.plan.prediction
    assert now["next_bottleneck"]["task"] == limit.limited_by
    assert now["next_bottleneck"]["slot"] == limit.limited_by_slot
    assert {t for t in now["models"]} == {m.task for m in models_of(cluster.topology)}
    assert any(slot.get("full") for slot in now["slots"].values())
    cluster.k.profiles.desired = ProfileSpec("task01", Slot("vm5", 3), 1, 60.0)
    picture.advance(cluster.at(2.0), whole=True)
    states = {name: slot["state"] for name, slot in picture.snapshot()["slots"].items()}
    assert states.pop("vm5/3") == "profiling" and "profiling" not in states.values(), "it is not empty"


def test_a_picture_says_how_near_each_task_is_to_its_limit_and_its_latency() -> None:
    cluster, picture = Cluster(), SnapshotMaker()
    sight = cluster.at(1.0)
    picture.advance(sight)
    now = picture.snapshot()
    for name, task in now["topology"]["tasks"].items():
        assert task["p50_ms"] < task["p95_ms"] < task["p99_ms"]
        assert ("busy" in task) == (task["kind"] != "source")
        if task.get("load") is None:
            assert task["static"], "it only reserves: no rate saturates it"
            continue
        own = {at: slot["predicted_cpu"] for at, slot in now["slots"].items() if name in slot["threads"]}
        assert task["load_slot"] in own and not task.get("grows")
        assert 0.3 < task["load"] < 1  # it runs at 0.8 of its plan, however its CPU may vary


def block(task: int, bucket: int, rows: int) -> SampleBlock:
    columns = {name: array("q", [value]).tobytes()
               for name, value in (("task", task), ("bucket", bucket), ("rows", rows))}  # fmt: skip
    return SampleBlock("vm1", 1, 1, 1, 1, 1, (), {}, {}, {}, task_latency=columns, per_doubling=PER_DOUBLING)


def test_latency_in_a_task_is_that_of_all_its_rows_of_the_last_seconds() -> None:
    seconds, known = 1_000_000_000, TaskLatency(["source", "work"])
    known.add(block(1, bucket_of(3_000_000_000), 1000), 0)
    for n in range(5, 11):  # the first block is ten seconds old at the end
        known.add(block(1, bucket_of(1_000_000), 90), n * seconds)
        known.add(block(1, bucket_of(100_000_000), 8), n * seconds)
        known.add(block(1, bucket_of(900_000_000), 2), n * seconds)
    found = known.percentiles(10 * seconds)
    assert list(found) == ["work"]
    assert found["work"] == pytest.approx((1.0, 100.0, 900.0), rel=0.15)
    assert known.percentiles(40 * seconds) == {}


@pytest.mark.parametrize("counts", [(-1, 3, 5), (9, -1, 5), (0, BUCKETS, 5), (0, 3, -5), (1 << 40, 3, 5)])
def test_latencies_that_make_no_sense_are_passed_over(counts: tuple[int, int, int]) -> None:
    known = TaskLatency(["work"] * 8)
    known.add(block(*counts), 1)
    odd = block(0, 3, 5)
    odd.task_latency["rows"] = b"odd"
    known.add(odd, 1)
    assert known.percentiles(2) == known.totals() == {}


def look(world: World) -> RunView:
    return world.loop.view(world.now)


def watched(world: World, picture: SnapshotMaker, seconds: float) -> None:
    for _ in range(round(seconds * 2)):
        world.run(0.5)
        picture.advance(look(world))


def test_a_run_before_its_first_plan_has_a_picture_too() -> None:
    world, picture = World(), SnapshotMaker()
    picture.advance(look(world.start()))
    now = sent(picture.snapshot())
    assert "plan" not in now and now["header"] == now["stage"]
    assert {slot["state"] for slot in now["slots"].values()} == {"empty"}
    msgspec.convert(now, Snapshot)


def test_a_replan_is_told_with_its_diff_and_its_rule() -> None:
    world, picture = World(rate_tps=100.0).start(), SnapshotMaker()
    watched(world, picture, 12)
    world.do(t.Command(1, Request("rate_set", {"rate_tps": 300.0})))
    watched(world, picture, 40)
    now = sent(picture.snapshot())
    decisions = [d for d in now["decisions"].values() if d["action"] == "plan"]
    assert [d["trigger"] for d in decisions][:2] == ["start", "rate_changed"]
    assert decisions[0]["diff"] and all(line.startswith("+ ") for line in decisions[0]["diff"])
    assert decisions[1]["rule"] and decisions[1]["numbers"] and decisions[1]["diff"]
    assert decisions[1]["epoch"] == 2 and decisions[1]["moves"] > 0
    assert "rate_set" in [event["kind"] for event in now["events"].values()]
    numbers = [int(name) for name in now["decisions"]]
    assert numbers == sorted(numbers)


def test_what_is_acked_stands_beside_what_is_offered_at_the_same_time() -> None:
    world, picture = World(rate_tps=100.0).start(), SnapshotMaker()
    watched(world, picture, 30)
    world.do(t.Command(1, Request("rate_set", {"rate_tps": 300.0})))
    watched(world, picture, 4)
    source = next(source for vm in world.vms.values() for source in vm.sources.values())
    before = source.acked
    watched(world, picture, 2)
    picture.advance(look(world), whole=True)
    now = picture.snapshot()
    assert now["rates"]["offered_tps"] == 300
    assert now["rates"]["acked_tps"] == pytest.approx((source.acked - before) / 2, rel=0.1)
    assert now["history"]["acked_tps"][-1] == pytest.approx(300, rel=0.1)


def test_looking_changes_nothing_of_what_is_decided() -> None:
    alone, seen, picture = World().start(), World().start(), SnapshotMaker()
    alone.run(20)
    watched(seen, picture, 20)
    assert [m for _, m in seen.sent][-1] == [m for _, m in alone.sent][-1]
    assert seen.traces == alone.traces


def request(slots: int = 20) -> PlanRequest:
    cluster = Cluster(10, slots)
    models = {model.task: model for model in models_of(cluster.topology)}
    return PlanRequest(cluster.topology, models, 1.0, cluster.plan.vms)


def test_what_if_answers_with_slots_cost_the_baseline_and_what_one_slot_more_would_buy() -> None:
    found = whatif(request(), (50.0, 200.0, 900.0), full=False)
    slots = [row["slots"]["used"] for row in found["rows"]]
    assert slots == sorted(slots) and slots[0] < slots[-1]
    assert [row["fits"] for row in found["rows"]] == [True, True, False]
    for row in found["rows"]:
        assert row["predicted_tps"] >= row["rate_tps"] * 0.999
        assert row["usd_per_hour"] == pytest.approx(0.1 * len(row["vms"].split(",")))
        assert row["baseline"]["pair"] == "lsa+rsm" and row["limited_by"]
    json.dumps(found, allow_nan=False)
    row = whatif(request(), (100.0,), full=True)["rows"][0]
    same, more = row["same_slots"], row["more_slots"]
    assert same["slots"] == row["slots"]["used"] < row["slots"]["total"]
    assert more["slots"] > same["slots"] and more["carried_tps"] > same["carried_tps"] >= 100.0


def test_what_if_of_a_run_and_of_a_command_have_one_shape() -> None:
    told = CliRunner().invoke(
        plan_command, ["linear", "--rates", "50,100", "-o", "json"], standalone_mode=False
    )
    command, live = json.loads(told.stdout), whatif(request(), (50.0, 100.0), full=True)
    assert shape(live) == shape(command)
    assert [set(row) for row in live["rows"]] == [set(row) for row in command["rows"]]


def test_every_scheduler_is_compared_for_a_run_as_the_command_does() -> None:
    """One shape, and of what runs already nothing moves; a slow clock tells what each plan took."""
    words = ["linear", "--rates", "100", "--compare", ",".join(each_once()), "-o", "json"]
    told = CliRunner().invoke(plan_command, words, standalone_mode=False)
    command = json.loads(told.stdout)
    world = World(rate_tps=100.0).start()
    world.run(30)
    planned_tps = world.loop.knowledge.plan.rate_tps  # type: ignore[union-attr]
    asked = t.Command(1, Request("whatif", {"rates": [planned_tps], "compare": True}))
    (later,) = [i for i in world.do(asked) if isinstance(i, t.AnswerLater)]
    ticks = itertools.count()
    with clocked(lambda: next(ticks) / 1000, 600.0):
        live = later.work()
    assert live.keys() == command.keys() and live["schema"] == command["schema"]
    assert [set(row) for row in live["rows"]] == [set(row) for row in command["rows"]]
    assert {row["pair"] for row in live["rows"]} == set(each_once())
    rows = {row["pair"]: row for row in live["rows"]}
    assert rows["mba+sam"]["moves"] == 0 and rows["mba+dsm"]["moves"] > 0
    assert all(row["planned_s"] > 0 for row in rows.values())


def shape(value: Any) -> Any:
    """Names and kinds of all that is there, of a list that of its first item."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items() if name not in ("answers", "vms")}
    if isinstance(value, list | tuple):
        return [shape(part) for part in value[:1]]
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


@pytest.mark.parametrize("offered_tps", [90.0, 118.0, 200.0, 300.0, 20.0])
def test_the_preview_of_a_rate_is_of_the_plan_that_then_comes(offered_tps: float) -> None:
    """The whole core is asked, and then made to do it."""
    world = World(rate_tps=100.0).start()
    world.run(30)
    asked = t.Command(1, Request("whatif", {"rates": [offered_tps], "offered": True}))
    (later,) = [i for i in world.do(asked) if isinstance(i, t.AnswerLater)]
    row = later.work()["rows"][0]
    world.do(t.Command(1, Request("rate_set", {"rate_tps": offered_tps})))
    world.run(60)
    plan = world.loop.knowledge.plan
    assert plan is not None
    assert (row["slots"]["used"], row["rate_tps"]) == (
        plan.slots.used,
        pytest.approx(plan.rate_tps, rel=0.02),
    )


def test_what_if_refuses_what_is_no_rate() -> None:
    for rates in (None, [], "100", [0], [-1], [True], ["x"], [1e12], [100.0] * 41):
        with pytest.raises(InvalidInput):
            rates_asked({"rates": rates})


# ── A view is of its moment: nothing that happens later changes what is made of it ──────────────────────


def shown(view: RunView) -> list[str]:
    page = SnapshotMaker()
    page.advance(view)
    made = status(view), summary(view), explain(view, 50), list(RateRows().of(view)), page.snapshot()
    return [json.dumps(document) for document in made]


def test_a_view_that_was_taken_stays_as_it_was() -> None:
    world = World().start().run(20.0)
    view = world.loop.view(world.now)
    before = shown(view)
    world.ask("rate_set", rate_tps=310.0)
    world.vms["vm2"].down = True
    world.run(20.0)
    assert shown(view) == before != shown(world.loop.view(world.now))
