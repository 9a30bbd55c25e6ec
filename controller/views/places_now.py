"""Of a snapshot: tasks, edges, slots, VMs. Pure."""

from __future__ import annotations

from typing import Any

from headgate.controller.knowledge.diagnoses import TaskLoad
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.run_view import Percentiles, RunView, SlotStatus, VmStatus
from headgate.controller.knowledge.windows import TaskWindow, Window
from headgate.controller.views.figures import figure, share
from headgate.topology_runtime import snapshot as s
from headgate.topology_runtime.topology import Edge, Task, Topology


def topology_now(view: RunView) -> s.TopologyNow | None:
    topology, result, window = view.topology, view.result, view.window
    if topology is None:
        return None
    expected = _expected(topology, view.plan, window)
    measured = window.tasks if window else {}
    busy = {task.name: _busy(task, measured.get(task.name)) for task in topology.tasks}
    of_model = {model.task for model in view.models if model.unmeasured}
    tasks = {
        name: _task(
            topology.by_name[name],
            measured.get(name),
            result.in_task.get(name) if result else None,
            result.loads.get(name) if result else None,
            unmeasured=topology.by_name[name].model_name in of_model,
            grows=result is not None and name in result.growing,
            threads=view.placed.by_task[name],
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


def slots_now(view: RunView) -> dict[str, s.SlotNow]:
    """Every slot of every VM that is there, and those of others that still have threads."""
    return {
        str(slot.slot): _slot(view, slot)
        for vm in view.vms
        for slot in vm.slots
        if vm.up or slot.slot in view.placed.by_slot
    }


def _slot(view: RunView, now: SlotStatus) -> s.SlotNow:
    slot, placed = now.slot, view.placed
    measured, (cpu, memory) = view.measured(slot), view.predicted(slot)
    shares = placed.shares.get(slot)
    return s.SlotNow(
        vm=slot.vm,
        slot=slot.number,
        state=now.state,
        threads=placed.by_slot.get(slot, {}),
        full=slot in placed.full,
        shares={task: round_ for task, part in shares.items() if (round_ := figure(part)) is not None}
        if shares
        else None,
        cpu=share(measured.cpu) if measured else None,
        memory=share(measured.memory) if measured else None,
        predicted_cpu=share(cpu),
        predicted_memory=share(memory),
        leaving=placed.leaving[slot] or None,
        crashes=now.crashes or None,
    )


def vms_now(view: RunView) -> dict[str, s.VmNow]:
    """Every VM but those that left."""
    return {vm.vm.vm: _vm(view, vm) for vm in view.vms if vm.state != "left"}


def _vm(view: RunView, now: VmStatus) -> s.VmNow:
    vm, by_slot = now.vm, view.placed.by_slot
    cpu, memory = view.measured_vm(now)
    return s.VmNow(
        state=now.state,
        slots=vm.slots,
        slots_used=sum(slot.slot in by_slot for slot in now.slots),
        slot_cores=vm.slot_cores,
        slot_memory_bytes=vm.slot_memory_bytes,
        threads=sum(sum(by_slot.get(slot.slot, {}).values()) for slot in now.slots),
        usd_per_hour=vm.usd_per_hour or None,
        provided=now.provided or None,
        cordon=now.cordon or None,
        cpu=share(cpu),
        memory=share(memory),
    )
