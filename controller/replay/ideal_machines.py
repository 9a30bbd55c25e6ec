"""The made world: the real loop in virtual time among machines on which everything goes as the models promise. Pure.

VMs join, workers obey and threads end as soon as they are told, after the delays given; the topology carries
exactly what is predicted for the plan in force: what is offered above it waits, and is done when there is room.
So the loop sees the offer, the backlog and the latency that come of it, and decides as in a real run. It does
not see: a rate other than the predicted one, the CPU and memory of slots, faults, latency between tasks. One
look every quarter of a second, as the controller's tick.

For tests in which things go wrong, `vm_kind` and the looks are to be overridden (tests/enactment).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.core.predicted_latency import predicted_latency
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import Durable, RolloutStarted, Scheduled
from headgate.controller.knowledge.knowledge import SourceKnown
from headgate.controller.models.plans import Plan, PlanLatency, RowLatency
from headgate.controller.models.task_models import Model
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.replay.exact_replay import Moment
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, PER_DOUBLING, bucket_of
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m

# ── What a run costs and what it fails to carry, moment by moment. The supported rate is the one predicted for the
# plan in force, not what was measured: so recorded and policy differ by their plans alone.
# slot-hours: of slots with threads, or as many as the allocator asked for where a mapper left some empty.

NS = 1_000_000_000
HOUR_NS = 3600 * NS
IN_FORCE = ("switched", "probation", "committed")


class LatencySpan(NamedTuple):
    """For how long (UTC) a latency was predicted of the plan in force."""

    from_ns: int
    until_ns: int
    latency: PlanLatency


def over_time(rows: Sequence[tuple[float, RowLatency]]) -> dict[str, float | None]:
    """p50_ms, p95_ms, p99_ms: means of latencies, each as often as it is given with them."""
    often = math.fsum(many for many, _ in rows)
    return {
        name: math.fsum(many * getattr(of, name) for many, of in rows) / often if often else None
        for name in RowLatency._fields
    }


@dataclass
class IdealAccount:
    """Sums up to `seconds` after the first tuple was due. models: by which plans are judged (None: by
    the prediction they carry). usd_per_slot_hour: the price of VMs that carry none (None: unknown)."""

    models: Mapping[str, Model] | None = None
    usd_per_slot_hour: float | None = None
    seconds: float = float("inf")
    slot_ns: int = 0
    vm_ns: int = 0
    usd: float | None = 0.0
    offered: float = 0.0
    violations_ns: int = 0
    violated_tuples: float = 0.0
    replans: int = 0
    moves: int = 0
    counted_ns: int = 0
    began_ns: int = 0  # UTC, when the first tuple was due
    plan: Plan | None = None  # in force
    first_vms: tuple[Vm, ...] = ()  # there when the first tuple was due, those asked for left out
    enacted_s: list[float] = field(default_factory=list)  # from decided to in force, without machines
    machines_s: list[float] = field(default_factory=list)  # from decided until asked VMs were there
    rates: list[tuple[float, float]] = field(default_factory=list)  # set by hand: (s after the begin, rows/s)
    _at_ns: int = 0
    _awaited: dict[int, int] = field(default_factory=dict)
    _decided: dict[int, int] = field(default_factory=dict)
    _supported: dict[str, float] = field(default_factory=dict)
    _paying: tuple[Vm, ...] = ()
    _slots: int = 0
    _schedule: Schedule | None = None
    rows: float = math.inf  # of a source, once all have ended; or as it is known
    predicted: list[LatencySpan] = field(default_factory=list)
    _latency: PlanLatency | None = None  # predicted of the plan in force

    def see(self, moment: Moment) -> None:
        """Take in the next moment."""
        instructions = moment.instructions
        ticks = isinstance(moment.event, t.Tick)
        if not ticks and not (instructions and isinstance(instructions[0], t.Persist)):
            return  # a turn that records nothing changes nothing here
        loop, now_ns = moment.loop, moment.now.wall_ns
        k = loop.knowledge
        d = k.durable
        if self._schedule is not None and d.run is not None:
            self.rows = min(self.rows, rows_had(k.counts.sources, d.run.topology))
            self._count(now_ns, d.run.topology)
            self.offered = min(self.offered, self.rows)
        if instructions and isinstance(instructions[0], t.Persist):
            for record in instructions[0].records:
                self._record(record, now_ns)
        if d.schedule is not None and self._schedule is None:
            self.began_ns = d.schedule.start_ns
            self._at_ns = self.began_ns
            asked = {vm.vm for vm in d.machines}
            self.first_vms = tuple(m.vm for m in loop.knowledge.members.up() if m.vm.vm not in asked)
        self._schedule = d.schedule
        self._latency = predicted_latency(k)
        if d.rollout is not None and d.phase in IN_FORCE:
            self._phases(d, now_ns)
            self.plan = d.rollout.plan
        self._slots = 0
        if d.rollout is not None:
            self._slots = max(len(d.rollout.slots), d.rollout.plan.allocation.slots)
        if ticks:
            there = {m.vm.vm: m.vm for m in loop.knowledge.members.up()}
            self._paying = tuple((there | {vm.vm: vm for vm in d.machines}).values())

    def _record(self, record: object, now_ns: int) -> None:
        if isinstance(record, RolloutStarted):
            self._decided[record.epoch] = now_ns
            if record.awaits:
                self._awaited[record.epoch] = now_ns
            if record.reason != "start":
                self.replans += 1
                already = set(record.already)
                self.moves += len(record.fresh) + sum(x.thread not in already for x in record.leaving)
        elif isinstance(record, Scheduled) and self._schedule is not None and not record.schedule.end_ns:
            at_s = (record.schedule.start_ns - self.began_ns) / NS
            self.rates.append((at_s, record.schedule.steps[0][1]))

    def _phases(self, d: Durable, now_ns: int) -> None:
        assert d.rollout is not None
        epoch = d.rollout.epoch
        if d.phase == "switched" or epoch not in self._decided:
            return
        decided_ns = self._decided.pop(epoch)
        if epoch in self._awaited:
            self.machines_s.append((now_ns - decided_ns) / NS)
        elif d.rollout.reason != "start":
            self.enacted_s.append((now_ns - decided_ns) / NS)

    def _count(self, now_ns: int, topology: Topology) -> None:
        """Add the time since the last moment, during which nothing changed."""
        assert self._schedule is not None
        until_ns = min(now_ns, self.began_ns + self._limit_ns(), self._schedule.end_ns or now_ns)
        long_ns = until_ns - self._at_ns
        if long_ns <= 0:
            return
        since, now = (min(self._schedule.offered(at_ns), self.rows) for at_ns in (self._at_ns, until_ns))
        offered = now - since
        self._at_ns = until_ns
        self.counted_ns += long_ns
        self.offered += offered
        self.slot_ns += self._slots * long_ns
        self.vm_ns += len(self._paying) * long_ns
        self._predict(until_ns, long_ns)
        self._pay(long_ns)
        above = offered - self.supported_tps(topology) * long_ns / NS
        if above > 1e-9 * offered:
            self.violations_ns += long_ns
            self.violated_tuples += above

    def _predict(self, until_ns: int, long_ns: int) -> None:
        if self._latency is None:
            return
        from_ns = until_ns - long_ns
        last = self.predicted[-1] if self.predicted else None
        if last is not None and last.until_ns == from_ns and last.latency == self._latency:
            from_ns = self.predicted.pop().from_ns
        self.predicted.append(LatencySpan(from_ns, until_ns, self._latency))

    def _limit_ns(self) -> int:
        return int(min(self.seconds, 1e9) * NS)

    def _pay(self, long_ns: int) -> None:
        for vm in self._paying:
            price = vm.usd_per_hour
            if not price and self.usd_per_slot_hour is not None:
                price = vm.slots * self.usd_per_slot_hour
            if not price and self.usd_per_slot_hour is None:
                self.usd = None
            if self.usd is not None:
                self.usd += price * long_ns / HOUR_NS

    def supported_tps(self, topology: Topology) -> float:
        """The input rate that the plan in force carries; 0 before the first one."""
        plan = self.plan
        if plan is None:
            return 0.0
        if self.models is None:
            return plan.prediction.rate_tps
        key = f"{plan.id} {plan.placement!r}"
        if key not in self._supported:
            self._supported[key] = predict(
                topology,
                self.models,
                plan.placement,
                plan.vms,
                plan.rate_tps,
                routing=plan.routing,
                interference=plan.interference,
            ).rate_tps
        return self._supported[key]

    def row(self, policy: str) -> dict[str, object]:
        """A line of the answer of `replay`, `policies`. …_ms: predicted, a mean over the time for which it is."""
        return {
            "policy": policy,
            "slot_hours": self.slot_ns / HOUR_NS,
            "vm_hours": self.vm_ns / HOUR_NS,
            "usd": self.usd if self.counted_ns else None,
            "violations_s": self.violations_ns / NS,
            "violated_tuples": self.violated_tuples,
            "replans": self.replans,
            "moves": self.moves,
            **over_time([(span.until_ns - span.from_ns, span.latency.rows) for span in self.predicted]),
            "seconds": self.counted_ns / NS,
            "offered": self.offered,
        }


TICK_NS = NS // 4
BORN_NS = 10 * NS  # what the clock shows at first
FIRST_PLAN_MOST_S = 60.0  # a world without a plan in force by then ends
ROWS_A_SECOND = 50  # at each sink, in a block's latencies
PLAIN_LATENCY_NS = 5_000_000  # of a row that need not wait

Sampler = Callable[[m.SampleBlock], m.SampleBlock]


@dataclass(frozen=True, slots=True)
class Delays:
    """How long, in s: from a decision until its plan is in force; until a VM asked for is there; until a plan is made
    that is made beside the loop."""

    enact_s: float = 1.0
    machine_s: float = 2.0
    plan_s: float = 0.0


class IdealVm:
    """A VM that does what it is told. told: desired states and when they are obeyed."""

    def __init__(self, world: IdealWorld, shape: Vm, boot: int) -> None:
        self.world, self.shape, self.boot = world, shape, boot
        self.desired: m.DesiredState | None = None
        self.told: list[tuple[int, m.DesiredState]] = []
        self.reports = self.blocks = 0
        self._quiet: m.SampleBlock | None = None

    @property
    def name(self) -> str:
        return self.shape.vm

    @property
    def speaks(self) -> bool:
        """Does the controller hear of it?"""
        return True

    def tell(self, desired: m.DesiredState, ready_ns: int) -> None:
        """New threads take time to be ready; all else is obeyed at once."""
        newest = self.told[-1][1] if self.told else self.desired
        known = {thread.thread for thread in newest.threads} if newest is not None else set()
        fresh = any(thread.thread not in known for thread in desired.threads)
        if newest is None or desired.token > newest.token:
            self.told.append((ready_ns if fresh else 0, desired))

    def obeys(self, now_ns: int) -> bool:
        """True when there was something new to obey."""
        due = [desired for due_ns, desired in self.told if due_ns <= now_ns]
        if not due:
            return False
        self.desired, self._quiet = due[-1], None
        self.told = self.told[len(due) :]
        return True

    # ── what it says ────────────────────────────────────────────────────────────────────────────

    def hello(self) -> m.Hello:
        """As it comes off the wire: plans are named by how they are written, and a default of a `Vm` that was
        read is written, one that was never sent is not."""
        s = self.shape
        hello = m.Hello(s.vm, self.boot, s.slots, s.slot_cores, s.slot_memory_bytes, "none", 1)
        return msgspec.json.decode(msgspec.json.encode(hello), type=m.Hello)

    @property
    def _mine(self) -> list[m.ThreadSpec]:
        threads = self.desired.threads if self.desired is not None else ()
        return [thread for thread in threads if thread.slot.vm == self.name]

    def report(self) -> m.Report:
        self.reports += 1
        desired = self.desired
        if desired is None:
            return m.Report(self.name, self.boot, self.reports, m.Token())
        mine = self._mine
        slots = sorted({thread.slot for thread in mine})
        workers = tuple(_worker(slot, desired, mine) for slot in slots)
        sources = tuple(self._sources(desired, mine))
        return m.Report(self.name, self.boot, self.reports, desired.token, workers, sources)

    def _sources(self, desired: m.DesiredState, mine: Sequence[m.ThreadSpec]) -> Iterator[m.SourceStatus]:
        """Where the sources' threads are: each partition has its share of what is done."""
        for task in desired.topology.sources:
            threads = [thread for thread in desired.threads if thread.task == task.name]
            partitions = {thread.partition for thread in threads}
            for thread in mine:
                if thread.task != task.name or _waits(thread, threads, desired):
                    continue
                done = int(self.world.done / max(1, len(partitions)))
                stopped = thread.leaving or desired.draining
                rests = desired.end.number if desired.end is not None else 0
                name = task.name, thread.partition, thread.thread
                over = self.world.done >= self.world.rows
                yield m.SourceStatus(*name, done, done, 0, 0, 0, stopped, over, rests=rests)

    def block(self) -> m.SampleBlock:
        self.blocks += 1
        if (quiet := self._quiet) is None:
            epoch = self.desired.token.epoch if self.desired else 0
            quiet = self._quiet = quiet_block(self.name, self.boot, self._mine, epoch)
        wall_ns, latency = self.world.now.wall_ns, self.world.latencies(quiet.tasks)
        return replace(quiet, sequence=self.blocks, wall_ns=wall_ns, latency=latency)


