"""From a diagnosis to what is done about it, and the record of why. Pure.

`plan_choice.choose` says what plan; this file knows what there is to plan with, what mode the controller is
in, and when it must keep its hands still.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from headgate.controller.analyze import slot_troubles
from headgate.controller.analyze.diagnosis import Finding
from headgate.controller.analyze.model_bias import spread_of
from headgate.controller.core import background_planning, rolling_upgrade
from headgate.controller.core.alarms import what_is_barred
from headgate.controller.core.plan_choice import PlanChoice, PlanQuestion, choose, planned, standing
from headgate.controller.execute.desired_state import routes_now
from headgate.controller.execute.move_price import measured_rate, price_data
from headgate.controller.execute.plan_diff import ThreadChanges, diff
from headgate.controller.execute.plan_drift import lost_vms, planned_with, quarantined_now, unreached
from headgate.controller.execute.rollout import Enactment, begin, dead_slots, movable
from headgate.controller.execute.rollout_steps import PROBATION_WINDOWS
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis, Reason
from headgate.controller.knowledge.held_states import range_sizes, task_states
from headgate.controller.knowledge.journal_records import Adopted, Durable, HeldDead, Rollout, Submitted
from headgate.controller.knowledge.knowledge import Knowledge, OrderedPlan, Partition, Turn
from headgate.controller.knowledge.loop_events import Finish, MachinesSeen, ReleaseMachine, RequestMachine
from headgate.controller.knowledge.membership import natural
from headgate.controller.knowledge.run_view import PlanProposal
from headgate.controller.knowledge.spooled_events import unread, without_reader
from headgate.controller.knowledge.vm_ways import covers, cut_pairs
from headgate.controller.models.model_data import model_data
from headgate.controller.models.plans import Placement, Plan, Sure, ThreadAt
from headgate.controller.plan.mappers.free_slots import TopologySpread
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.controller.plan.schedulers import MAPPERS
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import document_of
from headgate.topology_runtime.errors import Conflict, HeadgateError, Infeasible, InvalidInput
from headgate.topology_runtime.traces.trace_tables import SCHEMA
from headgate.topology_runtime.wording import counted, significant, utc_iso

# ── What goes into the trace beside samples: `run.json`, and in decisions what came of the plan before.
# Pure

NS, MS = 1_000_000_000, 1_000_000


def run_of(k: Knowledge, submitted: Submitted) -> dict[str, Any]:
    """What `run.json` holds: topology, models, the VMs from the start, settings."""
    return {
        "schema": SCHEMA,
        "run": k.settings.run,
        "topology": document_of(submitted.topology),
        "models": [model_data(model) for model in submitted.models],
        "vms": [msgspec.to_builtins(vm) for vm in k.settings.initial],
        "settings": msgspec.to_builtins(k.settings),
        "schedule": {"steps": submitted.steps, "period_s": submitted.period_s}
        | ({"uncapped": True} if submitted.uncapped else {}),
        "headgate": k.settings.version,
        "started": utc_iso(submitted.wall_ns),
    }


def enacted_of(d: Durable) -> dict[str, Any] | None:
    """The newest plan that came into force: `decided` (the time of its decision) and `in_force` (UTC),
    its plan and reason, enacted_s between them, pause_ms from the order to switch until the last sender had switched:
    a moved thread was without input for no longer than that. None before the first."""
    rollout = next((rollout for rollout in reversed(d.rollouts) if rollout.in_force_ns), None)
    return None if rollout is None else _enacted(rollout)


@lru_cache(maxsize=4)
def _enacted(rollout: Rollout) -> dict[str, Any]:
    return {
        "epoch": rollout.epoch,
        "plan": rollout.plan,
        "reason": rollout.reason,
        "rate_tps": rollout.rate_tps,
        "slots": rollout.slots,
        "decided": utc_iso(rollout.decided_ns),
        "in_force": utc_iso(rollout.in_force_ns),
        "enacted_s": round((rollout.in_force_ns - rollout.decided_ns) / NS, 3),
        "pause_ms": round((rollout.in_force_ns - rollout.switched_ns) / MS, 1),
    }


# ── VMs of the machines provider: which may be asked for, and what it lists. Pure ───
#
# It is asked for what is journaled, under names of ours; a VM is given back when no thread is left on it and
# it has been had for as long as it was to be (`execute/rollout.py`).

CENT = 1e-9  # what sums of prices may be off by


def addable(k: Knowledge, here: tuple[Vm, ...]) -> tuple[Vm, ...]:
    """VMs that may be asked of the provider: as many as number and cost may be, by the lowest free names."""
    spare = k.settings.spare
    if spare is None:
        return ()
    taken = {m.vm.vm for m in k.members.members.values() if m.state != "left"}
    taken |= {*k.durable.held_dead, *k.machines_desired, *k.machines_running}
    taken |= {vm.vm for vm in (*k.settings.initial, *k.durable.machines)}
    had = {vm.vm: vm for vm in (*here, *k.durable.machines)}
    room = min(k.settings.max_vms - len(had), affordable(k, tuple(had.values())))
    names = (f"vm{n}" for n in range(1, k.settings.max_vms + len(taken) + 1))
    free = [name for name in names if name not in taken][: max(0, room)]
    return tuple(replace(spare, vm=name) for name in free)


def affordable(k: Knowledge, had: tuple[Vm, ...]) -> int:
    """How many VMs more may be had for the most that all of them may cost per hour."""
    cap, spare = k.settings.max_usd_per_hour, k.settings.spare
    if cap is None or spare is None or spare.usd_per_hour <= 0:
        return k.settings.max_vms
    left = cap - sum(vm.usd_per_hour for vm in had)
    return max(0, int((left + CENT) / spare.usd_per_hour))


def machines_seen(turn: Turn, event: MachinesSeen) -> None:
    """Make the provider's list match what is journaled: nothing leaks, nothing is forgotten."""
    k = turn.knowledge
    k.machines_desired, k.machines_running = event.desired, event.running
    mine = {vm.vm for vm in k.durable.machines}
    for vm in k.durable.machines:
        if vm.vm not in event.desired:
            turn.do(RequestMachine(vm))
    for name in event.desired:
        if name in k.durable.released and name not in mine:
            turn.do(ReleaseMachine(name))
    turn.alarm("machines", event.trouble, "machines are had and given back as they should be")


