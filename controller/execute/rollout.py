"""Brings a plan into force: begins enactments, moves them through their phases, sends desired states.

`rollout_steps.py` says what a phase waits for; this file does what follows. Every enactment starts from what exists:
all threads of the plans before it that can still be alive [A4].
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.controller.execute import handover, rollout_steps
from headgate.controller.execute.desired_state import (
    compose,
    data_plane,
    first_specs,
    keepers_next,
    routes_now,
    wire_threads,
)
from headgate.controller.execute.move_price import measured_rate, price_of
from headgate.controller.execute.plan_diff import diff
from headgate.controller.execute.rollout_steps import PROBATION_WINDOWS
from headgate.controller.knowledge.diagnoses import Stability
from headgate.controller.knowledge.held_states import range_sizes
from headgate.controller.knowledge.journal_records import (
    Durable,
    Gone,
    HeldDead,
    MachineAsked,
    MachineReleased,
    Phase,
    PhaseEntered,
    RolloutStarted,
    Scheduled,
)
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Finish, ReleaseMachine, RequestMachine
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.knowledge.spooled_events import unread
from headgate.controller.models.plans import Plan, ThreadAt
from headgate.controller.models.task_models import Model, peak_rate
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.errors import EnactmentFailed
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire.messages import Route, ThreadSpec, Token

# ── Where rows of each edge go, from a plan's shares and its numbered threads. Pure ─────────────────────
#
# A group's share of its task's rows is divided evenly among its threads. Every `fields` edge into a task
# uses the same key ranges, so that a key meets one thread whichever way it comes.

Weights = list[tuple[int, float]]  # (thread, part of the task's rows), by rising thread, sum 1


def routes(
    topology: Topology, plan: Plan, threads: tuple[ThreadAt, ...], before: tuple[Route, ...] = ()
) -> tuple[Route, ...]:
    """One route per edge in file order. `threads`: those of the plan, without leaving ones.

    `before`: the routes in force; key ranges stay with their owner unless its weight forbids that."""
    weights = thread_weights(plan, threads)
    owners = _owners_before(topology, before)
    ranges: dict[str, list[int]] = {}
    found = []
    for number, edge in enumerate(topology.edges):
        targets = weights[edge.target]
        if edge.grouping == "global":
            found.append(Route(number, ((targets[0][0], 1.0),)))
        elif edge.grouping == "fields":
            if edge.target not in ranges:
                ranges[edge.target] = owners_of_ranges(targets, owners.get(edge.target, ()))
            found.append(Route(number, tuple(targets), _runs(ranges[edge.target])))
        else:
            found.append(Route(number, tuple(targets)))
    return tuple(found)


def modelled_tps(
    plan: Plan, topology: Topology, models: Mapping[str, Model], threads: tuple[ThreadAt, ...]
) -> dict[int, float]:
    """Thread → rows/s it is modelled for: its part of I(q), or of the planned rate where there is no
    model (sources, tasks that nothing is known of yet)."""
    sizes = {(bundle.slot, bundle.task): bundle.threads for bundle in plan.placement.bundles}
    rates = {task.task: task.rate_tps for task in plan.allocation.tasks}
    weights = {thread: part for parts in thread_weights(plan, threads).values() for thread, part in parts}
    modelled = {}
    for thread in threads:
        task = topology.by_name[thread.task]
        if task.static is None and not models[task.model_name].unmeasured:
            size = sizes[thread.slot, thread.task]
            modelled[thread.thread] = peak_rate(models[task.model_name], size) / size
        else:
            modelled[thread.thread] = rates[thread.task] * weights[thread.thread]
    return modelled


def thread_weights(plan: Plan, threads: Sequence[ThreadAt]) -> dict[str, Weights]:
    """Task → (thread, part of its rows): the shares of the plan, evenly within each group."""
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    members: defaultdict[tuple[Slot, str], int] = defaultdict(int)
    for thread in threads:
        members[thread.slot, thread.task] += 1
    weights: defaultdict[str, Weights] = defaultdict(list)
    for thread in sorted(threads, key=lambda thread: thread.thread):
        group = thread.slot, thread.task
        weights[thread.task].append((thread.thread, shares[group] / members[group]))
    for parts in weights.values():
        total = math.fsum(part for _, part in parts)
        parts[:] = [(thread, part / total if total > 0 else 1 / len(parts)) for thread, part in parts]
    return dict(weights)


def owners_of_ranges(targets: Weights, before: Sequence[int]) -> list[int]:
    """The owner of each of the 1,024 key ranges: as many for a thread as its weight says, the fewest
    moved from `before` (the owners now; empty: none), what moves in runs as long as may be."""
    desired = _quotas(targets)
    owners: list[int | None] = [None] * KEY_RANGES
    for place, owner in enumerate(before):
        if desired.get(owner, 0) > 0:
            desired[owner] -= 1
            owners[place] = owner
    missing = (thread for thread, _ in targets for _ in range(desired[thread]))
    return [owner if owner is not None else next(missing) for owner in owners]


def _quotas(targets: Weights) -> dict[int, int]:
    """1,024 ranges by weight: the largest remainders get what rounding down leaves over."""
    exact = {thread: weight * KEY_RANGES for thread, weight in targets}
    quotas = {thread: math.floor(ranges) for thread, ranges in exact.items()}
    left = KEY_RANGES - sum(quotas.values())
    by_remainder = sorted(exact, key=lambda thread: (quotas[thread] - exact[thread], thread))
    for i in range(left):
        quotas[by_remainder[i % len(by_remainder)]] += 1
    return quotas


def _owners_before(topology: Topology, before: Sequence[Route]) -> dict[str, list[int]]:
    """Task → owner of each of its key ranges by the routes `before`."""
    owners: dict[str, list[int]] = {}
    for route in before:
        if route.ranges:
            owned = [thread for thread, count in route.ranges for _ in range(count)]
            owners.setdefault(topology.edges[route.edge].target, owned)
    return owners


def _runs(owners: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Run-length code: (thread, how many ranges)."""
    runs: list[list[int]] = []
    for owner in owners:
        if runs and runs[-1][0] == owner:
            runs[-1][1] += 1
        else:
            runs.append([owner, 1])
    return tuple((owner, count) for owner, count in runs)


