"""The desired state that agents are sent: composed from what is journaled and what is reported. Pure.

Rules:
 1. Everything that matters for correctness (threads, phase, routes and their number, schedule, draining,
    VMs held dead) comes from the journal; endpoints and source positions come from reports.
 2. A source partition is given a start only while its thread does not run, and only when no other thread
    of the partition is busy; the position is the highest ever reported as acked. A predecessor whose
    ledger does not empty (rows that a task keeps until more come) is waited for `HAND_OVER_NS`, then the
    successor starts where it stopped reading, and what is open there is counted apart (handover.py). If it is
    started again, it is ordered to read that again. So is one that died while its spool held events that nobody
    else can read: its successor starts behind these.
 3. A thread that was leaving before stays leaving on the wire while the next enactment is PREPARED, and
    the wire's phase stays "switched" for it: a source that has stopped reading never reads again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from msgspec.structs import replace

from headgate.controller.execute.end_of_input import end_now
from headgate.controller.knowledge.journal_records import ALL_GO_BY_IT, Durable, Holds, RolloutStarted
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import Send
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.spooled_events import end_of
from headgate.controller.models.task_models import Model, cpu
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import (
    ELSEWHERE,
    DesiredState,
    Keepers,
    Route,
    ThreadSpec,
    Token,
)
from headgate.topology_runtime.wire.report_messages import ProfileSpec
from headgate.topology_runtime.wire.run_options import DataPlaneSettings

# ── Who may hold the state of each key range: what the desired state says of keyed tasks. Pure ──────────
#
# While a plan is in force its owners hold everything: a keyed thread says that it has switched only once its
# ranges have come and gone. An enactment that is followed by another before that leaves several that may:
# its owners, and whoever could hold a range before it. Before any routes were switched to, nobody has any, or a
# checkpoint has.


def keepers_now(d: Durable, topology: Topology) -> tuple[Keepers, ...]:
    """By the desired state of now; `homes` are of all threads named."""
    if d.rollout is None:
        return ()
    if d.phase not in ALL_GO_BY_IT:
        return d.rollout.keepers
    return tuple(_layer(topology, d.rollout.routes_number, d.rollout.routes, d.rollout.threads, sure=True))


def keepers_next(
    d: Durable, topology: Topology, number: int, patched: tuple[Route, ...]
) -> tuple[Keepers, ...]:
    """Of a plan decided now, until it is in force. Rows go by routes `patched` until it is SWITCHED."""
    if d.rollout is None:
        return d.begun.keepers if d.begun is not None else ()
    found = [*keepers_now(d, topology)]
    if d.phase != "prepared":
        found += _layer(topology, d.rollout.routes_number, d.rollout.routes, d.rollout.threads)
    found += _layer(topology, number, patched, d.rollout.threads)
    return _distinct(found)


def _layer(
    topology: Topology,
    number: int,
    routes: Iterable[Route],
    threads: Iterable[ThreadSpec],
    sure: bool = False,
) -> Iterator[Keepers]:
    """The owners by these routes, per keyed task."""
    vms = {thread.thread: thread.slot.vm for thread in threads}
    seen: set[str] = set()
    for route in routes:
        task = topology.edges[route.edge].target
        if not route.ranges or task in seen or topology.by_name[task].state != "keyed":
            continue
        seen.add(task)
        owners = sorted({thread for thread, _ in route.ranges})
        homes = tuple((thread, vms[thread]) for thread in owners if thread in vms)
        yield Keepers(task, number, route.ranges, sure, homes)


def _distinct(found: Iterable[Keepers]) -> tuple[Keepers, ...]:
    """One of each table of owners: under its newest number; sure if it was once."""
    tables: dict[tuple[str, tuple[tuple[int, int], ...]], Keepers] = {}
    for h in found:
        known = tables.setdefault((h.task, h.ranges), h)
        homes = tuple(sorted({*known.homes, *h.homes}))
        number, sure = max(known.number, h.number), known.sure or h.sure
        tables[h.task, h.ranges] = replace(known, number=number, sure=sure, homes=homes)
    return tuple(tables.values())


def answering(
    keepers: Iterable[Keepers], threads: Iterable[ThreadSpec], vms: Iterable[Vm], quarantined: Set[Slot]
) -> tuple[ThreadSpec, ...]:
    """On each VM with snapshots that may be asked for and no thread that can answer: one that can, in the place of a
    thread that had one. In a slot that is not quarantined if there is any."""
    there = {t.slot.vm for t in threads if t.slot not in quarantined}
    slots = {vm.vm: [Slot(vm.vm, number) for number in range(vm.slots)] for vm in vms}
    found: dict[str, ThreadSpec] = {}
    for h in keepers:
        for thread, vm in h.homes:
            if vm not in there and vm in slots:
                slot = next((slot for slot in slots[vm] if slot not in quarantined), slots[vm][0])
                found.setdefault(vm, ThreadSpec(thread, h.task, slot, leaving=True, answers=True))
    return tuple(found[vm] for vm in sorted(found))


def named_keepers(
    keepers: Iterable[Keepers], desired: set[int], vms: set[str], elsewhere: bool = False
) -> tuple[Keepers, ...]:
    """As agents get it: `homes` only of threads that are not desired any more, on VMs that can answer; elsewhere: of
    all, since no VM is needed."""

    def homes(h: Keepers) -> tuple[tuple[int, str], ...]:
        if elsewhere:
            return tuple((thread, ELSEWHERE) for thread in sorted({t for t, _ in h.ranges} - desired))
        return tuple((thread, vm) for thread, vm in h.homes if thread not in desired and vm in vms)

    return tuple(replace(h, homes=homes(h)) for h in keepers)


# ── Which tasks may be chained: run by the one thread that sends to them
# (topology_runtime/worker/orders/thread_orders.py). Pure

COMPUTES = 0.8  # of the slot, at the peak of one thread: what such a task does not wait for, it computes


def computes(model: Model) -> bool:
    """Does one thread of the task fill its slot? Then a second thread beside it wins nothing by being another; one
    that waits for a service leaves its slot to the others meanwhile."""
    return not model.wake.waits and cpu(model, 1) >= COMPUTES


def chainable(topology: Topology, models: Mapping[str, Model]) -> tuple[str, ...]:
    """The tasks of which it is known."""
    known = ((task.name, models.get(task.model_name)) for task in topology.tasks)
    return tuple(name for name, model in known if model is not None and computes(model))


# ── What agents are sent before there is a plan: to measure tasks in free slots, or nothing more. Pure ───


def first_specs(k: Knowledge) -> tuple[ProfileSpec, ...]:
    """The profiles of a submission that waits for its models."""
    return tuple(profile.spec for profile in k.first.running.values()) if k.durable.run is None else ()


def before_a_plan(k: Knowledge) -> DesiredState | None:
    """None where nothing was ever sent."""
    d, told = k.durable, k.desired
    if d.taken is not None:
        submitted = d.taken.submitted
        wanted = DesiredState(
            token=Token(),
            phase="prepared",
            run=k.settings.run,
            topology=submitted.topology,
            user_paths=submitted.user_paths,
            threads=(),
            routes_number=0,
            routes=(),
            profiles=first_specs(k),
            package=submitted.package,
        )
    elif told is not None and not told.token.epoch:
        wanted = replace(told, profiles=())
    else:
        return None  # also when the first plan could not be journaled
    if told is not None and replace(wanted, token=told.token) == told and told.token.boot == d.boot:
        return told
    k.counter += 1
    return replace(wanted, token=Token(d.boot, 0, k.counter))


NS = 1_000_000_000
RESEND_NS = 2 * NS
RESEND_BEHIND_NS = NS // 2  # to a VM that reports an older state

HAND_OVER_NS = (
    20_000_000_000  # longer than a loaded pipeline takes to run empty, replays of lost rows included
)


def compose(k: Knowledge) -> m.DesiredState | None:
    """What agents are to be sent now, under a new counter only if it differs from what was sent before."""
    d = k.durable
    if d.run is None or d.rollout is None:
        k.desired = before_a_plan(k)
        return k.desired
    number, routes = routes_now(d)
    threads = wire_threads(d)
    keepers = _keepers(k, threads)
    if keepers:
        threads += _with_codes(d, threads, answering(keepers, threads, d.joined, k.members.quarantined))
    desired = m.DesiredState(
        token=k.desired.token if k.desired is not None else m.Token(),
        phase=wire_phase(d),
        run=k.settings.run,
        topology=d.run.topology,
        user_paths=d.run.user_paths,
        threads=threads,
        routes_number=number,
        routes=routes,
        workers=tuple(_workers(k, threads)),
        schedule=d.schedule,
        starts=tuple(_starts(k, threads)),
        modelled_tps=d.rollout.modelled_tps,
        held_dead=d.held_dead,
        draining=bool(d.draining),
        end=end_now(d),
        exactly_once=k.settings.exactly_once,
        state_to=k.settings.state_to,
        state_in_memory=k.settings.state_in_memory,
        rows_of=d.begun.rows_of if d.begun is not None else "",
        settings=data_plane(k),
        hide_keys=k.settings.hide_keys,
        profile=k.profiles.desired,
        holders=tuple(holder.thread for holder in holders(d, threads)),
        keepers=keepers,
        strikes=tuple(sorted(k.failures.items())),
        package=d.run.package,
        code=d.code,
        older=tuple(code for code in d.codes if code.number in {t.code for t in threads}),
        chained=chainable(d.run.topology, k.models) if k.settings.chaining else (),
    )
    if desired == k.desired and desired.token.epoch == d.rollout.epoch and desired.token.boot == d.boot:
        return k.desired
    k.counter += 1
    token = m.Token(d.boot, d.rollout.epoch, k.counter)
    if k.desired is None or k.desired.holders != desired.holders:
        k.holders_token = token
    k.desired = replace(desired, token=token)
    return k.desired


def data_plane(k: Knowledge) -> DataPlaneSettings:
    """As set; while it is learned what rows cost, they come together for a while."""
    gap_s, usual = k.learning.gap_s, k.settings.data_plane
    return usual if gap_s is None else replace(usual, gap_s=max(gap_s, usual.gap_s))


def _with_codes(
    d: Durable, threads: tuple[m.ThreadSpec, ...], more: tuple[m.ThreadSpec, ...]
) -> tuple[m.ThreadSpec, ...]:
    codes = {thread.slot: thread.code for thread in threads}
    return tuple(replace(thread, code=codes.get(thread.slot, d.code)) for thread in more)


def holders(d: Durable, threads: tuple[m.ThreadSpec, ...]) -> tuple[Holds, ...]:
    """The threads of exclusive tasks that may work: of those that once did, who are still desired."""
    desired = {t.thread for t in threads}
    return tuple(holder for holder in d.holders if holder.thread in desired)


def routes_now(d: Durable) -> tuple[int, tuple[m.Route, ...]]:
    """Number and routes by which rows are to go now."""
    if d.rollout is None:
        return 0, ()
    if d.phase == "prepared":
        return d.rollout.before_number, d.rollout.before_routes
    return d.rollout.routes_number, d.rollout.routes


def wire_phase(d: Durable) -> m.Phase:
    assert d.rollout is not None
    if d.lets_go:
        return "committed"
    if d.phase == "prepared" and not _were_leaving(d.rollout):
        return "prepared"
    return "switched"


def wire_threads(d: Durable) -> tuple[m.ThreadSpec, ...]:
    """Threads as agents get them: in PREPARED only those are leaving that were before."""
    assert d.rollout is not None
    if d.phase != "prepared":
        return d.rollout.threads
    already = _were_leaving(d.rollout)
    return tuple(replace(t, leaving=t.thread in already) if t.leaving else t for t in d.rollout.threads)


def _were_leaving(planned: RolloutStarted) -> frozenset[int]:
    there = {t.thread for t in planned.threads if t.leaving}
    return frozenset(n for n in planned.already if n in there)


def _keepers(k: Knowledge, threads: tuple[m.ThreadSpec, ...]) -> tuple[m.Keepers, ...]:
    """A VM that is lost has no snapshots, unless they are elsewhere; one that is late still may."""
    d = k.durable
    assert k.topology is not None
    if not (keepers := keepers_now(d, k.topology)):
        return ()
    can_answer = {vm.vm for vm in d.joined} - set(d.held_dead) - {*k.members.gone()}
    return named_keepers(
        keepers, {thread.thread for thread in threads}, can_answer, bool(k.settings.state_to)
    )


def _workers(k: Knowledge, threads: tuple[m.ThreadSpec, ...]) -> Iterator[m.WorkerAt]:
    """Where the workers are; workers of VMs held dead, and of slots given up that have no thread any more, are
    fenced by an incarnation that never was: what was on its way there is lost."""
    used = {thread.slot for thread in threads}
    for slot in sorted(used):
        worker = k.members.workers.get(slot)
        if worker is not None and slot.vm not in k.durable.held_dead:
            lives = worker.state in ("starting", "running", "quarantined")
            yield m.WorkerAt(slot, worker.incarnation, worker.endpoint if lives else "")
    for slot, incarnation in sorted(k.incarnations.items()):
        if slot.vm in k.durable.held_dead or slot in k.members.quarantined - used:
            yield m.WorkerAt(slot, incarnation + 1, "")


def _starts(k: Knowledge, threads: tuple[m.ThreadSpec, ...]) -> Iterator[m.SourceStart]:
    topology = k.topology
    assert topology is not None
    for task in topology.sources:
        mine = [thread for thread in threads if thread.task == task.name]
        for partition in sorted({thread.partition for thread in mine}):
            those = [thread for thread in mine if thread.partition == partition]
            position = _start_of(k, those)
            if position is not None:
                known = k.counts.source(task.name, partition)
                offset, passing = known.go_on_from(position)
                yield m.SourceStart(task.name, partition, position, known.emitted, -1, offset, passing)
    there = {thread.thread for thread in threads}
    for gap in k.durable.apart:
        if gap.thread in there:
            offset, passing = k.counts.source(gap.task, gap.partition).go_on_from(gap.acked)
            yield m.SourceStart(gap.task, gap.partition, gap.acked, gap.emitted, gap.thread, offset, passing)


def _start_of(k: Knowledge, those: list[m.ThreadSpec]) -> int | None:
    """From where the one thread of a partition that should read and does not yet is to start (rule 2)."""
    staying = [thread for thread in those if not thread.leaving]
    if len(staying) != 1:
        return None  # none, or the old one and its successor while PREPARED
    known = k.counts.source(staying[0].task, staying[0].partition)
    if runs(k, staying[0]):
        return None
    apart = {gap.thread for gap in k.durable.apart}
    number, _ = routes_now(k.durable)
    waits = any(
        busy(thread, k.members, number) or left_behind(k, thread) or known.has_open(thread.thread)
        for thread in those
        if thread.leaving and thread.thread not in apart
    )
    return None if waits else known.main


def runs(k: Knowledge, thread: m.ThreadSpec) -> bool:
    """Does this source thread read already?"""
    now = k.members.sources.get(thread.thread)
    least = max(k.counts.source(thread.task, thread.partition).main, 1)
    return k.members.thread(thread) is not None and now is not None and now.emitted >= least


def busy(thread: m.ThreadSpec, members: Membership, number: int) -> bool:
    """Could a leaving source thread still read, or replay what it has read?"""
    present = members.thread(thread)
    if present is None:
        return not _known_dead(thread.slot, members)
    now = members.sources.get(thread.thread)
    never_read = now is not None and now.emitted == 0 and not reads(thread, members, number)
    return not (present.ended or never_read or (now is not None and now.stopped))


def left_behind(k: Knowledge, thread: m.ThreadSpec) -> int:
    """The end of its spool, which a leaving source thread that died is to read before it goes; 0: there is none."""
    end = end_of(k, thread)
    return end if end > k.counts.source(thread.task, thread.partition).main else 0


def reads(thread: m.ThreadSpec, members: Membership, number: int) -> bool:
    """Could it still read? Not when it obeys routes under which it is leaving."""
    present = members.thread(thread)
    return present is None or not (present.ended or present.switched >= number)


def _known_dead(slot: Slot, members: Membership) -> bool:
    worker = members.workers.get(slot)
    return slot.vm in members.here and (worker is None or worker.state in ("exited", "quarantined"))


def publish(turn: Turn, only: str | None = None) -> None:
    """Send the desired state to every VM that does not obey it yet, and to all every 2 s. `only`: nothing
    changed but what this VM says."""
    k = turn.knowledge
    if k.desired is None or k.adopting_until_ns:
        return
    for vm in sorted(k.members.here if only is None else k.members.here & {only}):
        token, sent_ns = k.sent.get(vm, (Token(), 0))
        obeys = k.members.tokens.get(vm, Token()) >= k.desired.token
        quiet_ns = turn.now.mono_ns - sent_ns
        due_ns = RESEND_NS if obeys else RESEND_BEHIND_NS
        if token != k.desired.token or quiet_ns >= due_ns:
            k.sent[vm] = (k.desired.token, turn.now.mono_ns)
            turn.do(Send(vm, k.desired))