DECISION_SCHEMA = "headgate/decision/v1"
GATHER_NS = 10 * NS  # the first plan waits so long for the VMs that shall be there
GATHER_ANY_NS = NS  # … and so long for more, when nobody said which
FIRST_RATE_LEAST_TPS = 1.0  # a rate of 0 cannot be planned for
FAULTS = ("slot_quarantined", "vm_lost", "link_cut")
BY_RATE = ("rate_changed", "over_provisioned")  # the plan in force may carry it too
# … or is to be better by its price
STAYS = (*BY_RATE, "first_rows", "model_off", "refitted", "vm_joined", "vm_speed")
TROUBLES = ("thread_failed", "out_of_memory")  # what runs now does not go on
ELSEWHERE = ("traffic_saved", "vm_loaded", "thread_costly", *TROUBLES)  # threads are to be in other slots
MUST_GO = (*FAULTS, *TROUBLES, "vm_drained", rolling_upgrade.REASON)  # what runs cannot stay as it is


# ── the decision ────────────────────────────────────────────────────────────────────────────────


def decide_all(turn: Turn, diagnosis: Diagnosis, besides: Iterable[Finding]) -> None:
    """Decide; where nothing comes of a plan that is called for, or it waits for approval, go on with what is found
    besides: threads go elsewhere, events are read and models mended though no plan carries the rate."""
    if not decide(turn, diagnosis):
        _go_on(turn, besides, diagnosis.reason)


