"""Makes the view of a run that everybody who looks at it gets (`knowledge/run_view.py`). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from headgate.controller.core.predicted_latency import predicted_latency
from headgate.controller.core.profiling import measuring
from headgate.controller.execute.dead_letter_replay import tasks_above
from headgate.controller.execute.desired_state import first_specs
from headgate.controller.execute.plan_drift import cordon_of, outdated_slots
from headgate.controller.execute.rollout import stand_of
from headgate.controller.execute.rollout_steps import waits_for
from headgate.controller.execute.run_end import backlogs_of, offered_of
from headgate.controller.knowledge.event_times_now import event_time_of
from headgate.controller.knowledge.journal_records import SpeedSource
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.membership import Member, natural
from headgate.controller.knowledge.rows_left import left_of, lost_of
from headgate.controller.knowledge.run_view import (
    AlarmNow,
    DeadLettersNow,
    EndNow,
    LoopResult,
    RolloutUnderWay,
    RunView,
    SlotStatus,
    TupleCounts,
    VmStatus,
)
from headgate.controller.knowledge.spooled_events import left_on_vms
from headgate.controller.monitor.sample_intake import Intake
from headgate.controller.monitor.vm_reports import in_flight, lost_ranges
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import counted

# ── Rows that a sink got more than once, sink by sink: how many, and why there may be more. Pure ────────

BySink = Mapping[str, tuple[int, int]]  # sink → (rows, distinct)
Judged = LoopResult | None  # by the last turn of the loop


def copies_of(k: Knowledge, by_sink: BySink) -> dict[str, Any]:
    """Of all sinks and of each. What is not exact is at least so many; `duplicates_why` says why."""
    rebuilt = rebuilt_sinks(k.topology) if k.topology is not None and k.counts.sent_again else {}
    unlogged = _unlogged(k)
    why = [*unlogged, *(f"{sink}: {reason}" for sink, reason in rebuilt.items())]
    return {
        "duplicates": sum(rows - distinct for rows, distinct in by_sink.values()),
        "duplicates_exact": not why,
        "duplicates_why": why,
        "finished_dropped": k.counts.finished_dropped,
        "sinks": {
            sink: {
                "rows": rows,
                "duplicates": rows - distinct,
                "duplicates_exact": not unlogged and sink not in rebuilt,
            }
            for sink, (rows, distinct) in sorted(by_sink.items())
        },
    }


def _unlogged(k: Knowledge) -> list[str]:
    """Why a row that reached a sink may be in no log that was read, or there under another name."""
    found = []
    if rows := k.counts.finished_dropped:
        found.append(f"{counted(rows, 'row')} that may have reached a sink, in no log")
    killed = sorted({vm for vm, _ in k.counts.unlogged if len(k.counts.lives(vm)) > 1})
    found += [f"{vm}: its agent was killed, and its sinks with it" for vm in killed]
    found += [f"{vm}: lost, and its logs with it" for vm in sorted(k.durable.held_dead)]
    passed = k.counts.finished.passed if k.counts.finished is not None else ()
    found += [f"{vm}: it was away for so long that what its sinks had was not waited for" for vm in passed]
    found += [f"{source}: events that were accepted again" for source in sorted(k.counts.anew)]
    return found


def rebuilt_sinks(topology: Topology) -> dict[str, str]:
    """Sinks below a task that keeps rows in buckets: what comes of rows that were sent again is named after the
    rows that it met there this time, and so is no copy of anything."""
    found = {}
    keepers = [task.name for task in topology.tasks if task.kind == "hold"]
    for sink in topology.sinks:
        above = tasks_above(topology, sink.name) - {sink.name}
        if keeper := next((name for name in keepers if name in above), ""):
            found[sink.name] = f"rows sent again may meet others in the buckets of {keeper}"
    return found


NS = 1e9
LETTERS_SHOWN = 5


def view_of(k: Knowledge, by_sink: BySink, intake: Intake | None, result: Judged, now: Now) -> RunView:
    """Of all that is known. by_sink: rows that reached the sinks."""
    d, topology, cap_tps = k.durable, k.topology, k.load.cap_tps(now.wall_ns)
    return RunView(
        mono_ns=now.mono_ns,
        wall_ns=now.wall_ns,
        run=k.settings.run,
        trace=k.settings.trace,
        boot=d.boot,
        version=k.settings.version,
        pid=k.pid,
        stage=stage_of(k),
        mode=k.mode,
        held=k.hold,
        advice=k.advice,
        ended=k.ending.reason,
        topology=topology,
        package=d.run.package if d.run is not None else "",
        code=(d.code, len(outdated_slots(k))),
        models=d.run.models if d.run else (),
        rollout=d.rollout,
        phase=d.phase,
        under_way=_under_way(k, now),
        proposal=k.proposal,
        rollouts=d.rollouts,
        rollouts_dropped=d.rollouts_dropped,
        waiting=d.waiting,
        planning_s=k.counts.planning_s,
        started_ns=d.started_ns,
        intake_ended_ns=k.ending.intake_ended_ns,
        done_ns=now.wall_ns - (now.mono_ns - k.ending.done[1]) if k.ending.done[1] else 0,
        result=result,
        vms=_vms(k),
        known=frozenset(k.members.members) | frozenset(k.members.known),
        profile=k.profiles.desired,
        profile_s=(now.mono_ns - k.profiles.began_ns) / NS if k.profiles.desired else 0.0,
        measuring=measuring(k, now),
        source_kind=k.load.source_kind,
        offered_tps=k.load.rate_at(now.wall_ns),
        ways=k.ways,
        lags=k.load.lags(now.wall_ns),
        cap_tps=cap_tps if math.isfinite(cap_tps) else None,
        tuples=_tuples(k, by_sink, k.ending.intake_ended_ns or now.wall_ns),
        by_source=_by_source(k, now),
        letters=_letters(k),
        lost_ranges=lost_ranges(d.state_lost),
        applied_again=sum(k.counts.applied_again.values()),
        latency={pair: tuple(counts) for pair, counts in k.counts.latency.items()},
        predicted_latency=predicted_latency(k),
        in_task=intake.in_task.totals() if intake is not None else {},
        user_metrics=intake.user.now(now.mono_ns) if intake is not None else (),
        alarms=_alarms(k, now),
        hot_keys=k.hot_keys,
        event_time=k.ending.event_time or event_time_of(k, now.wall_ns),
        end=_end(k),
        troubled="disk the controller" in k.alarms,
        troubles=dict(sorted(k.troubles.items())),
        events=tuple(k.events), event_number=k.event_number,
        actions=tuple(k.actions), decision=k.last_decision,
    )  # fmt: skip


def _end(k: Knowledge) -> EndNow:
    step, task = (end.step, end.task) if (end := k.durable.end) is not None else ("", "")
    return EndNow(step, task, k.ending.unfinished)


def _letters(k: Knowledge) -> DeadLettersNow:
    letters = k.counts.letters
    newest = tuple(letters.newest(LETTERS_SHOWN))
    return DeadLettersNow(newest, letters.counts(), letters.replayed, max(0, letters.mended), letters.keys)


def _alarms(k: Knowledge, now: Now) -> tuple[AlarmNow, ...]:
    since_ns = k.alarm_since_ns
    return tuple(AlarmNow(what, k.alarms[what], since_ns.get(what, now.wall_ns)) for what in sorted(k.alarms))


def stage_of(k: Knowledge) -> str:
    """One word for where the run is."""
    d = k.durable
    if k.ending.stage != "running":
        return k.ending.stage
    if k.adopting_until_ns:
        return "adopting"
    if d.run is None:
        return "measuring" if d.taken is not None else "idle"
    if d.rollout is None:
        return "gathering"
    if k.enacting:
        return "starting" if d.schedule is None else "enacting"
    return d.phase


def _under_way(k: Knowledge, now: Now) -> RolloutUnderWay | None:
    stand = stand_of(k, now.mono_ns)
    if stand is None:
        return None
    return RolloutUnderWay(
        stand.planned.epoch,
        stand.phase,
        (now.mono_ns - stand.since_ns) / NS,
        waits_for(stand),
        len(stand.planned.leaving),
        len(stand.planned.fresh),
    )


def _vms(k: Knowledge) -> tuple[VmStatus, ...]:
    """Every VM ever heard of, those that left too, in natural order of their names."""
    provided = {vm.vm for vm in k.durable.machines}
    in_order = sorted(k.members.members.values(), key=lambda member: natural(member.vm.vm))
    withheld = k.withheld
    return tuple(_vm(k, member, member.vm.vm in provided, withheld) for member in in_order)


def _vm(k: Knowledge, member: Member, provided: bool, withheld: frozenset[Slot]) -> VmStatus:
    name = member.vm.vm
    workers = {worker.slot: worker for worker in member.workers()}
    profiled = {spec.slot for spec in (k.profiles.desired, *first_specs(k)) if spec is not None}
    slots = []
    for slot in member.vm.all_slots():
        worker = workers.get(slot)
        idle = "withheld" if slot in withheld else "empty"
        state = member.state if not member.up else worker.state if worker else idle
        slots.append(
            SlotStatus(slot, "profiling" if slot in profiled else state, worker.crashes if worker else 0)
        )
    return VmStatus(
        k.durable.as_fast_as_seen(member.vm),
        "held_dead" if name in k.durable.held_dead else member.state,
        member.up,
        member.binding,
        member.pid,
        provided,
        f"disk {name}" in k.alarms,
        tuple(slots),
        member.spoken,
        member.report.clock if member.report is not None else (0, 0),
        cordon_of(k, member),
        member.machine,
        member.workers_as,
        *_speed_shown(k, member.vm),
    )


def _speed_shown(k: Knowledge, vm: Vm) -> tuple[SpeedSource | Literal["", "stated"], int]:
    """(by what its speed is known, since when), where it is not 1."""
    seen = k.durable.speeds.get(vm.vm)
    if seen is not None and seen.speed != 1.0:
        return seen.by, seen.at_ns
    return ("stated" if vm.speed != 1.0 else ""), 0


def _tuples(k: Knowledge, by_sink: BySink, until_ns: int) -> TupleCounts:
    return TupleCounts(
        offered=max(offered_of(k, until_ns), k.counts.emitted),  # what was read had been offered
        emitted=k.counts.emitted,
        acked=k.counts.acked,
        in_flight=in_flight(k.members.up()),
        lost=lost_of(k),
        left=left_of(k),
        left_on_vms=left_on_vms(k),
        dead_lettered=k.counts.letters.count,
        replayed=k.counts.replayed,
        before=k.durable.begun.rows if k.durable.begun is not None else 0,
        **copies_of(k, by_sink),
    )


def _by_source(k: Knowledge, now: Now) -> dict[str, tuple[int, int, int, int]]:
    """Positions of each source, of all its partitions, and its backlog."""
    load, found, backlogs = k.load, {}, backlogs_of(k, now)
    until_ns = k.ending.intake_ended_ns or now.wall_ns
    for task in k.topology.sources if k.topology is not None else ():
        mine = [known for (name, _), known in k.counts.sources.items() if name == task.name]
        emitted, done = sum(one.emitted for one in mine), sum(one.done for one in mine)
        offered = math.ceil(load.positions_of(task, until_ns, whole=True) - 1e-6)
        found[task.name] = max(offered, emitted), emitted, done, backlogs[task.name]
    return found