NS = 1_000_000_000
START_DELAY_NS = 50_000_000  # the offer begins a moment after the plan is in force: nobody starts late
CIRCUIT_NS = 60 * NS  # a plan that failed is not tried again for so long
IN_FORCE: frozenset[Phase] = frozenset({"switched", "probation", "committed"})


# ── what is there ───────────────────────────────────────────────────────────────────────────────


def dead_slots(k: Knowledge) -> frozenset[Slot]:
    """Slots of the present enactment where nothing can live: on VMs that are lost, or quarantined; or where nothing
    began to live, and no longer is to."""
    gone = {*k.members.gone(), *k.durable.held_dead}
    rollout = k.durable.rollout
    slots, never = rollout.slots if rollout is not None else (), k.dead_end or ()
    barred = k.members.quarantined.union(never)
    return frozenset(slot for slot in slots if slot.vm in gone or slot in barred)


def movable(k: Knowledge) -> tuple[ThreadAt, ...]:
    """Existing threads that the next plan may keep."""
    d, dead = k.durable, dead_slots(k)
    if d.rollout is None:
        return ()
    return tuple(
        ThreadAt(t.thread, t.task, t.slot, t.partition)
        for t in wire_threads(d)
        if t.slot not in dead and not (t.leaving and _past_return(k, t))
    )


def _past_return(k: Knowledge, thread: ThreadSpec) -> bool:
    """A leaving thread that cannot stay after all: it may have ended, or its successor reads already."""
    topology = k.topology
    assert topology is not None
    now = k.members.thread(thread)
    source = not topology.in_edges(thread.task)
    ended = now is not None and now.ended
    return k.durable.lets_go or source or topology.by_name[thread.task].exclusive or ended


# ── beginning ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Enactment:
    """A plan to enact, and why. asked: VMs to get from the provider first. undoes: the epoch that it
    rolls back."""

    plan: Plan
    reason: str
    text: str
    asked: tuple[Vm, ...] = ()
    undoes: int = 0
    degraded: str = ""


