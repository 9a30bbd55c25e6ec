"""Events that were accepted on a VM where nobody reads their source any more: it is to go there, once nothing is
more urgent. Whoever reads it there accepts them anew (protocol: Sources). Pure."""

from __future__ import annotations

from headgate.controller.core.alarms import clear_alarm, raise_alarm
from headgate.controller.knowledge.diagnoses import Diagnosis
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.spools import Unread, without_reader
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.faults.words import counted

AGAIN_NS = 60_000_000_000  # when a plan was made for it and it is not read yet


def found(turn: Turn, members: Membership) -> Diagnosis | None:
    """A plan to be made so that they are read; None when there are none, or none can be made now."""
    k = turn.knowledge
    if not k.spools and "unread" not in k.alarms:
        return None
    usable = {slot.vm for m in members.up() for slot in set(m.vm.all_slots()) - members.quarantined}
    waiting = {
        place: rows for place, rows in without_reader(k).items() if place[1] not in k.durable.held_dead
    }
    _alarm(turn, {place: rows for place, rows in waiting.items() if place[1] not in usable})
    waiting = {place: rows for place, rows in waiting.items() if place[1] in usable}
    if not waiting or k.plan is None or not _may_plan(k) or turn.now.mono_ns < k.spools_again_ns:
        return None
    k.spools_again_ns = turn.now.mono_ns + AGAIN_NS
    evidence = {f"{task} {partition} on {vm}": rows for ((task, partition), vm), rows in waiting.items()}
    text = f"accepted and not read: {_told(waiting)}"
    return Diagnosis("replan", "events_unread", text, k.plan.rate_tps, evidence, ())


def _may_plan(k: Knowledge) -> bool:
    return k.durable.phase == "committed" and not k.enacting and not k.hold and k.settings.plan is None


def _alarm(turn: Turn, stuck: Unread) -> None:
    """Of events on VMs none of whose slots can be used."""
    if stuck:
        raise_alarm(
            turn, "unread", f"accepted and not read until the VM has a slot again: {_told(stuck)}", "error"
        )
    else:
        clear_alarm(turn, "unread", "all events that were accepted can be read")


def _told(waiting: Unread) -> str:
    return ", ".join(f"{counted(n, 'event')} of {task} on {vm}" for ((task, _), vm), n in waiting.items())
