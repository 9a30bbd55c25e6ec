"""Recorded runs for the tests of replay: a real loop among ideal machines, written as the recorder writes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.core.decisions import run_of
from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.recording.recorder import input_line
from headgate.controller.replay.exact_replay import Moment, decisions_of
from headgate.controller.replay.ideal_machines import IdealAccount, IdealWorld
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

WALL_NS = 1_790_000_000 * 1_000_000_000
STEPS = ((0.0, 30.0), (6.0, 90.0))


def topology() -> Topology:
    tasks = (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task("work"),
        Task("sink", static=Static(1, 0.1, 0.1)),
    )
    return Topology("small", tasks, (Edge("source", "work"), Edge("work", "sink")))


def models(rate_tps: float = 40.0) -> tuple[Model, ...]:
    return (Model("work", ModelSlot(), (Point(1, rate_tps, 0.9, 0.1),)),)


def settings(**given: Any) -> ControllerSettings:
    usual: dict[str, Any] = {"initial": (Vm("vm1", 4), Vm("vm2", 4)), "version": "0.1.0"}
    return ControllerSettings(run="run1", **(usual | given))


def submitted(steps: Sequence[tuple[float, float]] = STEPS) -> Submitted:
    return Submitted(topology(), models(), tuple(steps), 0.0, (), WALL_NS)


def moments(
    seconds: float,
    steps: Sequence[tuple[float, float]] = STEPS,
    rates: Sequence[tuple[float, float]] = (),
    rows: float = math.inf,
    predicts: bool = False,
    **given: Any,
) -> list[Moment]:
    """A run of so many seconds; its source has so many rows; `predicts`: latencies too."""
    loop = Loop(settings(**given), submitted(steps))
    wall_ns = WALL_NS + 1_000_000_000
    world = IdealWorld(loop, IdealAccount(), rates=rates, wall_ns=wall_ns, rows=rows)
    world.predicts = predicts
    return list(world.moments(seconds))


def write(folder: Path, found: Sequence[Moment]) -> Path:
    """The trace of these moments."""
    folder.mkdir(parents=True, exist_ok=True)
    k = found[-1].loop.knowledge
    assert k.durable.run is not None
    run = run_of(k, k.durable.run)
    (folder / "run.json").write_bytes(msgspec.json.encode(run) + b"\n")
    inputs = [input_of(moment) for moment in found]
    (folder / "inputs.jsonl").write_bytes(b"".join(line + b"\n" for line in inputs))
    decisions = [msgspec.json.encode(d) for moment in found for d in decisions_of(moment.instructions)]
    (folder / "decisions.jsonl").write_bytes(b"".join(line + b"\n" for line in decisions))
    return folder


def input_of(moment: Moment) -> bytes:
    return input_line(moment.now, str(type(moment.event).__struct_config__.tag), moment.event)


def later(now: t.Now, seconds: float) -> t.Now:
    return t.Now(now.mono_ns + int(seconds * 1e9), now.wall_ns + int(seconds * 1e9))
