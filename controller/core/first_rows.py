"""Models of tasks that were not run on sample rows, measured on the first rows that really reach them. Pure.

Such a task has one thread in a slot of its own (a stand-in for its model, `Model.unmeasured`). Once enough rows went
through, the time and the CPU that its thread spent on them make a model of one point, and it is planned again.
"""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.model_data import model_data
from headgate.controller.knowledge.models import Model, Point
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.records import Modelled
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import KeepModel
from headgate.controller.knowledge.windows import TaskWindow, Window
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.utc import utc_iso

ROWS_LEAST = 200  # in a window; fewer say little
LEAST_SHARE = 1e-4  # of its time that a thread works, and of a slot that it uses: less is as good as nothing


def measured(turn: Turn, window: Window) -> Diagnosis | None:
    """A plan to be made since tasks have been measured; None when none was. Recorded before anything rests on it."""
    k = turn.knowledge
    if not may_plan(k) or not window.is_complete or k.topology is None or k.plan is None:
        return None
    fresh: dict[str, Model] = {}
    for task in k.topology.breadth_first:
        model = k.models.get(task.model_name)
        now = window.tasks.get(task.name)
        if task.static is None and model is not None and model.unmeasured and now is not None:
            found = _model(model, now, window, _slot_of(task.name, k.plan), utc_iso(turn.now.wall_ns))
            if found is not None:
                fresh[model.task] = found
    if not fresh:
        return None
    models = tuple(fresh.values())
    turn.record(Modelled(models, turn.now.wall_ns))
    for model in models:
        turn.do(KeepModel(model_data(model)))
    told = ", ".join(f"{m.task}: one thread {significant(m.points[0].rate_tps)} t/s" for m in models)
    turn.event("measured", f"measured on its first rows: {told}")
    evidence = {model.task: model.points[0].rate_tps for model in models}
    text = f"tasks that had no model were measured on their first rows ({told})"
    return Diagnosis("replan", "first_rows", text, k.plan.rate_tps, evidence, ())


def slots_without_model(k: Knowledge) -> set[Slot]:
    """Those of tasks that were not measured yet: nothing is predicted of them."""
    if k.topology is None or k.plan is None:
        return set()
    lacking = {t.name for t in k.topology.tasks if (m := k.models.get(t.model_name)) and m.unmeasured}
    return {bundle.slot for bundle in k.plan.placement.bundles if bundle.task in lacking}


def may_plan(k: Knowledge) -> bool:
    """Nothing is on its way, and a plan may be made by itself."""
    return k.durable.phase == "committed" and not k.enacting and not k.hold and k.settings.plan is None


def _slot_of(task: str, plan: Plan) -> Slot | None:
    return next((bundle.slot for bundle in plan.placement.bundles if bundle.task == task), None)


def _model(stand_in: Model, now: TaskWindow, window: Window, slot: Slot | None, when: str) -> Model | None:
    """Of one thread: its rate if it always had rows waiting, and what it would use then of its slot, which it has to
    itself: memory is that of the whole process."""
    used = window.slots.get(slot) if slot is not None else None
    rows = now.rate_in_tps * window.seconds
    if used is None or rows < ROWS_LEAST or now.threads <= 0:
        return None
    busy = max(LEAST_SHARE, now.busy_share)
    cores = stand_in.slot.cores
    rate_tps = now.rate_in_tps / now.threads / busy
    cpu = max(LEAST_SHARE, min(1.0, now.cpu_cores / now.threads / busy / cores))
    memory = max(LEAST_SHARE, min(1.0, used.memory))
    more = {key: value for key, value in stand_in.more.items() if key != "unmeasured"}
    more |= {"provenance": "first rows", "measured_at": when, "rows": round(rows)}
    return replace(stand_in, points=(Point(1, rate_tps, cpu, memory),), more=more)
