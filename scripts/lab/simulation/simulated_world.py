"""One seed: the real cores of controller, agents and workers in one process and in virtual time.

gather and plan → faults, re-plans and rows for some seconds → faults stop → everything settles → stop
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from tempfile import mkdtemp
from weakref import finalize

from headgate.agent.core.slot_state import TRIED_AGAIN_NS
from headgate.controller.analyze.slot_troubles import LEFT_OUT_S
from headgate.controller.core.alarms import CUT_OFF_S
from headgate.controller.execute.end_of_input import EVERY_SOURCE
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.knowledge.spooled_events import unread
from headgate.lab.simulation.injected_faults import BrokenWays, FailingCode, Faults, Replays
from headgate.lab.simulation.row_account import KeyedAccount, SimAccount
from headgate.lab.simulation.simulated_agent import SimAgent
from headgate.lab.simulation.simulated_controller import Control, Disk, SimController
from headgate.lab.simulation.simulated_thread import SimSpool
from headgate.lab.simulation.simulated_topologies import (
    DRAWN,
    SHAPES,
    Shape,
    arriving,
    machine,
    parted,
    swapped,
    turned,
)
from headgate.lab.simulation.simulated_worker import SimWorker
from headgate.lab.simulation.virtual_time import MS, WALL0_NS, Clock, S
from headgate.lab.simulation.world_checks import Checks, Liveness
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.platform.clock import RunClock
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m

FIRST_FAULT_S, FAULTS_END_S = 0.3, 6.0
SETTLE_S, END_S = (
    25.0,
    40.0,
)  # virtual seconds that settling and ending may take: less than any deadline of a row
LOOK_S = 0.5
FAULTS = (0, 2, 3, 3, 4, 5, 6)  # of which a seed has one number
MEMORY = "/dev/shm"
REPLANS_LEAST = 2
ENDS_S = 240.0  # a run whose sources end does so, after the last fault
QUIET_S = 5.0
STEPS, STEPPED_S = 2, 12  # of the machines' clocks in a seed: how many, how late at most
SILENT_S = 30.0
LETTERS_LOST = {"lose_vm", "lose_vm_at_move"}  # with the disk of the VM
SWAPPED, AT_ONCE = 0.4, 0.5  # shares of proposals that swap VMs, of plans that are followed at once
TURNED = 0.3  # of those that swap: slots of one VM instead


@dataclass(frozen=True)
class Options:
    """What a seed is about; None: the seed says."""

    shape: str | None = None
    faults: int | None = None
    kinds: tuple[str, ...] = ()  # of faults; none: all
    rate_tps: float | None = None
    vms_least: int = 1
    parted: bool | None = None  # sinks live in other workers than sources
    queue_ms: float = 0.0  # frames wait so long in the inboxes of sinks
    far: bool | None = None  # snapshots are on no VM
    exact: bool | None = None  # keyed state counts exactly once


class SimWorld:
    """Controller and VMs of one seed."""

    def __init__(self, seed: int, options: Options = Options()) -> None:
        self.seed, self.options = seed, options
        self.random = r = random.Random(seed)
        self.random64 = lambda: r.getrandbits(64)
        self.clock = Clock()
        self.stepped_ns = 0  # so far the machines' clocks were set
        self.utc = self.machine_clock()
        self._steps = random.Random(f"clock steps of {seed}")
        for _ in range(STEPS):
            self.clock.at(self._steps.randint(S, STEPPED_S * S), "", self.step_clock)
        self.met: Counter[str] = Counter()  # what happened how often (coverage.py)
        self._choose()
        self.far_disk: dict[tuple[str, int], dict[int, bytes]] = {}  # thread → life → its snapshot
        self.far_taken: set[tuple[str, int]] = set()  # threads whose ranges others have taken over
        self._stream: Schedule | None = None  # what comes at arriving sources
        self.unheard_s = 0.0  # sources read on by a rate that was lowered meanwhile
        shapes = self._machines()
        self.settings = ControllerSettings(
            "sim",
            initial=shapes,
            probation_window_s=0.3,
            data_plane=m.DataPlaneSettings(gap_s=0.005, frame_rows=8, window_s=1.0),
            state_to="far" if self.far else "",
            exactly_once=self.exact,
        )
        rate = options.rate_tps or r.choice(self.shape.rates_tps)
        topology = self.shape.topology
        self.submitted = Submitted(
            topology, self.shape.models, ((0.0, rate),), 0.0, (), WALL0_NS, self.arriving
        )
        sinks = {task.name for task in topology.sinks}
        self.last_edges = {n for n, edge in enumerate(topology.edges) if edge.target in sinks}
        self.letters = Replays(self)
        self.account = SimAccount(self.shape, self.met, self.letters.mended, self.state_went)
        self.tallies = KeyedAccount(self.shape, self.account)
        self.tallies.exact = self.exact and self.far
        self.events = itertools.count()  # of live sources
        self.spools: list[SimSpool] = []
        self._directory = ""
        self.disk = Disk()
        self.killed = 0  # workers
        self.endpoints: dict[str, SimWorker] = {}
        self.agents = {shape.vm: SimAgent(self, shape) for shape in shapes}
        self.controller = SimController(self, self.disk)
        self.control = Control(self)
        self.checks = Checks(self)
        self.faults = Faults(self)
        self.code = FailingCode(self)
        self.ways = BrokenWays(self)
        self._letters: dict[bytes, m.DesiredState] = {}
        self.data_ms = r.choice((0.5, 2.0, 20.0))
        self.clock.after_event = self.checks.after_event

    def _choose(self) -> None:
        """What is run, by the seed and as far as nothing else is asked for."""
        self.name = self.options.shape or self.random.choice(DRAWN)
        shape: Shape = SHAPES[self.name]
        may_part = not shape.machines and (
            self.seed % 2 if self.options.parted is None else self.options.parted
        )
        self.shape = parted(shape) if may_part else shape
        self.arriving = shape.live and self.seed % 4 < 2
        if self.arriving:
            self.shape = arriving(self.shape)
        keyed, far = bool(self.shape.keys), self.shape.far
        self.far = far or (keyed and (self.seed % 5 == 4 if self.options.far is None else self.options.far))
        drawn = bool(self.seed % 2) if far else self.seed % 10 == 4
        self.exact = (keyed or far) and (drawn if self.options.exact is None else self.options.exact)
        self.slots_least = 2 if may_part else 1

    def _machines(self) -> tuple[Vm, ...]:
        r = self.random
        slots = r.choice(self.shape.machines) if self.shape.machines else ()
        slots = slots or tuple(r.choice((2, 3, 4)) for _ in range(1, r.choice((3, 4))))
        return tuple(machine(f"vm{n}", count) for n, count in enumerate(slots, 1))

    # ── what everyone asks ──────────────────────────────────────────────────────────────────────

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    @property
    def wall_ns(self) -> int:
        """UTC as controller, agents and workers go by it."""
        return self.utc.wall_ns()

    @property
    def passed_ns(self) -> int:
        """UTC if nobody had set a clock: by it rows are due."""
        return WALL0_NS + self.clock.now_ns

    def machine_clock(self) -> RunClock:
        """That of a process which starts now."""
        return RunClock(lambda: self.clock.now_ns, lambda: self.passed_ns + self.stepped_ns)

    def step_clock(self) -> None:
        """Somebody sets the clock of all machines."""
        self.stepped_ns += self._steps.choice((-7200, -3600, -1, 1, 3600)) * S
        self.met["clock steps"] += 1

    def later(self, delay_ns: int, do: Callable[[], None]) -> None:
        self.clock.at(self.clock.now_ns + delay_ns, "", do)

    def delay_ns(self, least_ms: float, most_ms: float) -> int:
        return int((least_ms + (most_ms - least_ms) * self.random.random()) * MS)

    def data_delay_ns(self) -> int:
        return self.delay_ns(0.1, self.data_ms)

    def service_ns(self, task: str) -> int:
        return self.delay_ns(0.1, 3.0)

    def state_went(self) -> bool:
        """Was keyed state lost with a VM?"""
        return bool(self.tallies.states_lost)

    def workers(self) -> list[SimWorker]:
        return [worker for agent in self.agents.values() for worker in agent.workers.values() if worker.alive]

    def directory(self) -> str:
        """A folder in memory for as long as this world is there, or until it is cleaned up."""
        if not self._directory:
            self._directory = mkdtemp(prefix="headgate-sim-", dir=MEMORY if os.path.isdir(MEMORY) else None)
            self._forget = finalize(self, shutil.rmtree, self._directory)
        return self._directory

    def letter_of(self, desired: m.DesiredState) -> bytes:
        """Stands for a desired state's bytes."""
        token = desired.token
        data = f"{token.boot}.{token.epoch}.{token.counter}.{desired.code}".encode()
        self._letters[data] = desired
        return data

    def desired_of(self, data: bytes) -> m.DesiredState:
        return self._letters[data]

    @property
    def phase(self) -> str:
        """Of the journaled plan."""
        return self.checks.durable.phase or "no plan"

    # ── a run ───────────────────────────────────────────────────────────────────────────────────

    def run(self) -> SimWorld:
        """The whole seed; raises AssertionError when something is not as it must be."""
        try:
            self.begin()
            self._trouble()
            if self.shape.ends:
                self._ends()
            else:
                self.settle()
                self.end()
        finally:
            self.clean_up()
        return self

    def clean_up(self) -> None:
        for spool in self.spools:
            spool.drop()
        if self._directory:
            self._forget()

    def begin(self) -> None:
        self.controller.start()
        Liveness(self).start()
        for agent in self.agents.values():
            self.later(self.delay_ns(0, 100), agent.start)

    def _trouble(self) -> None:
        """Rows, re-plans, faults."""
        r = self.random
        number = r.choice(FAULTS) if self.options.faults is None else self.options.faults
        self.faults.plan(S + int(FIRST_FAULT_S * S), S + int((FAULTS_END_S - 0.5) * S), number)
        self.letters.plan()
        for more in (self.code, self.ways):
            more.plan(S + int(FIRST_FAULT_S * S), S + int((FAULTS_END_S - 0.5) * S))
        end_ns = S + int(FAULTS_END_S * S)
        for n in range(REPLANS_LEAST + 1):
            at_ns = S + int((1.0 + 1.6 * n + r.random()) * S)
            self.clock.at(at_ns, "", self._set_rate if r.random() < 0.3 else self.propose)
        self.clock.run_until(end_ns)

    def _set_rate(self, rate: float = 0.0) -> None:
        rate = rate or self.random.choice(self.shape.rates_tps)
        if self.arriving:
            offer = self.offer
            self._stream = offer.changed(self.wall_ns, rate) if offer is not None else None
            return
        reply = self.controller.ask("rate_set", rate_tps=rate) if self.controller.alive else None
        self.clock.say(f"rate {rate}: {reply.error if reply else 'no controller'}")

    @property
    def offer(self) -> Schedule | None:
        """What is to be read, or comes, as time goes by; nothing before the run begins, nor after its end."""
        schedule = self.controller.loop.knowledge.durable.schedule
        if not self.arriving or (schedule is None and self._stream is None):
            return schedule
        if self._stream is None:
            self._stream = schedule
        assert self._stream is not None
        return self._stream.ended(schedule.end_ns) if schedule is not None else self._stream

    def propose(self) -> None:
        """An operator has a plan made for another rate, and applied."""
        k = self.controller.loop.knowledge
        now = k.plan.rate_tps if k.plan else 0.0
        rate = self.random.choice([rate for rate in self.shape.rates_tps if rate != now])
        reply = self.controller.ask("plan", rate_tps=rate, propose=True) if self.controller.alive else None
        if reply is not None and reply.error is None:
            if self.random.random() < SWAPPED:
                self._turn() if self.random.random() < TURNED else self.swap()
            reply = self.controller.ask("apply")
        self.clock.say(f"plan for {rate}: {reply.error if reply else 'no controller'}")

    def swap(self) -> None:
        """Two VMs of one size change places in what is proposed, so that everything moves, sources too."""
        k = self.controller.loop.knowledge
        assert k.proposal is not None
        up = [member.vm for member in self.controller.loop.knowledge.members.up()]
        pairs = [(a.vm, b.vm) for a in up for b in up if a.vm < b.vm and a.slots == b.slots]
        if pairs:
            plan = swapped(k.proposal.plan, *self.random.choice(pairs))
            k.proposal = replace(k.proposal, plan=plan)

    def _turn(self) -> None:
        """All of one VM goes to its next slots."""
        k = self.controller.loop.knowledge
        assert k.proposal is not None
        vms = [member.vm for member in self.controller.loop.knowledge.members.up()]
        k.proposal = replace(k.proposal, plan=turned(k.proposal.plan, self.random.choice(vms)))

    def committed(self) -> None:
        """A plan is committed: now and then the next one comes at once, while threads still end."""
        rollout = self.checks.durable.rollout
        assert rollout is not None
        ends = (
            {task.name for task in self.shape.topology.sinks},
            {t.name for t in self.shape.topology.sources},
        )
        sinks, sources = (
            {t.slot for t in rollout.threads if t.task in end and not t.leaving} for end in ends
        )
        self.met["sinks in workers of their own"] += not sinks & sources
        self.met["sinks on VMs of their own"] += not {s.vm for s in sinks} & {s.vm for s in sources}
        if self.faults.active and self.random.random() < AT_ONCE:
            self.later(self.delay_ns(1, 12), self.propose)

    # ── liveness ────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Faults stop: within a bound everything desired is there and nothing read is open."""
        self.faults.stop()
        for agent in self.agents.values():
            self.later(self.delay_ns(10, 500), agent.start)
        if self.faults.silent_until_ns > self.now_ns + QUIET_S * S:
            self._set_rate(self.shape.rates_tps[0])  # a long silence shows nothing more with many rows
            self.unheard_s = (self.faults.silent_until_ns - self.now_ns) / S
        self.clock.run_until(max(self.now_ns + 2 * S, self.faults.silent_until_ns))
        self.resume()
        self._replan_at_least()
        kept_s = (
            self.shape.calm_s
        )  # a source that leaves is gone only when its last rows are not kept any more
        kept_s += TRIED_AGAIN_NS / S if any(agent.rests for agent in self.agents.values()) else 0.0
        if self.ways.active:  # what waits on a VM that was cut off, and whose worker did not get ready then
            kept_s += CUT_OFF_S + LEFT_OUT_S
        self.wait("the plan is in force", lambda: self.unsettled, SETTLE_S + kept_s)
        self.clock.run_until(self.now_ns + int(self.shape.calm_s * S))
        assert not self.shape.calm_s or not self._behind, self._behind
        self.wait("no dead letter is left", lambda: self.letters.left, SETTLE_S)
        self.tallies.one_owner_each(thread for worker in self.workers() for thread in worker.threads.values())

    def _replan_at_least(self) -> None:
        """Some seeds lose all their re-plans to a controller that is dead or an enactment under way."""
        for _ in range(60):
            if self.checks.durable.next_epoch > REPLANS_LEAST + 1:
                return
            self.resume()
            self.propose()
            self.clock.run_until(self.now_ns + 2 * S)
        raise AssertionError(f"no re-plan begins any more: {self.controller.loop.knowledge.alarms}")

    def resume(self) -> None:
        """An operator sees that VMs that vanished at once are gone indeed, and drains none any more."""
        cordoned = list(self.checks.durable.cordoned)
        if self.controller.alive and cordoned:
            self.controller.ask("uncordon", vms=cordoned)
        if self.controller.alive and "mass_loss" in self.controller.loop.knowledge.alarms:
            self.controller.ask("resume")

    def wait(self, what: str, missing: Callable[[], str], limit_s: float) -> None:
        end_ns = self.now_ns + int(limit_s * S)
        found = missing()
        while found and self.now_ns < end_ns:
            self.resume()
            self.clock.run_until(self.now_ns + int(LOOK_S * S))
            found = missing()
        assert not found, f"{limit_s} s after the faults stopped not yet: {what}: {found}"

    @property
    def unsettled(self) -> str:
        """Why not all that is desired is there; empty when it is."""
        d = self.controller.loop.knowledge.durable
        if not self.controller.alive or d.rollout is None:
            return "no controller, or no plan"
        if d.phase != "committed" or d.waiting is not None or d.rollout.leaving:
            alarms = self.controller.loop.knowledge.alarms
            return f"plan {d.rollout.epoch} is {d.phase}, leaving {d.rollout.leaving}, {alarms}"
        desired = {(t.thread, t.slot) for t in d.rollout.threads}
        here = {(n, worker.slot) for worker in self.workers() for n in worker.threads}
        if desired != here:
            return f"missing {sorted(desired - here)}, too many {sorted(here - desired)}"
        back = [vm for vm in d.held_dead if self.agents[vm].alive]
        if back:
            return f"not taken back: {back}"
        number = d.rollout.routes_number
        left = unread(self.controller.loop.knowledge)
        if any(not self.agents[vm].unusable for _, vm in left):
            return f"accepted and unread: {left}"
        behind = [t.name for w in self.workers() for t in w.threads.values() if t.now().switched != number]
        return f"not by routes {number}: {behind}" if behind else self._open

    @property
    def _open(self) -> str:
        """Old roots that are not done: what was read two seconds ago must be."""
        if self.account.read == 0:
            return "nothing was read"
        old_ns = self.now_ns - 2 * S
        ledgers = [watch.thread.source.ledger for watch in self.account.live.values()]
        roots = [root for ledger in ledgers if ledger is not None for root in ledger.open_roots()]
        old = [root.position for root in roots if root.first_sent_ns < old_ns and not root.kept]
        return f"open for long: {old[:5]}" if old else self._behind

    @property
    def _behind(self) -> str:
        """Sources that have not read what was offered two seconds ago."""
        schedule = self.offer
        assert schedule is not None
        for task in self.shape.topology.sources:
            partitions = task.static.threads if task.static else 1
            due = schedule.due(self.passed_ns - 2 * S) // partitions
            for partition in range(partitions):
                read = self.account.of((task.name, partition)).read
                if read < due:
                    return f"{task.name} is behind: {read} of {due} rows are read"
        return ""

    def _ends(self) -> None:
        """Of a run whose sources end: it ends by itself, once faults stop, and all is at the sink, once."""
        self.faults.stop()
        for agent in self.agents.values():
            self.later(self.delay_ns(10, 500), agent.start)
        self.wait("the run ends by itself", lambda: "" if self.controller.finish else self._step, ENDS_S)
        finish = self.controller.finish
        assert finish is not None and finish.summary is not None, finish
        assert finish.summary["ended"] == EVERY_SOURCE, finish.summary["ended"]
        assert finish.summary["tuples"]["lost"] == 0, finish.summary["tuples"]
        source = self.shape.topology.sources[0]
        assert source.static is not None
        # what no link carries for half a minute is left, or does not hear of the end
        left = finish.summary["tuples"]["left"] or finish.summary["unfinished"]
        assert not left or self.faults.silent_until_ns > self.now_ns - SILENT_S * S, finish.summary["tuples"]
        if not self.tallies.states_lost and not left:
            self.account.whole_once(source.static.threads)

    @property
    def _step(self) -> str:
        k = self.controller.loop.knowledge
        there = {name: (s.exhausted, s.rests, s.emitted) for name, s in k.members.sources.items()}
        waits = k.durable.waiting is not None, k.durable.rollout and k.durable.rollout.leaving
        return f"{k.ending.stage}, {k.durable.end}, {k.durable.phase}, {waits}, {there}, {k.alarms}"

    def end(self) -> None:
        self.controller.ask("stop")
        self.wait("the run ends", lambda: "" if self.controller.finish else "no end", END_S)
        finish = self.controller.finish
        assert finish is not None and finish.error is None and finish.summary is not None
        self.clock.run_until(self.now_ns + 3 * S)
        assert not self.workers(), "workers are left"
        counts = self.controller.loop.knowledge.counts
        self.account.all_done(counts, {name for name, agent in self.agents.items() if agent.unusable})
        self.account.few_duplicates()
        self.letters.over()
        self.tallies.all_counted({place: known.emitted for place, known in counts.sources.items()})
        self._summed_up(finish.summary["tuples"])
        self.met["no fault at all"] += not self.faults.happened

    def _summed_up(self, tuples: dict[str, int]) -> None:
        """What the controller says of the run at its end."""
        left = self.account.events_gone + len(self.account.accepted)
        in_spools = sum(
            agent.events_in_spools for agent in self.agents.values()
        )  # some of them have been at a sink
        assert tuples["lost"] == 0, f"the summary says {tuples}"
        about = max(self.shape.rates_tps)  # the controller knows what the VM said last, up to a second before
        known = (
            self.shape.live and self.controller.lives == 1
        )  # others say nothing of it, or not to this life
        assert not known or left - about <= tuples["left_on_vms"] <= in_spools + about, (
            f"{left} events were left, {in_spools} in spools, the summary says {tuples}"
        )
        buried = sum(len(known.buried) for known in self.account.partitions.values())
        assert tuples["dead_lettered"] <= buried, f"{buried} dead letters, the summary says {tuples}"
        if not LETTERS_LOST & set(self.faults.done):
            assert tuples["dead_lettered"] == buried, f"{buried} dead letters, the summary says {tuples}"
