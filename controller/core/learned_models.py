"""Models of tasks that nothing is known of yet, learned from the rows that really reach them. Pure.

Such a task has one thread to begin with (a stand-in for its model, `Model.unmeasured`). What its thread spends on a
row, on the CPU and waiting, gives a model with several numbers of threads: q of them, in a slot of C cores, carry
min(q / (cpu + wait), C / cpu) rows/s. What few rows say, or disturbed ones, is marked (`Model.tentative`), planned
with, and learned again from more of them.

A quick task's row costs much less among others in a frame, as at its peak, than alone. So for some seconds rows wait
in buffers for others (`Learning.gap_s`), for two times as long and then for less, and then again they do not: the first
tell what one more row costs, the last what a frame does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.journal_records import Modelled
from headgate.controller.knowledge.knowledge import Knowledge, RowsSeen, Turn
from headgate.controller.knowledge.loop_events import KeepModel
from headgate.controller.knowledge.measured_window import MeasuredWindow, SlotWindow, TaskWindow
from headgate.controller.models.model_data import model_data
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import WORKER, Model, ModelSlot, Point, memory, peak
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.profile_steps import frames_when_full
from headgate.topology_runtime.measuring.row_spread import CPU_SPREAD, WAIT_SPREAD, Calls, row_spread
from headgate.topology_runtime.measuring.wake_cost import FRAME, ROWS, share_of_wakes
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.wording import significant, utc_iso

SETTLED_S = 2.0  # a thread imports, opens and warms up at first
SEEN_LEAST = 0.8  # of a second, that samples cover
LEAST, KEPT = 2, 30  # seconds of rows that a model comes from
ROWS_LEAST = 20  # in that time; fewer say nothing
ENOUGH, ROWS_ENOUGH, BUSY_ENOUGH_S = (
    8,
    500,
    1.0,
)  # seconds, and rows or time in calls, of a model that is not tentative
MORE = 2.0  # times the rows, before a tentative model is learned again
WAITS = 0.25  # of the CPU of a row: who waits less does not wait
THROTTLED, DELAYED, DELAYED_S = (
    0.1,
    0.5,
    0.1,
)  # of a slot's time, a thread's work, a second: more of it disturbs
DISTURBED = 0.3  # of the seconds
FAILING = 0.02  # of the rows of a second: nothing is learned of it
CHANGED = 0.1  # a peak that is so much another one is worth a plan
THREADS = (1, 2, 4, 8, 16, 32, 64)
LEAST_SHARE = 1e-4  # of a slot: less is as good as nothing
WORKER_BYTES, WORKER_LEAST = 28 << 20, 19 << 20  # of a worker without tasks: for plans, and surely
THREAD_BYTES = 1 << 18  # of a thread more
GAP_S = DataPlaneSettings().gap_s
# rows wait for others so long, in turn, each for so many turns, until this turn
TOGETHER_S, TURNS, PROBED_MOST = (None, 0.2, 0.1, None), 3, 12
# turns: before rows that pile up are learned from, before others, before another time
EARLY, USUAL, AGAIN = 2, 11, 10
LARGE = 50.0  # rows in a frame, at least, to tell what a quick one costs
VARIED = 1.5  # times as many rows in a frame: enough to tell what a frame costs
WAKE_S = 5e-5  # of CPU, to go on after a wait, when no other row is about
PEAK_FRAME = 0.8  # of the CPU for a frame that comes alone: what a slot spends on one at the peak
COLD_ROW_S = 1e-6  # of CPU: so much more a row costs after a pause
LEAST_OF_FRAME = 0.1  # of what a row costs in a large frame is at least its own

WindowOf = Callable[[float], MeasuredWindow]


@dataclass(frozen=True, slots=True)
class RowCost:
    """What a row takes of one thread at its peak, and how much that differs (`row_spread`; None: not known). why: it is
    said with reserve, since. frame_s: CPU of a frame, in each of which there are `frame_rows` at that peak, of a quick
    task."""

    rows: float
    cpu_s: float
    wait_s: float
    why: tuple[str, ...] = ()
    frame_s: float = 0.0
    frame_rows: int = 1
    cpu_spread: float | None = None
    wait_spread: float | None = None


def learned(turn: Turn, window_of: WindowOf, need: Demand, behind: bool) -> Diagnosis | None:
    """A plan to be made since models were learned that say something else; None when none were. Recorded before
    anything rests on it. behind: rows pile up."""
    k = turn.knowledge
    in_force_s = k.in_force_s(turn.now) or 0.0
    if k.topology is None or k.plan is None or not _may_learn(k, turn.now.mono_ns):
        k.learning.gap_s = None
        return None
    if in_force_s < SETTLED_S:
        return None
    _look(k, k.topology, k.plan, window_of(1.0))
    _pace(k, bool(k.topology.latency_constraints) or k.settings.p95_ms is not None)
    if not _due(k, behind):
        return None
    fresh = _fresh(k, k.topology, k.plan, window_of(LEAST), utc_iso(turn.now.wall_ns))
    if not fresh:
        return None
    k.learning.last = k.learning.turns
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
    text = f"models were learned from rows: {', '.join(evidence)}"
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


def _look(k: Knowledge, topology: Topology, plan: Plan, window: MeasuredWindow) -> None:
    """Keep what was seen in the last second, but of tasks whose rows failed: each attempt of these costs, and a pause
    before the next one, and rows that are mended cost neither."""
    letters, k.learning.letters = k.learning.letters, k.counts.letters.counts()
    if window.complete < SEEN_LEAST or window.seconds < 1:
        return
    for task in topology.tasks:
        model, now = k.models.get(task.model_name), window.tasks.get(task.name)
        slot = _slot_of(task.name, plan)
        if model is None or now is None or now.rate_in_tps <= 0 or task.static is not None:
            continue
        used = window.slots.get(slot) if slot is not None else None
        if used is None or not (model.unmeasured or model.tentative):
            continue
        failed = k.learning.letters.get(task.name, 0) - letters.get(task.name, 0)
        if failed > FAILING * now.rate_in_tps * window.seconds:
            continue
        edges = [window.edges.get((edge.source, task.name)) for _, edge in topology.in_edges(task.name)]
        frames = math.fsum(edge.frames_per_s for edge in edges if edge is not None)
        frames = min(now.rate_in_tps, frames) or now.rate_in_tps
        k.learning.seen.setdefault(task.name, []).append(row_seen(now, used, frames))
        del k.learning.seen[task.name][:-KEPT]


def row_seen(now: TaskWindow, used: SlotWindow, frames: float) -> RowsSeen:
    """Of a second of a task that has this slot. frames: that its rows came in."""
    busy_s, delay_s = now.busy_share * now.threads, now.run_delay_share * now.threads
    return RowsSeen(
        now.rate_in_tps,
        frames,
        now.row_cores,
        busy_s,
        now.wait_share * now.threads,
        delay_s,
        max(0.0, used.cpu_cores - now.cpu_cores),
        used.throttled_share > THROTTLED or delay_s > max(DELAYED_S, DELAYED * busy_s),
        now.calls_per_s,
        now.ran_us2_per_s,
        now.waited_us2_per_s,
    )


def _pace(k: Knowledge, limited: bool) -> None:
    """Rows are to come together for some turns, then again not, while there is a quick task of which that says more.
    Not where latency is limited."""
    learning = k.learning
    learning.turns += 1
    asked = not limited and learning.turns < PROBED_MOST and _any_quick(k)
    learning.gap_s = TOGETHER_S[learning.turns // TURNS] if asked else None


def _any_quick(k: Knowledge) -> bool:
    """A task that nothing is known of; or little, and its rows fill large frames when they come together."""
    if k.plan is None or k.topology is None:
        return False
    cores = max((vm.slot_cores for vm in k.plan.vms), default=1.0)
    seen = k.learning.seen
    return any(
        _quick(seen[task.name], cores)
        and (k.models[task.model_name].unmeasured or _fills_frames(seen[task.name]))
        for task in k.topology.tasks
        if task.name in seen
    )


def _fills_frames(seen: Sequence[RowsSeen]) -> bool:
    """Rows of which a link has `LARGE` in the longest gap, where all come by one."""
    most_s = max(gap_s for gap_s in TOGETHER_S if gap_s is not None)
    return max(one.rows for one in seen) * most_s >= LARGE


def _due(k: Knowledge, behind: bool) -> bool:
    """Soon where rows pile up; else once enough was seen, and then not often: each time may move threads."""
    learning = k.learning
    if not learning.last:
        return learning.turns >= (EARLY if behind or not _any_quick(k) else USUAL)
    since = learning.turns - learning.last
    return since >= AGAIN or learning.last < USUAL <= learning.turns or (behind and since >= EARLY)


def _fresh(k: Knowledge, topology: Topology, plan: Plan, window: MeasuredWindow, when: str) -> list[Model]:
    """What is learned of models that only stand in, or are tentative."""
    found: dict[str, Model] = {}
    for task in topology.breadth_first:
        model, slot = k.models.get(task.model_name), _slot_of(task.name, plan)
        used = window.slots.get(slot) if slot is not None else None
        if task.static is not None or model is None or slot is None or used is None:
            continue
        vm = next(vm for vm in plan.vms if vm.vm == slot.vm)
        cost = row_cost(k.learning.seen.get(task.name, ()), vm.slot_cores)
        if cost is None or not (model.unmeasured or model.tentative) or not _better_known(model, cost):
            continue
        size = ModelSlot(vm.slot_cores, vm.slot_memory_bytes, model.slot.machine)
        share = _memory(slot, used, topology, plan, k.models)
        found[model.task] = model_from(replace(model, slot=size), cost, share, when)
    return list(found.values())


def _better_known(before: Model, cost: RowCost) -> bool:
    if before.unmeasured or not cost.why:
        return True
    known = before.more.get("tentative")
    fewer = isinstance(known, list) and len(cost.why) < len(known)
    return fewer or cost.rows >= MORE * float(before.more.get("rows", 0.0))


def row_cost(seen: Sequence[RowsSeen], cores: float) -> RowCost | None:
    """By these seconds, in a slot of so many cores; None where they are too few. What a thread waits for others of its
    slot, which hold the interpreter, or for a CPU, is not the task's own wait."""
    rows = math.fsum(one.rows for one in seen)
    if len(seen) < LEAST or rows < ROWS_LEAST:
        return None
    (row_s, frame_s, frame_rows), wait_s = _cpu_at_peak(seen, cores), _wait(seen)
    cpu_s = max(1e-7, row_s + frame_s / frame_rows)
    few = rows < ROWS_ENOUGH and math.fsum(one.busy_s for one in seen) < BUSY_ENOUGH_S
    why = {
        "few rows": few,
        "some seconds": len(seen) < ENOUGH,
        "disturbed": sum(one.disturbed for one in seen) > DISTURBED * len(seen),
        "small frames": _quick(seen, cores) and _largest(seen) < LARGE,
    }
    because = tuple(name for name, holds in why.items() if holds)
    return RowCost(rows, cpu_s, wait_s, because, frame_s, frame_rows, *_spreads(seen, wait_s))


