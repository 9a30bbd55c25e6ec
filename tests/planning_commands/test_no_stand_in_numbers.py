"""What is not known yet has no number: whatever is asked of tasks of which nothing is known, however it is shown."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from enactment_world import MODELS, World, replace, vm
from scene import COUNT, PARSE, Scene

from headgate.controller.core.decisions import question
from headgate.controller.core.loop import Loop
from headgate.controller.core.plan_choice import side_by_side, whatif
from headgate.controller.models.plans import UNLIMITED_TPS
from headgate.controller.models.task_models import Model, Point
from headgate.controller.plan.verifier import faults_of
from headgate.controller.views.controller_metrics import families
from headgate.controller.views.run_snapshots import SnapshotMaker

LARGE = re.compile(
    r"(?<![\w.,-])(?:\d{1,3}(?:,\d{3}){2,}|\d{9,})(?:\.\d+)?(?!\w)|\b\d(?:\.\d+)?e\+?0*(?:[89]|1\d)\b|\binf\b|\bnan\b"
)
NAMES = (
    "id",
    "plan",
    "topology_digest",
    "models_digest",
    "time",
    "since",
    "run",
)  # of keys whose values are no numbers
QUESTIONS: dict[str, tuple[str, ...]] = {
    "a plan": ("--rate", "120"),
    "why": ("--rate", "120", "--explain"),
    "more than fits": ("--rate", "5000", "--vms", "2,2"),
    "fixed VMs": ("--rate", "300", "--vms", "2,2", "--explain"),
    "the highest rate": ("--max-rate", "--vms", "2,2", "--set", "rate-step=10"),
    "several rates": ("--rates", "50,200,400"),
    "several pairs": ("--rate", "200", "--compare", "lsa+rsm,mba+sam,lsa+dsm"),
    "a placement": ("--placement", "PLACED", "--rate", "90"),
    "a placement alone": ("--placement", "PLACED"),
}
MOST = 1e7  # no rate, share or time here is near it
PLACED = [
    {"vm": "vm1", "slot": 0, "threads": {"source": 1, "parse": 1}},
    {"vm": "vm1", "slot": 1, "threads": {"parse": 2, "count": 1}},
]


def stand_in(name: str) -> dict[str, Any]:
    point = {"threads": 1, "rate_tps": UNLIMITED_TPS, "cpu": 0.0, "memory": 0.0}
    return {"schema": "headgate/model/v1", "task": name, "points": [point], "unmeasured": True}


def large(shown: Any, key: str = "") -> list[Any]:
    """Numbers that nobody measured, in text or data. Bytes and times of day are large."""
    if isinstance(shown, dict):
        return [found for name, value in shown.items() for found in large(value, name)]
    if isinstance(shown, list | tuple):
        return [found for value in shown for found in large(value, key)]
    if key in NAMES or "bytes" in key or key.endswith("_ns"):
        return []
    if isinstance(shown, str):
        return LARGE.findall(shown)
    return [shown] if isinstance(shown, int | float) and not abs(shown) < MOST else []


@pytest.mark.parametrize("unknown", [("parse",), ("count",), ("parse", "count")], ids="+".join)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_plan_command_shows_none(scene: Scene, question: str, unknown: tuple[str, ...]) -> None:
    for name, points in (("parse", PARSE), ("count", COUNT)):
        scene.model(name, points)
        if name in unknown:
            scene.write(f"models/{name}.json", stand_in(name))
    placed = scene.write("placed.json", {"placement": PLACED})
    words = [placed if word == "PLACED" else word for word in QUESTIONS[question]]
    for allocator, form in itertools.product(("mba+sam", "lsa+rsm"), ("table", "json")):
        by = allocator.split("+")
        pair = (
            ()
            if "--compare" in words or "--placement" in words
            else ("--allocator", by[0], "--mapper", by[1])
        )
        out, err = _shown(scene, "plan", *words, *pair, "-o", form)
        shown = [json.loads(out) if form == "json" and out else out, err]
        assert not large(shown), (pair, form, large(shown))


def _shown(scene: Scene, *words: str) -> tuple[str, str]:
    """Whatever it prints, an error too."""
    where = [str(scene.folder / "flow.json"), "--models", str(scene.folder / "models")]
    from headgate.dashboards import headgate_command as cli

    cli.main([words[0], *where, *words[1:]])
    captured = scene.capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


# ── a run ───────────────────────────────────────────────────────────────────────────────────────


def unmeasured(world: World) -> World:
    """As it is submitted where nothing is known of its task."""
    point = Point(1, UNLIMITED_TPS, 0.0, 0.0)
    models = tuple(Model(model.task, model.slot, (point,), more={"unmeasured": True}) for model in MODELS)
    world.submitted = replace(world.submitted, models=models)
    world.loop = Loop(world.settings, world.submitted)
    return world


def stall(world: World) -> None:
    world.hold_acks = True


def crawl(world: World) -> None:
    world.acks_at_once = 1


def lose(world: World) -> None:
    world.vms["vm2"].down = True


def more(world: World) -> None:
    world.ask("rate_set", rate_tps=5000.0)


def other_plan(world: World) -> None:
    world.ask("plan", rate_tps=400.0, apply=True)


TROUBLES = (None, stall, crawl, lose, more, other_plan)


@pytest.mark.parametrize("mode", ["auto", "approve", "advise"])
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__ if trouble else "none")
def test_a_run_shows_none(mode: str, trouble: Callable[[World], None] | None) -> None:
    world = unmeasured(World((vm("vm1", 3), vm("vm2", 3)), rate_tps=150.0, mode=mode)).start()
    world.run(12)
    if trouble is not None:
        trouble(world)
    maker, shown = SnapshotMaker(), []
    for _ in range(30):
        world.run(1)
        view = world.loop.view(world.now)
        snapshot = maker.advance(view)
        status = world.ask("status").data
        shown.append([status, msgspec.to_builtins(snapshot.patch)])
        shown.append(
            [
                sample.value
                for family in families(view)
                for sample in family.samples
                if "bytes" not in family.name
            ]
        )
    asked = question(world.loop.knowledge, 400.0)
    shown += [whatif(asked.request, (100.0, 900.0), True), side_by_side(asked, (100.0, 900.0))]
    for command in ("explain", "plans", "summary"):
        shown.append(world.ask(command).data)
    shown += [[event["text"] for event in world.loop.knowledge.events], list(world.loop.knowledge.actions)]
    assert not large(shown), large(shown)[:5]


def test_what_is_wrong_with_a_plan_is_said_without() -> None:
    """A plan that supports less than the one it would replace, or than it is predicted to."""
    world = unmeasured(World((vm("vm1", 3), vm("vm2", 3)), rate_tps=150.0)).start().run(12)
    knowledge, plan = world.loop.knowledge, world.rollout.plan
    assert knowledge.topology is not None and plan.prediction.told_tps is None
    worse = replace(plan, prediction=replace(plan.prediction, rate_tps=3.0))
    faults = faults_of(worse, knowledge.topology, knowledge.models, plan)
    assert sum("unknown" in fault for fault in faults) == 2 and not large(list(faults)), faults
    assert large("carries 1,000,000,000 rows/s") and large(["1e+09"]) and large({"rate_tps": 1e9}), (
        "it would be seen"
    )
