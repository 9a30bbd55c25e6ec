"""Models of tasks that nothing is known of yet, learned from the rows that really reach them. Pure.

Such a task has one thread to begin with (a stand-in for its model, `Model.unmeasured`). What its thread spends on a
row, on the CPU and waiting, gives a model with several numbers of threads: q of them, in a slot of C cores, carry
min(q / (cpu + wait), C / cpu) rows/s. What few rows say, or disturbed ones, is marked (`Model.tentative`), planned with,
and learned again from more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.journal_records import Modelled
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import KeepModel
from headgate.controller.knowledge.measured_window import MeasuredWindow, SlotWindow, TaskWindow
from headgate.controller.models.model_data import model_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point, memory, peak
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import significant, utc_iso

SETTLED_S = 1.0  # a thread imports, opens and warms up at first
LEAST_S, MOST_S = 2.0, 10.0  # of rows that a model comes from
ROWS_LEAST = 20  # in that time; fewer say nothing
ROWS_ENOUGH, BUSY_ENOUGH_S = 500, 1.0  # either is enough for a model that is not tentative
MORE = 2.0  # times the rows, before a tentative model is learned again
WAITS = 0.25  # of the CPU of a row: who waits less does not wait
THROTTLED, DELAYED = 0.1, 0.5  # of the time of a slot, of a thread's work: more of it is a disturbance
CHANGED = 0.1  # a peak that is so much another one is worth a plan
THREADS = (1, 2, 4, 8, 16, 32, 64)
LEAST_SHARE = 1e-4  # of a slot: less is as good as nothing
WORKER_BYTES = 32 << 20  # of a worker without tasks
THREAD_BYTES = 1 << 20  # of a thread more

WindowOf = Callable[[float], MeasuredWindow]


@dataclass(frozen=True, slots=True)
class RowCost:
    """What a row takes of one thread. disturbed: something else took the slot's CPU meanwhile."""

    rows: float
    cpu_s: float
    wait_s: float
    disturbed: bool


def learned(turn: Turn, window_of: WindowOf, need: Demand) -> Diagnosis | None:
    """A plan to be made since models were learned that say something else; None when none were. Recorded before
    anything rests on it."""
    k = turn.knowledge
    seconds = min(MOST_S, float(int((k.in_force_s(turn.now) or 0.0) - SETTLED_S)))
    if k.topology is None or k.plan is None or seconds < LEAST_S or not _may_learn(k, turn.now.mono_ns):
        return None
    window = window_of(seconds)
    if not window.is_complete or window.seconds < LEAST_S:
        return None
    fresh = _fresh(k.topology, k.plan, k.models, window, utc_iso(turn.now.wall_ns))
    if not fresh:
        return None
    before = {model.task: k.models[model.task] for model in fresh}
    turn.record(Modelled(tuple(fresh), turn.now.wall_ns))
    for model in fresh:
        turn.do(KeepModel(model_data(model)))
    changed = [model for model in fresh if _says_otherwise(before[model.task], model)]
    if not changed:
        return None
    told = ", ".join(f"{model.task}: {_words(model)}" for model in changed)
    turn.event("measured", f"learned from rows: {told}")
    evidence = {model.task: peak(model)[0] for model in changed}
    text = f"models were learned from rows ({told})"
    return Diagnosis("replan", "first_rows", text, max(k.plan.rate_tps, need.target_tps), evidence, ())


def slots_without_model(k: Knowledge) -> set[Slot]:
    """Those of tasks that nothing is known of yet: nothing is predicted of them."""
    if k.topology is None or k.plan is None:
        return set()
    lacking = {t.name for t in k.topology.tasks if (m := k.models.get(t.model_name)) and m.unmeasured}
    return {bundle.slot for bundle in k.plan.placement.bundles if bundle.task in lacking}


def _may_learn(k: Knowledge, now_ns: int) -> bool:
    unsure = any(model.unmeasured or model.tentative for model in k.models.values())
    quiet = k.durable.phase in ("committed", "probation") and not k.enacting and not k.hold
    return unsure and quiet and k.settings.plan is None and now_ns >= k.journal_retry_ns


def _says_otherwise(before: Model, after: Model) -> bool:
    return before.unmeasured or abs(peak(after)[0] / peak(before)[0] - 1) > CHANGED


def _words(model: Model) -> str:
    tps, threads = peak(model)
    one = f"one thread {significant(model.points[0].rate_tps)} rows/s"
    many = f", {threads} in a slot {significant(tps)}" if threads > 1 else ""
    return f"{one}{many}{' (from few or disturbed rows)' if model.tentative else ''}"


