"""A submission without models: its tasks are measured on the hosts first (controller/core/profiling.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import TOPOLOGY
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from measuring_world import CHAIN, NAMES, MeasuringWorld, model_of
from msgspec.structs import replace

from headgate.controller.core import profiling
from headgate.controller.execute.desired_state import first_specs
from headgate.controller.knowledge.membership import LOST_NS
from headgate.controller.views.run_snapshots import snapshot_of
from headgate.topology_runtime.api.topology import Task

checked = examples(40)


def begun(*vms: str, **more: Any) -> MeasuringWorld:
    """Submitted, and being measured."""
    world = MeasuringWorld(*vms, **more)
    world.start().run(0.5)
    assert world.submit().error is None
    world.run(0.5)
    return world


def stage(world: MeasuringWorld) -> str:
    return str(world.ask("status").data["stage"])


def words(world: MeasuringWorld) -> str:
    return "\n".join(event["text"] for event in world.loop.knowledge.events)


# ── all is well ─────────────────────────────────────────────────────────────────────────────────


def test_what_lacks_is_measured_side_by_side_and_then_it_runs() -> None:
    world = begun()
    assert sorted(spec.task for spec in world.begun) == list(NAMES), "on two VMs there is room for all three"
    assert {spec.slot.vm for spec in world.begun} == {"vm1", "vm2"}
    assert all(spec.samples for spec in world.begun)
    assert stage(world) == "measuring" and world.stands()["state"] == "measuring"
    world.run(5.5)
    assert world.stands()["state"] == "accepted"
    assert {model["task"] for model in world.stands()["models"]} == set(NAMES)
    world.until("committed").run(2)
    assert len(world.begun) == 3, "each was measured once"
    assert {name: model.points[0].rate_tps for name, model in world.models.items()} == dict.fromkeys(
        NAMES, 40.0
    )
    assert all(one.desired is not None and not one.desired.profiles for one in world.vms.values())


def test_nothing_is_planned_before_all_is_measured() -> None:
    world = begun()
    world.vms["vm1"].machine = "slow-1"
    world.run(4.0)
    assert world.loop.knowledge.durable.run is None and world.loop.knowledge.durable.rollout is None
    told = [one.desired for one in world.vms.values()]
    assert all(desired is not None and not desired.threads and desired.token.epoch == 0 for desired in told)


def test_what_was_given_or_is_known_is_not_measured() -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    known = [model_of("b", 33.0, "slow-1"), model_of("c", 44.0, "other-kind")]
    world.submit(models=[model_of("a", 22.0)], known=known)
    world.run(1)
    assert [spec.task for spec in world.begun] == ["c"], "known on another kind of machine is not known"
    world.run(5.5).until("committed")
    assert {name: model.points[0].rate_tps for name, model in world.models.items()} == {
        "a": 22,
        "b": 33,
        "c": 40,
    }


def test_all_is_known_so_it_starts_at_once() -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    world.submit(known=[model_of(name, 33.0, "slow-1") for name in NAMES])
    world.run(0.2)
    assert world.stands()["state"] == "accepted" and not world.begun


def test_without_a_word_of_measuring_a_lacking_model_is_refused_as_ever() -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    reply = world.submit(measure=False)
    assert reply.error is not None and reply.error[1] == 3 and not world.begun


# ── kinds of machine, slots ─────────────────────────────────────────────────────────────────────


def test_each_kind_of_machine_is_measured_on_and_the_slowest_is_planned_with() -> None:
    world = MeasuringWorld()
    world.vms["vm2"].machine, world.vms["vm2"].rate_tps = "fast-1", 90.0
    world.start().run(0.5)
    world.submit()
    world.run(12)
    kinds = {(spec.task, spec.slot.vm) for spec in world.begun}
    assert kinds == {(name, one) for name in NAMES for one in ("vm1", "vm2")}
    found = world.stands()
    assert found["state"] == "accepted"
    assert {(model["task"], model["slot"]["machine"]) for model in found["models"]} == {
        (name, kind) for name in NAMES for kind in ("slow-1", "fast-1")
    }
    assert {model.points[0].rate_tps for model in world.models.values()} == {40.0}


def test_half_of_a_vms_slots_measure_at_once() -> None:
    world = begun("vm1", slots=2)
    assert len(world.begun) == 1
    world.run(5.5)
    assert len(world.begun) == 2
    world.run(11)
    assert world.stands()["state"] == "accepted" and len(world.begun) == 3


def test_it_waits_for_a_host() -> None:
    world = MeasuringWorld()
    world.start()
    for one in world.vms.values():
        one.cut = True
    world.run(LOST_NS / 1e9 + 2)
    world.submit()
    world.run(2)
    assert world.stands()["measuring"]["left_s"] is None and not world.begun
    world.heal("vm1")
    world.run(12)
    assert world.stands()["state"] == "accepted"


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────


def test_a_lost_hosts_tasks_are_measured_elsewhere() -> None:
    world = begun()
    gone = [spec.task for spec in world.begun if spec.slot.vm == "vm1"]
    world.vms["vm1"].cut = True
    world.run(LOST_NS / 1e9 + 7)
    again = [spec for spec in world.begun if spec.task in gone and spec.slot.vm == "vm2"]
    assert {spec.task for spec in again} == set(gone)
    world.run(7)
    assert world.stands()["state"] == "accepted"


def test_a_task_that_raises_ends_it_all_and_is_named() -> None:
    world = MeasuringWorld()
    world.raising, world.measure_s = {"b"}, 2.0
    world.vms["vm2"].rate_tps = 1.0
    world.start().run(0.5)
    world.submit()
    world.run(4)
    found = world.stands()
    assert found["state"] == "dropped"
    assert "'b'" in found["error"]["what"] and found["error"]["cause"] == "ValueError: no"
    assert stage(world) == "idle" and not first_specs(world.loop.knowledge)
    world.run(3)
    assert all(not one.profiles for one in world.vms.values()), "nothing is left"
    world.raising = set()
    assert world.submit().error is None, "and the next one is taken"


def test_a_host_that_cannot_measure_is_left_alone_and_its_task_is_measured_elsewhere() -> None:
    world = MeasuringWorld(slots=8)
    world.vms["vm1"].unable = "it cannot be started: No space left on device"
    world.measure_s = 2.0
    world.start().run(0.5)
    world.submit()
    world.run(9)
    assert world.stands()["state"] == "accepted"
    assert "No space left" in words(world)


def test_when_no_host_can_measure_it_is_refused_with_each_ones_reason() -> None:
    world = MeasuringWorld()
    for one in world.vms.values():
        one.unable = "it cannot be started: No space left on device"
    world.start().run(0.5)
    world.submit()
    world.run(20)
    found = world.stands()
    assert found["state"] == "dropped" and "on any host" in found["error"]["what"]
    assert "vm1: it cannot" in found["error"]["cause"] and "vm2: it cannot" in found["error"]["cause"]


def test_an_agent_that_does_not_begin_is_given_up() -> None:
    world = MeasuringWorld()
    world.vms["vm1"].dumb = True
    world.start().run(0.5)
    world.submit()
    world.run(profiling.BEGIN_S - 5)
    assert world.stands()["state"] == "measuring"
    world.run(20)
    assert world.stands()["state"] == "accepted" and "does not begin" in words(world)


def test_it_is_withdrawn_and_nothing_goes_on() -> None:
    world = begun()
    other = world.ask("withdraw", number=world.number + 1)
    assert other.error is not None and other.error[1] == 6
    assert world.ask("withdraw", number=world.number).error is None
    world.run(1)
    assert len(world.ended) == 3 and world.stands()["state"] == "dropped"
    world.run(10)
    assert world.loop.knowledge.durable.run is None and len(world.begun) == 3
    assert world.ask("withdraw", number=world.number).error is not None
    assert world.submit().error is None


def test_a_second_one_meanwhile_is_told_who_is_first() -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    world.submit(by="ann@desk")
    number = world.number
    reply = world.submit(by="bob@desk")
    assert reply.error is not None and reply.error[1] == 6 and "chain of ann@desk" in reply.error[2]
    world.number = number
    world.run(8)
    assert world.stands()["state"] == "accepted"


def test_a_controller_that_is_killed_goes_on_with_what_is_not_measured_yet() -> None:
    world = MeasuringWorld("vm1", slots=2)
    world.start().run(0.5)
    world.submit()
    world.run(6)
    assert len(world.loop.knowledge.durable.measured) == 1
    done = world.begun[0].task
    world.new_life()
    world.run(20)
    assert world.stands()["state"] == "accepted"
    assert [spec.task for spec in world.begun].count(done) == 1, "what was journaled is not measured again"


def test_a_new_life_plans_nothing_before_it_knows_every_hosts_kind() -> None:
    world = MeasuringWorld()
    world.vms["vm2"].machine = "fast-1"
    world.start().run(0.5)
    world.submit(known=[model_of(name, 33.0, "slow-1") for name in NAMES])
    world.run(1)
    world.new_life("vm2")
    world.run(1)
    assert world.stands()["state"] == "measuring", "what vm1 lacks is known, what vm2 lacks nobody knows yet"
    world.do_hello("vm2")
    world.run(13)
    assert world.stands()["state"] == "accepted"
    assert {spec.slot.vm for spec in world.begun} == {"vm2"}


def test_stop_ends_it_and_nothing_is_begun_any_more() -> None:
    world = begun("vm1", slots=2)
    world.ask("stop")
    begun_before = len(world.begun)
    world.run(10)
    assert world.finish is not None and len(world.begun) == begun_before


def test_an_agent_that_is_started_again_measures_again() -> None:
    world = begun()
    world.vms["vm1"].restart()
    world.do_hello("vm1")
    world.run(8)
    assert world.stands()["state"] == "accepted"


def test_a_journal_that_takes_nothing_loses_no_submission() -> None:
    world = begun()
    world.journal_fails = True
    before = len([event for event in world.loop.knowledge.events if event["kind"] == "profiled"])
    world.run(8)
    assert world.loop.knowledge.durable.measured == ()
    said = [event for event in world.loop.knowledge.events if event["kind"] == "profiled"]
    assert len(said) - before <= 3 * 4, "it is not tried with every event"
    world.journal_fails = False
    world.run(10)
    assert world.stands()["state"] == "accepted"


@pytest.mark.parametrize(
    "bad",
    [
        {"known": [7]},
        {"known": [{"task": "a"}]},
        {"models": [{"schema": "x"}]},
        {"by": 7},
        {"measure": "maybe"},
    ],
)
def test_what_is_no_submission_is_refused(bad: dict[str, Any]) -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    reply = world.submit(**bad)
    assert reply.error is not None and reply.error[1] == 3 and world.loop.knowledge.durable.taken is None


def test_what_has_no_code_cannot_be_measured() -> None:
    world = MeasuringWorld()
    world.start().run(0.5)
    reply = world.submit(topology=msgspec.to_builtins(TOPOLOGY))
    assert reply.error is not None and reply.error[1] == 3 and "no `run`" in reply.error[5][0]


# ── what is shown ───────────────────────────────────────────────────────────────────────────────


def test_whoever_looks_sees_how_far_it_is() -> None:
    world = begun("vm1", slots=2)
    now = world.ask("status").data["measuring"]
    assert (now["topology"], now["done"], now["of"]) == ("chain", 0, 3)
    (at_work,) = [task for task in now["tasks"] if task["state"] == "measuring"]
    assert (at_work["slot"], at_work["points"], at_work["points_of"]) == ("vm1/0", 1, 4)
    assert now["left_s"] == pytest.approx(3 * profiling.USUAL_S, abs=1.5)
    words = "chain: 0 of 3 tasks measured, a in vm1/0 (1 of 4 points); about"
    assert now["text"].startswith(words)
    page = snapshot_of(world.loop.view(world.now))
    assert page.stage == "measuring" and page.header.startswith(f"measuring {words}")
    assert [name for name, slot in page.slots.items() if slot.state == "profiling"] == ["vm1/0"]
    world.run(6)
    assert world.ask("status").data["measuring"]["left_s"] == pytest.approx(2 * 5.0, abs=2)
    world.run(14)
    assert world.ask("status").data["measuring"] is None


def test_what_two_tasks_share_is_measured_once_by_one_that_samples_may_be_run_on() -> None:
    shared = tuple(replace(task, model="a") if task.name in NAMES else task for task in CHAIN.tasks)
    topology = replace(CHAIN, tasks=tuple(replace(t, side_effects=t.name == "a") for t in shared))
    assert profiling.unmodelled(topology, ()) == {"a": "a"}, (
        "those behind one with side effects get no samples either"
    )
    topology = replace(CHAIN, tasks=tuple(replace(t, side_effects=t.name == "c") for t in shared))
    assert profiling.unmodelled(topology, ()) == {"a": "a"}
    assert profiling.unmodelled(replace(CHAIN, tasks=(Task("a", model="m"),), edges=()), ()) == {"m": "a"}


# ── whatever happens ────────────────────────────────────────────────────────────────────────────


KINDS = st.sampled_from(["cut", "heal", "kill", "agent", "unable", "run"])


@checked
@given(
    st.lists(st.tuples(KINDS, st.sampled_from(["vm1", "vm2", "vm3"])), max_size=12), st.sampled_from([2, 4])
)
def test_it_comes_to_an_end_whatever_goes_wrong(happens: list[tuple[str, str]], slots: int) -> None:
    """The world itself says when a slot has two profiles, and that what is known is what is journaled."""
    world = MeasuringWorld("vm1", "vm2", "vm3", slots=slots)
    world.measure_s = 3.0
    world.start().run(0.5)
    world.submit()
    for what, name in happens:
        one = world.vms[name]
        if what == "cut":
            one.cut = True
        elif what == "heal":
            world.heal(name)
        elif what == "kill":
            world.new_life()
        elif what == "agent":
            one.restart()
            world.do_hello(name)
        elif what == "unable":
            one.unable = "" if one.unable else "no space left"
        world.run(1.5)
    for name, one in world.vms.items():
        one.unable = ""
        world.heal(name)
    world.run(60)
    assert world.stands()["state"] in ("accepted", "dropped")
    assert all(not one.profiles for one in world.vms.values())
    if world.stands()["state"] == "accepted":
        assert set(world.models) == set(NAMES)
