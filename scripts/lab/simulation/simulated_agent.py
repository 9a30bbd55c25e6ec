"""An agent in virtual time: a real AgentState, performed as agent/agent_process.py does, and its VM's disk."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.agent.core.agent_state import AgentState
from headgate.agent.core.package_state import with_code
from headgate.agent.process.agent_files import left_over
from headgate.controller.replay.ideal_machines import latency_rows, quiet_block
from headgate.lab.simulation.simulated_thread import SimSpool
from headgate.lab.simulation.simulated_worker import SimWorker
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import FinishedKept, PackageOffer, PackagePart
from headgate.topology_runtime.worker.sources.source_spool import Owner, folder_of

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_world import SimWorld


class SimAgent:
    """One VM: its agent (dead or alive), the workers it owns, its disk. `gone`: for good."""

    def __init__(self, world: SimWorld, shape: Vm) -> None:
        self.world, self.shape = world, shape
        self.disk: dict[tuple[str, int], bytes] = {}
        self.letters: list[m.DeadLetter] = []  # on its disk, of workers that are no more
        self.workers: dict[int, SimWorker] = {}
        self.lives = 0
        self.alive = self.gone = self.left = False
        self.cut_until_ns = self.started_ns = 0
        self.changes_key_until_ns = 0
        self.full_until_ns = 0  # its disk takes no more
        self.token = m.Token()

    @property
    def name(self) -> str:
        return self.shape.vm

    @property
    def unusable(self) -> bool:
        """Is it gone, or are all its slots given up?"""
        return self.gone or (self.lives > 0 and all(slot.given_up for slot in self.state.slots.values()))

    @property
    def rests(self) -> bool:
        """Is a slot given up? It is tried again, if only since no plan can be made without it."""
        return self.lives > 0 and any(slot.given_up for slot in self.state.slots.values())

    @property
    def cut(self) -> bool:
        return self.world.now_ns < self.cut_until_ns

    @property
    def full(self) -> bool:
        return self.world.now_ns < self.full_until_ns

    @property
    def directory(self) -> str:
        """Of files on its disk."""
        return os.path.join(self.world.directory(), self.name)

    def spool_of(self, owner: Owner, position: int, until: int | None) -> SimSpool:
        """The spool of a source thread on this VM's disk."""
        spool = SimSpool(folder_of(self.directory, owner), position, until, lambda: self.full)
        self.world.spools.append(spool)
        self.world.met["spools drained"] += spool.end > spool.acked
        return spool

    @property
    def events_in_spools(self) -> int:
        """Not acked, as its disk knows, also when the VM is lost."""
        return sum(one.end - one.acked for one in left_over(self.directory))

    def _spools(self) -> tuple[m.SpoolLeft, ...]:
        return left_over(self.directory) if self.world.shape.live else ()

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        if self.alive or self.gone or self.left:
            return
        self.lives += 1
        self.alive = True
        self.started_ns = self.world.now_ns
        s = self.shape
        self.boot = self.world.wall_ns
        hello = m.Hello(
            s.vm, self.boot, s.slots, s.slot_cores, s.slot_memory_bytes, "cgroup1", 7, spools=self._spools()
        )
        self.state = AgentState(hello, self.world.now_ns)
        self.state.take_up((), tuple(self.letters))
        self.token = m.Token()
        self._wake_ns = -1
        self._wakes = self._blocks = self._came = 0
        self.world.clock.say(f"agent {self.name} starts")
        self.do(e.Tick())
        self._sample(self.lives)

    def kill(self, why: str) -> None:
        """Its workers die with it."""
        if not self.alive:
            return
        self.world.clock.say(f"agent {self.name} dies: {why}")
        self.alive = False
        for worker in list(self.workers.values()):
            worker.kill("its agent died")
            self.letters += worker.letters_kept
        self.workers.clear()

    def lose(self) -> None:
        """The VM is gone for good."""
        self.world.tallies.states_lost += not self.world.far
        self.kill("the VM is gone")
        self.gone = True
        self.world.account.vm_lost(self.name)

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def do(self, event: e.Event) -> None:
        events: deque[e.Event] = deque([event])
        while events and self.alive:
            for instruction in self.state.step(events.popleft(), self.world.now_ns):
                self._perform(instruction)
            self.state.validate()
        if not self.alive:
            return
        assert self.state.token >= self.token, f"agent {self.name} obeys a lower token"
        self.token = self.state.token
        if self.state.wake_ns != self._wake_ns:
            self._plan_wake()

    def _plan_wake(self) -> None:
        self._wake_ns = self.state.wake_ns
        self._wakes += 1
        wake, life = self._wakes, self.lives

        def tick() -> None:
            if self.alive and (wake, life) == (self._wakes, self.lives):
                self._wake_ns = -1
                for worker in list(self.workers.values()):
                    self._read_sources(worker)
                self.do(e.Tick())

        self.world.clock.at(max(self._wake_ns, self.world.now_ns + S // 1000), "", tick)

    def from_controller(self, message: m.FromController) -> None:
        if isinstance(message, m.DesiredState):
            self.world.checks.known_to_agent(message)
            older = {code.number: self.world.letter_of(with_code(message, code)) for code in message.older}
            self.do(e.WantedArrived(message, self.world.letter_of(message), older))
        elif not isinstance(message, FinishedKept | PackageOffer | PackagePart | m.StateQuestion):
            self.do(message)  # no logs of sinks, no packages, nobody asks for a state

    def from_worker(self, worker: SimWorker, message: m.FromWorker) -> None:
        if self.alive and self.workers.get(worker.slot.number) is worker:
            assert not isinstance(message, m.StateAnswer), "nobody has asked"
            self.do(message)

    def worker_exited(self, worker: SimWorker, how: str, clean: bool) -> None:
        if self.alive and self.workers.get(worker.slot.number) is worker:
            self._read_sources(worker)
            del self.workers[worker.slot.number]
            told = self.state.slots[worker.slot.number].letters
            self.letters += worker.letters_kept
            left = tuple(worker.letters_kept[told:]), self._spools()
            self.do(e.WorkerExited(worker.slot, worker.incarnation, how, clean, False, (), 0, *left))

    def _read_sources(self, worker: SimWorker) -> None:
        """Its meter outlives a worker."""
        from headgate.lab.simulation.simulated_thread import SimSource

        threads = [t for t in worker.threads.values() if isinstance(t, SimSource) and t.logic is not None]
        sources = tuple(thread.source_now() for thread in threads)
        if sources:
            self.do(e.SourcesRead(worker.slot, worker.incarnation, sources))

    def _check_code(self, slot: Slot, incarnation: int, desired: m.DesiredState) -> None:
        """A worker never hears of another code than its own."""
        worker = self.workers.get(slot.number)
        if worker is None or worker.incarnation != incarnation:
            return
        assert worker.code in (-1, desired.code), f"{slot}: code {worker.code}, then {desired.code}"
        worker.code = desired.code
        mine = {thread.code for thread in desired.threads if thread.slot == slot}
        assert mine <= {desired.code}, f"{slot} has code {desired.code}, its threads {mine}"

    # ── instructions ────────────────────────────────────────────────────────────────────────────

    def _perform(self, instruction: e.Instruction) -> None:
        if not self.alive:
            return
        if self.world.faults.strikes("agent"):
            self.kill(f"before {type(instruction).__name__}")
            return
        match instruction:
            case e.SpawnWorker(slot, incarnation):
                assert slot.number not in self.workers, f"two workers in {slot}"
                self.workers[slot.number] = SimWorker(self, slot, incarnation)
            case e.ToWorker(slot, incarnation, bytes(data)):
                desired = self.world.desired_of(data)
                self._check_code(slot, incarnation, desired)
                self._tell(slot.number, incarnation, desired)
            case e.ToWorker(slot, incarnation, m.Quit() | m.Lease() | m.SendAgain() as message):
                self._tell(slot.number, incarnation, message)
            case e.KillWorker(slot, incarnation, why):
                worker = self.workers.get(slot.number)
                if worker is not None and worker.incarnation == incarnation:
                    worker.kill(why)
            case m.Hello() | m.Report() | m.DeadLetters() | m.Goodbye():
                self.world.control.to_controller(self, instruction)
            case e.DropDeadLetters():
                self.letters.clear()
            case e.Note(text):
                self.world.clock.say(f"agent {self.name}: {text}")
            case e.Exit(reason, error):
                assert not error, f"agent {self.name} was refused: {error}"
                assert not self.workers, f"agent {self.name} leaves workers behind"
                self.world.clock.say(f"agent {self.name} ends: {reason}")
                self.alive, self.left = False, True

    def _tell(self, slot: int, incarnation: int, message: m.FromAgentToWorker) -> None:
        worker = self.workers.get(slot)
        if worker is None or worker.incarnation != incarnation:
            return
        of_contact = isinstance(message, m.Lease) and not message.until_ns
        at_ns = self.world.now_ns + (MS if of_contact else self.world.delay_ns(0.1, 2))
        worker.told_ns = max(worker.told_ns, at_ns)  # one connection: first in, first out
        self.world.clock.at(worker.told_ns, "", lambda: worker.from_agent(message))

    # ── samples ─────────────────────────────────────────────────────────────────────────────────

    def _sample(self, life: int) -> None:
        if self.alive and life == self.lives:
            self.world.control.to_controller(self, self._block())
            if self.state.spools_left:
                self.do(e.DiskSeen((), self._spools()))
            self.world.later(S, lambda: self._sample(life))

    def _block(self) -> m.SampleBlock:
        """A second of this VM: nothing used, every row through in a moment; of runs that end whether there was one."""
        self._blocks += 1
        threads = [t.desired for w in self.workers.values() for t in w.threads.values()]
        quiet = quiet_block(self.name, self.boot, threads)
        account = self.world.account
        came = account.came_to_sinks > self._came or not self.world.shape.ends
        self._came = account.came_to_sinks
        latency = (("sink", "source", latency_rows()),) if came and "sink" in quiet.tasks else ()
        return replace(quiet, sequence=self._blocks, wall_ns=self.world.wall_ns, latency=latency)