def _go_on(turn: Turn, besides: Iterable[Finding], tried: str = "") -> None:
    """With the first of these of which something comes, but for the reason that was tried."""
    k = turn.knowledge
    for finding in besides:
        found = finding()
        if found is None or found.reason == tried:
            continue
        if k.mode == "approve" and k.proposal is not None and found.reason not in MUST_GO:
            continue  # it takes the place of none that waits
        if decide(turn, found):
            return


def decide(turn: Turn, diagnosis: Diagnosis) -> bool:
    """Do what the diagnosis asks for, as far as mode and enactment allow; record it in any case. False: a plan was
    called for, and nothing comes of it by itself now."""
    k, given = turn.knowledge, diagnosis
    if diagnosis.kind == "none" or diagnosis.rate_tps is None:
        advise(turn, "")
        k.nothing_else = False
        turn.alarm("plan", "", "no other plan is needed any more")
        _record(turn, diagnosis, "none", diagnosis.text)
        return True
    if why := why_held(k, diagnosis):
        _record(turn, diagnosis, "none", f"{diagnosis.text} – but {why}")
        return False
    still = why_still(k, diagnosis, turn.now.mono_ns)
    if still:
        _record(turn, diagnosis, "none", f"{diagnosis.text} – not now: {still}")
        return False
    if (held := k.durable.held_plan) is not None and k.mode != "advise":
        text = f"{diagnosis.text}; the plan that is held was for {held.rate_tps:,.1f} rows/s"
        diagnosis = replace(diagnosis, rate_tps=held.rate_tps, text=text)
    rate_tps = diagnosis.rate_tps or 0.0
    try:
        choice = _choice(turn, rate_tps, given)
    except background_planning.NotYet as why_not:
        _record(turn, diagnosis, "none", f"{diagnosis.text} – {why_not}")
        return True
    except HeadgateError as error:
        k.memory_more.clear()  # what memory ran out for is not worth having no plan
        k.nothing_else = True  # nor is a slot that is barred
        turn.alarm("plan", f"no plan for {rate_tps:,.1f} rows/s: {error.what}{what_is_barred(k)}")
        _record(turn, diagnosis, "none", f"{diagnosis.text} – but {error.what}: {error.cause}")
        return False
    turn.alarm("plan", "", "there is a plan")
    k.considered = planned_with(k, present(k))
    if diagnosis.without and choice.plan is not None and k.mode != "advise":
        turn.record(HeldDead(tuple(sorted({*k.durable.held_dead, *diagnosis.without}))))
    act(turn, diagnosis, choice)
    waits = k.mode == "approve" and diagnosis.reason not in MUST_GO
    return choice.action != "none" and not (waits and choice.action == "enact")


def mend(turn: Turn, held: str) -> None:
    """A run that ends is planned anew only where something is lost or does not run: what was read is to be done."""
    k = turn.knowledge
    lost, slots = lost_vms(k), quarantined_now(k)
    if k.plan is None or held or k.members.frozen(turn.now):
        return
    besides: list[Finding] = [lambda: slot_troubles.not_ready(turn)]
    if turn.stage in ("ending", "draining"):
        besides.append(lambda: slot_troubles.unbuilt(turn))
    if not (lost or slots):
        _go_on(turn, besides)
        return
    text = f"the run ends, and {', '.join(map(str, lost or slots))} is lost"
    reason: Reason = "vm_lost" if lost else "slot_quarantined"
    decide_all(turn, Diagnosis("replan", reason, text, k.plan.rate_tps, {}, ()), besides)


def _choice(turn: Turn, rate_tps: float, given: Diagnosis) -> PlanChoice:
    k = turn.knowledge
    if given.reason == rolling_upgrade.REASON:
        here = present(k)
        return rolling_upgrade.choice(k, here, addable(k, here))
    make = background_planning.planned_in_background(turn, given, given.reason in FAULTS)
    return choose(question(k, rate_tps, given.reason, frozenset(given.without)), make)


