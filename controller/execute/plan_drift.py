"""How the world differs from what the plan in force takes for granted: VMs lost, slots quarantined, VMs
that came or came back; and the times and positions that analysis asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.controller.execute.desired_state import HAND_OVER_NS
from headgate.controller.execute.rollout import IN_FORCE
from headgate.controller.knowledge import spooled_events
from headgate.controller.knowledge.diagnoses import Past
from headgate.controller.knowledge.journal_records import HeldDead
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.knowledge.membership import Member
from headgate.topology_runtime.api.cluster import Slot, Vm

NS = 1_000_000_000


def planned_slots(k: Knowledge) -> frozenset[Slot]:
    """Slots that the newest enactment cannot do without: those of threads that shall stay and, until it is
    SWITCHED, of those that leave too: rows still go there, and their workers must be ready."""
    newest = k.durable.waiting or k.durable.rollout
    if newest is None:
        return frozenset()
    switched = k.durable.waiting is None and k.durable.phase != "prepared"
    return newest.staying_slots if switched else frozenset(newest.slots)


def lost_vms(k: Knowledge) -> tuple[str, ...]:
    """VMs with threads of the plan that are lost, or left."""
    return tuple(sorted({slot.vm for slot in planned_slots(k)} & set(k.members.gone())))


def draining_vms(k: Knowledge) -> tuple[str, ...]:
    """VMs that shall be empty and that the newest plan has threads on."""
    newest = k.durable.waiting or k.durable.rollout
    if newest is None or not k.durable.cordoned:
        return ()
    used = {slot.vm for slot in newest.staying_slots}
    return tuple(sorted(vm for vm, drains in k.durable.cordoned.items() if drains and vm in used))


def withdrawn_slots(k: Knowledge) -> tuple[Slot, ...]:
    """Slots that other runs are to have and that the newest plan has threads in."""
    newest = k.durable.waiting or k.durable.rollout
    granted = k.durable.granted
    return () if newest is None or granted is None else tuple(sorted(newest.staying_slots - {*granted}))


def outdated_slots(k: Knowledge) -> tuple[Slot, ...]:
    """Slots whose threads shall stay and run another code than they should."""
    newest = k.durable.waiting or k.durable.rollout
    if newest is None or k.durable.codes_made == 1:
        return ()
    return tuple(sorted({t.slot for t in newest.threads if not t.leaving and t.code != k.durable.code}))


def cordon_of(k: Knowledge, member: Member) -> str:
    """ "cordoned", "draining", "drained": nothing of any plan is left there, nor could come back; else empty."""
    drains = k.durable.cordoned.get(member.vm.vm)
    if drains is None:
        return ""
    rollout, waiting = k.durable.rollout, k.durable.waiting
    slots = {*(rollout.slots if rollout is not None else ()), *(waiting.slots if waiting is not None else ())}
    held = member.up and any(slot.vm == member.vm.vm for slot in slots)
    quiet = k.durable.lets_go or k.durable.phase == "none"
    over = not held and quiet and (not member.up or is_empty(member))
    return ("drained" if over else "draining") if drains else "cordoned"


def quarantined_now(k: Knowledge) -> tuple[Slot, ...]:
    """Quarantined slots with threads of the plan."""
    return tuple(sorted(planned_slots(k) & k.members.quarantined)) if k.members.quarantined else ()


def unplanned_vms(k: Knowledge, now: Now) -> tuple[str, ...]:
    """VMs that were not there when it was planned last, and that do not flap; and slots that were not granted."""
    known = {
        *k.considered,
        *k.durable.held_dead,
        *k.durable.cordoned,
        *unreached(k),
        *(slot.vm for slot in planned_slots(k)),
    }
    names = (m.vm.vm for m in k.members.up())
    fresh = tuple(vm for vm in names if vm not in known and not k.members.flaps(vm, now))
    apart = {*fresh, *k.durable.held_dead, *k.durable.cordoned, *unreached(k)}
    slots = {slot for slot in k.durable.granted or () if slot.vm in k.members.here - apart}
    slots -= {*planned_slots(k), *k.members.quarantined}
    return (*fresh, *(name for name in map(str, sorted(slots)) if name not in k.considered))


def planned_with(k: Knowledge, vms: Iterable[Vm]) -> frozenset[str]:
    """Names of what a plan is made of now: these VMs, and of granted slots each."""
    return frozenset({*(vm.vm for vm in vms), *map(str, k.durable.granted or ())})


def unreached(k: Knowledge) -> frozenset[str]:
    """VMs without threads that one with threads, which is there, did not reach a while ago: no plan goes over such a
    way."""
    used = {slot.vm for slot in planned_slots(k)} & k.members.here if k.cut_off else set()
    return frozenset(vm for pair in k.cut_off for vm in pair if vm not in used and used.intersection(pair))


def take_back(turn: Turn) -> None:
    """A VM held dead that is heard again, and on which no worker is left, is a VM as any other: nothing
    there can still believe in the old plan. An enactment is not disturbed by it, unless it cannot go on by itself:
    then this one may be all there is to plan with."""
    k = turn.knowledge
    held = k.durable.held_dead
    goes_on = k.enacting and k.dead_end is None and not lost_vms(k) and not quarantined_now(k)
    if not held or turn.now.mono_ns < k.journal_retry_ns or goes_on:
        return
    back = tuple(m.vm.vm for m in k.members.up() if m.vm.vm in held and is_empty(m))
    if back:
        turn.record(HeldDead(tuple(vm for vm in held if vm not in back)))
        for vm in back:
            spooled_events.events_taken_back(turn, vm)
        away = unreached(k)
        for vm in back:
            when = " once others are to reach it" if vm in away else ""
            turn.event("vm_back", f"VM {vm} is back and empty: it may be planned with again{when}")


def is_empty(member: Member) -> bool:
    """Does it say that no worker is left there?"""
    report = member.report
    return report is not None and all(w.state in ("exited", "quarantined") for w in report.workers)


def hand_over_waited(k: Knowledge, now: Now) -> bool:
    """Had a leaving source its time to run empty? None while the run ends: what it keeps open waits for the end."""
    waited = bool(k.durable.draining) or now.mono_ns - k.switched_ns >= HAND_OVER_NS
    return k.durable.phase in IN_FORCE and waited


def past_of(k: Knowledge, now: Now) -> Past:
    """How long ago plans came into force and were decided; by the journal, so it outlives a restart."""
    rollouts = [rollout for rollout in k.durable.rollouts if not rollout.abandoned]
    plans = [(max(0.0, (now.wall_ns - rollout.decided_ns) / NS), rollout.rate_tps) for rollout in rollouts]
    return Past.of(k.in_force_s(now) or 0.0, plans)


def progress_of(k: Knowledge, wall_ns: int) -> tuple[int, float, float, float] | None:
    """(at, offered, emitted, done): positions at the input rate Ω. `at`: UTC, now; where rows are taken as they come,
    when that was looked at last (None: never)."""
    schedule, topology = k.durable.schedule, k.topology
    if schedule is None or topology is None:
        return None
    load = k.load
    at_ns = load.looked_ns(wall_ns) if topology.arriving else wall_ns
    return (at_ns, *load.progress(at_ns, k.counts.emitted, k.counts.done)) if at_ns else None
