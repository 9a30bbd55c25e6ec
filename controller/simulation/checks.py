"""What must be true of plans, the journal and what agents know, checked after every event."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headgate.controller.knowledge.folding import fold
from headgate.controller.knowledge.records import (
    Adopted,
    Durable,
    HandedOver,
    PhaseEntered,
    Record,
    RolloutStarted,
    StandIn,
)
from headgate.controller.knowledge.tallies import Tallies
from headgate.topology_runtime import messages as m

if TYPE_CHECKING:
    from headgate.controller.simulation.account import Partition
    from headgate.controller.simulation.controller import SimController
    from headgate.controller.simulation.thread import SimThread
    from headgate.controller.simulation.world import SimWorld


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

    # ── the journal ─────────────────────────────────────────────────────────────────────────────

    def _fold(self) -> None:
        synced = self.world.disk.synced
        for record in synced[self._folded :]:
            apart, self.durable = self.durable.apart, fold(self.durable, record)
            self._note(record)
            if isinstance(record, HandedOver) and record.given_up:
                for gap in [gap for gap in apart if gap.thread == record.thread]:
                    self.world.account.given_up(gap)
        self._folded = len(synced)
        if self.durable.held_dead:
            self.world.tallies.states_lost += 1
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
        found = any((token.epoch, phase) in self._states for phase in phases)
        assert found, f"{token}: phase {desired.phase} is not journaled"

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
        done = self.world.account.of(partition).prefix
        assert acked <= done, f"positions below {acked} are saved as acked, done are those below {done}"

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

    def _restart_at(self) -> dict[Partition, int]:
        controller = self.world.controller
        if not controller.alive:
            return self.kept_main
        sources = controller.loop.knowledge.counts.sources
        return {partition: source.main for partition, source in sources.items()}