def around_cut(turn: Turn, need: Demand, found: Diagnosis) -> Diagnosis:
    """VMs that do not reach each other: a plan without one of each such two, by which most is carried and least is
    moved. It is treated as lost while it still obeys, so none whose threads keep what only they have; and every worker
    must reach every other, so nothing less helps."""
    k = turn.knowledge
    assert k.plan is not None and k.topology is not None
    cut = cut_pairs(k.ways)
    rate_tps = need.target_tps if need.direction == "down" else max(k.plan.rate_tps, need.target_tps)
    pairs = [f"{way.vm} and {way.to}" for way in cut]
    by = (tuple(pairs), tuple(vm.vm for vm in present(k)), k.epoch, round(rate_tps))
    if k.cut_tried[0] == by:
        return replace(found, text=f"{found.text}; {k.cut_tried[1]}")
    there, sources = movable(k), {task.name for task in k.topology.sources}
    found_for: list[tuple[tuple[float, int, int], frozenset[str]]] = []
    why = ""
    for without in covers(cut):
        if why_not := next((text for vm in sorted(without) if (text := _only_there(k, vm))), ""):
            why = why or why_not
            continue
        try:
            carried_tps = planned(question(k, rate_tps, "link_cut", without).request)[0].prediction.rate_tps
        except HeadgateError as error:
            why = why or f"without {', '.join(sorted(without))}: {error.what}"
            continue
        moved = [thread.task for thread in there if thread.slot.vm in without]
        less = -round(min(rate_tps, carried_tps), 3)
        found_for.append(((less, len(sources.intersection(moved)), len(moved)), without))
    if not found_for:
        k.cut_tried = by, f"no plan does without {' or '.join(pairs)}: {why}; mend the link"
        return replace(found, text=f"{found.text}; {k.cut_tried[1]}")
    names = tuple(sorted(min(found_for, key=lambda one: one[0])[1]))
    text = f"{found.text}: plan for {rate_tps:,.1f} rows/s without {', '.join(names)}"
    return replace(found, kind="replan", text=text, rate_tps=rate_tps, without=names)


def _only_there(k: Knowledge, vm: str) -> str:
    """What threads on this VM keep that could not be had elsewhere; empty: nothing."""
    topology, rollout = k.topology, k.durable.rollout
    assert topology is not None and rollout is not None
    here = {thread.task for thread in rollout.threads if thread.slot.vm == vm}
    if keyed := sorted(name for name in here if topology.by_name[name].state == "keyed"):
        return f"{vm} has keyed state of {', '.join(keyed)}"
    if taking := sorted(name for name in here if topology.by_name[name] in topology.arriving):
        return f"{vm} has what {', '.join(taking)} accepted"
    return f"{vm} has events that are not read yet" if any(at == vm for _, at in unread(k)) else ""


def decide_made(turn: Turn, asked: OrderedPlan) -> None:
    """Use a plan that was made beside the loop for what it was asked for, if that is as it was; else drop it."""
    k, diagnosis = turn.knowledge, asked.diagnosis
    if diagnosis is None:  # a command had asked
        return
    reason = "" if diagnosis.reason == "start" else diagnosis.reason
    now = question(k, asked.request.rate_tps, reason, frozenset(diagnosis.without)).request
    if changed := background_planning.changes(asked.request, now):
        what = f"the plan made for {now.rate_tps:,.1f} rows/s is not used: {changed} changed meanwhile"
        turn.event("plan_dropped", what)
        k.next_turn_ns = 0
    elif k.durable.rollout is None:
        first_plan(turn)
    else:
        decide(turn, diagnosis)