def begin(turn: Turn, order: Enactment) -> RolloutStarted:
    """Journal a plan and begin its enactment."""
    k = turn.knowledge
    dead = dead_slots(k)
    planned = _planned(k, order, dead, turn.now.wall_ns)
    held = tuple(sorted({*k.durable.held_dead, *({slot.vm for slot in dead} & set(k.members.gone()))}))
    if held != k.durable.held_dead:
        turn.record(HeldDead(held))
    for vm in order.asked:
        turn.record(MachineAsked(vm, turn.now.wall_ns))
        turn.do(RequestMachine(vm))
    k.members.await_(order.asked)
    if k.durable.waiting is not None:
        give_up(turn, "another plan took its place", keep=planned.awaits, failed=False)
    turn.record(planned)
    _take_up(k, planned)
    k.phase_since_ns = turn.now.mono_ns
    k.windows_bad = k.windows_passed = 0
    k.unproved, k.probation_done, k.crashes_before = "", None, {}
    text = f"plan {planned.epoch} ({order.reason}): {order.text}"
    turn.event("plan", text, plan=order.plan.id, reason=order.reason, fresh=len(planned.fresh))
    return planned


def _take_up(k: Knowledge, planned: RolloutStarted) -> None:
    """Slots that are used though they were barred are as others from now on."""
    k.nothing_else, k.dead_end = False, None
    for slot in planned.staying_slots:
        k.left_out.pop(slot, None)
        if slot in k.members.quarantined:
            k.members.take_up(slot, planned.epoch)
            k.given_up_since.pop(slot, None)


def _planned(k: Knowledge, order: Enactment, dead: frozenset[Slot], wall_ns: int) -> RolloutStarted:
    d, plan = k.durable, order.plan
    assert d.run is not None
    topology, models = d.run.topology, k.models
    now = {t.thread: t for t in wire_threads(d) if t.slot not in dead} if d.rollout is not None else {}
    candidates = movable(k)
    change = diff(candidates, plan.placement, topology, d.next_thread)
    staying = (*change.keep, *change.start)
    number, before = routes_now(d)
    stay, unused = {t.thread for t in staying}, _unused(d, before)
    leaving = [t for n, t in now.items() if n not in stay and n not in unused]
    new = routes(topology, plan, staying, before)
    patched = around_dead(before, set(now), new)
    number = d.next_routes if patched != before else number
    sizes, rate = range_sizes(k.states_held, patched, topology), measured_rate(d.rollouts)
    price = price_of(change, patched, new, topology, sizes, rate)
    modelled = modelled_tps(plan, topology, models, staying)
    if d.rollout is not None:
        modelled |= {t.thread: d.rollout.modelled_tps.get(t.thread, 0.0) for t in leaving}
    return RolloutStarted(
        epoch=d.next_epoch,
        plan=replace(plan, base_epoch=d.rollout.epoch if d.rollout else None),
        reason=order.reason,
        text=order.text,
        wall_ns=wall_ns,
        threads=_in_order([*_desired(staying, now, d.code), *(replace(t, leaving=True) for t in leaving)]),
        fresh=tuple(t.thread for t in change.start),
        already=tuple(n for n, t in now.items() if t.leaving),
        routes_number=max(number + 1, d.next_routes),
        routes=new,
        before_number=number,
        before_routes=patched,
        modelled_tps=modelled,
        next_thread=change.next_thread,
        awaits=tuple(vm.vm for vm in order.asked),
        undoes=order.undoes,
        degraded=order.degraded,
        keepers=keepers_next(d, topology, number, patched),
        state_bytes=price.bytes_moved,
        slowest_bytes=price.slowest_bytes,
        pause_s=round(price.pause_s, 3),
    )


def _unused(d: Durable, routes_: tuple[Route, ...]) -> set[int]:
    """Threads that an enactment started and that never got a row: it was PREPARED only. They end at once,
    whether they were ever ready or not."""
    if d.rollout is None or d.phase != "prepared":
        return set()
    return set(d.rollout.fresh) - {thread for route in routes_ for thread, _ in route.targets}


def _desired(threads: Iterable[ThreadAt], now: dict[int, ThreadSpec], newest: int) -> list[ThreadSpec]:
    """With the code that lives in their slots: a worker has one."""
    codes = {t.slot: t.code for t in now.values()}
    return [
        ThreadSpec(t.thread, t.task, t.slot, t.partition, code=codes.get(t.slot, newest)) for t in threads
    ]


def _in_order(threads: list[ThreadSpec]) -> tuple[ThreadSpec, ...]:
    return tuple(sorted(threads, key=lambda t: t.thread))


