"""Workers are told which tasks may be chained: those that compute, if the operator wants it."""

from __future__ import annotations

import pytest
from enactment_world import MODELS, World
from msgspec.structs import replace

from headgate.controller.execute.chaining import chainable, computes
from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.topology_runtime.topology import Task, Topology


def model(cpu: float, waiting: bool = False) -> Model:
    points = Point(1, 100.0, cpu, 0.1), Point(2, 110.0, 1.0, 0.1)
    return Model("work", ModelSlot(), points, {"wake_cpu": 0.001, "waiting": waiting})


@pytest.mark.parametrize(
    ("cpu", "waiting", "found"),
    [(1.0, False, True), (0.8, False, True), (0.5, False, False), (0.95, True, False)],
)
def test_a_task_computes_when_one_thread_fills_its_slot_and_does_not_wait(
    cpu: float, waiting: bool, found: bool
) -> None:
    assert computes(model(cpu, waiting)) is found


def test_of_a_task_without_a_model_nothing_is_known() -> None:
    topology = Topology("t", (Task("source", kind="source"), Task("work"), Task("alias", model="work")), ())
    assert chainable(topology, {"work": model(1.0)}) == ("work", "alias")
    assert chainable(topology, {}) == ()


@pytest.mark.parametrize("wanted", [True, False])
def test_every_worker_is_told(wanted: bool) -> None:
    world = World(rate_tps=100.0)
    world.settings = replace(world.settings, chaining=wanted)
    steep = replace(MODELS[0], points=tuple(replace(point, cpu=0.9) for point in MODELS[0].points))
    world.submitted = replace(world.submitted, models=(steep,))
    world.loop = type(world.loop)(world.settings, world.submitted)
    world.start().run(10)
    desired = world.loop.knowledge.desired
    assert desired is not None and desired.chained == (("work",) if wanted else ())


def test_a_task_that_leaves_its_slot_room_is_not_named() -> None:
    world = World(rate_tps=100.0)
    world.settings = replace(world.settings, chaining=True)
    world.loop = type(world.loop)(world.settings, world.submitted)
    world.start().run(10)
    desired = world.loop.knowledge.desired
    assert desired is not None and desired.threads and desired.chained == ()
