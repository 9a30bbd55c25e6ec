"""What a run costs and what it fails to carry, read off the loop moment by moment. Pure.

Recorded runs and policies are measured alike: the supported rate is the one predicted for the plan in force
(by the same models), not what was measured; so recorded and policy differ by their plans alone.

    slot-hours   slots with threads, those that leave included; as many as the allocator asked for where a mapper left
                 some of them empty (RSM does: they are acquired all the same, paper 0, section 8.4)
    VM-hours     VMs that are there or were asked for and not given back, threads on them or not
    violation    time in which more is offered than the plan in force supports, and the tuples above it
    moves        threads started and threads sent away by re-plans (the first plan is none)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.controller.knowledge import turns as t
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.records import Durable, RolloutStarted, Scheduled
from headgate.controller.plan.predict import predict
from headgate.controller.replaying.exact_replay import Moment
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.schedule import Schedule
from headgate.topology_runtime.topology import Topology

NS = 1_000_000_000
HOUR_NS = 3600 * NS
IN_FORCE = ("switched", "probation", "committed")


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
    rates: list[tuple[float, float]] = field(
        default_factory=list
    )  # set by hand: (s after the begin, tuples/s)
    _at_ns: int = 0
    _awaited: dict[int, int] = field(default_factory=dict)
    _decided: dict[int, int] = field(default_factory=dict)
    _supported: dict[str, float] = field(default_factory=dict)
    _paying: tuple[Vm, ...] = ()
    _slots: int = 0
    _schedule: Schedule | None = None

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
            self._count(now_ns, d.run.topology)
        if instructions and isinstance(instructions[0], t.Persist):
            for record in instructions[0].records:
                self._record(record, now_ns)
        if d.schedule is not None and self._schedule is None:
            self.began_ns = d.schedule.start_ns
            self._at_ns = self.began_ns
            asked = {vm.vm for vm in d.machines}
            self.first_vms = tuple(m.vm for m in loop.members.up() if m.vm.vm not in asked)
        self._schedule = d.schedule
        if d.rollout is not None and d.phase in IN_FORCE:
            self._phases(d, now_ns)
            self.plan = d.rollout.plan
        self._slots = 0
        if d.rollout is not None:
            self._slots = max(len(d.rollout.slots), d.rollout.plan.allocation.slots)
        if ticks:
            there = {m.vm.vm: m.vm for m in loop.members.up()}
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
        offered = self._schedule.offered(until_ns) - self._schedule.offered(self._at_ns)
        self._at_ns = until_ns
        self.counted_ns += long_ns
        self.offered += offered
        self.slot_ns += self._slots * long_ns
        self.vm_ns += len(self._paying) * long_ns
        self._pay(long_ns)
        above = offered - self.supported_tps(topology) * long_ns / NS
        if above > 1e-9 * offered:
            self.violations_ns += long_ns
            self.violated_tuples += above

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
        """A line of the answer of `replay`, `policies`."""
        return {
            "policy": policy,
            "slot_hours": self.slot_ns / HOUR_NS,
            "vm_hours": self.vm_ns / HOUR_NS,
            "usd": self.usd if self.counted_ns else None,
            "violations_s": self.violations_ns / NS,
            "violated_tuples": self.violated_tuples,
            "replans": self.replans,
            "moves": self.moves,
            "seconds": self.counted_ns / NS,
            "offered": self.offered,
        }