def around_dead(before: tuple[Route, ...], alive: set[int], new: tuple[Route, ...]) -> tuple[Route, ...]:
    """Routes that send nothing to threads that are no more: to those left, or else to the new ones."""
    fresh = {route.edge: route for route in new}
    return tuple(_around(route, alive, fresh) for route in before)


def _around(route: Route, alive: set[int], fresh: dict[int, Route]) -> Route:
    left = tuple((thread, weight) for thread, weight in route.targets if thread in alive)
    if len(left) == len(route.targets):
        return route
    if not left:
        return fresh.get(route.edge, route)
    total = sum(weight for _, weight in left)
    targets = tuple((t, weight / total if total > 0 else 1 / len(left)) for t, weight in left)
    ranges = tuple(
        (thread if thread in alive else left[i % len(left)][0], count)
        for i, (thread, count) in enumerate(route.ranges)
    )
    return Route(route.edge, targets, ranges)


def circuit_of(plan: Plan) -> str:
    """Names plans that would fail alike: the same threads of every task on as many slots."""
    threads = ",".join(f"{task.task}×{task.threads}" for task in plan.allocation.tasks)
    return f"{threads} on {plan.slots.used}"


# ── going on ────────────────────────────────────────────────────────────────────────────────────


def enact(turn: Turn) -> None:
    """Compose the desired state and go as far through the phases as what is reported allows."""
    k = turn.knowledge
    if _is_at_rest(k.durable) and not _out_of_date(k) and not handover.vacant(k):
        return
    for _ in range(len(rollout_steps.TABLE)):
        if _out_of_date(k):
            compose(k)
            k.composed_of = (k.durable, (k.members.version, k.members.roster), k.impatient)
        if not _advance(turn):
            return


def _is_at_rest(d: Durable) -> bool:
    """Nothing waits, nothing leaves, and no VM could be given back: no report changes anything."""
    over = d.rollout is not None and d.lets_go and not d.rollout.leaving
    return over and d.waiting is None and not d.machines


def _out_of_date(k: Knowledge) -> bool:
    """May the desired state be another than the one composed last?"""
    if k.desired is None or k.composed_of is None or k.desired.starts:
        return True
    if k.desired.token.epoch and k.desired.settings != data_plane(k):
        return True
    if (k.desired.profile, k.desired.profiles) != (k.profiles.desired, first_specs(k)):
        return True
    durable, versions, impatient = k.composed_of
    moving = durable.rollout is not None and bool(durable.rollout.leaving)
    now = (k.members.version, k.members.roster), k.impatient
    return moving or durable is not k.durable or (versions, impatient) != now


def _advance(turn: Turn) -> bool:
    """One step of the enactment; True when something changed."""
    k = turn.knowledge
    d = k.durable
    stand = stand_of(k, turn.now.mono_ns)
    if stand is None or k.adopting_until_ns or turn.now.mono_ns < k.journal_retry_ns:
        return False
    if handover.hand_over(turn) or handover.appoint(turn) or _leavers_over(turn):
        return True
    if d.lets_go and d.waiting is None:
        return _let_go(turn, stand)
    failed = [] if stand.planned.undoes else _fresh_failures(stand)
    if failed:
        return _failed(turn, stand, failed)
    planned, phase, item = k.missing
    same = planned is stand.planned and phase == stand.phase  # not the epoch: one taken back is used again
    step = rollout_steps.next_step(stand, item if same else None)
    k.missing = stand.planned, stand.phase, step.item
    if step.kind == "enter":
        _enter(turn, stand, step.phase)
        return True
    return step.kind == "late" and _late(turn, stand)


def stand_of(k: Knowledge, now_ns: int) -> rollout_steps.RolloutProgress | None:
    """Where the enactment under way stands; None before the first plan."""
    d = k.durable
    planned: RolloutStarted | None = d.waiting or d.rollout
    if planned is None or d.run is None:
        return None
    phase: Phase = "machines" if d.waiting is not None else d.phase
    token = k.desired.token if k.desired is not None else Token(d.boot)
    more = k.windows_passed, k.unproved, round(k.settings.machines_wait_s * NS)
    since_ns, topology = k.phase_since_ns, d.run.topology
    return rollout_steps.RolloutProgress(planned, phase, since_ns, now_ns, token, topology, k.members, *more)


