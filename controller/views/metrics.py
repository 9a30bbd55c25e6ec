"""What Prometheus is told of a controller: a frozen view, made by the shell once a second, read by scrapes.

`headgate_…` names and labels are a contract (docs/monitoring.md). Labels are tasks, VMs, slots, reasons and
words of ours, never threads. What is not known is left out. Metrics cost nothing unless they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np

from controller.core.alarms import KINDS
from controller.core.status import lost_now
from controller.knowledge.arrivals import offered_now
from controller.knowledge.diagnoses import Reason
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.membership import Membership
from controller.knowledge.records import Durable
from controller.knowledge.turns import Now
from controller.views.in_task import counted
from topology_runtime.latency_buckets import BUCKETS
from topology_runtime.messages import SampleBlock

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from controller.core.loop import Loop

NS = 1e9
EVERY_NS = 900_000_000  # a view a second, at the tick that is nearest
FIRST = "start"  # the reason of a run's first plan, which is no re-plan
QUIET = ("fine", "unknown", "frozen")  # reasons for planning nothing
REASONS = (*(r for r in get_args(Reason) if r not in (FIRST, *QUIET)), "operator", "rolled_back")


class ControllerView(msgspec.Struct, frozen=True):
    """One moment. None: not known. `slots`: "vm/slot" → cpu, memory, predicted_cpu, predicted_memory as
    fractions. `errors`: task → measured / predicted − 1. `loads`: task → how near to its limit (see
    `picturing.load`). `dead`: task → rows. `disks`: VM, or `controller` → is there trouble? Latencies are
    buckets of the meter."""

    input_tps: float | None = None
    headroom_tps: float | None = None
    stable: bool | None = None
    slope: float | None = None
    tasks_tps: Mapping[str, float] = {}
    errors: Mapping[str, float] = {}
    loads: Mapping[str, float] = {}
    slots: Mapping[str, Mapping[str, float | None]] = {}
    states: Mapping[str, int] = {}
    replans: Mapping[str, int] = {}
    replan_s: float | None = None
    lost: int = 0
    replayed: int = 0
    dead: Mapping[str, int] = {}
    disks: Mapping[str, bool] = {}
    alarms: Mapping[str, int] = {}
    end_to_end: Mapping[str, Sequence[int]] = {}
    in_task: Mapping[str, Sequence[int]] = {}


class Metrics:
    """The newest view, and the latency of rows in their tasks, which nothing else adds up."""

    def __init__(self) -> None:
        self.view = ControllerView()
        self._in_task = np.zeros((0, BUCKETS), np.int64)  # task × bucket → rows
        self._due_ns = 0

    def look(self, loop: Loop, now: Now) -> None:
        """Take a new view of the loop, once a second."""
        if now.mono_ns < self._due_ns:
            return
        self._due_ns = now.mono_ns + EVERY_NS
        topology = loop.knowledge.topology
        tasks = topology.tasks if topology else ()
        in_task = {
            task.name: row.tolist() for task, row in zip(tasks, self._in_task, strict=False) if row.any()
        }
        self.view = view_of(loop, now, in_task)

    def add(self, block: SampleBlock) -> None:
        """Rows that tasks did; what makes no sense is passed over."""
        task, bucket, rows = counted(block)
        if not len(task):
            return
        more = int(task.max()) + 1 - len(self._in_task)
        if more > 0:
            self._in_task = np.pad(self._in_task, ((0, more), (0, 0)))
        np.add.at(self._in_task, (task, bucket), rows)


def _replans(d: Durable) -> Counter[str]:
    """How many plans each reason gave rise to, those of long ago as well: a counter never goes down."""
    found = Counter(r.reason for r in d.rollouts if not r.abandoned) + Counter(d.rollouts_dropped)
    del found[FIRST]
    return found


def view_of(loop: Loop, now: Now, in_task: Mapping[str, Sequence[int]]) -> ControllerView:
    """What is known now, without anything that changes later."""
    k, measured = loop.knowledge, loop.measured
    plan = k.plan
    offered = offered_now(k, now.wall_ns)
    verdict = measured.get("verdict", {})
    judged = verdict.get("verdict") in ("stable", "unstable")
    end_to_end: dict[str, list[int]] = {}
    for (sink, _), counts in k.counts.latency.items():
        sums = end_to_end.setdefault(sink, [0] * BUCKETS)
        sums[:] = map(int.__add__, sums, counts)
    came = [r for r in k.durable.rollouts if r.in_force_ns and not r.abandoned and r.reason != FIRST]
    return ControllerView(
        input_tps=offered,
        headroom_tps=plan.prediction.rate_tps - offered if plan and offered is not None else None,
        stable=verdict["verdict"] == "stable" if judged else None,
        slope=verdict["slope"] if judged else None,
        tasks_tps=_task_rates(k, measured),
        errors={r["where"]: r["ratio"] - 1 for r in measured.get("residuals", ()) if r["what"] == "rate"},
        loads={task: load.share for task, load in loop.seen.loads.items()} if loop.seen else {},
        slots=measured.get("slots", {}),
        states=slot_states(k, loop.members),
        replans={**dict.fromkeys(REASONS, 0), **_replans(k.durable)},
        replan_s=(came[-1].in_force_ns - came[-1].decided_ns) / NS if came else None,
        lost=lost_now(k, loop.members),
        replayed=k.counts.replayed,
        dead=_dead(k),
        disks=_disks(loop),
        alarms=_alarms(loop.knowledge),
        end_to_end=end_to_end,
        in_task=in_task,
    )


def _dead(k: Knowledge) -> dict[str, int]:
    """Dead letters of each task, 0 for one that has none."""
    tasks = k.topology.tasks if k.topology else ()
    return {**{task.name: 0 for task in tasks}, **k.counts.letters.counts()}


def _disks(loop: Loop) -> dict[str, bool]:
    """The controller and every VM → does its disk refuse anything now?"""
    alarms = loop.knowledge.alarms
    vms = {member.vm.vm: f"disk {member.vm.vm}" in alarms for member in loop.members.up()}
    return {"controller": "disk the controller" in alarms, **vms}


def _alarms(k: Knowledge) -> dict[str, int]:
    """Kind → how many alarms there are of it, also 0: of disks and dead letters there may be several."""
    kinds = [
        what.rsplit(" ", 1)[0] if what.startswith(("disk ", "dead letters ")) else what for what in k.alarms
    ]
    return {**dict.fromkeys(KINDS, 0), **Counter(kinds)}


def _task_rates(k: Knowledge, measured: Mapping[str, Any]) -> dict[str, float]:
    """Rows/s that each task takes in; a source takes in what it emits."""
    sources = {task.name for task in k.topology.sources} if k.topology else set()
    emitted_tps = measured.get("rates", {}).get("emitted_tps", 0.0)
    return {
        task["task"]: emitted_tps if task["task"] in sources else task["rate_in_tps"]
        for task in measured.get("tasks", ())
    }


def slot_states(k: Knowledge, members: Membership) -> dict[str, int]:
    """How many slots of the VMs that are there have threads, have none, are given up."""
    slots = {slot for member in members.up() for slot in member.vm.all_slots()}
    quarantined = slots & members.quarantined
    planned = set(k.durable.rollout.staying_slots) if k.durable.rollout else set()
    used = len((slots & planned) - quarantined)
    return {
        "used": used,
        "free": len(slots) - used - len(quarantined),
        "quarantined": len(quarantined),
    }


def families(view: ControllerView) -> Iterable[Metric]:
    """A view as Prometheus's families."""
    from topology_runtime.metric_families import gauge, gauges, latency

    yield from gauge("headgate_input_rate_tps", "Tuples/s offered to every source now.", view.input_tps)
    yield from gauge(
        "headgate_headroom_tps", "Predicted rate of the plan minus the offered one.", view.headroom_tps
    )
    yield from gauge(
        "headgate_stable", "1 when the topology keeps up, 0 when not; absent while unknown.", view.stable
    )
    yield from gauge("headgate_latency_slope", "Growth of the median latency in s per s.", view.slope)
    yield from gauges(
        "headgate_task_rate_tps",
        "Tuples/s that a task takes in.",
        ["task"],
        {(task,): tps for task, tps in view.tasks_tps.items()},
    )
    yield from gauges(
        "headgate_task_load_ratio",
        "How near a task is to its limit by the models: the peak of its threads or the CPU of a slot.",
        ["task"],
        {(task,): load for task, load in view.loads.items()},
    )
    yield from gauges(
        "headgate_model_error_ratio",
        "Measured input rate of a task / predicted one, minus 1.",
        ["task"],
        {(task,): error for task, error in view.errors.items()},
    )
    for what, about in (("cpu", "CPU of a slot"), ("memory", "Memory of a slot")):
        yield from gauges(
            f"headgate_slot_{what}_ratio",
            f"{about} as a fraction of it.",
            ["vm", "slot", "source"],
            _slot_values(view, what),
        )
    yield from gauges(
        "headgate_slots",
        "Slots of the VMs that are there, by state.",
        ["state"],
        {(state,): count for state, count in view.states.items()},
    )
    yield from gauges(
        "headgate_disk_trouble",
        "1 while the disk of a VM, or of the controller, does not take something.",
        ["vm"],
        {(where,): troubled for where, troubled in view.disks.items()},
    )
    yield from gauges(
        "headgate_alarms", "Alarms that there are now, by what they are of.", ["what"],
        {(what,): count for what, count in view.alarms.items()},
    )  # fmt: skip
    yield from gauge("headgate_replan_seconds", "The last re-plan, from decided to in force.", view.replan_s)
    yield from _counters(view)
    yield from latency(
        "headgate_task_latency_seconds", "Of a row in a task, from arrival to done.", "task", view.in_task
    )
    yield from latency(
        "headgate_latency_seconds", "From the intended emit time to the sink.", "sink", view.end_to_end
    )


def _counters(view: ControllerView) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily

    replans = CounterMetricFamily("headgate_replans", "Plans that replaced another.", labels=["reason"])
    for reason, count in view.replans.items():
        replans.add_metric([reason], count)
    yield replans
    yield CounterMetricFamily("headgate_tuples_lost", "Tuples that are nowhere: 0 or a bug.", view.lost)
    yield CounterMetricFamily("headgate_tuples_replayed", "Tuples sent again.", view.replayed)
    dead = CounterMetricFamily("headgate_dead_letters", "Rows that a task failed on.", labels=["task"])
    for task, count in view.dead.items():
        dead.add_metric([task], count)
    yield dead


def _slot_values(view: ControllerView, what: str) -> dict[tuple[str, ...], float | None]:
    values: dict[tuple[str, ...], float | None] = {}
    for name, seen in view.slots.items():
        vm, _, slot = name.rpartition("/")
        values[vm, slot, "measured"] = seen.get(what)
        values[vm, slot, "predicted"] = seen.get(f"predicted_{what}")
    return values
