"""What must be true of plans, the journal and what agents know, checked after every event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headgate.controller.knowledge.journal_records import (
    Adopted,
    Durable,
    HandedOver,
    PhaseEntered,
    Record,
    RolloutStarted,
    StandIn,
    StateLost,
)
from headgate.controller.knowledge.rows_left import lost_of
from headgate.controller.knowledge.run_tallies import Tallies
from headgate.controller.monitor.admission import check
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.wire import messages as m

if TYPE_CHECKING:
    from headgate.lab.simulation.row_account import Partition
    from headgate.lab.simulation.simulated_controller import SimController
    from headgate.lab.simulation.simulated_thread import SimThread
    from headgate.lab.simulation.simulated_world import SimWorld


class Checks:
    """Invariants of the control plane."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.durable = Durable()  # what the synced journal adds up to
        self.kept_main: dict[Partition, int] = {}
        self._folded = 0
        self._states: set[tuple[int, str]] = set()  # (epoch, phase) that were journaled
        self._threads: dict[int, set[int]] = {}  # epoch → threads that were journaled for it
        self._told: dict[m.Token, m.DesiredState] = {}
        self._acked: dict[tuple[int, Partition], int] = {}
        self._worked: dict[str, list[tuple[int, int]]] = {}  # exclusive task → its threads, in order
        self._held_ns: dict[str, int] = {}  # VM that is held dead → since when

    # ── the journal ─────────────────────────────────────────────────────────────────────────────

    def _fold(self) -> None:
        synced = self.world.disk.synced
        for record in synced[self._folded :]:
            apart, self.durable = self.durable.apart, record.after(self.durable)
            self._note(record)
            if isinstance(record, HandedOver) and record.given_up:
                for gap in [gap for gap in apart if gap.thread == record.thread]:
                    self.world.account.given_up(gap)
            if isinstance(record, StateLost):
                assert not self.world.far, f"snapshots are elsewhere, and {record.ranges} were lost"
            if isinstance(record, StateLost) and self.world.controller.loop.knowledge.members.gone():
                self.world.tallies.states_lost += 1
        self._folded = len(synced)
        held = self.durable.held_dead
        self._held_ns = {vm: self._held_ns.get(vm, self.world.now_ns) for vm in held}
        if self.durable.held_dead:
            self.world.tallies.states_lost += not self.world.far
            self.world.tallies.owners_killed += 1
            self.world.met["VMs held dead"] += 1

    def _runs_as_planned(self) -> None:
        """The threads that stay are those of the plan."""
        rollout = self.durable.rollout
        assert rollout is not None
        staying = Counter((t.task, t.slot) for t in rollout.threads if not t.leaving)
        planned = {(b.task, b.slot): b.threads for b in rollout.plan.placement.bundles}
        assert staying == planned, f"plan {rollout.epoch} is not what runs: {staying}, planned {planned}"

    def _note(self, record: Record) -> None:
        if isinstance(record, RolloutStarted | Adopted) and self.durable.waiting is None:
            self._runs_as_planned()
        if isinstance(record, RolloutStarted):
            self._states.add((record.epoch, "prepared"))
            self._threads[record.epoch] = {t.thread for t in record.threads}
        elif isinstance(record, StandIn) and self.durable.rollout is not None:
            self._threads[self.durable.rollout.epoch].add(record.thread.thread)
        elif isinstance(record, PhaseEntered):
            self._states.add((record.epoch, record.phase))
            if record.phase == "committed":
                self.world.committed()

    def _recoverable(self, desired: m.DesiredState) -> None:
        """The plan is the old one, the new one or a journaled successor [B6]."""
        self._fold()
        token = desired.token
        assert token.boot <= self.durable.boot, f"{token} is known to an agent, its boot is not journaled"
        assert token.epoch in self._threads, f"{token}: its plan is not journaled"
        threads = {t.thread for t in desired.threads if not t.answers}
        assert threads <= self._threads[token.epoch], f"{token}: threads that no journaled plan has"
        once = set().union(*self._threads.values())
        answering = {t.thread for t in desired.threads if t.answers}
        assert answering <= once - threads, f"{token}: {answering} answer for threads that never were, or are"
        phases = {"switched", "prepared"} if desired.phase == "switched" else {desired.phase}
        phases |= {"probation"} if desired.phase == "committed" and self.durable.draining else set()
        found = any((token.epoch, phase) in self._states for phase in phases)
        assert found, f"{token}: phase {desired.phase} is not journaled"

    def said(self, message: m.FromAgent) -> None:
        """An agent says this; it would be banned for what the border does not let in."""
        if isinstance(message, m.Report):  # here workers are at no address
            message = replace(message, workers=tuple(replace(w, endpoint="") for w in message.workers))
        check(message)

    def told(self, desired: m.DesiredState) -> None:
        """The controller sends this."""
        before = self._told.get(desired.token)
        if before is None:
            self._told[desired.token] = desired
            numbers = {t.thread for t in desired.threads}
            assert len(numbers) == len(desired.threads), f"{desired.token}: two threads have one number"
        else:
            assert before is desired or before == desired, f"two desired states under {desired.token}"

    def known_to_agent(self, desired: m.DesiredState) -> None:
        self._recoverable(desired)

    def controller_knows(self, controller: SimController) -> None:
        """After a turn whose records are synced, what is known is what is journaled."""
        self._fold()
        k = controller.loop.knowledge
        if k.durable.boot:
            known = k.durable
            same = (known.boot, known.phase) == (self.durable.boot, self.durable.phase)
            assert same, "the phase in mind is not the journaled one"
            assert (known.rollout.epoch if known.rollout else 0) == (
                self.durable.rollout.epoch if self.durable.rollout else 0
            ), "the plan in mind is not the journaled one"
        for partition, source in k.counts.sources.items():
            place = controller.lives, partition
            assert source.acked >= self._acked.get(place, 0), (
                f"the saved position goes back to {source.acked}"
            )
            if source.acked > self._acked.get(place, 0):
                self._acked[place] = source.acked
                self._is_done(partition, source.acked)

    def kept(self, tallies: Tallies) -> None:
        for source in tallies.sources:
            partition = source.task, source.partition
            left = (acked for _, emitted, acked, _ in source.apart if acked < emitted)
            self._is_done(partition, min((source.acked, *left)))
            self.kept_main[partition] = source.acked

    def _is_done(self, partition: Partition, acked: int) -> None:
        if self.world.shape.ends:  # what is done there only its end tells
            return
        done = self.world.account.of(partition).prefix
        assert acked <= done, f"positions below {acked} are saved as acked, done are those below {done}"

    # ── VMs that are cut off ────────────────────────────────────────────────────────────────────

    def beside(self, thread: SimThread) -> None:
        """A thread takes rows. Not on a VM that is held dead, if a VM to which it has links hears the controller."""
        agent, now_ns = thread.worker.agent, self.world.now_ns
        if now_ns - self._held_ns.get(agent.name, now_ns) < BESIDE_NS:
            return
        linked = {heard.vm for state in agent.state.slots.values() for heard in state.heard} - {agent.name}
        for other in (self.world.agents[vm] for vm in sorted(linked)):
            steady_ns = max(other.cut_until_ns, other.started_ns)
            hears = (
                other.alive and now_ns - other.state.contact.last_ns < 2 * S and now_ns - steady_ns > CALM_NS
            )
            assert not hears, (
                f"side by side: {thread.name} on {agent.name} is held dead, and {other.name} hears"
            )

    # ── exclusive tasks ─────────────────────────────────────────────────────────────────────────

    def works(self, thread: SimThread) -> None:
        """An exclusive thread takes a frame: no other thread of its task may work now, nor ever again work
        that worked before it."""
        task = thread.core.task
        if not task.exclusive:
            return
        me = thread.desired.thread, thread.worker.incarnation
        order = self._worked.setdefault(task.name, [])
        if not order or order[-1] != me:
            assert me not in order, f"two at once: {thread.name} works again, after {order[-1]}"
            order.append(me)
            self.world.met["exclusive hand-overs"] += len(order) > 1
        for worker in self.world.workers():
            for other in worker.threads.values():
                alike = other is not thread and other.core.task.name == task.name
                assert not (alike and other.could_work), f"two at once: {thread.name} and {other.name}"

    # ── after every event ───────────────────────────────────────────────────────────────────────

    def after_event(self) -> None:
        account = self.world.account
        if not account.touched:
            return
        account.touched = False
        self._fold()
        rollout = self.durable.rollout
        leaving = frozenset(t.thread for t in rollout.leaving) if rollout is not None else frozenset()
        account.check(leaving, self._restart_at(), self.durable.apart)
        controller = self.world.controller
        lost = lost_of(controller.loop.knowledge) if controller.alive else 0
        assert not lost, f"{lost} rows would be told to be lost if the run ended now"

    def _restart_at(self) -> dict[Partition, int]:
        controller = self.world.controller
        if not controller.alive:
            return self.kept_main
        sources = controller.loop.knowledge.counts.sources
        return {partition: source.main for partition, source in sources.items()}