def _enter(turn: Turn, stand: rollout_steps.RolloutProgress, phase: Phase) -> None:
    k, epoch = turn.knowledge, stand.planned.epoch
    turn.record(PhaseEntered(epoch, phase, turn.now.wall_ns))
    k.phase_since_ns = turn.now.mono_ns
    k.impatient, k.dead_end = False, None
    turn.alarm("enactment", "")
    run = k.durable.run
    if phase == "switched":
        k.switched_ns = turn.now.mono_ns
    if phase == "probation":
        k.in_force_ns, k.done_before = turn.now.mono_ns, k.counts.done
    if phase == "switched" and k.durable.schedule is None and run is not None:
        start_ns = turn.now.wall_ns + START_DELAY_NS
        base = k.durable.begun.base if k.durable.begun is not None else 0.0
        turn.record(Scheduled(Schedule(start_ns, run.steps, run.period_s, base, uncapped=run.uncapped)))
    words = {
        "prepared": f"plan {epoch}: its machines are there",
        "switched": f"plan {epoch}: all workers are ready, switching",
        "probation": f"plan {epoch} is in force",
        "committed": f"plan {epoch} is committed",
    }
    turn.event(phase, words[phase], level="debug" if phase in ("prepared", "switched") else "info")


def _fresh_failures(stand: rollout_steps.RolloutProgress) -> list[str]:
    """Why threads of this plan could not be built (the logic of a fresh thread raised). That becomes known before the
    switch, but for threads of a worker that began anew since. (A plan that was gone back to stays, whatever its
    threads: to go back once more would lead here again.)"""
    if stand.phase not in ("prepared", "switched"):
        return []
    tasks = {t.thread: t.task for t in stand.planned.threads if t.thread in stand.planned.fresh}
    failed = sorted(stand.members.failed.items())
    return [f"task {tasks[thread]}, {text}" for thread, text in failed if thread in tasks]


def _failed(turn: Turn, stand: rollout_steps.RolloutProgress, failed: list[str]) -> bool:
    if turn.knowledge.durable.before is not None:
        return roll_back(turn, f"could not be built: {rollout_steps.named(failed)}")
    error = EnactmentFailed(
        "the first plan could not be enacted",
        cause=rollout_steps.named(failed),
        hint="mend the task; the traceback is in agents/VM/logs/worker-SLOT.log of the run's state",
    )
    turn.do(Finish(None, error))
    return False


def _late(turn: Turn, stand: rollout_steps.RolloutProgress) -> bool:
    k, missing = turn.knowledge, rollout_steps.waits_for(stand)
    if stand.phase == "machines":
        give_up(turn, f"after {k.settings.machines_wait_s:g} s these were not there: {missing}")
        return True
    back, builds = k.durable.before, rollout_steps.only_builds(stand)
    if stand.phase == "prepared" and not builds and back is not None and not stand.planned.undoes:
        why = f"not ready after {rollout_steps.PREPARED_LIMIT_NS / NS:g} s: {missing}"
        if roll_back(turn, why):
            return True
        k.dead_end = rollout_steps.never_ready(stand)
        return False
    if stand.phase == "prepared" and not builds:
        k.dead_end = rollout_steps.never_ready(stand)
    text = f"plan {stand.planned.epoch} has been {stand.phase} for long: waiting for {missing}"
    turn.alarm("enactment", text)
    return False


def give_up(turn: Turn, why: str, keep: tuple[str, ...] = (), failed: bool = True) -> None:
    """Stop waiting for machines; the old plan holds. VMs asked for and not kept are given back."""
    k = turn.knowledge
    waiting = k.durable.waiting
    assert waiting is not None
    held = _held_no_more(k, waiting.epoch)
    turn.record(PhaseEntered(waiting.epoch, "abandoned", turn.now.wall_ns, why))
    if failed:
        k.open_circuits[circuit_of(waiting.plan)] = turn.now.mono_ns + CIRCUIT_NS
    k.phase_since_ns = turn.now.mono_ns
    for vm in waiting.awaits:
        if vm not in keep:
            release(turn, vm, why)
    turn.event("abandoned", f"plan {waiting.epoch} was given up: {why}{held}", level="warning")