def act(turn: Turn, diagnosis: Diagnosis, choice: PlanChoice) -> None:
    """Enact, adopt or propose what was chosen."""
    k = turn.knowledge
    plan = choice.plan
    if plan is None or choice.action == "none":
        _record(turn, diagnosis, "none", f"{diagnosis.text} – {choice.text}", choice)
    elif choice.action == "adopt":
        k.proposal = None  # what waits would move threads for nothing
        turn.record(Adopted(k.epoch, plan, choice.degraded, turn.now.wall_ns))
        _record(turn, diagnosis, "adopt", f"{diagnosis.text} – {choice.text}", choice)
    elif k.mode == "advise":
        advise(turn, choice.text, plan.slots.used)
        _record(turn, diagnosis, "advise", f"{diagnosis.text} – advice: {choice.text}", choice)
    elif k.mode == "approve" and diagnosis.reason not in MUST_GO:
        k.proposal = PlanProposal(plan, diagnosis.reason, choice.text, k.epoch, choice.asked, choice.degraded)
        _record(
            turn,
            diagnosis,
            "propose",
            f"{diagnosis.text} – waits for approval: {choice.text}",
            choice,
        )
    else:
        bring(turn, diagnosis, choice)


def bring(turn: Turn, diagnosis: Diagnosis, choice: PlanChoice) -> None:
    """Begin the enactment of what was chosen, by the controller or an operator; record it. What runs already ("adopt")
    is recorded alone."""
    assert choice.plan is not None
    turn.knowledge.proposal = None
    if choice.action == "enact":
        text = f"{diagnosis.text}; {choice.text}"
        order = Enactment(choice.plan, diagnosis.reason, text, choice.asked, 0, choice.degraded)
        begin(turn, order)
    action = "plan" if choice.action == "enact" else "adopt"
    _record(turn, diagnosis, action, f"{diagnosis.text} – {choice.text}", choice)


def change_to(k: Knowledge, plan: Plan) -> tuple[ThreadChanges, int]:
    """(what bringing this plan into force would change, how many leaving threads would come back)."""
    rollout, topology = k.durable.rollout, k.topology
    assert topology is not None
    threads = movable(k)
    change = diff(threads, plan.placement, topology, k.durable.next_thread)
    leaving = {thread.thread for thread in rollout.leaving} if rollout is not None else set()
    return change, sum(thread.thread in leaving for thread in change.keep)


def why_held(k: Knowledge, diagnosis: Diagnosis) -> str:
    """Why no plan is made by itself though one is called for; in mode advise nothing is, so advice goes on."""
    if k.mode == "advise":
        return ""
    if k.settings.plan is not None:
        return "the plan was given and is held"
    return f"{k.hold} (`headgate resume`)" if k.durable.held_plan and diagnosis.reason not in FAULTS else ""


def advise(turn: Turn, text: str, slots: int = 0) -> None:
    """What would be done now; reported once for each number of slots. Empty: nothing."""
    k = turn.knowledge
    if text and slots != k.advised_slots:
        turn.event("advice", f"advice: {text}")
    k.advice, k.advised_slots = text, slots


def why_still(k: Knowledge, diagnosis: Diagnosis, now_ns: int) -> str:
    """Why nothing may be started now; empty when it may."""
    if now_ns < k.journal_retry_ns:
        return "the journal takes no records"
    if diagnosis.reason in FAULTS:
        return ""
    if k.enacting and k.dead_end is None:
        return f"plan {k.durable.next_epoch - 1} is being enacted"
    rises = (
        diagnosis.reason == "rate_changed"
        and k.plan is not None
        and (diagnosis.rate_tps or 0) > k.plan.rate_tps
    )
    urgent = rises or diagnosis.reason in ("first_rows", *TROUBLES) or k.windows_passed >= PROBATION_WINDOWS
    if k.durable.phase == "probation" and k.durable.before is not None and not urgent:
        return f"plan {k.epoch} is on probation"
    return ""


def _record(
    turn: Turn,
    diagnosis: Diagnosis,
    action: str,
    text: str,
    choice: PlanChoice | None = None,
) -> None:
    k = turn.knowledge
    plan = choice.plan if choice else None
    turn.decided(
        {
            "schema": DECISION_SCHEMA,
            "time": utc_iso(turn.now.wall_ns),
            "epoch": k.epoch,
            "trigger": diagnosis.reason,
            "evidence": diagnosis.evidence,
            "alternatives": [*diagnosis.alternatives, *(choice.rejected if choice else ())],
            "action": action,
            "text": text,
            "plan": _plan(plan, choice, k) if plan and choice else None,
            "enacted": enacted_of(k.durable),
        },
        plan,
    )


