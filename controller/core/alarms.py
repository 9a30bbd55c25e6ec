"""Alarms that take time to be sure of; others are raised where they are noticed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.controller.execute.plan_drift import quarantined_now
from headgate.controller.execute.rollout import IN_FORCE
from headgate.controller.knowledge.diagnoses import Demand, Health
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.vm_ways import VmWay
from headgate.topology_runtime.api.cluster import Slot

NS = 1_000_000_000
SHORT_S = 5  # above what is carried for so long, or below it: what waits is over by then, or is not
WRONG_S = 10  # unstable for so long; a verdict is of 15 s already
GIVEN_UP_S = 3  # a plan that does without is made within a second
SETTLED_S = 20.0  # so long after a plan came into force what it does is its own doing
CUT_OFF_S = 300.0  # a VM that another one did not reach gets no new threads for so long
MISSING_S = 60.0  # after a VM was asked for


def note_times(k: Knowledge, wall_ns: int) -> None:
    """When each alarm that there is was raised."""
    if k.alarms.keys() != k.alarm_since_ns.keys():
        k.alarm_since_ns = {what: k.alarm_since_ns.get(what, wall_ns) for what in k.alarms}


class AlarmWatch:
    """How long what calls for an alarm has lasted, in turns of a second: above 0 it has, below it has not."""

    def __init__(self) -> None:
        self._lasting: dict[str, int] = {}
        self._standing = False

    def halted(self, turn: Turn) -> bool:
        """Once a turn, first: is there an alarm that threads of the plan in force stand still?"""
        k = turn.knowledge
        if k.plan is not None and k.durable.phase in IN_FORCE:
            self._standing = self._given_up(turn)
        return "slot" in k.alarms

    def look(self, turn: Turn, need: Demand, health: Health) -> None:
        """Once a turn. What keeps up is not called short, nor its models wrong: an alarm and the verdict agree."""
        k = turn.knowledge
        plan, in_force_s = k.plan, k.in_force_s(turn.now)
        self._machines(turn)
        if plan is None or in_force_s is None or k.durable.phase not in IN_FORCE:
            return  # a plan is on its way
        offered_tps, carried_tps = float(need.evidence.get("level_tps", 0.0)), plan.prediction.rate_tps
        well = health.verdict == "stable"
        short = self._lasts("short", offered_tps > carried_tps and not well)
        if short >= SHORT_S:
            text = f"{offered_tps:,.0f} rows/s are offered, the plan in force carries {carried_tps:,.0f}"
            turn.alarm("short", text + why_not_more(k))
        elif well or short <= -SHORT_S:
            turn.alarm("short", "", "the plan in force carries what is offered")
        known = plan.prediction.told_tps is not None
        wrong = (
            health.verdict == "unstable" and known and offered_tps <= carried_tps and in_force_s >= SETTLED_S
        )
        wrong = wrong and not self._standing and not any(what.startswith("code ") for what in k.alarms)
        lasting = self._lasts("models", wrong)
        if lasting >= WRONG_S:
            text = (
                f"it does not keep up with {offered_tps:,.0f} rows/s, though the models predict {carried_tps:,.0f}: "
                "measure the tasks again (`headgate model profile`)"
            )
            text += "".join(f"; {words}" for words in k.found_off.values())
            turn.alarm("models", text)
        elif well or lasting <= -WRONG_S:
            turn.alarm("models", "", "it keeps up again, as the models predict")

    def look_at_ways(self, turn: Turn, cut: Sequence[VmWay]) -> None:
        """Once a turn: an alarm for each pair of VMs that do not reach each other; who was in one is remembered."""
        k, now_ns = turn.knowledge, turn.now.mono_ns
        k.cut_off = {vm: at_ns for vm, at_ns in k.cut_off.items() if now_ns - at_ns < CUT_OFF_S * NS}
        k.cut_off |= dict.fromkeys([vm for way in cut for vm in (way.vm, way.to)], now_ns)
        there = {f"link {way.vm}>{way.to}": way for way in cut}
        for what in [
            what for what in turn.knowledge.alarms if what.startswith("link ") and what not in there
        ]:
            vm, to = what.removeprefix("link ").split(">")
            turn.alarm(what, "", f"{vm} and {to} reach each other again, or need not")
        for what, way in there.items():
            if what not in turn.knowledge.alarms:
                turn.alarm(what, way.words)

    def _lasts(self, what: str, is_so: bool) -> int:
        before = self._lasting.get(what, 0)
        self._lasting[what] = max(0, before) + 1 if is_so else min(0, before) - 1
        return self._lasting[what]

    def _given_up(self, turn: Turn) -> bool:
        slots = quarantined_now(turn.knowledge)
        lasting = self._lasts("slot", bool(slots))
        if lasting >= GIVEN_UP_S:
            died = (
                f"slot {slot} is given up: its worker died again and again{_last(turn.members, slot)}"
                for slot in slots
            )
            text = (
                f"{'; '.join(died)}; no plan can do without: threads there stand still, and are tried again a minute "
                "after the last time"
            )
            turn.alarm("slot", text)
        elif lasting < 0:
            turn.alarm("slot", "", "no slot of the plan in force is given up")
        return bool(slots)

    def _machines(self, turn: Turn) -> None:
        k = turn.knowledge
        waiting, up = k.durable.waiting, {member.vm.vm for member in k.members.up()}
        missing = sorted(set(waiting.awaits) - up) if waiting is not None else []
        if waiting is not None and missing and turn.now.wall_ns - waiting.wall_ns >= MISSING_S * NS:
            waited_s = (turn.now.wall_ns - waiting.wall_ns) / NS
            turn.alarm("vm", f"VM {', '.join(missing)} was asked for {waited_s:.0f} s ago and is not there")
        elif not missing:
            turn.alarm("vm", "", "the VMs that were asked for are there, or are waited for no more")


def _last(members: Membership, slot: Slot) -> str:
    worker = members.workers.get(slot)
    how = f", the last time by {worker.last_exit}" if worker is not None and worker.last_exit else ""
    return f"{how} (its log: logs/worker-{slot.number}.log in the directory of {slot.vm})"


def why_not_more(k: Knowledge) -> str:
    """Why no plan for more is made, and what to do."""
    rollout, proposal = k.durable.rollout, k.proposal
    if k.advice:
        return f"; advice: {k.advice}"
    if k.settings.plan is not None:
        return "; the plan was given and is held"
    if k.hold:
        return f"; no plan is made by itself: {k.hold} (`headgate resume`)"
    if proposal is not None:
        return f"; plan {proposal.plan.id} waits for `headgate apply {proposal.plan.id}`"
    if rollout is not None and rollout.degraded:
        more = "--max-vms" if k.settings.max_usd_per_hour is None else "--max-vms, --max-usd-per-hour"
        return f"; no more fits the VMs there are ({rollout.degraded}): allow more (`{more}`), or start more agents"
    return ""
