"""Of a recorded run at one moment: tasks, edges, slots, VMs. Functions only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dashboards.feeding.trace_run import Sizes, TraceRun
from dashboards.feeding.trace_tables import Array, Cut
from topology_runtime import snapshot as s
from topology_runtime.picturing.figures import figure, share
from topology_runtime.picturing.load import Load, Place, grows, loads
from topology_runtime.topology import Task

WINDOW_S = 10.0
PRESENT_S = 2.5  # a thread or slot that sent nothing for so long is gone


@dataclass(frozen=True)
class Places:
    """threads: slot → task → threads that sent samples lately. vms: those with any slot."""

    threads: dict[str, dict[str, int]]
    vms: dict[str, Sizes]


def places_at(run: TraceRun, at_s: float) -> Places:
    """When nobody sends any more, as at the last samples; before the first ones the VMs of the beginning."""
    times = run.tables["samples"].times
    sent = int(np.searchsorted(times, at_s, side="right"))
    if not sent:
        return Places({}, {vm.vm: vm for vm in run.file.vms})
    at_s = min(at_s, float(times[sent - 1]))
    rows = run.tables["samples"].between(at_s - PRESENT_S, at_s)
    threads: dict[str, dict[str, int]] = {}
    seen = sorted(set(zip(rows["vm"], rows["slot"], rows["task"], rows["thread"], strict=True)))
    for vm, slot, task, _ in seen:
        tasks = threads.setdefault(f"{vm}/{int(slot)}", {})
        tasks[task] = tasks.get(task, 0) + 1
    here = run.tables["slots"].between(at_s - PRESENT_S, at_s)
    highest: dict[str, int] = {vm: 0 for vm, *_ in seen}
    for vm, slot in zip(here["vm"], here["slot"], strict=True):
        highest[vm] = max(highest.get(vm, 0), int(slot))
    return Places(threads, {vm: _sizes(run, vm, highest[vm] + 1) for vm in sorted(highest)})


def _sizes(run: TraceRun, vm: str, least: int) -> Sizes:
    """What the run said of a VM, or of the spare ones."""
    known = next((each for each in run.file.vms if each.vm == vm), run.file.settings.spare)
    return known if known is not None else Sizes(vm, least)


def tasks_at(
    run: TraceRun, at_s: float, slots: Mapping[str, s.SlotNow], rates: s.RatesNow, verdict: str
) -> dict[str, s.TaskNow]:
    topology = run.file.topology
    rows = run.tables["samples"].between(at_s - WINDOW_S, at_s)
    names = rows["task"].astype(str) if len(rows) else np.zeros(0, str)
    expected = {}
    if rates.emitted_tps is not None:
        most = (
            rates.emitted_tps if rates.predicted_tps is None else min(rates.emitted_tps, rates.predicted_tps)
        )
        expected = topology.rates(most)
    cover_s = min(WINDOW_S, max(1.0, at_s - run.began_s + 1.0))
    of_task = {task.name: rows.where(names == task.name) for task in topology.tasks}
    busy = {task.name: _busy(task, of_task[task.name]) for task in topology.tasks}
    taken = {name: float(rows["tuples_in"].sum()) / cover_s for name, rows in of_task.items() if len(rows)}
    near = loads(_places(run, slots, taken))
    return {
        task.name: _task(
            of_task[task.name],
            cover_s,
            near.get(task.name),
            grows=_grows(of_task[task.name], at_s, verdict),
            kind=task.kind,
            static=task.static is not None,
            threads=sum(slot.threads.get(task.name, 0) for slot in slots.values()),
            predicted_tps=figure(expected.get(task.name)),
            busy=share(busy[task.name]),
        )
        for task in topology.tasks
    }


def _busy(task: Task, rows: Cut) -> float | None:
    """Share of its threads' time in its logic; that of a source is not measured."""
    counted_s = float(rows["window_s"].sum()) if len(rows) else 0.0
    return float(rows["busy_s"].sum()) / counted_s if counted_s and task.kind != "source" else None


def _places(run: TraceRun, slots: Mapping[str, s.SlotNow], taken_tps: Mapping[str, float]) -> Iterator[Place]:
    """A trace does not tell how rows were shared out: here by threads."""
    points = {curve.task: sorted((p.threads, p.rate_tps) for p in curve.points) for curve in run.file.models}
    threads = Counter({task: 0 for task in taken_tps})
    for slot in slots.values():
        threads.update(slot.threads)
    for name, slot in slots.items():
        parts: dict[str, float | None] = {}
        for task, count in slot.threads.items():
            curve = points.get(run.file.topology.by_name[task].model_name, [])
            peak_tps = float(np.interp(count, *np.transpose([(0.0, 0.0), *curve])))
            known = task in taken_tps and peak_tps > 0
            parts[task] = taken_tps[task] * count / threads[task] / peak_tps if known else None
        yield Place(name, parts, slot.predicted_cpu)