def _plan(plan: Plan, choice: PlanChoice, k: Knowledge) -> dict[str, Any]:
    traffic = crossings_of(plan, k.topology) if plan.prediction.flows and k.topology is not None else None
    return {
        "id": plan.id,
        "rate_tps": plan.rate_tps,
        "predicted_tps": plan.prediction.told_tps,
        "limited_by": plan.prediction.limited_by,
        "limited_by_slot": plan.prediction.limited_by_slot,
        "slots": plan.slots.used,
        "moves": choice.moves,
        **({"price": price_data(choice.price)} if choice.price is not None else {}),
        "asked": [vm.vm for vm in choice.asked],
        "degraded": choice.degraded or None,
        **({"traffic": asdict(traffic), "flows": [*map(asdict, plan.prediction.flows)]} if traffic else {}),
        **({"chance": round(plan.prediction.sure.chance, 4)} if plan.prediction.sure is not None else {}),
    }


# ── what there is to plan with ──────────────────────────────────────────────────────────────────


def question(
    k: Knowledge,
    rate_tps: float,
    reason: str = "",
    without: AbstractSet[str] = frozenset(),
) -> PlanQuestion:
    """What `choose` is asked, for this reason. After a fault nothing is waited for: it plans with what is there.
    without: VMs to leave out that are not cordoned."""
    run, s = k.durable.run, k.settings
    if run is None:
        raise InvalidInput("there is no topology to plan for", hint="`headgate submit`")
    dead, routes = dead_slots(k), routes_now(k.durable)[1]
    here = tuple(k.durable.as_fast_as_seen(vm) for vm in present(k) if vm.vm not in without)
    tasks = {t.thread: t.task for t in k.durable.rollout.threads} if k.durable.rollout is not None else {}
    request = PlanRequest(
        topology=run.topology,
        models=slot_troubles.planned_with(k),
        rate_tps=rate_tps,
        vms=here,
        may_add=() if reason in FAULTS else addable(k, here),
        excluded=slot_troubles.barred(k),
        pinned=pins(k, dead, here, without),
        allocator=s.allocator,
        mapper=(s.triggers.first if k.durable.rollout is None else "") or s.mapper,
        routing=s.routing,
        interference=s.interference,
        spread=TopologySpread(*s.topology_spread),
        as_printed=s.as_printed,
        bounds={"": s.triggers.load_bound, **s.triggers.vm_bounds} if s.as_printed else {},
        base_epoch=k.epoch or None,
        margin=s.margin,
        p95_ms=s.p95_ms,
        sure=Sure(s.sure, spread_of(k.models, s.ledger), strict=False) if s.sure else None,
        traffic=k.traffic.measured if s.mapper in MAPPERS and MAPPERS[s.mapper].by_traffic else None,
        in_force=_in_force(k, dead, reason),
        states=task_states(k.states_held, tasks),
        state_most_bytes=s.state_in_memory,
    )
    apart = without if reason == "link_cut" else frozenset()
    threads = tuple(thread for thread in movable(k) if thread.slot.vm not in apart)
    rollout = k.durable.rollout
    leaving = frozenset(t.thread for t in rollout.leaving) if rollout is not None else frozenset()
    closed = frozenset(k.open_circuits)
    forced, ordered = reason in FAULTS, reason in MUST_GO
    return PlanQuestion(
        request, threads, k.plan, forced, closed, k.durable.next_thread, leaving, ordered,
        may_stay=reason in STAYS,
        near_stays=reason in BY_RATE,
        counted_tps=_counted_tps(k),
        routes=routes,
        sizes=range_sizes(k.states_held, routes, run.topology),
        move_bytes_s=measured_rate(k.durable.rollouts),
    )  # fmt: skip


