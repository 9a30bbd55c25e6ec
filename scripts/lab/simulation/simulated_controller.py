"""The controller in virtual time: a real Loop, performed as controller/controller_process.py does, over a journal
with the semantics of fsync, and the control network between it and the agents."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.journal_records import Record, SoFar, fold_all
from headgate.controller.knowledge.run_tallies import Tallies
from headgate.lab.simulation.virtual_time import MS
from headgate.topology_runtime.wire import messages as m

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_agent import SimAgent
    from headgate.lab.simulation.simulated_world import SimWorld

TICK_NS = 250 * MS


class Disk:
    """The journal (what is not synced is lost with the process's machine) and the tallies (not synced)."""

    def __init__(self) -> None:
        self.synced: list[Record] = []
        self.unsynced: list[Record] = []
        self.tallies: Tallies | None = None
        self.letters: list[DeadLetterRecord] = []
        self.fails = False

    def append(self, records: tuple[Record, ...]) -> None:
        """Write and fsync; raises OSError, and then nothing was written."""
        if self.fails:
            raise OSError("no space left on the simulated disk")
        self.unsynced += records
        self.sync()

    def sync(self) -> None:
        self.synced += self.unsynced
        self.unsynced = []

    def read(self, shortened: bool) -> tuple[Record, ...]:
        """shortened: as journal.py does, what the records add up to in their place."""
        if not shortened:
            return tuple(self.synced)
        written = msgspec.msgpack.encode(SoFar(fold_all(tuple(self.synced))))
        return (msgspec.msgpack.decode(written, type=SoFar),)


class SimController:
    """One controller after the other, over one disk."""

    def __init__(self, world: SimWorld, disk: Disk) -> None:
        self.world, self.disk = world, disk
        self.alive = False
        self.lives = 0
        self.finish: t.Finish | None = None
        self.answers: dict[int, m.Reply] = {}
        self._events: deque[t.Event] = deque()

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        if self.alive or self.finish is not None:
            return
        self.alive = True
        self.lives += 1
        self.disk.unsynced = []
        self.world.clock.say(f"controller starts with {len(self.disk.synced)} records")
        self.loop = Loop(self.world.settings, self.world.submitted, watched=False)
        self.world.utc = self.world.machine_clock()
        self.world.utc.carry_on(Path(self.world.directory(), "clock"), fresh=not self.disk.synced)
        records, letters = self.disk.read(shortened=self.lives % 2 == 0), tuple(self.disk.letters)
        self.do(t.Started(records, self.disk.tallies, self.lives, letters))
        self._tick(self.lives)

    def kill(self, why: str) -> None:
        if self.alive:
            self.world.clock.say(f"controller dies: {why}")
            self.world.met[f"controller killed in {self.world.phase}"] += 1
            self.alive = False
            self._events.clear()
            self.world.later(self.world.delay_ns(100, 900), self.start)

    def _tick(self, life: int) -> None:
        if self.alive and life == self.lives:
            self.world.later(TICK_NS, lambda: self._tick(life))
            self.do(t.Tick())

    # ── a step ──────────────────────────────────────────────────────────────────────────────────

    def do(self, event: t.Event) -> None:
        if not self.alive:
            return
        self._events.append(event)
        while self._events and self.alive:
            self._step(self._events.popleft())

    def _step(self, event: t.Event) -> None:
        out = self.loop.step(event, t.Now(self.world.now_ns, self.world.wall_ns))
        for instruction in out:
            if self.world.faults.strikes("controller"):
                self.kill(f"before {type(instruction).__name__}")
                return
            if not isinstance(instruction, t.Persist):
                self._perform(instruction)
                continue
            assert instruction is out[0], "nothing comes before the journal"
            try:
                self.disk.append(instruction.records)
            except OSError as error:
                self.world.met["journal failures"] += 1
                self._events.appendleft(t.JournalFailed(str(error)))
                return
        self.world.checks.controller_knows(self)

    def _perform(self, instruction: t.Instruction) -> None:
        match instruction:
            case t.KeepTallies(tallies, told):
                if self.world.random.random() < 0.8:
                    self.disk.tallies = tallies
                    self.world.checks.kept(tallies)
                    for send in told:
                        self._perform(send)
            case t.KeepDeadLetters(records):
                self.disk.letters += records
                self.world.letters.kept(records)
            case t.Send(name, message):
                if isinstance(message, m.DesiredState):
                    self.world.checks.told(message)
                self.world.control.to_agent(name, message)
            case t.Answer(number, reply):
                self.answers[number] = reply
            case t.MakePlan():
                life, delay_ns = self.lives, self.world.delay_ns(50, 3000)
                made = instruction.made(delay_ns / 1e9)
                self.world.later(delay_ns, lambda: self.do(made) if life == self.lives else None)
            case t.Say(level, text):
                self.world.clock.say(f"controller ({level}): {text}")
            case t.Finish():
                self.world.clock.say(f"controller finishes {instruction.error or ''}")
                self.finish, self.alive = instruction, False

    def ask(self, command: str, **arguments: object) -> m.Reply | None:
        """A client's command; None when the controller did not live to answer."""
        number = len(self.answers) + 1000
        self.do(t.Command(number, m.Request(command, dict(arguments))))
        return self.answers.get(number)


class Control:
    """Messages between controller and agents: in order per VM, delayed, dropped, doubled, cut off."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self._last_ns: dict[tuple[str, bool], int] = {}

    def to_controller(self, agent: SimAgent, message: m.FromAgent) -> None:
        controller = self.world.controller
        self.world.checks.said(message)
        for at_ns in self._arrivals(agent, up=True):
            self.world.clock.at(at_ns, "", lambda: controller.do(t.FromVm(message)))

    def to_agent(self, name: str, message: m.FromController) -> None:
        agent = self.world.agents[name]
        life = agent.lives

        def arrive() -> None:
            if agent.alive and agent.lives == life:
                agent.from_controller(message)

        for at_ns in self._arrivals(agent, up=False):
            self.world.clock.at(at_ns, "", arrive)

    def _arrivals(self, agent: SimAgent, up: bool) -> list[int]:
        """When a message arrives: never, once or twice."""
        faults, place = self.world.faults, (agent.name, up)
        copies = 0 if agent.cut else faults.copies()
        if (
            self.world.now_ns < agent.changes_key_until_ns
        ):  # reports go over both connections, answers over either
            copies = 2 * copies if up else copies * self.world.random.randrange(2)
        found = []
        for _ in range(copies):
            at_ns = self.world.now_ns + faults.control_delay_ns()
            self._last_ns[place] = max(self._last_ns.get(place, 0), at_ns)
            found.append(self._last_ns[place])
        return found