def _spreads(seen: Sequence[RowsSeen], wait_s: float) -> tuple[float | None, float | None]:
    """Of CPU, and of waits where there are any: by the seconds in which the slot had what is its."""
    calm = [one for one in seen if not one.disturbed]
    ran = row_spread(Calls(s.rows, s.calls, (s.busy_s - s.wait_s) * 1e6, s.ran_us2) for s in calm)
    waited = row_spread(Calls(s.rows, s.calls, s.wait_s * 1e6, s.waited_us2) for s in calm)
    return ran, waited if wait_s > 0 else None


def _cpu_at_peak(seen: Sequence[RowsSeen], cores: float) -> tuple[float, float, int]:
    """CPU of a row, of a frame, and rows in a frame, as many as there are at the peak (as a profile has them). What a
    thread spends besides on a frame that comes alone is about what all threads of its slot spend on one at the peak,
    when nothing has to be woken."""
    if not _quick(seen, cores):
        cpu_s, tps = _mean_cpu(_alone(seen)), math.fsum(one.rows for one in seen) / len(seen)
        return cpu_s - min(WAKE_S * share_of_wakes(tps), cpu_s / 2) if _wait(seen) else cpu_s, 0.0, 1
    row_s = _row_in_large_frames(seen)
    alone_s = _mean_frame(_alone(seen)) - row_s * _rows_of_frame(_alone(seen))
    frame_s = max(0.0, PEAK_FRAME * alone_s)
    return row_s, frame_s, frames_when_full(lambda rows: cores / (row_s + frame_s / rows), cores)