def _fresh(
    topology: Topology, plan: Plan, models: Mapping[str, Model], window: MeasuredWindow, when: str
) -> list[Model]:
    """What is learned of models that only stand in, or are tentative."""
    found: dict[str, Model] = {}
    for task in topology.breadth_first:
        model, now = models.get(task.model_name), window.tasks.get(task.name)
        if (
            task.static is not None
            or model is None
            or now is None
            or not (model.unmeasured or model.tentative)
        ):
            continue
        slot = next((bundle.slot for bundle in plan.placement.bundles if bundle.task == task.name), None)
        used = window.slots.get(slot) if slot is not None else None
        if slot is None or used is None:
            continue
        cost = row_cost(now, window.seconds, used)
        if cost is not None:
            vm = next(vm for vm in plan.vms if vm.vm == slot.vm)
            size = ModelSlot(vm.slot_cores, vm.slot_memory_bytes, model.slot.machine)
            share = _memory(slot, used, topology, plan, models)
            new = model_from(replace(model, slot=size), cost, window.seconds, share, when)
            if _better_known(model, new):
                found[model.task] = new
    return list(found.values())


def _better_known(before: Model, after: Model) -> bool:
    if before.unmeasured or not after.tentative:
        return True
    return float(after.more["rows"]) >= MORE * float(before.more.get("rows", 0.0))


def row_cost(now: TaskWindow, seconds: float, used: SlotWindow) -> RowCost | None:
    """Of the rows of a window; None where they are too few. What a thread waits for others of its slot, which hold
    the interpreter, or for a CPU, is not the task's own wait."""
    rows = now.rate_in_tps * seconds
    if rows < ROWS_LEAST or now.threads <= 0:
        return None
    cpu_s = max(1e-7, now.cpu_cores / now.rate_in_tps)
    busy_s = now.busy_share * now.threads / now.rate_in_tps
    delay_s = now.run_delay_share * now.threads / now.rate_in_tps
    others = max(0.0, used.cpu_cores - now.cpu_cores)
    wait_s = now.wait_share * now.threads / now.rate_in_tps - delay_s - others * busy_s
    disturbed = used.throttled_share > THROTTLED or delay_s > DELAYED * max(busy_s, cpu_s)
    return RowCost(rows, cpu_s, wait_s if wait_s > WAITS * cpu_s else 0.0, disturbed)


def model_from(before: Model, cost: RowCost, seconds: float, used_memory: float, when: str) -> Model:
    """The model of a task whose rows cost that."""
    cores, busy_s = before.slot.cores, cost.rows * (cost.cpu_s + cost.wait_s)
    most_tps = cores / cost.cpu_s
    points: list[Point] = []
    for threads in THREADS:
        tps = min(threads / (cost.cpu_s + cost.wait_s), most_tps)
        held = min(1.0, used_memory + (threads - 1) * THREAD_BYTES / before.slot.memory_bytes)
        points.append(Point(threads, tps, max(LEAST_SHARE, min(1.0, tps * cost.cpu_s / cores)), held))
        if tps >= most_tps:
            break
    few = cost.rows < ROWS_ENOUGH and busy_s < BUSY_ENOUGH_S
    why = [*["few rows"] * few, *["short"] * (seconds < MOST_S), *["disturbed"] * cost.disturbed]
    more = {key: value for key, value in before.more.items() if key not in ("unmeasured", "tentative")}
    more |= {"provenance": "first rows", "measured_at": when, "rows": round(cost.rows), "seconds": seconds}
    more |= {"cpu_s_per_row": cost.cpu_s, "wait_s_per_row": cost.wait_s, "waiting": cost.wait_s > 0}
    return replace(before, points=tuple(points), more=more | ({"tentative": why} if why else {}))


def _memory(
    slot: Slot, used: SlotWindow, topology: Topology, plan: Plan, models: Mapping[str, Model]
) -> float:
    """A task's part of a slot's memory, above the bare worker and what is known of others: as much as each other one
    that is not known has."""
    size = next(vm.slot_memory_bytes for vm in plan.vms if vm.vm == slot.vm)
    left, sharing = used.memory - WORKER_BYTES / size, 0
    for bundle in plan.placement.bundles:
        task = topology.by_name[bundle.task]
        if bundle.slot != slot or task.static is not None:
            continue
        model = models[task.model_name]
        if model.unmeasured or model.tentative:
            sharing += 1
        else:
            left -= memory(model, bundle.threads)
    return max(LEAST_SHARE, min(1.0, left / max(1, sharing)))