def _in_force(k: Knowledge, dead: AbstractSet[Slot], reason: str) -> Placement | None:
    """What runs, for plans that move little; where threads are to be elsewhere, only schedulers that look at both know
    it."""
    mapper = MAPPERS.get(k.settings.mapper)
    if mapper is None or (reason in ELSEWHERE and not mapper.steady):
        return None
    return standing(k.plan, dead)


def _counted_tps(k: Knowledge) -> float:
    """The rate that threads of the plan in force were counted for; it may have been adopted for others since."""
    return next((one.rate_tps for one in reversed(k.durable.rollouts) if one.epoch == k.epoch), 0.0)


def present(k: Knowledge) -> tuple[Vm, ...]:
    """VMs to plan with, in order of preference: those that shall be there first, then by name."""
    first = {vm.vm: place for place, vm in enumerate(k.settings.initial)}
    apart = {*k.durable.held_dead, *k.durable.cordoned, *unreached(k)}
    there = [m.vm for m in k.members.up() if m.vm.vm not in apart]
    return tuple(sorted(there, key=lambda vm: (first.get(vm.vm, len(first)), natural(vm.vm))))


def pins(
    k: Knowledge,
    dead: frozenset[Slot],
    here: tuple[Vm, ...],
    without: AbstractSet[str] = frozenset(),
) -> dict[str, tuple[Slot, ...]]:
    """Where threads of tasks of fixed size are to stay: where they are, if that is on a VM from the
    beginning; sources on the VM where events of theirs wait that nobody reads."""
    topology = k.topology
    assert topology is not None
    kept = ({vm.vm for vm in k.settings.initial} or {vm.vm for vm in here}) - {*k.durable.cordoned, *without}
    threads = movable(k)
    drained = _where_unread(k, threads, slot_troubles.barred(k), here)
    found: dict[str, tuple[Slot, ...]] = {}
    for task in topology.tasks:
        if task.static is None:
            continue
        now = {t.partition: t.slot for t in threads if t.task == task.name}
        slots = {p: slot for p, slot in now.items() if slot.vm in kept and slot not in drained.values()}
        slots |= {p: slot for (name, p), slot in drained.items() if name == task.name}
        if slots:
            found[task.name] = tuple(slots[p] for p in sorted(slots))
    return found


def _where_unread(
    k: Knowledge, threads: tuple[ThreadAt, ...], barred: AbstractSet[Slot], here: tuple[Vm, ...]
) -> dict[Partition, Slot]:
    """Where partitions of sources are to go since events of theirs wait there that nobody reads: into a slot
    without threads if there is one."""
    found: dict[Partition, Slot] = {}
    used = {thread.slot for thread in threads}
    slots = {vm.vm: [slot for slot in vm.all_slots() if slot not in barred] for vm in here}
    for place, vm in sorted(without_reader(k)):
        free = sorted(slots.get(vm, ()), key=lambda slot: (slot in used, slot))
        if free and place not in found:
            found[place] = free[0]
            used.add(free[0])
    return found


# ── the first plan ──────────────────────────────────────────────────────────────────────────────


def first_plan(turn: Turn) -> None:
    """Plan for the rate at which the run begins, once the VMs are there."""
    k = turn.knowledge
    run = k.durable.run
    if k.durable.rollout is not None or k.adopting_until_ns:
        return
    if run is None or turn.now.mono_ns < k.journal_retry_ns or not gathered(turn):
        return
    if k.durable.waiting is not None:
        return  # it is made already and waits for its machines
    if k.settings.plan is not None:
        return _begin_given(turn, k.settings.plan)
    rate_tps = max(run.steps[0][1], FIRST_RATE_LEAST_TPS) * k.settings.headroom
    diagnosis = Diagnosis("replan", "start", _first_words(run), rate_tps, {}, ())
    try:
        choice = choose(question(k, rate_tps), background_planning.planned_in_background(turn, diagnosis))
        if choice.plan is None:
            raise Infeasible("the first plan was not made", cause=choice.text)
        sure = not any(model.unmeasured or model.tentative for model in k.models.values())
        if sure and choice.plan.prediction.rate_tps < run.steps[0][1]:
            raise Infeasible(
                f"no plan carries the {significant(run.steps[0][1], 6)} rows/s that are offered from the start",
                cause=choice.degraded,
                hint="allow more VMs (`--max-vms`), larger slots (`--slot-cores`), or offer less",
            )
    except background_planning.NotYet:
        return
    except HeadgateError as error:
        _no_first_plan(turn, error)
        return
    k.considered = planned_with(k, present(k))
    text = f"{diagnosis.text}; {choice.text}"
    begin(turn, Enactment(choice.plan, "start", text, choice.asked, 0, choice.degraded))
    _record(turn, diagnosis, "plan", text, choice)


