"""Machines for a loop in virtual time on which everything goes as the models promise. Pure.

VMs join, workers obey and threads end as soon as they are told, after the delays given; the topology carries
exactly what is predicted for the plan in force: what is offered above it waits, and is done when there is room.
So the loop sees the offer, the backlog and the latency that come of it, and decides as in a real run. It does
not see: a rate other than the predicted one, the CPU and memory of slots, faults, latency between tasks. One
look every quarter of a second, as the controller's tick.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from controller.core.loop import Loop
from controller.knowledge import turns as t
from controller.replaying.exact_replay import Moment
from controller.replaying.ideal_account import IdealAccount
from topology_runtime import messages as m
from topology_runtime.cluster import Slot, Vm
from topology_runtime.latency_buckets import BUCKETS, bucket_of
from topology_runtime.topology import Topology

NS = 1_000_000_000
TICK_NS = NS // 4
HEARTBEAT_TICKS, BLOCK_TICKS = 2, 4
BORN_NS = 10 * NS  # what the clock shows at first
FIRST_PLAN_MOST_S = 60.0  # a world without a plan in force by then ends
ROWS_A_SECOND = 50  # at each sink, in a block's latencies
PLAIN_LATENCY_NS = 5_000_000  # of a row that need not wait

Sampler = Callable[[m.SampleBlock], m.SampleBlock]


@dataclass(frozen=True, slots=True)
class Delays:
    """How long, in s: from a decision until its plan is in force; until a VM asked for is there."""

    enact_s: float = 1.0
    machine_s: float = 2.0


@dataclass
class _IdealVm:
    """A VM that does what it is told. told: desired states and when they are obeyed."""

    vm: Vm
    boot: int
    desired: m.DesiredState | None = None
    told: list[tuple[int, m.DesiredState]] = field(default_factory=list)
    reports: int = 0
    blocks: int = 0
    block: m.SampleBlock | None = None

    def tell(self, desired: m.DesiredState, due_ns: int) -> None:
        newest = self.told[-1][1] if self.told else self.desired
        if newest is None or desired.token > newest.token:
            self.told.append((due_ns, desired))

    def newest(self) -> m.DesiredState | None:
        return self.told[-1][1] if self.told else self.desired

    def obey(self, now_ns: int) -> bool:
        """True when there was something new to obey."""
        due = [desired for due_ns, desired in self.told if due_ns <= now_ns]
        if not due:
            return False
        self.desired, self.block = due[-1], None
        self.told = self.told[len(due) :]
        return True


class IdealWorld:
    """Ideal VMs around `loop`. account: says what is carried. rates: to be set by hand, (s after the
    first tuple was due, tuples/s). sampler: makes something of the blocks, which count nothing."""

    def __init__(
        self,
        loop: Loop,
        account: IdealAccount,
        delays: Delays = Delays(),
        rates: Sequence[tuple[float, float]] = (),
        wall_ns: int = 0,
        sampler: Sampler | None = None,
    ) -> None:
        self._loop, self._account, self._delays = loop, account, delays
        self._rates = sorted(rates, reverse=True)
        self._sampler = sampler
        self._off_ns = wall_ns - BORN_NS
        self._ns = BORN_NS
        self._vms: dict[str, _IdealVm] = {}
        self._coming: list[tuple[int, Vm]] = []
        self._machines: list[str] = []
        self._machines_changed = False
        self._done = 0.0
        self._asked = 0
        self.finish: t.Finish | None = None

    def moments(self, seconds: float) -> Iterator[Moment]:
        """Every step of the loop until so long after the first tuple was due."""
        yield self._step(t.Started(pid=1))
        for vm in self._loop.knowledge.settings.initial:
            yield from self._join(vm)
        ticks = 0
        while self.finish is None and not self._is_over(seconds):
            self._flow()
            yield from self._machines_now()
            yield from self._agents_now(ticks)
            yield from self._rates_now()
            yield self._step(t.Tick())
            self._ns += TICK_NS
            ticks += 1

    def _is_over(self, seconds: float) -> bool:
        began_ns = self._account.began_ns
        if not began_ns:
            return self._ns - BORN_NS > FIRST_PLAN_MOST_S * NS
        return self._ns + self._off_ns >= began_ns + int(seconds * NS) + TICK_NS

    # ── a step, and what it asks for ────────────────────────────────────────────────────────────

    def _step(self, event: t.Event) -> Moment:
        now = t.Now(self._ns, self._ns + self._off_ns)
        instructions = self._loop.step(event, now)
        for instruction in instructions:
            match instruction:
                case t.Send(name, m.DesiredState() as desired) if name in self._vms:
                    self._tell(self._vms[name], desired)
                case t.RequestMachine(vm):
                    self._request(vm)
                case t.ReleaseMachine(name):
                    self._release(name)
                case t.Finish():
                    self.finish = instruction
        moment = Moment(now, event, instructions, self._loop)
        self._account.see(moment)
        return moment

    def _tell(self, vm: _IdealVm, desired: m.DesiredState) -> None:
        """New threads take time to be ready; all else is obeyed at once."""
        before = vm.newest()
        known = {thread.thread for thread in before.threads} if before is not None else set()
        fresh = any(thread.thread not in known for thread in desired.threads)
        vm.tell(desired, self._ns + (int(self._delays.enact_s * NS) if fresh else 0))

    def _request(self, vm: Vm) -> None:
        if vm.vm not in self._machines:
            self._machines.append(vm.vm)
            self._coming.append((self._ns + int(self._delays.machine_s * NS), vm))
            self._machines_changed = True

    def _release(self, name: str) -> None:
        if name in self._machines:
            self._machines.remove(name)
            self._coming = [(at_ns, vm) for at_ns, vm in self._coming if vm.vm != name]
            self._machines_changed = True

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def _flow(self) -> None:
        """What was done in the last tick: what was offered, as far as it is carried."""
        k = self._loop.knowledge
        if k.durable.schedule is None or k.topology is None:
            return
        able = self._account.supported_tps(k.topology) * TICK_NS / NS
        self._done = min(k.durable.schedule.offered(self._ns + self._off_ns), self._done + able)

    def _join(self, vm: Vm) -> Iterator[Moment]:
        boot = self._ns + len(self._vms)
        self._vms[vm.vm] = _IdealVm(vm, boot)
        hello = m.Hello(vm.vm, boot, vm.slots, vm.slot_cores, vm.slot_memory_bytes, "none", 1)
        # as it comes off the wire: plans are named by how they are written, and a default of a `Vm` that was
        # read is written, one that was never sent is not
        yield self._step(t.FromVm(msgspec.json.decode(msgspec.json.encode(hello), type=m.Hello)))

    def _machines_now(self) -> Iterator[Moment]:
        for at_ns, vm in list(self._coming):
            if at_ns <= self._ns:
                self._coming.remove((at_ns, vm))
                self._machines_changed = True
                yield from self._join(vm)
        kept = {vm.vm for vm in self._loop.knowledge.settings.initial} | set(self._machines)
        for name in [name for name in self._vms if name not in kept]:
            yield self._step(t.FromVm(m.Goodbye(name, self._vms.pop(name).boot)))
        if self._machines_changed:
            self._machines_changed = False
            there = tuple(name for name in self._machines if name in self._vms)
            yield self._step(t.MachinesSeen(tuple(self._machines), there))

    def _rates_now(self) -> Iterator[Moment]:
        began_ns = self._account.began_ns
        while self._rates and began_ns and self._ns + self._off_ns >= began_ns + self._rates[-1][0] * NS:
            self._asked += 1
            rate = self._rates.pop()[1]
            yield self._step(t.Command(self._asked, m.Request("rate_set", {"rate_tps": rate})))

    def _agents_now(self, ticks: int) -> Iterator[Moment]:
        changed = [vm for vm in self._vms.values() if vm.obey(self._ns)]
        while changed:
            for vm in changed:
                yield self._report(vm)
            changed = [vm for vm in self._vms.values() if vm.obey(self._ns)]
        for vm in self._vms.values():
            if ticks % HEARTBEAT_TICKS == 0:
                yield self._report(vm)
            if ticks % BLOCK_TICKS == 0:
                yield self._block(vm)

    # ── what VMs say ────────────────────────────────────────────────────────────────────────────

    def _report(self, vm: _IdealVm) -> Moment:
        vm.reports += 1
        desired = vm.desired
        if desired is None:
            return self._step(t.FromVm(m.Report(vm.vm.vm, vm.boot, vm.reports, m.Token())))
        mine = [thread for thread in desired.threads if thread.slot.vm == vm.vm.vm]
        slots = sorted({thread.slot for thread in mine})
        workers = tuple(_worker(slot, desired, mine) for slot in slots)
        sources = tuple(self._sources(desired, mine))
        return self._step(t.FromVm(m.Report(vm.vm.vm, vm.boot, vm.reports, desired.token, workers, sources)))

    def _sources(self, desired: m.DesiredState, mine: Sequence[m.ThreadSpec]) -> Iterator[m.SourceStatus]:
        """Where the sources' threads are: each partition has its share of what is done."""
        for task in desired.topology.sources:
            threads = [thread for thread in desired.threads if thread.task == task.name]
            partitions = {thread.partition for thread in threads}
            for thread in mine:
                if thread.task != task.name or _waits(thread, threads, desired):
                    continue
                done = int(self._done / max(1, len(partitions)))
                stopped = thread.leaving
                yield m.SourceStatus(task.name, thread.partition, thread.thread, done, done, 0, 0, 0, stopped)

    def _block(self, vm: _IdealVm) -> Moment:
        vm.blocks += 1
        if vm.block is None:
            vm.block = _idle_block(vm.vm, vm.boot, vm.desired)
        block = m.SampleBlock(
            vm.vm.vm,
            vm.boot,
            vm.blocks,
            self._ns + self._off_ns,
            NS,
            vm.block.epoch,
            vm.block.tasks,
            vm.block.threads,
            vm.block.slots,
            vm.block.links,
            self._latencies(vm.block.tasks),
        )
        return self._step(t.FromVm(self._sampler(block) if self._sampler else block))

    def _latencies(self, tasks: tuple[str, ...]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """End to end: how long the backlog will take."""
        k = self._loop.knowledge
        topology = k.topology
        if topology is None or k.durable.schedule is None:
            return ()
        waiting = max(0.0, k.durable.schedule.offered(self._ns + self._off_ns) - self._done)
        supported = max(self._account.supported_tps(topology), 1e-9)
        rows = [0] * BUCKETS
        rows[bucket_of(PLAIN_LATENCY_NS + int(min(waiting / supported, 1e6) * NS))] = ROWS_A_SECOND
        pairs = _ends(topology, frozenset(tasks))
        return tuple((sink, source, tuple(rows)) for sink, source in pairs)


def _ends(topology: Topology, tasks: frozenset[str]) -> Iterator[tuple[str, str]]:
    for sink in topology.sinks:
        if sink.name in tasks:
            for source in topology.sources:
                yield sink.name, source.name


def _waits(thread: m.ThreadSpec, threads: Sequence[m.ThreadSpec], desired: m.DesiredState) -> bool:
    """A successor of a source thread does not read while its plan is only prepared."""
    older = any(other.partition == thread.partition and other.thread < thread.thread for other in threads)
    return older and desired.phase == "prepared"


def _worker(slot: Slot, desired: m.DesiredState, mine: Sequence[m.ThreadSpec]) -> m.WorkerStatus:
    number, over = desired.routes_number, desired.phase == "committed"
    threads = tuple(
        m.ThreadStatus(thread.thread, number, number, True, thread.leaving and over)
        for thread in mine
        if thread.slot == slot
    )
    return m.WorkerStatus(slot, 1, "running", str(slot), desired.token, True, threads)


def _idle_block(vm: Vm, boot: int, desired: m.DesiredState | None) -> m.SampleBlock:
    """A second in which nothing was counted."""
    threads = [thread for thread in desired.threads if thread.slot.vm == vm.vm] if desired else []
    columns = {name: bytes(8 * len(threads)) for name in m.SAMPLE_COLUMNS}
    columns["thread"] = array("q", [thread.thread for thread in threads]).tobytes()
    columns["slot"] = array("q", [thread.slot.number for thread in threads]).tobytes()
    used = sorted({thread.slot.number for thread in threads})
    slots = {name: bytes(8 * len(used)) for name in m.SLOT_COLUMNS}
    slots["slot"] = array("q", used).tobytes()
    epoch = desired.token.epoch if desired else 0
    tasks = tuple(thread.task for thread in threads)
    return m.SampleBlock(
        vm.vm, boot, 0, 0, NS, epoch, tasks, columns, slots, dict.fromkeys(m.LINK_COLUMNS, b"")
    )