def _quick(seen: Sequence[RowsSeen], cores: float) -> bool:
    """Would its rows come together at its peak?"""
    return max(_mean_cpu(_alone(seen)) / cores, _wait(seen)) < GAP_S


def _wait(seen: Sequence[RowsSeen]) -> float:
    """What a row waits for others; 0 where that is next to nothing. Of a thread that waits for a service, half of the
    delay is before a call, and others of its slot hold it up as long as it computes, not as long as it waits."""
    rows = math.fsum(one.rows for one in seen)
    surely_s = math.fsum(one.wait_s - one.delay_s - one.others * one.busy_s for one in seen)
    if surely_s <= WAITS * math.fsum(one.cpu_s for one in seen):
        return 0.0
    return math.fsum(one.wait_s - one.delay_s / 2 - one.others * one.cpu_s for one in seen) / rows


def _alone(seen: Sequence[RowsSeen]) -> list[RowsSeen]:
    """The seconds in which rows came together least."""
    fewest = min(one.rows / one.frames for one in seen)
    return [one for one in seen if one.rows / one.frames <= VARIED * fewest]


def _row_in_large_frames(seen: Sequence[RowsSeen]) -> float:
    """CPU of one more row in a frame, by frames of two large sizes, which the pause before them costs the same.
    By small and large ones where there are no two, with a frame that comes alone for the pause."""
    most = _largest(seen)
    large = [one for one in seen if one.rows / one.frames >= most / 3]
    sizes = sorted(one.rows / one.frames for one in large)
    if sizes[-1] < VARIED * sizes[0]:
        large = [*large, *_alone(seen)]
    mean = _mean_frame([one for one in large if one.rows / one.frames >= most / VARIED]) / most
    return min(max(_slope(large) - COLD_ROW_S, mean * LEAST_OF_FRAME), mean)


