"""The made world (controller/replay/ideal_machines.py) with knobs for what goes wrong: workers that die or do not get
ready, ledgers with open rows, agents that are silent, machines that never come, a controller that dies, a journal
that is full. What is known is checked against the journal after every event."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.journal_records import Durable, Record, RolloutStarted, Submitted, fold_all
from headgate.controller.knowledge.run_tallies import Tallies
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.ideal_machines import (
    PLAIN_LATENCY_NS,
    Delays,
    IdealAccount,
    IdealVm,
    IdealWorld,
    latency_rows,
    quiet_block,
)
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m

S = 1_000_000_000
WALL0 = 1_700_000_000 * S
MEMORY = 1 << 29

TOPOLOGY = Topology(
    "line",
    (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task("work"),
        Task("sink", static=Static(1, 0.1, 0.1)),
    ),
    (Edge("source", "work"), Edge("work", "sink")),
)
MODELS = (
    Model("work", ModelSlot(1.0, MEMORY), tuple(Point(n, 50.0 * n, 0.2 * n, 0.1 * n) for n in (1, 2, 3, 4))),
)


def vm(name: str, slots: int = 4) -> Vm:
    return Vm(name, slots, 1.0, MEMORY)


def ints(values: Iterable[int]) -> bytes:
    return array("q", values).tobytes()


@dataclass
class FakeWorker:
    """A worker that obeys at once. slow: it never says that it is ready."""

    incarnation: int
    threads: dict[int, m.ThreadSpec] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    switched: int = 0
    token: m.Token = m.Token()
    crashes: int = 0
    last_exit: str = ""
    code: int = 0
    given_up_epoch: int = -1  # its slot is free again when a later one puts threads into it
    state: Literal["running", "exited", "quarantined"] = "running"


@dataclass
class FakeSource:
    """A source thread's ledger: nothing in it is done before `acked` says so."""

    thread: int
    emitted: int = 0
    acked: int = 0
    reading: bool = False
    stopped: bool = False
    exhausted: bool = False
    rests: int = 0  # the last step of the end that it has done

    @property
    def open(self) -> int:
        return self.emitted - self.acked