def _grows(rows: Cut, at_s: float, verdict: str) -> bool:
    """By the rows that waited in the newer and in the older half of the window."""
    if verdict != "unstable" or not len(rows):
        return False
    half_s = WINDOW_S / 2
    newer = rows["time"] > at_s - half_s
    held = rows["queue"] * rows["window_s"]
    growth_tps = float(held[newer].sum() - held[~newer].sum()) / half_s / half_s
    return grows(verdict, growth_tps, float(rows["tuples_in"].sum()) / WINDOW_S)


def _task(rows: Cut, cover_s: float, near: Load | None, **known: object) -> s.TaskNow:
    if not len(rows):
        return s.TaskNow(**known)  # type: ignore[arg-type]
    taken, given = float(rows["tuples_in"].sum()), float(rows["tuples_out"].sum())
    rate, out = figure(taken / cover_s), figure(given / cover_s)
    return s.TaskNow(
        **known,  # type: ignore[arg-type]
        rate_tps=rate if taken else out,
        rate_out_tps=out if out != rate and taken else None,
        load=round(near.share, 2) if near else None,
        load_slot=near.slot if near else None,
        queue=figure(float((rows["queue"] * rows["window_s"]).sum()) / cover_s, 2),
        p50_ms=_weighted_ms(rows["latency_p50_s"], rows["tuples_in"]),
        p99_ms=_weighted_ms(rows["latency_p99_s"], rows["tuples_in"]),
    )


def _weighted_ms(values: Array, weights: Array) -> float | None:
    total = float(weights.sum())
    return figure(float((values * weights).sum()) / total * 1000, 2) if total > 0 else None


def edges_at(run: TraceRun, at_s: float) -> dict[str, s.EdgeNow]:
    rows = run.tables["links"].between(at_s - WINDOW_S, at_s)
    cover_s = min(WINDOW_S, max(1.0, at_s - run.began_s + 1.0))
    found = {}
    for edge in run.file.topology.edges:
        mine = rows.where((rows["from_task"] == edge.source) & (rows["to_task"] == edge.target))
        rate = float(mine["tuples"].sum()) / cover_s if len(mine) else None
        frames = float(mine["frames"].sum()) if len(mine) else 0.0
        under_way = None
        if rate is not None and frames > 0:
            way_s = mine["buffer_latency_s"] + mine["channel_latency_s"]
            under_way = rate * float((way_s * mine["frames"]).sum()) / frames
        found[f"{edge.source}>{edge.target}"] = s.EdgeNow(
            source=edge.source,
            target=edge.target,
            grouping=edge.grouping,
            selectivity=edge.selectivity,
            rate_tps=figure(rate),
            queue=figure(under_way, 2),
        )
    return found


def slots_at(run: TraceRun, at_s: float, places: Places) -> dict[str, s.SlotNow]:
    rows = run.tables["slots"].between(at_s - WINDOW_S, at_s)
    curves = [curve for curve in run.file.models if curve.points]
    full = {curve.task: max(curve.points, key=lambda p: p.rate_tps).threads for curve in curves}
    found = {}
    for name, vm in places.vms.items():
        for number in range(vm.slots):
            mine = rows.where((rows["vm"] == name) & (rows["slot"] == number))
            threads = places.threads.get(f"{name}/{number}", {})
            found[f"{name}/{number}"] = s.SlotNow(
                vm=name,
                slot=number,
                state="running" if threads else "empty",
                threads=threads,
                full=len(threads) == 1 and all(n >= full.get(task, n + 1) for task, n in threads.items()),
                cpu=_mean(mine["cpu"]),
                memory=_mean(mine["memory"]),
                predicted_cpu=_last(mine["predicted_cpu"]) if threads else None,
                predicted_memory=_last(mine["predicted_memory"]) if threads else None,
            )
    return found


def _mean(values: Array) -> float | None:
    return share(float(values.mean())) if len(values) else None


def _last(values: Array) -> float | None:
    return share(float(values[-1])) if len(values) and values[-1] is not None else None


def vms_at(run: TraceRun, places: Places, slots: Mapping[str, s.SlotNow]) -> dict[str, s.VmNow]:
    initial = {vm.vm for vm in run.file.vms}
    return {
        name: s.VmNow(
            state="joined",
            slots=vm.slots,
            slots_used=sum(f"{name}/{n}" in places.threads for n in range(vm.slots)),
            slot_cores=vm.slot_cores,
            slot_memory_bytes=vm.slot_memory_bytes,
            threads=sum(sum(places.threads.get(f"{name}/{n}", {}).values()) for n in range(vm.slots)),
            usd_per_hour=vm.usd_per_hour or None,
            provided=None if name in initial else True,
            cpu=_of_all([slot.cpu for slot in slots.values() if slot.vm == name], vm.slots),
            memory=_of_all([slot.memory for slot in slots.values() if slot.vm == name], vm.slots),
        )
        for name, vm in places.vms.items()
    }


def _of_all(shares: list[float | None], slots: int) -> float | None:
    """The part of a VM's slots together that these parts of each are."""
    known = [value for value in shares if value is not None]
    return share(sum(known) / slots) if known else None
