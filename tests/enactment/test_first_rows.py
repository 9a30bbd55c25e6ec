"""A task without a model is measured on its first real rows, and planned again; also when the controller dies."""

from __future__ import annotations

import pytest
from enactment_world import MODELS, TOPOLOGY, S, World
from msgspec.structs import replace

from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.model_data import model_of
from headgate.topology_runtime.calibration.store import stand_in
from headgate.topology_runtime.topology import Edge, Task

STAND_IN, _ = model_of(stand_in("store", {"cores": 1.0}))
TASKS = (*TOPOLOGY.tasks, Task("store"))
WITH_STORE = replace(TOPOLOGY, tasks=TASKS, edges=(*TOPOLOGY.edges, Edge("work", "store")))
A_SECOND = {"tuples_in": 100, "busy_ns": S // 4, "cpu_ns": S // 10}  # 2.5 ms a row, 1 ms of it on the CPU


class Kept(World):
    """Notes the models that the controller has kept."""

    def __init__(self) -> None:
        super().__init__(rate_tps=100.0)
        self.kept: list[dict[str, object]] = []
        self.submitted = replace(self.submitted, topology=WITH_STORE, models=(*MODELS, STAND_IN))
        self.loop = type(self.loop)(self.settings, self.submitted)

    def perform(self, instruction: t.Instruction) -> None:
        if isinstance(instruction, t.KeepModel):
            self.kept.append(instruction.model)
        super().perform(instruction)

    @property
    def plan(self):
        return self.loop.knowledge.plan

    def slots_of(self, task: str):
        (bundle,) = (b for b in self.plan.placement.bundles if b.task == task)
        return bundle.slot, [b.task for b in self.plan.placement.bundles if b.slot == bundle.slot]


def test_it_runs_alone_until_its_first_rows_were_measured_and_is_planned_again():
    world = Kept().start().run(10)
    _slot, there = world.slots_of("store")
    assert there == ["store"] and world.plan.slots.used == 2
    picture = world.ask("status").data
    assert next(task for task in picture["tasks"] if task["task"] == "store")["load"] is None
    world.run(20)
    assert world.slots_of("store")[1] == ["store"]  # no row has come yet
    world.work["store"] = A_SECOND
    world.run(30)
    decided = next(d for d in world.traces if d["trigger"] == "first_rows")
    assert decided["action"] in ("plan", "adopt") and "store" in decided["text"]
    (model,) = world.kept
    (point,) = model["points"]
    assert point["rate_tps"] == pytest.approx(1000 / 2.5, rel=0.01)  # by hand: a row takes 2.5 ms
    assert point["cpu"] == pytest.approx(400 * 0.001, rel=0.01)
    assert "unmeasured" not in model and model["provenance"] == "first rows"
    assert len(world.slots_of("store")[1]) > 1 and world.plan.slots.used == 1
    assert sum(d["trigger"] == "first_rows" for d in world.traces) == 1


def test_few_rows_say_nothing():
    world = Kept().start()
    world.work["store"] = {"tuples_in": 3, "busy_ns": S // 4, "cpu_ns": S // 10}
    world.run(60)
    assert world.kept == [] and world.slots_of("store")[1] == ["store"]


def test_a_controller_that_is_killed_still_knows_what_was_measured():
    world = Kept().start()
    world.work["store"] = A_SECOND
    world.run(60)
    measured = world.loop.knowledge.models["store"]
    assert not measured.unmeasured
    world.restart_controller()
    world.run(30)
    assert world.loop.knowledge.models["store"] == measured and len(world.kept) == 1


def test_without_room_in_the_journal_nothing_is_measured_nor_planned():
    world = Kept().start().run(20)
    world.journal_fails = True
    world.work["store"] = A_SECOND
    world.run(30)
    assert world.loop.knowledge.models["store"].unmeasured and world.slots_of("store")[1] == ["store"]
    world.journal_fails = False
    world.run(60)
    assert not world.loop.knowledge.models["store"].unmeasured