# ── Rows move while rows are offered and nothing is broken: not only at the end, and through re-plans too ───

LOOK_NS = 250 * MS
BESIDE_NS, CALM_NS = S, 4 * S  # a VM rests so long after it is held dead; another is believed after so long
UNTOLD_S = 4.5  # a VM without contact reads by a rate of before for so long
STILL_S = 4.0  # so long no position may be finished, with one due before; and as long as a task keeps rows


class Liveness:
    """A stretch begins when all that is desired is there, and ends when something goes wrong."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self._harm: object = None
        self._whole = False
        self._moved: dict[Partition, tuple[int, int]] = {}  # positions finished, and since when that many

    def start(self) -> None:
        self.world.later(LOOK_NS, self._look)

    def _look(self) -> None:
        if self.world.controller.finish is not None:
            return
        self.start()
        broken = self._broken
        if broken or not self._whole:
            self._moved.clear()
            self._whole = not broken and not self.world.unsettled and self._leased
            self.world.met["stretches without faults"] += self._whole
        if self._whole:
            self._rows_move()

    @property
    def _broken(self) -> bool:
        """Is something not as it should be, or was since the last look?"""
        world = self.world
        before, self._harm = self._harm, (len(world.faults.done), world.killed)
        return (
            self._harm != before
            or not world.controller.alive
            or world.disk.fails
            or world.now_ns < world.faults.silent_until_ns
            or any(not a.gone and (a.cut or a.full or not a.alive) for a in world.agents.values())
        )

    @property
    def _leased(self) -> bool:
        """May exclusive threads work? Not while the lease of their predecessors on a lost VM runs."""
        threads = [thread for worker in self.world.workers() for thread in worker.threads.values()]
        return all(thread.could_work for thread in threads if thread.core.task.exclusive)

    def _rows_move(self) -> None:
        world = self.world
        if world.shape.ends:
            return
        most_ns = int((STILL_S + world.shape.calm_s) * S + world.options.queue_ms * MS)
        schedule = world.offer
        assert schedule is not None
        due = schedule.due(world.passed_ns - most_ns)
        for task in world.shape.topology.sources:
            partitions = task.static.threads if task.static else 1
            for partition in range(partitions):
                place = task.name, partition
                known = world.account.of(place)
                done = known.prefix + len(known.above)
                if done != self._moved.get(place, (-1, 0))[0]:
                    self._moved[place] = done, world.now_ns
                still_ns = world.now_ns - self._moved[place][1]
                early = known.read - schedule.due(world.passed_ns) // partitions
                ahead_s = max(UNTOLD_S + world.faults.cut_ns / S, 1 + world.unheard_s)
                assert world.arriving or early <= ahead_s * schedule.highest_tps, (
                    f"{early} rows of {place} are read before they are due"
                )
                late = known.prefix < due // partitions
                assert not late or still_ns < most_ns, (
                    f"{done} rows of {place} are finished and no more in {still_ns / S:.1f} s without a fault"
                )