def _slope(seen: Sequence[RowsSeen]) -> float:
    """CPU of one more row in a frame, least squares over frames."""
    frames = math.fsum(one.frames for one in seen)
    rows_each = math.fsum(one.rows for one in seen) / frames
    cpu_each = _mean_frame(seen)
    deviations = [
        (one.frames, one.rows / one.frames - rows_each, one.cpu_s / one.frames - cpu_each) for one in seen
    ]
    square = math.fsum(w * n * n for w, n, _ in deviations)
    return math.fsum(w * n * c for w, n, c in deviations) / square if square > 0 else cpu_each / rows_each


def _mean_cpu(seen: Sequence[RowsSeen]) -> float:
    return math.fsum(one.cpu_s for one in seen) / max(1e-9, math.fsum(one.rows for one in seen))


def _mean_frame(seen: Sequence[RowsSeen]) -> float:
    return math.fsum(one.cpu_s for one in seen) / math.fsum(one.frames for one in seen)


def _rows_of_frame(seen: Sequence[RowsSeen]) -> float:
    return math.fsum(one.rows for one in seen) / math.fsum(one.frames for one in seen)


def _largest(seen: Sequence[RowsSeen]) -> float:
    """Rows in a frame, when they came together most."""
    return max(one.rows / one.frames for one in seen)


def model_from(before: Model, cost: RowCost, used_memory: float, when: str) -> Model:
    """The model of a task whose rows cost that."""
    cores = before.slot.cores
    most_tps = cores / cost.cpu_s
    points: list[Point] = []
    for threads in THREADS:
        tps = min(threads / (cost.cpu_s + cost.wait_s), most_tps)
        held = min(1.0, used_memory + (threads - 1) * THREAD_BYTES / before.slot.memory_bytes)
        points.append(Point(threads, tps, max(LEAST_SHARE, min(1.0, tps * cost.cpu_s / cores)), held))
        if tps >= most_tps:
            break
    more = {
        key: value
        for key, value in before.more.items()
        if key not in ("unmeasured", "tentative", FRAME, ROWS, CPU_SPREAD, WAIT_SPREAD)
    }
    more |= {"provenance": "first rows", "measured_at": when, "rows": round(cost.rows), WORKER: WORKER_BYTES}
    more |= {"cpu_s_per_row": cost.cpu_s, "wait_s_per_row": cost.wait_s, "waiting": cost.wait_s > 0}
    spreads = {CPU_SPREAD: cost.cpu_spread, WAIT_SPREAD: cost.wait_spread}
    more |= {name: spread for name, spread in spreads.items() if spread is not None}
    if cost.frame_rows > 1:
        more |= {FRAME: cost.frame_s / cores, ROWS: cost.frame_rows}
    return replace(before, points=tuple(points), more=more | ({"tentative": [*cost.why]} if cost.why else {}))


def _slot_of(task: str, plan: Plan) -> Slot | None:
    return next((bundle.slot for bundle in plan.placement.bundles if bundle.task == task), None)


def _memory(
    slot: Slot, used: SlotWindow, topology: Topology, plan: Plan, models: Mapping[str, Model]
) -> float:
    """A task's part of a slot's memory, see `own_part`."""
    size = next(vm.slot_memory_bytes for vm in plan.vms if vm.vm == slot.vm)
    known, sharing = 0.0, 0
    for bundle in plan.placement.bundles:
        task = topology.by_name[bundle.task]
        if bundle.slot != slot or task.static is not None:
            continue
        model = models[task.model_name]
        if model.unmeasured or model.tentative:
            sharing += 1
        else:
            known += memory(model, bundle.threads)
    return own_part(used.memory, size, known, sharing)


def own_part(used: float, slot_bytes: int, known: float, sharing: int) -> float:
    """What one of so many tasks that are not known has of a slot's memory, above what a bare worker surely has, and
    what is known of others: what the worker is taken to have too much is missing for each task of a slot."""
    left = used - WORKER_LEAST / slot_bytes - known
    return max(LEAST_SHARE, min(1.0, left / max(1, sharing)))
