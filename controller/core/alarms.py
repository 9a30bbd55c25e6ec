"""Alarms that take time to be sure of; others are raised where they are noticed. Pure."""

from __future__ import annotations

from collections import Counter

from headgate.controller.execute.plan_drift import quarantined_now, unreached
from headgate.controller.execute.rollout import IN_FORCE
from headgate.controller.execute.rollout_steps import named
from headgate.controller.knowledge.diagnoses import Demand, Health
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.vm_ways import VmWay, cut_pairs, slow_pairs, ways
from headgate.controller.plan.predict.vm_links import rows_between
from headgate.topology_runtime.api.cluster import Slot

NS = 1_000_000_000
SHORT_S = 5  # above what is carried for so long, or below it: what waits is over by then, or is not
WRONG_S = 10  # unstable for so long; a verdict is of 15 s already
GIVEN_UP_S = 3  # a plan that does without is made within a second
SETTLED_S = 20.0  # so long after a plan came into force what it does is its own doing
CUT_OFF_S = 60.0  # a VM that another one did not reach gets no new threads for so long, each time for longer
CUT_OFF_MOST_S = 3600.0
SLOW_MS, SLOWER = 1000, 10  # there and back, and times what is usual: such a way is slow
SLOW_TURNS = 3
BUSY = 0.9  # of a slot's CPU: who has no more answers late
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
        wrong = (
            wrong and not self._standing and not any(what.startswith(("code ", "link ")) for what in k.alarms)
        )
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


class WayWatch:
    """What is usual of each way between two VMs, for how many of the last turns it took far longer, how often it was
    cut."""

    def __init__(self) -> None:
        self._usual: dict[tuple[str, str], int] = {}
        self._late: dict[tuple[str, str], int] = {}
        self._slow: set[tuple[str, str]] = set()
        self._cuts: Counter[tuple[str, str]] = Counter()

    def look(self, turn: Turn, window: MeasuredWindow) -> None:
        """Once a turn: how the ways are; an alarm for each pair that does not carry, or is slow. Which were cut is
        remembered: ever longer, since a way without workers is not measured."""
        k, now_ns = turn.knowledge, turn.now.mono_ns
        found = ways(k.members.told())
        there = {(way.vm, way.to) for way in found}
        self._slow &= there
        self._late = {pair: turns for pair, turns in self._late.items() if pair in there}
        k.ways = with_rows(k, window, tuple(self._judged(way, window) for way in found))
        cut = cut_pairs(k.ways)
        k.cut_off = {pair: until_ns for pair, until_ns in k.cut_off.items() if now_ns < until_ns}
        for pair in [(way.vm, way.to) for way in cut]:
            self._cuts[pair] += pair not in k.cut_off
            lasts_s = min(CUT_OFF_S * 2.0 ** (self._cuts[pair] - 1), CUT_OFF_MOST_S)
            k.cut_off[pair] = now_ns + round(lasts_s * NS)
        told = {f"link {min(way.vm, way.to)}>{max(way.vm, way.to)}": way.words for way in slow_pairs(k.ways)}
        told |= _left_alone(k, now_ns) | {f"link {way.vm}>{way.to}": way.words for way in cut}
        for what in [what for what in k.alarms if what.startswith("link ") and what not in told]:
            vm, to = what.removeprefix("link ").split(">")
            turn.alarm(what, "", f"{vm} and {to} reach each other as usual, or need not")
        for what, words in told.items():
            turn.alarm(what, words)

    def _judged(self, way: VmWay, window: MeasuredWindow) -> VmWay:
        pair = way.vm, way.to
        if way.delay_ms is None:
            return way
        usual_ms = self._usual[pair] = min(way.delay_ms, self._usual.get(pair, way.delay_ms))
        late = way.delay_ms >= max(SLOW_MS, SLOWER * usual_ms) and not any(_busy(window, vm) for vm in pair)
        turns = self._late[pair] = min(max(self._late.get(pair, 0) + (1 if late else -1), 0), SLOW_TURNS)
        if turns in (0, SLOW_TURNS):
            (self._slow.add if turns else self._slow.discard)(pair)
        return way._replace(usual_ms=usual_ms) if pair in self._slow else way


def _busy(window: MeasuredWindow, vm: str) -> bool:
    """Have all its workers so much to do that they answer late?"""
    used = [slot.cpu for name, slot in window.slots.items() if name.vm == vm]
    return bool(used) and min(used) >= BUSY


def _left_alone(k: Knowledge, now_ns: int) -> dict[str, str]:
    """Alarms for VMs on which nothing runs since others did not reach them."""
    away, found = unreached(k) & {member.vm.vm for member in k.members.up()}, {}
    for (vm, to), until_ns in k.cut_off.items():
        if names := sorted(away & {vm, to}):
            minutes = -(-(until_ns - now_ns) // (60 * NS))
            found[f"link {vm}>{to}"] = (
                f"nothing runs on {' or '.join(names)}: {vm} → {to} did not carry; tried again in {minutes} min"
            )
    return found


def with_rows(k: Knowledge, window: MeasuredWindow, found: tuple[VmWay, ...]) -> tuple[VmWay, ...]:
    """Slow ways with what they carry and what the plan has them carry, where their edges go no other way."""
    if k.plan is None or k.topology is None or not any(way.slow for way in found):
        return found
    needed = rows_between(k.plan, k.topology)
    many = Counter(edge for edges in needed.values() for edge in edges)
    part = min(1.0, window.offered_tps / k.plan.rate_tps) if k.plan.rate_tps > 0 else 0.0

    def rows(way: VmWay) -> VmWay:
        edges = needed.get((way.vm, way.to), {})
        if not way.slow or not edges or not all(many[edge] == 1 and edge in window.edges for edge in edges):
            return way
        carried = sum(window.edges[edge].between_vms_tps for edge in edges)
        return way._replace(rows_tps=(carried, part * sum(edges.values())))

    return tuple(rows(way) for way in found)


def _last(members: Membership, slot: Slot) -> str:
    worker = members.workers.get(slot)
    how = f", the last time by {worker.last_exit}" if worker is not None and worker.last_exit else ""
    return f"{how} (its log: logs/worker-{slot.number}.log in the directory of {slot.vm})"


def what_is_barred(k: Knowledge) -> str:
    """What there is, or was, and no plan uses now, with what each waits for: "; vm2 is lost, …"; empty: nothing."""
    d, here = k.durable, k.members.here
    known = {vm.vm for vm in d.joined}
    gone = [(vm, k.members.members[vm].state) for vm in k.members.gone() if vm in known]
    found = [f"{vm} left" if state == "left" else f"{vm} is lost" for vm, state in gone]
    found += [f"{vm} is {cordon} (`headgate uncordon`)" for vm, cordon in _cordons(k)]
    found += [f"{vm} is back and not empty yet" for vm in d.held_dead if vm in here]
    found += [f"{vm} is not reached by others" for vm in sorted(unreached(k) & here)]
    found += [
        f"{slot} was given up, and is tried again in a minute" for slot in sorted(k.members.quarantined)
    ]
    return f"; {named(found)}" if found else ""


def _cordons(k: Knowledge) -> list[tuple[str, str]]:
    cordoned = k.durable.cordoned
    return [
        (vm, "drained" if cordoned[vm] else "cordoned") for vm in sorted(k.members.here & cordoned.keys())
    ]


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
        more = "--max-vms" if k.settings.max_usd_per_hour is None else "--max-vms, --set max-usd-per-hour"
        return f"; no more fits the VMs there are ({rollout.degraded}): allow more (`{more}`), or start more agents"
    return ""
