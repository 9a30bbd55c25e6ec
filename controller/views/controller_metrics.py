"""What Prometheus reads of a controller: a function of its newest view, made when somebody scrapes. Pure.

`headgate_…` names and labels are a contract (docs/how-to/monitor.md). Labels are tasks, VMs, slots, reasons and
words of ours, never threads. What is not known is left out. Metrics cost nothing unless they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, get_args

from headgate.controller.knowledge.diagnoses import ALARM_KINDS, Reason, Verdict
from headgate.controller.knowledge.run_view import NS, RunView
from headgate.controller.views.run_documents import slot_use
from headgate.topology_runtime.api.user_metrics import bound_of
from headgate.topology_runtime.latency.latency_buckets import BUCKETS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

FIRST = "start"  # the reason of a run's first plan, which is no re-plan
QUIET = ("fine", "unknown", "frozen", "link_slow")  # reasons for planning nothing
REASONS = (*(r for r in get_args(Reason) if r not in (FIRST, *QUIET)), "operator", "rolled_back")


def replans_of(view: RunView) -> dict[str, int]:
    """How many plans each reason gave rise to, those of long ago as well: a counter never goes down."""
    found = Counter(r.reason for r in view.rollouts if not r.abandoned) + Counter(view.rollouts_dropped)
    del found[FIRST]
    return {**dict.fromkeys(REASONS, 0), **found}


def _replan_s(view: RunView) -> float | None:
    came = [r for r in view.rollouts if r.in_force_ns and not r.abandoned and r.reason != FIRST]
    return (came[-1].in_force_ns - came[-1].decided_ns) / NS if came else None


def _dead(view: RunView) -> dict[str, int]:
    """Dead letters of each task, 0 for one that has none."""
    tasks = view.topology.tasks if view.topology else ()
    return {**{task.name: 0 for task in tasks}, **view.letters.by_task}


def _alarms(view: RunView) -> dict[str, int]:
    """Kind → how many alarms there are of it, also 0: some are of a VM, a task or a key."""
    kinds = [
        alarm.what.rsplit(" ", 1)[0]
        if alarm.what.startswith(
            ("disk ", "code ", "dead letters ", "hot key ", "thread ", "peers ", "link ")
        )
        else alarm.what
        for alarm in view.alarms
    ]
    return {**dict.fromkeys(ALARM_KINDS, 0), **Counter(kinds)}


def _task_rates(view: RunView) -> dict[str, float]:
    """Rows/s that each task takes in; a source takes in what it emits."""
    window = view.window
    if window is None or view.topology is None:
        return {}
    sources = {task.name for task in view.topology.sources}
    return {
        name: window.emitted_tps if name in sources else task.rate_in_tps
        for name, task in window.tasks.items()
    }


def _slot_states(view: RunView) -> dict[str, int]:
    """How many slots of the VMs that are there have threads, have none, are given up."""
    slots = [slot for vm in view.vms if vm.up for slot in vm.slots]
    given_up = [slot for slot in slots if slot.state == "quarantined"]
    planned = view.rollout.staying_slots if view.rollout else frozenset()
    used = sum(slot.slot in planned for slot in slots if slot.state != "quarantined")
    return {"used": used, "free": len(slots) - used - len(given_up), "quarantined": len(given_up)}


def _delays(view: RunView) -> dict[tuple[str, ...], float | None]:
    known = {(way.vm, way.to): way.delay_ms for way in view.ways if way.carries}
    return {pair: None if delay_ms is None else delay_ms / 1000 for pair, delay_ms in known.items()}


def _slot_values(view: RunView, what: str) -> dict[tuple[str, ...], float | None]:
    values: dict[tuple[str, ...], float | None] = {}
    for slot in sorted({*view.result.window.slots, *view.result.predicted}) if view.result else ():
        seen = slot_use(view, slot)
        values[slot.vm, str(slot.number), "measured"] = seen[what]
        values[slot.vm, str(slot.number), "predicted"] = seen[f"predicted_{what}"]
    return values


def _end_to_end(view: RunView) -> dict[str, list[int]]:
    """Sink → rows by bucket of their latency."""
    found: dict[str, list[int]] = {}
    for (sink, _), counts in view.latency.items():
        found[sink] = list(map(int.__add__, found.get(sink, [0] * BUCKETS), counts))
    return found


def families(view: RunView) -> Iterable[Metric]:
    from headgate.topology_runtime.metrics.metric_families import gauge, gauges, latency

    for name, about, value in _values(view):
        yield from gauge(name, about, value)
    for name, about, label, values in _values_by(view):
        yield from gauges(name, about, [label], {(key,): value for key, value in values.items()})
    yield from gauges(
        "headgate_link_delay_seconds",
        "There and back between workers of two VMs; absent where nothing carries.",
        ["vm", "to"],
        _delays(view),
    )
    yield from gauges(
        "headgate_vm_speed_ratio",
        "How fast plans take a VM to be, where that is not 1, by what shows it.",
        ["vm", "source"],
        {(vm.vm.vm, vm.speed_by): vm.vm.speed for vm in view.vms if vm.up and vm.speed_by},
    )
    for what, about in (("cpu", "CPU of a slot"), ("memory", "Memory of a slot")):
        labels = ["vm", "slot", "source"]
        yield from gauges(
            f"headgate_slot_{what}_ratio", f"{about} as a fraction of it.", labels, _slot_values(view, what)
        )
    yield from _counters(view)
    yield from user_families(view)
    yield from latency(
        "headgate_task_latency_seconds", "Of a row in a task, from arrival to done.", "task", view.in_task
    )
    yield from latency(
        "headgate_latency_seconds", "From the intended emit time to the sink.", "sink", _end_to_end(view)
    )


def _values(view: RunView) -> Iterator[tuple[str, str, float | None]]:
    health = view.result.health if view.result else None
    judged = view.result.stability if view.result and view.verdict != "unknown" else None
    stable, slope = (view.verdict == "stable", judged.slope) if judged else (None, None)
    yield "headgate_input_rate_tps", "Rows/s offered to every source now.", view.offered_tps
    yield "headgate_headroom_tps", "Predicted rate of the plan minus the offered one.", view.headroom_tps
    yield "headgate_stable", "1 when the topology keeps up, 0 when not; absent while unknown.", stable
    backlog, seconds = (health.backlog_rows, health.backlog_s) if health else (None, None)
    yield "headgate_backlog_rows", "Rows due or arrived and not done.", backlog
    yield "headgate_backlog_seconds", "For how long the oldest of these has waited.", seconds
    first = view.bottleneck.load if view.bottleneck else None
    yield "headgate_bottleneck_load_ratio", "Load of the task that saturates first.", first
    yield "headgate_latency_slope", "Growth of the median latency in s per s.", slope
    said = "95 of 100 rows are done so soon after they are due, as predicted of the plan in force."
    rows = view.predicted_latency.rows if view.predicted_latency is not None else None
    yield "headgate_predicted_p95_seconds", said, rows.p95_ms / 1000 if rows is not None else None
    yield "headgate_replan_seconds", "The last re-plan, from decided to in force.", _replan_s(view)


def _values_by(view: RunView) -> Iterator[tuple[str, str, str, Mapping[str, float]]]:
    result = view.result
    loads = {task: load.share for task, load in result.loads.items()} if result else {}
    off = {r.where: r.ratio - 1 for r in result.residuals if r.what == "rate"} if result else {}
    verdicts = {name: float(name == view.verdict) for name in get_args(Verdict) if result}
    yield "headgate_verdict", "1 for the verdict, 0 for the others.", "state", verdicts
    near = "How near a task is to its limit by the models: the peak of its threads or the CPU of a slot."
    troubled = {"controller": view.troubled, **{vm.vm.vm: vm.troubled for vm in view.vms if vm.up}}
    full = "1 while the disk of a VM, or of the controller, does not take something."
    yield "headgate_run_info", "1, of the run that this is of.", "run", {view.run: 1.0}
    yield "headgate_task_rate_tps", "Rows/s that a task takes in.", "task", _task_rates(view)
    yield "headgate_task_load_ratio", near, "task", loads
    yield "headgate_model_error_ratio", "Measured input rate of a task / predicted one, minus 1.", "task", off
    yield "headgate_slots", "Slots of the VMs that are there, by state.", "state", _slot_states(view)
    yield "headgate_disk_trouble", full, "vm", troubled
    since = {vm.vm.vm: vm.speed_ns / NS for vm in view.vms if vm.up and vm.speed_ns}
    yield "headgate_vm_speed_since_seconds", "Since when that is seen, UTC.", "vm", since
    times = {now.task: now for now in view.event_time}
    marks = {task: now.watermark_us / 1e6 for task, now in times.items() if now.watermark_us is not None}
    lags = {task: now.lag_s for task, now in times.items() if now.lag_s is not None}
    yield "headgate_watermark_seconds", "Event time below which no rows are expected, UTC.", "task", marks
    yield "headgate_watermark_lag_seconds", "How far that is behind now.", "task", lags
    yield "headgate_alarms", "Alarms that there are now, by what they are of.", "what", _alarms(view)


def user_families(view: RunView) -> Iterable[Metric]:
    """Tasks' own. A name is of one kind: tasks that use it for another are left out."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    found: dict[str, Metric] = {}
    for one in view.user_metrics:
        name = f"headgate_user_{one.name}"
        family = found.setdefault(name, kinds[one.kind](name, f"{one.name}, of tasks.", labels=["task"]))
        if family.type != one.kind:
            continue
        if isinstance(family, HistogramMetricFamily):
            bounds = accumulate(count for _, count in one.buckets)
            rows = [(f"{bound_of(b):.9g}", float(n)) for (b, _), n in zip(one.buckets, bounds, strict=True)]
            family.add_metric([one.task], [*rows, ("+Inf", float(one.count))], one.value)
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            family.add_metric([one.task], one.value)
    yield from found.values()


def _counters(view: RunView) -> Iterable[Metric]:
    from prometheus_client.core import CounterMetricFamily

    replans = CounterMetricFamily("headgate_replans", "Plans that replaced another.", labels=["reason"])
    for reason, count in replans_of(view).items():
        replans.add_metric([reason], count)
    yield replans
    yield CounterMetricFamily("headgate_tuples_lost", "Rows that are nowhere: 0 or a bug.", view.tuples.lost)
    yield CounterMetricFamily(
        "headgate_tuples_replayed", "Rows sent again, or read again.", view.tuples.replayed
    )
    late = CounterMetricFamily("headgate_late_rows", "Rows from before the watermark.", labels=["task"])
    for now in view.event_time:
        late.add_metric([now.task], now.late)
    yield late
    without = CounterMetricFamily(
        "headgate_rows_without_time", "Rows of a source whose event time cannot be got.", labels=["task"]
    )
    for source, rows in dict(one for now in view.event_time for one in now.timeless).items():
        without.add_metric([source], rows)
    yield without
    dead = CounterMetricFamily("headgate_dead_letters", "Rows that a task failed on.", labels=["task"])
    for task, count in _dead(view).items():
        dead.add_metric([task], count)
    yield dead