def _first_words(run: Submitted) -> str:
    rate = f"{significant(run.steps[0][1], 6)} rows/s"
    if run.uncapped:
        return f"how many rows will come is not known yet: {rate} to begin with"
    return f"at most {rate} are read" if run.topology.arriving else f"{rate} are offered"


def _begin_given(turn: Turn, plan: Plan) -> None:
    """The plan of the settings as it is, on the VMs of its names."""
    k = turn.knowledge
    assert k.topology is not None
    here = {vm.vm: vm for vm in present(k)}
    faults = [
        f"there is no VM {vm.vm!r} with {counted(vm.slots, 'slot')}"
        for vm in plan.vms
        if vm.vm not in here or here[vm.vm].slots < vm.slots
    ]
    faults += faults_of(plan, k.topology, k.models)
    if faults:
        _no_first_plan(turn, InvalidInput(f"plan {plan.id} cannot be run here", faults=faults))
        return
    plan = replace(plan, vms=tuple(here[vm.vm] for vm in plan.vms))
    text = f"the plan that was given: {counted(plan.slots.used, 'slot')} for {significant(plan.rate_tps, 6)} rows/s"
    begin(turn, Enactment(plan, "start", text))
    diagnosis = Diagnosis("replan", "start", text, plan.rate_tps, {}, ())
    _record(turn, diagnosis, "plan", text, PlanChoice("enact", text, plan))


def gathered(turn: Turn) -> bool:
    """Are the VMs there that shall be, or was long enough waited for them?"""
    k = turn.knowledge
    there = {m.vm.vm for m in k.members.up() if m.boot}
    waited_ns = turn.now.mono_ns - k.gathering_since_ns
    expected = {vm.vm for vm in k.settings.initial}
    if not expected:
        return bool(there) and waited_ns >= GATHER_ANY_NS
    return expected <= there or (bool(there) and waited_ns >= GATHER_NS)


def _no_first_plan(turn: Turn, error: HeadgateError) -> None:
    """Without a first plan there is no run; a controller that waits for VMs, also for those that an operator keeps out,
    or for slots that others have, goes on waiting."""
    k = turn.knowledge
    apart = k.durable.cordoned or k.durable.granted is not None
    if (k.settings.initial and not apart) or isinstance(error, InvalidInput):
        turn.do(Finish(None, error))
        return
    turn.alarm("plan", f"no first plan: {error.what}{what_is_barred(k)}")
    k.gathering_since_ns = turn.now.mono_ns


def enact_proposal(turn: Turn) -> None:
    """An operator approved the plan that waits. Raises Conflict when it cannot be enacted any more."""
    k = turn.knowledge
    found = k.proposal
    assert found is not None
    there = {vm.vm for vm in (*present(k), *found.asked)}
    missing = sorted({bundle.slot.vm for bundle in found.plan.placement.bundles} - there)
    k.proposal = None
    if missing:
        raise Conflict(f"plan {found.plan.id} is stale: VM {missing[0]} is gone")
    text = f"approved; {found.text}"
    begin(turn, Enactment(found.plan, found.reason, text, found.asked, 0, found.degraded))


def close_circuits(k: Knowledge, now_ns: int) -> None:
    """Plans that failed long enough ago may be tried again."""
    for name in [name for name, until_ns in k.open_circuits.items() if until_ns <= now_ns]:
        del k.open_circuits[name]