def _held_no_more(k: Knowledge, epoch: int) -> str:
    held = k.durable.held_plan
    ends = held is not None and held.epoch == epoch
    return ", and is held no more" if ends else ""


def release(turn: Turn, vm: str, why: str) -> None:
    turn.record(MachineReleased(vm, why))
    turn.do(ReleaseMachine(vm))
    turn.event("machine", f"VM {vm} is given back: {why}")


def roll_back(turn: Turn, why: str) -> bool:
    """A new enactment towards the plan before; False (and an alarm) when that plan has no place any more."""
    k = turn.knowledge
    d = k.durable
    assert d.before is not None and d.rollout is not None
    bad = d.rollout
    places = {bundle.slot for bundle in d.before.plan.placement.bundles}
    gone = {slot for slot in places if slot.vm not in k.members.here or slot.vm in d.held_dead}
    lost = sorted(gone | (places & k.members.quarantined - k.reusable))
    if lost:
        k.dead_end = k.dead_end or frozenset()
        k.alarms["enactment"] = f"plan {bad.epoch} failed ({why}); no way back, {lost[0]} is gone"
        return False
    k.open_circuits[circuit_of(bad.plan)] = turn.now.mono_ns + CIRCUIT_NS
    text = f"back to plan {d.before.epoch}: plan {bad.epoch} {why}{_held_no_more(k, bad.epoch)}"
    begin(turn, Enactment(d.before.plan, "rolled_back", text, undoes=bad.epoch))
    return True


# ── what is over ────────────────────────────────────────────────────────────────────────────────


def _leavers_over(turn: Turn) -> bool:
    """Leaving threads that said they have ended, that are on a lost VM or in a quarantined slot, or that cannot be
    built (of a task that keeps nothing there), are no longer desired in any phase: they mark nobody, so nobody must
    wait for their marks [B1, B2].

    While PREPARED rows still go to leaving threads; a VM lost then is a reason for a new plan."""
    d = turn.knowledge.durable
    rollout = d.rollout
    if rollout is None or not rollout.leaving:
        return False
    gone: set[str] = set()
    if d.phase != "prepared" and not turn.members.mass_loss:
        gone = {t.slot.vm for t in rollout.leaving} & set(turn.members.gone())
        gone -= {slot.vm for slot in rollout.staying_slots}
    quarantined = turn.members.quarantined if d.phase != "prepared" else frozenset()
    unbuilt = turn.members.failed if d.phase != "prepared" else {}
    tasks = d.run.topology.by_name if d.run is not None else {}
    over = tuple(
        t.thread
        for t in rollout.leaving
        if (rollout_steps.said_ended(turn.members, t) and not handover.still_open(turn.knowledge, t))
        or t.slot.vm in gone
        or t.slot in quarantined
        or (t.thread in unbuilt and tasks[t.task].movable and not handover.still_open(turn.knowledge, t))
    )
    if not over:
        return False
    if not gone <= set(d.held_dead):
        turn.record(HeldDead(tuple(sorted({*d.held_dead, *gone}))))
    turn.record(Gone(rollout.epoch, over))
    return True


def _let_go(turn: Turn, stand: rollout_steps.RolloutProgress) -> bool:
    """COMMITTED, or the run ends: leaving threads that ended are no longer desired; VMs without use are given back."""
    k = turn.knowledge
    over = set(rollout_steps.ended_leavers(stand))
    ended = tuple(
        t.thread for t in stand.planned.leaving if t.thread in over and not handover.still_open(k, t)
    )
    if ended:
        turn.record(Gone(stand.planned.epoch, ended))
        return True
    if not k.durable.machines:
        return False
    kept = {slot.vm for slot in stand.planned.slots} | {vm for _, vm in unread(k)}
    kept |= k.young_machines(turn.now)
    idle = [vm.vm for vm in k.durable.machines if vm.vm not in kept]
    for vm in idle:
        release(turn, vm, "no thread is left on it")
    return bool(idle)


# ── Is a plan that came into force as good as it was predicted to be? Pure ───
#
# It is watched for three windows. Only strong evidence takes it back: the topology does not keep up, what
# gets through is less than half of what was predicted, and the plan before was stable at this rate or more.

FAR_BELOW = 0.5  # of the predicted rate: no model is that far off where a plan works at all
BAD_WINDOWS = 2  # in a row, at the end: the first window still shows the transition
DIED_OFTEN = 2  # deaths of one worker in one window