class FakeVm(IdealVm):
    """One VM with its agent and workers. It obeys at once."""

    world: World

    def __init__(self, world: World, shape: Vm, boot: int) -> None:
        super().__init__(world, shape, boot)
        self.token = m.Token()
        self.workers: dict[Slot, FakeWorker] = {}
        self.sources: dict[int, FakeSource] = {}
        self.hung: set[Slot] = set()  # workers there do not get ready
        self.dying: set[Slot] = set()  # and there they crash again at once, once the slot was given up
        self.failing: set[str] = set()  # tasks whose logic cannot be built
        self.failing_codes: set[int] = set()
        self.building: set[str] = set()  # tasks whose logic takes its time
        self.spools: tuple[m.SpoolLeft, ...] = ()
        self.again: dict[tuple[Slot, int], tuple[m.SentAgain, ...]] = {}
        self.down = self.cut = False
        self.shut_down = False

    @property
    def speaks(self) -> bool:
        return not (self.down or self.cut)

    def hello(self) -> m.Hello:
        return replace(super().hello(), binding="cgroup1", spools=self.spools)

    def tell(self, desired: m.DesiredState, ready_ns: int) -> None:
        if desired.token < self.token:
            return
        assert desired.token.boot >= self.token.boot
        self.token, self.desired = desired.token, desired
        mine: dict[Slot, list[m.ThreadSpec]] = {}
        for thread in desired.threads:
            if thread.slot.vm == self.name:
                mine.setdefault(thread.slot, []).append(thread)
        for slot in sorted({*mine, *self.workers}):
            self._obey_in(slot, mine.get(slot, []), desired)

    def _obey_in(self, slot: Slot, mine: list[m.ThreadSpec], desired: m.DesiredState) -> None:
        worker = self.workers.get(slot)
        if worker is None or worker.state == "exited":
            if not any(not t.leaving or desired.phase != "committed" for t in mine):
                return
            worker = self.workers[slot] = FakeWorker(
                self.world.next_number(), crashes=worker.crashes if worker else 0
            )
        if worker.state == "quarantined":
            if desired.token.epoch <= worker.given_up_epoch or all(t.leaving for t in mine):
                return
            worker = self.workers[slot] = FakeWorker(self.world.next_number(), crashes=worker.crashes)
            if slot in self.dying:
                self.quarantine(slot.number)
                return
        for gone in set(worker.threads) - {thread.thread for thread in mine}:
            self.sources.pop(gone, None)
        if not mine:
            worker.state, worker.threads = "exited", {}
            return
        (code,) = {thread.code for thread in mine}
        assert code == worker.code or not worker.threads, (
            f"{slot}: a worker of code {worker.code} is to run {code}"
        )
        worker.token, worker.switched, worker.code = desired.token, desired.routes_number, code
        worker.threads = {t.thread: t for t in mine}
        for thread in mine:
            if thread.leaving and desired.phase == "committed" and not self._open(thread.thread):
                worker.ended.add(thread.thread)
            if thread.task == "source":
                self._source(thread, desired, worker)

    def _open(self, thread: int) -> bool:
        source = self.sources.get(thread)
        return source is not None and source.acked < source.emitted

    def _source(self, thread: m.ThreadSpec, desired: m.DesiredState, worker: FakeWorker) -> None:
        source = self.sources.setdefault(thread.thread, FakeSource(thread.thread))
        named = any(at.slot == thread.slot and at.incarnation == worker.incarnation for at in desired.workers)
        leaving = thread.leaving and desired.phase != "prepared"
        whole = desired.end is not None and desired.end.whole and not source.exhausted
        if leaving or (desired.draining and not whole):
            source.reading = False
        elif not source.reading and named:
            for start in desired.starts:
                if (start.task, start.partition) == (thread.task, thread.partition):
                    source.emitted = source.acked = start.position
                    source.reading = True
                    self.world.started.append((thread.thread, start.position))
        source.stopped = (
            not source.reading and source.acked == source.emitted and (leaving or desired.draining)
        )

    def run_sources(self, wall_ns: int) -> None:
        """Read what is due; done at once unless the world holds acks back."""
        schedule = self.desired.schedule if self.desired else None
        for source in self.sources.values():
            if source.reading and schedule is not None:
                source.emitted = max(source.emitted, min(schedule.due(wall_ns), self.world.rows))
                source.exhausted = schedule.due(wall_ns) > self.world.rows
                draining = self.desired is not None and self.desired.draining
                source.reading = not (source.exhausted and draining)
            if not self.world.hold_acks:
                source.acked = min(source.emitted, source.acked + self.world.acks_at_once)
            if not source.reading and self.desired is not None and source.acked == source.emitted:
                thread = next((t for t in self.desired.threads if t.thread == source.thread), None)
                source.stopped = thread is not None and (thread.leaving or self.desired.draining)
            end = self.desired.end if self.desired is not None else None
            rests = not source.reading and (source.acked == source.emitted or (end and end.step == "again"))
            if end is not None and rests and end.number > source.rests and not self.world.hold_steps:
                source.rests = end.number

    def report(self) -> m.Report:
        self.reports += 1
        tasks = {thread.task for worker in self.workers.values() for thread in worker.threads.values()}
        marks = {task: self.world.marks_of(self.name, task) for task in tasks}
        workers = tuple(self._worker_now(slot, one, marks) for slot, one in sorted(self.workers.items()))
        live = {t for worker in self.workers.values() if worker.state == "running" for t in worker.threads}
        sources = tuple(
            m.SourceStatus(
                *("source", 0, s.thread, s.emitted, s.acked, 0, s.open - self.world.forgotten, 0, s.stopped),
                exhausted=s.exhausted,
                rests=-s.rests if self.world.lose_rows else s.rests,
            )
            for s in self.sources.values()
            if s.thread in live
        )
        if sources:  # who reads here takes them over
            self.spools = ()
        return m.Report(self.name, self.boot, self.reports, self.token, workers, sources, spools=self.spools)

    def _worker_now(self, slot: Slot, worker: FakeWorker, marks: dict[str, int]) -> m.WorkerStatus:
        threads = tuple(self._thread_now(worker, t, marks[t.task]) for _, t in sorted(worker.threads.items()))
        ready = slot not in self.hung and self.world.connected(slot, worker)
        return m.WorkerStatus(
            slot,
            worker.incarnation,
            worker.state,
            f"tcp://{slot.vm}:{slot.number + 1}#" + f"{slot}-{worker.incarnation}".ljust(40, "0"),
            worker.token,
            ready,
            threads,
            worker.crashes,
            worker.last_exit,
            again=self.again.get((slot, worker.incarnation), ()),
        )

    def _thread_now(self, worker: FakeWorker, thread: m.ThreadSpec, marked: int) -> m.ThreadStatus:
        ended = thread.thread in worker.ended
        failed = "ValueError: no" if thread.task in self.failing or thread.code in self.failing_codes else ""
        empty = not self._open(thread.thread)
        if failed:  # it was never built: it obeys nothing
            return m.ThreadStatus(thread.thread, 0, 0, empty, ended, failed)
        if thread.task in self.building:
            return m.ThreadStatus(thread.thread, 0, 0, empty, ended, building=True)
        return m.ThreadStatus(thread.thread, worker.switched, marked, empty, ended)

    def block(self) -> m.SampleBlock:
        """A second of this VM: nothing used but what `world.work` says, every row through in a moment."""
        self.blocks += 1
        mine = [thread for worker in self.workers.values() for thread in worker.threads.values()]
        quiet = quiet_block(self.name, self.boot, mine)
        used = {name for task in quiet.tasks for name in self.world.work.get(task, {})}
        threads = {
            name: ints(self.world.work.get(task, {}).get(name, 0) for task in quiet.tasks) for name in used
        }
        latency = (
            (("sink", "source", latency_rows(self.world.rows_take_ns)),)
            if "sink" in quiet.tasks and not self.world.hold_acks
            else ()
        )
        at = {"sequence": self.blocks, "wall_ns": self.world.now.wall_ns}
        return replace(quiet, threads=quiet.threads | threads, latency=latency, **at)

    # ── what goes wrong ─────────────────────────────────────────────────────────────────────────

    def kill_worker(self, number: int) -> None:
        """A worker dies and its agent starts it again, without what it knew."""
        slot = Slot(self.name, number)
        old = self.workers[slot]
        for thread in old.threads.values():
            if thread.thread in self.sources:
                self.sources[thread.thread] = FakeSource(thread.thread)
        new = FakeWorker(self.world.next_number(), crashes=old.crashes + 1)
        self.workers[slot] = new
        if self.desired is not None:
            mine = [t for t in self.desired.threads if t.slot == slot]
            self._obey_in(slot, mine, self.desired)

    def quarantine(self, number: int) -> None:
        worker = self.workers[Slot(self.name, number)]
        for thread in worker.threads:
            self.sources.pop(thread, None)
        worker.state, worker.threads, worker.last_exit = "quarantined", {}, "kill -9"
        worker.crashes += 4
        worker.given_up_epoch = self.token.epoch

    def restart(self) -> None:
        """Its agent is started again: no workers, a higher boot."""
        self.boot += 1
        self.reports, self.blocks, self.token, self.desired = 0, 0, m.Token(), None
        self.workers.clear()
        self.sources.clear()
        self.down = self.cut = False


