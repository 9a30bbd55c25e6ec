"""Of a snapshot: tasks, edges, slots, VMs. Pure."""

from __future__ import annotations

from typing import Any

from controller.analyze.load import TaskLoad
from controller.core.loop_result import LoopResult
from controller.core.status import members_in_order
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.membership import Member
from controller.knowledge.plans import Plan
from controller.knowledge.windows import SlotWindow, TaskWindow, Window
from controller.views.figures import figure, share
from controller.views.in_task import Percentiles
from controller.views.layout import Layout
from controller.views.view_input import ViewInput
from topology_runtime import snapshot as s
from topology_runtime.cluster import Slot
from topology_runtime.messages import WorkerStatus
from topology_runtime.topology import Edge, Task, Topology


def topology_now(sight: ViewInput, layout: Layout) -> s.TopologyNow | None:
    topology = sight.k.topology
    if topology is None:
        return None
    window = sight.seen.window if sight.seen else None
    expected = _expected(topology, sight.k.plan, window)
    measured = window.tasks if window else {}
    busy = {task.name: _busy(task, measured.get(task.name)) for task in topology.tasks}
    models = sight.k.models
    unmeasured = {t.name for t in topology.tasks if (m := models.get(t.model_name)) and m.unmeasured}
    tasks = {
        name: _task(
            topology.by_name[name],
            measured.get(name),
            sight.in_task.get(name),
            sight.seen.loads.get(name) if sight.seen else None,
            unmeasured=name in unmeasured,
            grows=sight.seen is not None and name in sight.seen.growing,
            threads=layout.by_task[name],
            predicted_tps=figure(expected.get(name)) if name in measured else None,
            busy=share(busy[name]),
        )
        for name in busy
    }
    edges = {f"{edge.source}>{edge.target}": _edge(edge, topology, window) for edge in topology.edges}
    order = tuple(task.name for task in topology.breadth_first)
    return s.TopologyNow(name=topology.name, order=order, tasks=tasks, edges=edges)


def _expected(topology: Topology, plan: Plan | None, window: Window | None) -> dict[str, float]:
    """Task → its rate if everything emitted arrives, as far as the plan carries it."""
    if plan is None or window is None:
        return {}
    return topology.rates(min(window.emitted_tps, plan.prediction.rate_tps))


def _busy(task: Task, now: TaskWindow | None) -> float | None:
    """Share of its threads' time in its logic; that of a source is not measured."""
    return now.busy_share if now is not None and task.kind != "source" else None


def _task(
    task: Task, now: TaskWindow | None, latency: Percentiles | None, near: TaskLoad | None, **known: Any
) -> s.TaskNow:
    p50, p95, p99 = latency or (None, None, None)
    rate_in, rate_out = (now.rate_in_tps, now.rate_out_tps) if now else (None, None)
    return s.TaskNow(
        kind=task.kind,
        static=task.static is not None,
        **known,
        rate_tps=figure(rate_in),
        rate_out_tps=figure(rate_out) if rate_out != rate_in else None,
        load=round(near.share, 2) if near else None,
        load_slot=near.slot if near else None,
        queue=figure(now.queue, 2) if now else None,
        p50_ms=figure(p50, 2),
        p95_ms=figure(p95, 2),
        p99_ms=figure(p99, 2),
    )


def _edge(edge: Edge, topology: Topology, window: Window | None) -> s.EdgeNow:
    now = window.edges.get((edge.source, edge.target)) if window else None
    same = {
        "source": edge.source,
        "target": edge.target,
        "grouping": edge.grouping,
        "selectivity": edge.selectivity,
    }
    if window is None or now is None:
        return s.EdgeNow(**same)  # type: ignore[arg-type]
    under_way = now.rate_tps * (now.buffer_latency_ms + now.channel_latency_ms) / 1000  # Little's law
    return s.EdgeNow(
        **same,  # type: ignore[arg-type]
        rate_tps=figure(now.rate_tps),
        queue=figure(under_way + _waiting(edge, now.rate_tps, topology, window), 2),
    )


def _waiting(edge: Edge, rate_tps: float, topology: Topology, window: Window) -> float:
    """Of the rows that wait at the target, those that came over this edge: by its part of the rate."""
    target = window.tasks.get(edge.target)
    entering = [window.edges.get((e.source, e.target)) for _, e in topology.in_edges(edge.target)]
    total_tps = sum(e.rate_tps for e in entering if e is not None)
    return target.queue * rate_tps / total_tps if target is not None and total_tps > 0 else 0.0


def slots_now(sight: ViewInput, layout: Layout) -> dict[str, s.SlotNow]:
    """Every slot of every VM that is there, and those of others that still have threads."""
    found: dict[str, s.SlotNow] = {}
    profiled = sight.k.profiles.desired.slot if sight.k.profiles.desired else None
    for member in members_in_order(sight.members):
        workers = {worker.slot: worker for worker in member.workers()} if member.up else {}
        for slot in member.vm.all_slots():
            if member.up or slot in layout.by_slot:
                worker = workers.get(slot)
                state = worker.state if worker else "empty" if member.up else member.state
                found[str(slot)] = _slot(
                    slot, "profiling" if slot == profiled else state, worker, sight.seen, layout
                )
    return found


def _slot(
    slot: Slot, state: str, worker: WorkerStatus | None, seen: LoopResult | None, layout: Layout
) -> s.SlotNow:
    measured = seen.window.slots.get(slot) if seen else None
    cpu, memory = seen.predicted.get(slot, (None, None)) if seen else (None, None)
    return s.SlotNow(
        vm=slot.vm,
        slot=slot.number,
        state=state,
        threads=layout.by_slot.get(slot, {}),
        full=slot in layout.full,
        shares=layout.shares.get(slot),
        cpu=share(measured.cpu) if measured else None,
        memory=share(measured.memory) if measured else None,
        predicted_cpu=share(cpu),
        predicted_memory=share(memory),
        leaving=layout.leaving[slot] or None,
        crashes=(worker.crashes if worker else 0) or None,
    )


def vms_now(sight: ViewInput, layout: Layout) -> dict[str, s.VmNow]:
    """Every VM but those that left."""
    window = sight.seen.window if sight.seen else None
    return {
        member.vm.vm: _vm(sight.k, member, window.slots if window else {}, layout)
        for member in members_in_order(sight.members)
        if member.state != "left"
    }


def _vm(k: Knowledge, member: Member, measured: dict[Slot, SlotWindow], layout: Layout) -> s.VmNow:
    vm = member.vm
    slots = vm.all_slots()
    uses = [measured[slot] for slot in slots if slot in measured]
    return s.VmNow(
        state="held_dead" if vm.vm in k.durable.held_dead else member.state,
        slots=vm.slots,
        slots_used=sum(slot in layout.by_slot for slot in slots),
        slot_cores=vm.slot_cores,
        slot_memory_bytes=vm.slot_memory_bytes,
        threads=sum(sum(layout.by_slot.get(slot, {}).values()) for slot in slots),
        usd_per_hour=vm.usd_per_hour or None,
        provided=any(mine.vm == vm.vm for mine in k.durable.machines) or None,
        cpu=share(sum(use.cpu for use in uses) / vm.slots) if uses else None,
        memory=share(sum(use.memory for use in uses) / vm.slots) if uses else None,
    )