class IdealWorld:
    """Ideal VMs around `loop`. account: says what is carried. rates: to be set by hand, (s after the
    first tuple was due, rows/s). sampler: makes something of the blocks, which count nothing. rows: of a source."""

    vm_kind: type[IdealVm] = IdealVm
    step_ns, report_ns = TICK_NS, NS // 2
    predicts = False  # latencies, which takes tenths of a second each

    def __init__(
        self,
        loop: Loop,
        account: IdealAccount,
        delays: Delays = Delays(),
        rates: Sequence[tuple[float, float]] = (),
        wall_ns: int = 0,
        sampler: Sampler | None = None,
        rows: float = math.inf,
    ) -> None:
        self.loop, self.delays, self.rows = loop, delays, rows
        self._account = account
        self._rates = sorted(rates, reverse=True)
        self._sampler = sampler
        self._off_ns = wall_ns - BORN_NS
        self.mono_ns = BORN_NS
        self.vms: dict[str, IdealVm] = {}
        self.asked: dict[str, Vm] = {}  # of the provider of machines
        self._due_ns: dict[str, int] = {}  # of those of them that did not come yet
        self._asked_changed = False
        self._commands = 0
        self._plans: list[tuple[int, t.MakePlan | t.PredictLatency]] = []  # being made: until when
        self.done = 0.0
        self.finish: t.Finish | None = None
        for shape in loop.knowledge.settings.initial:
            self.add(shape)

    @property
    def now(self) -> t.Now:
        return t.Now(self.mono_ns, self.mono_ns + self._off_ns)

    def add(self, shape: Vm) -> IdealVm:
        self.vms[shape.vm] = one = self.vm_kind(self, shape, self.mono_ns + len(self.vms))
        return one

    def moments(self, seconds: float) -> Iterator[Moment]:
        """Every step of the loop until so long after the first tuple was due."""
        for event in self.events(seconds):
            now = self.now
            moment = Moment(now, event, self.do(event), self.loop)
            self._account.see(moment)
            yield moment

    def events(self, seconds: float) -> Iterator[t.Event]:
        yield t.Started(pid=1)
        for vm in list(self.vms.values()):
            yield t.FromVm(vm.hello())
        while self.finish is None and not self._is_over(seconds):
            yield from self.look()
            self.mono_ns += self.step_ns

    def look(self) -> Iterator[t.Event]:
        """What happens at this moment."""
        self.flow()
        yield from self._plans_now()
        yield from self._machines_now()
        yield from self._agents_now()
        yield from self._rates_now()
        if self.mono_ns % TICK_NS == 0:
            yield t.Tick()

    def _is_over(self, seconds: float) -> bool:
        began_ns = self._account.began_ns
        if not began_ns:
            return self.mono_ns - BORN_NS > FIRST_PLAN_MOST_S * NS
        return self.now.wall_ns >= began_ns + int(seconds * NS) + TICK_NS

    # ── a step, and what it asks for ────────────────────────────────────────────────────────────

    def do(self, event: t.Event) -> list[t.Instruction]:
        """One event, and what comes of it."""
        instructions = self.loop.step(event, self.now)
        for instruction in instructions:
            self.perform(instruction)
        return instructions

    def perform(self, instruction: t.Instruction) -> None:
        match instruction:
            case t.Send(name, message):
                self.deliver(name, message)
            case t.RequestMachine(vm) if vm.vm not in self.asked:
                self.asked[vm.vm] = vm
                self._due_ns[vm.vm] = self.mono_ns + int(self.delays.machine_s * NS)
                self._asked_changed = True
            case t.ReleaseMachine(name) if name in self.asked:
                del self.asked[name]
                self._due_ns.pop(name, None)
                self._asked_changed = True
            case t.MakePlan():
                self._plans.append((self.mono_ns + int(self.delays.plan_s * NS), instruction))
            case t.PredictLatency() if self.predicts:
                self._plans.append((self.mono_ns, instruction))
            case t.Finish():
                self.finish = instruction

    def deliver(self, name: str, message: m.FromController) -> None:
        if isinstance(message, m.DesiredState) and name in self.vms:
            self.vms[name].tell(message, self.mono_ns + int(self.delays.enact_s * NS))

    def command(self, name: str, arguments: dict[str, object]) -> t.Command:
        self._commands += 1
        return t.Command(self._commands, m.Request(name, arguments))

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def flow(self) -> None:
        """What was done since the last look: what was offered, as far as it is carried."""
        k = self.loop.knowledge
        if k.durable.schedule is None or k.topology is None:
            return
        able = self._account.supported_tps(k.topology) * self.step_ns / NS
        self.done = min(k.durable.schedule.offered(self.now.wall_ns), self.done + able, self.rows)

    def _plans_now(self) -> Iterator[t.Event]:
        made = [order for due_ns, order in self._plans if due_ns <= self.mono_ns]
        self._plans = [(due_ns, order) for due_ns, order in self._plans if due_ns > self.mono_ns]
        for order in made:
            yield order.made(self.delays.plan_s)

    def _machines_now(self) -> Iterator[t.Event]:
        for name in [name for name in self._due_ns if self.came(name)]:
            del self._due_ns[name]
            self._asked_changed = True
            yield t.FromVm(self.add(self.asked[name]).hello())
        kept = {vm.vm for vm in self.loop.knowledge.settings.initial} | set(self.asked)
        for vm in [self.vms.pop(name) for name in list(self.vms) if name not in kept]:
            if vm.speaks:
                yield t.FromVm(m.Goodbye(vm.name, vm.boot))
        if self._asked_changed:
            self._asked_changed = False
            yield t.MachinesSeen(tuple(self.asked), tuple(name for name in self.asked if name in self.vms))

    def came(self, name: str) -> bool:
        """Is a VM there that was asked for?"""
        return self._due_ns[name] <= self.mono_ns

    def _rates_now(self) -> Iterator[t.Event]:
        began_ns = self._account.began_ns
        while self._rates and began_ns and self.now.wall_ns >= began_ns + self._rates[-1][0] * NS:
            yield self.command("rate_set", {"rate_tps": self._rates.pop()[1]})

    def _agents_now(self) -> Iterator[t.Event]:
        while changed := [vm for vm in self.vms.values() if vm.obeys(self.mono_ns)]:
            for vm in changed:
                yield t.FromVm(vm.report())
        for vm in list(self.vms.values()):
            if vm.speaks and self.mono_ns % self.report_ns == 0:
                yield t.FromVm(vm.report())
            if vm.speaks and self.mono_ns % NS == 0:
                block = vm.block()
                yield t.FromVm(self._sampler(block) if self._sampler else block)

    def latencies(self, tasks: tuple[str, ...]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """End to end, of a VM with these tasks: how long the backlog will take."""
        k = self.loop.knowledge
        topology = k.topology
        if topology is None or k.durable.schedule is None:
            return ()
        waiting = max(0.0, k.durable.schedule.offered(self.now.wall_ns) - self.done)
        supported = max(self._account.supported_tps(topology), 1e-9)
        rows = latency_rows(PLAIN_LATENCY_NS + int(min(waiting / supported, 1e6) * NS))
        return tuple((sink, source, rows) for sink, source in _ends(topology, frozenset(tasks)))


def rows_had(sources: Mapping[tuple[str, int], SourceKnown], topology: Topology) -> float:
    """Rows of a source, where all have ended."""
    had = [[known for (name, _), known in sources.items() if name == task.name] for task in topology.sources]
    if not all(parts and all(known.exhausted for known in parts) for parts in had):
        return math.inf
    return float(max(sum(known.emitted for known in parts) for parts in had))


def latency_rows(ns: int = PLAIN_LATENCY_NS) -> tuple[int, ...]:
    """A second's rows by their latencies: all took so long."""
    rows = [0] * BUCKETS
    rows[bucket_of(ns)] = ROWS_A_SECOND
    return tuple(rows)


def quiet_block(vm: str, boot: int, threads: Sequence[m.ThreadSpec], epoch: int = 0) -> m.SampleBlock:
    """A second of these threads in which nothing was counted."""
    columns = {name: bytes(8 * len(threads)) for name in m.SAMPLE_COLUMNS}
    columns["thread"] = array("q", [thread.thread for thread in threads]).tobytes()
    columns["slot"] = array("q", [thread.slot.number for thread in threads]).tobytes()
    used = sorted({thread.slot.number for thread in threads})
    slots = {name: bytes(8 * len(used)) for name in m.SLOT_COLUMNS}
    slots["slot"] = array("q", used).tobytes()
    tasks = tuple(thread.task for thread in threads)
    return m.SampleBlock(
        vm, boot, 0, 0, NS, epoch, tasks, columns, slots, dict.fromkeys(m.LINK_COLUMNS, b""),
        per_doubling=PER_DOUBLING,
    )  # fmt: skip


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
    rests = desired.end.number if desired.end is not None else 0
    threads = tuple(
        m.ThreadStatus(thread.thread, number, number, True, thread.leaving and over, rests=rests)
        for thread in mine
        if thread.slot == slot
    )
    return m.WorkerStatus(slot, 1, "running", str(slot), desired.token, True, threads)