class World(IdealWorld):
    """Controller and VMs; a look every 50 ms."""

    vm_kind = FakeVm
    step_ns, report_ns = S // 20, S // 5
    vms: dict[str, FakeVm]

    def __init__(
        self, vms: Iterable[Vm] = (vm("vm1"), vm("vm2")), rate_tps: float = 100.0, **settings: Any
    ) -> None:
        self._number = 0
        self._compared: Durable | None = None
        self._folded: tuple[int, Durable] = (0, Durable())
        self.hold_acks, self.acks_at_once = False, 1 << 40
        self.rows_take_ns = PLAIN_LATENCY_NS
        self.hold_steps = False  # of the end of the input: none is done
        self.lose_rows = False  # … nor can be
        self.rows, self.forgotten = 1 << 40, 0  # there are; of those that are open, as many in no ledger
        self.settings = ControllerSettings("test", initial=tuple(vms), **settings)
        self.submitted = Submitted(TOPOLOGY, MODELS, ((0.0, rate_tps),), 0.0, (), WALL0)
        self.inputs: list[bytes] = []
        self.journal: list[Record] = []
        self.tallies: Tallies | None = None
        self.letters: list[DeadLetterRecord] = []
        self.sent: list[tuple[str, m.FromController]] = []
        self.answers: dict[int, m.Reply] = {}
        self.started: list[tuple[int, int]] = []
        self.traces: list[dict[str, object]] = []
        self.plans: list[Plan] = []  # those that the trace holds whole
        self.journal_fails = False
        self.work: dict[str, dict[str, int]] = {}  # task → column of its thread's samples → a second's value
        self.lost_requests: set[str] = set()  # VMs that the provider never starts
        loop = Loop(self.settings, self.submitted)
        super().__init__(loop, IdealAccount(), Delays(machine_s=0.0), wall_ns=WALL0)

    # ── running ─────────────────────────────────────────────────────────────────────────────────

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def start(self) -> World:
        """The controller begins its life; everyone says hello."""
        self.do(t.Started(tuple(self.journal), self.tallies, 1))
        for one in self.vms.values():
            self.do(t.FromVm(one.hello()))
        return self

    def restart_controller(self) -> None:
        self._folded = (-1, Durable())
        self.loop = Loop(self.settings, self.submitted)
        self.do(t.Started(tuple(self.journal), self.tallies, 2, tuple(self.letters)))

    def run_again(self, after_s: float) -> None:
        """The run was over, and somebody resumes it: agents and controller begin anew."""
        self.finish = None
        self.mono_ns += int(after_s * S)
        for one in self.vms.values():
            one.restart()
        self.restart_controller()
        if self.finish is None:
            for one in self.vms.values():
                self.do(t.FromVm(one.hello()))

    def run(self, seconds: float) -> World:
        """Let time go by."""
        end_ns = self.mono_ns + int(seconds * S)
        while self.mono_ns < end_ns and self.finish is None:
            self.mono_ns += self.step_ns
            for event in self.look():
                self.do(event)
                if self.finish is not None:
                    break
        return self

    def flow(self) -> None:
        for one in list(self.vms.values()):
            one.run_sources(self.now.wall_ns)

    def report_all(self) -> None:
        for one in list(self.vms.values()):
            self.report(one)

    def report(self, one: FakeVm) -> None:
        if one.speaks and self.finish is None:
            self.do(t.FromVm(one.report()))

    def came(self, name: str) -> bool:
        return name not in self.lost_requests and super().came(name)

    def do(self, event: t.Event) -> list[t.Instruction]:
        self.inputs.append(msgspec.json.encode(t.Input(self.now, event)))
        msgspec.json.decode(self.inputs[-1], type=t.Input)
        out = self.loop.step(event, self.now)
        if self.journal_fails and any(isinstance(instruction, t.Persist) for instruction in out):
            assert isinstance(out[0], t.Persist), "nothing comes before the journal"
            self.do(t.JournalFailed("no space left"))
            return out
        for instruction in out:
            self.perform(instruction)
        self.check()
        return out

    def perform(self, instruction: t.Instruction) -> None:
        match instruction:
            case t.Persist(records):
                self.journal += msgspec.msgpack.decode(
                    msgspec.msgpack.encode(records), type=tuple[Record, ...]
                )
            case t.KeepTallies(tallies, told):
                self.tallies = tallies
                for send in told:
                    super().perform(send)
            case t.KeepDeadLetters(letters):
                self.letters += letters
            case t.Answer(number, reply):
                self.answers[number] = reply
            case t.Trace("decision", data, plan):
                self.traces.append(data)
                self.plans += [plan] if plan is not None else []
            case _:
                super().perform(instruction)

    def deliver(self, name: str, message: m.FromController) -> None:
        self.sent.append((name, message))
        one = self.vms.get(name)
        if one is None or not one.speaks:
            return
        if isinstance(message, m.DesiredState):
            self.check_recoverable(message)
            super().deliver(name, message)
        elif isinstance(message, m.Shutdown) and message.token >= one.token and not one.shut_down:
            one.shut_down = True
            self.do(t.FromVm(m.Goodbye(name, one.boot)))

    def ask(self, command: str, **arguments: object) -> m.Reply:
        asked = self.command(command, dict(arguments))
        self.do(asked)
        return self.answers[asked.number]

    # ── what workers know of each other ─────────────────────────────────────────────────────────

    def worker(self, slot: Slot) -> FakeWorker | None:
        one = self.vms.get(slot.vm)
        return one.workers.get(slot) if one is not None and one.speaks else None

    def connected(self, slot: Slot, worker: FakeWorker) -> bool:
        """Does its desired state name the present worker of every other slot, except on dead VMs?"""
        desired = self.vms[slot.vm].desired
        if desired is None:
            return False
        at = {w.slot: w.incarnation for w in desired.workers if w.endpoint}
        others = {t.slot for t in desired.threads if t.slot != slot and t.slot.vm not in desired.held_dead}
        return all((peer := self.worker(s)) is not None and at.get(s) == peer.incarnation for s in others)

    def marks_of(self, vm: str, task: str) -> int:
        """The lowest routes by which anything above a task still sends, as marks tell its threads on a VM."""
        desired = self.vms[vm].desired
        assert desired is not None
        if desired.phase == "prepared":
            return 0
        above = {edge.source for _, edge in self.submitted.topology.in_edges(task)}
        senders = [t for t in desired.threads if t.task in above and t.slot.vm not in desired.held_dead]
        found = [
            w.switched if (w := self.worker(t.slot)) is not None and t.thread in w.threads else 0
            for t in senders
        ]
        return min(found, default=1 << 62)

    # ── invariants ──────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """After every event."""
        k = self.loop.knowledge
        if k.durable is not self._compared:
            assert fold_all(tuple(self.journal)) == k.durable, "what is known is what is journaled"
            self._compared = k.durable
        d = k.durable
        if d.rollout is not None:
            assert len({t.thread for t in d.rollout.threads}) == len(d.rollout.threads)
            assert all(t.thread < d.next_thread for t in d.rollout.threads)
            assert d.rollout.routes_number < d.next_routes
        alive = [one for one in self.vms.values() if one.speaks and one.name not in d.held_dead]
        reading = [source for one in alive for source in one.sources.values() if source.reading]
        assert len(reading) <= 1, f"two threads read one partition: {reading}"

    def check_recoverable(self, desired: m.DesiredState) -> None:
        """Whatever an agent is told can be made again from the journal (story B6)."""
        if len(self.journal) != self._folded[0]:
            self._folded = len(self.journal), fold_all(tuple(self.journal))
        d = self._folded[1]
        assert desired.token.boot == d.boot
        if d.rollout is None:  # before the first plan tasks may be measured, and nothing else
            assert not desired.token.epoch and not desired.threads
            assert not desired.profiles or d.taken is not None
            return
        assert desired.token.epoch == d.rollout.epoch
        assert {t.thread for t in desired.threads} == {t.thread for t in d.rollout.threads}
        assert desired.routes_number in (d.rollout.routes_number, d.rollout.before_number)

    def check_decisions(self) -> None:
        """A loop of its own decides the same by what was recorded."""
        found = []
        for line in self.inputs:
            one = msgspec.json.decode(line, type=t.Input)
            if isinstance(one.event, t.Started):
                loop = Loop(self.settings, self.submitted)
            out = loop.step(one.event, one.now)
            found += [i.data for i in out if isinstance(i, t.Trace) and i.kind == "decision"]
        assert found == self.traces and any(one["action"] == "plan" for one in found)

    # ── looking ─────────────────────────────────────────────────────────────────────────────────

    @property
    def durable(self) -> Durable:
        return self.loop.knowledge.durable

    @property
    def phase(self) -> str:
        return self.durable.phase

    @property
    def alarms(self) -> dict[str, str]:
        return self.loop.knowledge.alarms

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.loop.knowledge.events if event["kind"] == kind]

    def texts(self, kind: str) -> list[str]:
        return [str(event["text"]) for event in self.events(kind)]

    @property
    def rollout(self) -> RolloutStarted:
        assert self.durable.rollout is not None
        return self.durable.rollout

    @property
    def tokens(self) -> list[m.Token]:
        return [message.token for _, message in self.sent if isinstance(message, m.DesiredState)]

    def slots_of(self, task: str) -> set[Slot]:
        return {t.slot for t in self.rollout.threads if t.task == task and not t.leaving}

    def source_thread(self) -> m.ThreadSpec:
        return next(t for t in self.rollout.threads if t.task == "source" and not t.leaving)

    def until(self, phase: str, limit_s: float = 30.0) -> World:
        """Run until the enactment is in this phase."""
        waited = 0.0
        while self.phase != phase and waited < limit_s:
            self.run(0.05)
            waited += 0.05
        assert self.phase == phase, f"still {self.phase} after {limit_s} s: {self.loop.knowledge.alarms}"
        return self


__all__ = ["MODELS", "TOPOLOGY", "WALL0", "FakeVm", "S", "World", "replace", "vm"]
