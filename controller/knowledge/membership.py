"""Which VMs are there: joined, silent, lost. Pure; the time is an argument (controller's monotonic ns).

Rules (docs/explanation/faults.md):
 1. A VM is *silent* 2 s and *lost* 4 s after it was last heard; being heard again makes it joined. One with keyed
    state, which would be lost with it, is waited for longer: a host that stands still for seconds keeps it.
 2. A controller that was stalled itself (a gap of more than 1 s between its own ticks) gives no verdict
    for two heartbeats: what the VMs said meanwhile is still to be read.
 3. A HELLO with a higher boot is a restarted agent: its workers are gone, the VM is not.
 4. Of three VMs or more, more than 40 % lost within 30 s: the fault is probably ours. The alarm stays
    until they are all back or an operator clears it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from headgate.controller.knowledge.loop_events import Now
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.keys.key_pairs import key_of
from headgate.topology_runtime.platform.addresses import parted
from headgate.topology_runtime.wire.messages import (
    Hello,
    LoopSeen,
    Report,
    SourceStatus,
    ThreadSpec,
    ThreadStatus,
    Token,
    WorkerStatus,
)
from headgate.topology_runtime.wording import counted

NS = 1_000_000_000
SILENT_NS = 2 * NS
LOST_NS, LOST_KEYED_NS = 4 * NS, 12 * NS
SETTLE_NS = 10 * NS  # after a silence twice as long as that, and this, load is judged again
FORGOTTEN_NS = 600 * NS  # one that only ever said HELLO
OWN_GAP_NS = NS  # a longer gap between our own ticks means that we were stalled
HEARTBEAT_NS = NS // 2  # agents report at least this often
MASS_LOSS_SHARE, MASS_LOSS_WITHIN_NS, MASS_LOSS_FROM = 0.4, 30 * NS, 3
FLAPS_WITHIN_NS, STEADY_NS = 300 * NS, 60 * NS

State = Literal["joined", "silent", "lost", "left"]
Kind = Literal["joined", "restarted", "silent", "lost", "back", "left"]


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """Something about a VM changed."""

    kind: Kind
    vm: str
    text: str


@dataclass(slots=True)
class Member:
    """One VM as it is known. `report`: the newest of this boot of its agent. loop: as it was reported last."""

    vm: Vm
    boot: int
    state: State
    heard_ns: int
    binding: str = ""
    pid: int = 0
    spoken: tuple[int, str] = (0, "")  # wire version, headgate version; 0: it has not said yet
    only_signed: bool = False
    machine: str = ""
    workers_as: str = ""
    address: str = ""
    report: Report | None = None
    loop: LoopSeen = LoopSeen()
    silence: tuple[int, int] = (0, 0)  # the last one: how long it was, and when it was over

    @property
    def up(self) -> bool:
        return self.state in ("joined", "silent")

    def workers(self) -> tuple[WorkerStatus, ...]:
        return self.report.workers if self.report is not None else ()


@dataclass(slots=True)
class Membership:
    """All VMs ever heard of in this life. `known`: sizes of VMs known beforehand (settings, journal).

    here, workers, threads, sources, tokens, quarantined, failed, away: what the VMs that are up reported last,
    kept up to date report by report, so that looking at it costs nothing. version: rises when workers
    come, go or move, or when sources start or stop. roster: rises when VMs come, go or change their size.
    keyed: VMs with keyed state."""

    known: dict[str, Vm] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)
    here: set[str] = field(default_factory=set)
    keyed: frozenset[str] = frozenset()
    workers: dict[Slot, WorkerStatus] = field(default_factory=dict)
    threads: dict[int, ThreadStatus] = field(default_factory=dict)
    sources: dict[int, SourceStatus] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    quarantined: set[Slot] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    away: dict[int, str] = field(default_factory=dict)
    version: int = 0
    roster: int = 0
    _taken_up: dict[Slot, int] = field(default_factory=dict)  # quarantined slot → epoch that uses it again
    _shown: dict[str, Report] = field(default_factory=dict)  # VM → the report that these are of
    _ticked_ns: int = 0
    _frozen_until_ns: int = 0
    _stalled_ns: int = 0
    _lost: dict[str, int] = field(default_factory=dict)  # VM → when it was lost
    _losses: dict[str, tuple[int, int]] = field(default_factory=dict)  # VM → its last two, 0: none
    mass_loss: tuple[str, ...] = ()

    def presume(self, vms: tuple[Vm, ...], now: Now) -> None:
        """VMs that were there in an earlier life: heard now, until they prove lost."""
        self.expect(vms)
        for vm in vms:
            if vm.vm not in self.members:
                self.members[vm.vm] = Member(vm, 0, "joined", now.mono_ns)
                self._show(self.members[vm.vm])

    def refusal(self, hello: Hello) -> str:
        """Why this agent, whose version is one that is taken, cannot take part; empty when it can."""
        member = self.members.get(hello.vm)
        if member is not None and member.up and hello.boot < member.boot:
            return f"a newer agent of {hello.vm} is here already"
        return ""

    def hello(self, hello: Hello, now: Now) -> tuple[MembershipChange, ...]:
        """An agent that was not refused says who it is."""
        before = self.members.get(hello.vm)
        member = Member(self._sized(hello), hello.boot, "joined", now.mono_ns)
        member.binding, member.pid, member.spoken = hello.binding, hello.pid, (hello.protocol, hello.version)
        member.only_signed, member.machine = hello.only_signed, hello.machine
        member.workers_as, member.address, member.loop = hello.workers_as, hello.address, hello.loop
        if before is not None:
            member.silence = _silence(before, now)
        self.members[hello.vm] = member
        self.roster += before is None or before.vm != member.vm
        if before is None or before.state == "left":
            self._show(member)
            return (
                MembershipChange(
                    "joined", hello.vm, f"{hello.vm} joined with {counted(hello.slots, 'slot')}"
                ),
            )
        changes = self._heard_again(before)
        if hello.boot > before.boot and before.boot:
            changes += (MembershipChange("restarted", hello.vm, f"the agent of {hello.vm} started again"),)
        elif hello.boot == before.boot:
            member.report = before.report
        self._show(member)
        return changes

    def _sized(self, hello: Hello) -> Vm:
        told = self.known.get(hello.vm, Vm(hello.vm, hello.slots))
        return Vm(
            hello.vm, hello.slots, hello.slot_cores, hello.slot_memory_bytes,
            hello.usd_per_hour or told.usd_per_hour, hello.rack or told.rack, told.speed,
            hello.bandwidth_mbps or told.bandwidth_mbps,
        )  # fmt: skip

    def report(self, report: Report, now: Now) -> tuple[MembershipChange, ...] | None:
        """A heartbeat; None when it is out of date (an older boot, or overtaken by a newer one)."""
        member = self.members.get(report.vm)
        if member is None or member.state == "left":
            return self._adopt(report, now)
        if report.boot < member.boot:
            return None
        changes: tuple[MembershipChange, ...] = ()
        if report.boot > member.boot:
            if member.boot:
                changes = (
                    MembershipChange("restarted", report.vm, f"the agent of {report.vm} started again"),
                )
            member.boot, member.report = report.boot, None
        if member.report is not None and report.sequence <= member.report.sequence:
            return None
        member.report, member.loop = report, report.loop
        changes += self._heard_again(member)
        member.silence = _silence(member, now)
        member.state, member.heard_ns = "joined", now.mono_ns
        self._show(member)
        return changes

    def endpoint_fault(self, report: Report) -> str:
        """Why no worker may be told to connect where this VM says that its workers are; empty when they may."""
        member, owners = self.members.get(report.vm), dict[str, Slot]()
        for slot, known in self.workers.items():
            if slot.vm != report.vm and (key := key_of(known.endpoint)):
                owners[key] = slot
        for worker in report.workers:
            where = worker.endpoint.partition("#")[0]
            if where and member is not None and member.address and parted(where)[0] != member.address:
                return f"worker {worker.slot} at {where}, and {report.vm} is {member.address}"
            if (
                other := owners.setdefault(key_of(worker.endpoint) or str(worker.slot), worker.slot)
            ) != worker.slot:
                return f"worker {worker.slot} at {where}, with the key of worker {other}"
        return ""

    def _adopt(self, report: Report, now: Now) -> tuple[MembershipChange, ...] | None:
        """A VM that says what it does before it said who it is (the controller was started again)."""
        known = self.known.get(report.vm)
        if known is None:
            return None  # its HELLO will come: the Welcome that answers this asks for it
        member = self.members[report.vm] = Member(known, report.boot, "joined", now.mono_ns)
        member.report, member.loop = report, report.loop
        self._show(member)
        return (
            MembershipChange(
                "joined", report.vm, f"{report.vm} is there with {counted(known.slots, 'slot')}"
            ),
        )

    def heard(self, vm: str, now: Now) -> tuple[MembershipChange, ...]:
        """Any other sign of life."""
        member = self.members.get(vm)
        if member is None or member.state == "left":
            return ()
        changes = self._heard_again(member)
        member.silence = _silence(member, now)
        member.state, member.heard_ns = "joined", now.mono_ns
        self._show(member)
        return changes

    def _heard_again(self, member: Member) -> tuple[MembershipChange, ...]:
        self._lost.pop(member.vm.vm, None)
        self.mass_loss = tuple(vm for vm in self.mass_loss if vm != member.vm.vm)
        if member.state != "lost":
            return ()
        return (MembershipChange("back", member.vm.vm, f"{member.vm.vm} is heard again"),)

    def goodbye(self, vm: str, boot: int) -> tuple[MembershipChange, ...]:
        member = self.members.get(vm)
        if member is None or member.boot > boot or member.state == "left":
            return ()
        self._lost.pop(vm, None)
        member.state, member.report = "left", None
        self._show(member)
        return (MembershipChange("left", vm, f"{vm} left"),)

    def tick(self, now: Now) -> tuple[MembershipChange, ...]:
        """Verdicts about who was not heard."""
        gap_ns = now.mono_ns - self._ticked_ns if self._ticked_ns else 0
        self._ticked_ns = now.mono_ns
        if gap_ns > OWN_GAP_NS:
            self._stalled_ns = gap_ns
            self._frozen_until_ns = now.mono_ns + 2 * HEARTBEAT_NS
        if now.mono_ns < self._frozen_until_ns:
            return ()
        self._forget_empty(now)
        changes = [c for m in self.members.values() if (c := self._verdict(m, now)) is not None]
        self._look_for_mass_loss(now)
        return tuple(changes)

    def _forget_empty(self, now: Now) -> None:
        """VMs of which there was never more than a HELLO, and that nobody named, were never there."""
        for name, member in list(self.members.items()):
            empty = member.report is None and member.boot and name not in self.known
            if empty and now.mono_ns - member.heard_ns >= FORGOTTEN_NS:
                self._forget_member(member)

    def _forget_member(self, member: Member) -> None:
        member.state = "left"
        self._show(member)
        del self.members[member.vm.vm]
        self._lost.pop(member.vm.vm, None)
        self.roster += 1

    def told(self) -> list[tuple[str, tuple[WorkerStatus, ...]]]:
        """VMs that are up, each with what it said of its workers."""
        return [(member.vm.vm, member.workers()) for member in self.up()]

    def _verdict(self, member: Member, now: Now) -> MembershipChange | None:
        quiet_ns = now.mono_ns - member.heard_ns
        name = member.vm.vm
        if member.up and quiet_ns >= (LOST_KEYED_NS if name in self.keyed else LOST_NS):
            member.state = "lost"
            self._lost[name] = now.mono_ns
            self._losses[name] = (self._losses.get(name, (0, 0))[1], now.mono_ns)
            self._show(member)
            return MembershipChange(
                "lost", name, f"{name} was not heard for {quiet_ns / NS:.1f} s: it is lost"
            )
        if member.state == "joined" and quiet_ns >= SILENT_NS:
            member.state = "silent"
            kept = ""
            if name in self.keyed:
                kept = f": its keyed state is waited for, until {LOST_KEYED_NS // NS} s have gone by"
            return MembershipChange("silent", name, f"{name} was not heard for {quiet_ns / NS:.1f} s{kept}")
        return None

    def _look_for_mass_loss(self, now: Now) -> None:
        recent = [vm for vm, at in self._lost.items() if now.mono_ns - at <= MASS_LOSS_WITHIN_NS]
        total = len(recent) + sum(member.up for member in self.members.values())
        if total >= MASS_LOSS_FROM and len(recent) > MASS_LOSS_SHARE * total:
            self.mass_loss = tuple(sorted({*self.mass_loss, *recent}))

    def clear_alarm(self) -> None:
        self.mass_loss = ()
        self._lost.clear()

    # ── what is seen of those that are up ───────────────────────────────────────────────────────

    def _show(self, member: Member) -> None:
        """What `member` reports, while it is up, is seen from now on."""
        before = self._shown.pop(member.vm.vm, None)
        report = member.report if member.up else None
        if report is not None:
            self._shown[member.vm.vm] = report
        if member.up != (member.vm.vm in self.here):
            self.here ^= {member.vm.vm}
            self.roster += 1
        if report is before:
            return
        awaited = any(slot.vm == member.vm.vm for slot in self._taken_up)
        if before is not None and report is not None and not awaited and _only_counts(before, report):
            self.sources.update((source.thread, source) for source in report.sources)
            self.tokens[member.vm.vm] = report.token
            return
        if before is not None:
            self._forget(before)
        if report is not None:
            self._learn(report)
        self.tokens[member.vm.vm] = report.token if report else Token()
        self.version += _standing(report) != _standing(before)

    def _forget(self, report: Report) -> None:
        for worker in report.workers:
            self.workers.pop(worker.slot, None)
            self.quarantined.discard(worker.slot)
            for thread in worker.threads:
                self.threads.pop(thread.thread, None)
                self.failed.pop(thread.thread, None)
                self.away.pop(thread.thread, None)
        for source in report.sources:
            self.sources.pop(source.thread, None)

    def _learn(self, report: Report) -> None:
        for worker in report.workers:
            self.workers[worker.slot] = worker
            if report.token.epoch >= self._taken_up.get(worker.slot, 0):
                self._taken_up.pop(worker.slot, None)
                if worker.state == "quarantined":
                    self.quarantined.add(worker.slot)
            for thread in worker.threads:
                self.threads[thread.thread] = thread
                if thread.failed:
                    self.failed[thread.thread] = f"thread {thread.thread} in {worker.slot}: {thread.failed}"
                if thread.away:
                    self.away[thread.thread] = (
                        f"thread {thread.thread} in {worker.slot} waits for a service: {thread.away}"
                    )
        for source in report.sources:
            self.sources[source.thread] = source

    def expect(self, vms: tuple[Vm, ...]) -> None:
        """VMs whose sizes are known before they say HELLO."""
        self.known.update((vm.vm, vm) for vm in vms)

    def await_(self, vms: tuple[Vm, ...]) -> None:
        """VMs that were asked for: that one of them left or was lost before says nothing of it now."""
        self.expect(vms)
        for vm in vms:
            if (member := self.members.get(vm.vm)) is not None and not member.up:
                self._forget_member(member)

    def take_up(self, slot: Slot, epoch: int) -> None:
        """The plan of this epoch puts threads into a quarantined slot: it is free once its agent obeys, and what that
        said before does not count."""
        self.quarantined.discard(slot)
        self._taken_up[slot] = epoch

    def thread(self, desired: ThreadSpec) -> ThreadStatus | None:
        """This thread as its present worker reports it."""
        worker = self.workers.get(desired.slot)
        if worker is None or worker.state != "running":
            return None
        return self.threads.get(desired.thread)

    def up(self) -> tuple[Member, ...]:
        """Members that are joined or silent, by natural order of their names (vm2 before vm10)."""
        return tuple(sorted((m for m in self.members.values() if m.up), key=lambda m: natural(m.vm.vm)))

    def gone(self) -> tuple[str, ...]:
        """VMs that are lost, or left."""
        return tuple(sorted(m.vm.vm for m in self.members.values() if not m.up))

    def flaps(self, vm: str, now: Now) -> bool:
        """Was it lost twice lately, and the last time only just (rule 5)?"""
        before, last = self._losses.get(vm, (0, 0))
        return before > 0 and last - before < FLAPS_WITHIN_NS and now.mono_ns - last < STEADY_NS

    def silent(self, now: Now, since_ns: int) -> str:
        """Which VM stands still, or did since then and is catching up: no load is judged; empty when none does."""
        for member in self.up():
            lasted_ns, over_ns = member.silence
            if now.mono_ns - member.heard_ns >= SILENT_NS:
                return f"{member.vm.vm} is not heard"
            if over_ns > since_ns and now.mono_ns - over_ns < SETTLE_NS + 2 * lasted_ns:
                return f"{member.vm.vm} was not heard for {lasted_ns / NS:.1f} s, and makes up for that"
        return ""

    @property
    def waits(self) -> str:
        """Which thread waits for a service outside; empty when none does."""
        return min(self.away.values(), default="")

    def frozen(self, now: Now) -> str:
        """Why nothing may be judged now; empty when it may."""
        if now.mono_ns >= self._frozen_until_ns:
            return ""
        return f"the controller itself was stalled for {self._stalled_ns / NS:.1f} s"


def _silence(member: Member, now: Now) -> tuple[int, int]:
    """Its last silence, when it is heard now. Of one that was lost nothing waits."""
    quiet_ns = now.mono_ns - member.heard_ns
    return (quiet_ns, now.mono_ns) if quiet_ns >= SILENT_NS and member.up else member.silence


def _only_counts(before: Report, report: Report) -> bool:
    """Have only the sources' positions changed? So it is of nearly all reports."""
    same = report.workers == before.workers and report.strikes == before.strikes
    return same and _sources(report) == _sources(before)


def _standing(report: Report | None) -> object:
    """Of a report, what others may have to know: not counts, not tokens."""
    if report is None:
        return None
    workers = tuple((w.slot, w.incarnation, w.state, w.endpoint, len(w.threads)) for w in report.workers)
    return workers, _sources(report), report.strikes


def _sources(report: Report) -> tuple[tuple[int, bool, bool, int], ...]:
    return tuple([(now.thread, now.stopped, now.emitted > 0, now.rests) for now in report.sources])


@lru_cache(maxsize=4096)
def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sorts numbers inside names as numbers."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))