def judge_probation(turn: Turn, stability: Stability, window: MeasuredWindow) -> None:
    """Note what the plan in force can do; at the end of each window of its probation judge it."""
    k = turn.knowledge
    d = k.durable
    if not k.in_force or d.rollout is None:
        return
    if stability.verdict in ("stable", "catching_up"):  # it does what is offered, or more
        k.proven[d.rollout.epoch] = max(window.offered_tps, k.proven.get(d.rollout.epoch, 0.0))
    if d.phase != "probation" or d.waiting is not None:
        return
    windows = int((turn.now.mono_ns - k.phase_since_ns) / (k.settings.probation_window_s * NS))
    if windows <= k.windows_passed:
        return
    k.windows_passed = windows
    k.unproved = unproved(turn, window)
    why = evidence_against(k, stability, window)
    k.windows_bad = k.windows_bad + 1 if why else 0
    if windows >= PROBATION_WINDOWS and k.windows_bad >= BAD_WINDOWS and not d.rollout.undoes:
        roll_back(turn, why)
    elif windows >= PROBATION_WINDOWS and k.unproved:
        turn.alarm("enactment", f"plan {d.rollout.epoch} is in force and not committed: {k.unproved}")


def say_uncommitted(turn: Turn) -> None:
    """The run is over: its last plan, when that never was committed."""
    k = turn.knowledge
    d = k.durable
    if d.rollout is None or d.phase == "committed":
        return
    idle = ", and nothing was processed" if k.counts.done <= k.done_before else ""
    if not idle:
        turn.alarm("enactment", "")
    stood = f"it was on probation{idle}" if d.phase == "probation" else "it came into force"
    text = f"plan {d.rollout.epoch} was not committed: the run ended while {stood}"
    turn.event("uncommitted", text, level="warning" if idle else "info")


def unproved(turn: Turn, window: MeasuredWindow) -> str:
    """Why it is not known that rows are processed under the plan in force; empty when they are, or none waits."""
    k, rollout = turn.knowledge, turn.knowledge.durable.rollout
    assert rollout is not None
    staying = {t.thread: t.task for t in rollout.threads if not t.leaving}
    failed = [f"task {staying[t]}, {text}" for t, text in sorted(k.members.failed.items()) if t in staying]
    if failed:
        return rollout_steps.named(failed)
    crashes = {slot: now.crashes for slot in rollout.staying_slots if (now := k.members.workers.get(slot))}
    died = {slot: many - k.crashes_before.get(slot, many) for slot, many in crashes.items()}
    k.crashes_before = crashes
    often = [f"the worker in {s} died {many} times" for s, many in sorted(died.items()) if many >= DIED_OFTEN]
    if often:
        return rollout_steps.named(often)
    done = k.counts.done
    before, k.probation_done = k.probation_done, done if k.probation_done is None else k.probation_done
    tasks = k.topology.by_name if k.topology is not None else {}
    taken = any(one.rate_in_tps > 0 for name, one in window.tasks.items() if tasks[name].kind != "source")
    taken = taken or any(
        task.kind == "hold" for task in tasks.values()
    )  # rows rest there, for as long as they may
    waits = k.counts.emitted > done
    if taken or not waits or (before is not None and done > before):
        return ""
    return "rows wait, and none was processed"


def evidence_against(k: Knowledge, stability: Stability, window: MeasuredWindow) -> str:
    """Why the plan should be taken back; empty without strong evidence."""
    rollout, before = k.durable.rollout, k.durable.before
    held = k.durable.held_plan
    if held is not None and rollout is not None and held.epoch == rollout.epoch:
        return ""  # an operator's word: what is wrong with it is said, and nothing undone
    if rollout is None or before is None or rollout.undoes or stability.verdict != "unstable":
        return ""
    predicted, known = rollout.plan.prediction.rate_tps, rollout.plan.prediction.told_tps is not None
    proven = k.proven.get(before.epoch, 0.0)
    if window.acked_tps >= FAR_BELOW * predicted or proven < window.offered_tps:
        return ""
    said = f" of {predicted:,.1f} predicted" if known else ""
    return f"does {window.acked_tps:,.1f} rows/s{said}, and plan {before.epoch} was stable at {proven:,.1f}"
