"""What goes wrong in a seed: when, to whom; all from the seed's random numbers, none after the faults stop."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from headgate.agent.core.slot_state import CRASHES_MOST
from headgate.controller.analyze.slot_troubles import STARVED_TIMES
from headgate.controller.execute.plan_drift import cordon_of
from headgate.controller.knowledge.dead_letters import (
    DeadLetterDone,
    DeadLetterRecord,
    DiedAgain,
    KeptDeadLetter,
)
from headgate.lab.simulation.simulated_topologies import Row
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.dead_letter_messages import SendAgain, SentAgain
from headgate.topology_runtime.wire.messages import Report, SourceStatus
from headgate.topology_runtime.worker.rows import row_values as wire

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_agent import SimAgent
    from headgate.lab.simulation.simulated_thread import SimThread
    from headgate.lab.simulation.simulated_world import SimWorld

CONTROLLER_CRASHES_MOST = 2  # the third in a row holds the last good plan, by design
AGENT_CRASHES_MOST = 2
LONG_SILENCE = 0.1  # share of cuts and half-open connections that may last longer than any deadline
BACK = 0.2  # share of replacements that ask for the code before
RESTARTED = 0.7  # share of drained VMs whose agents are started again
EFFECTS = {"deliver": 40, "ack": 40, "record": 40, "word": 4}  # armed to strike within so many


class Faults:
    """Faults of one seed. `done`: kinds that happened, for the report of a run."""

    def __init__(self, world: SimWorld) -> None:
        self.world, self.random = world, world.random
        self.active = True
        self.done: list[str] = []
        self.silent_until_ns = 0  # connections are half-open until then
        self.cut_ns = 0  # for so long a VM went by a rate that may not be the present one
        r = self.random
        self.loss = r.choice((0.0, 0.0, 0.02, 0.1))
        self.doubles = r.choice((0.0, 0.0, 0.05, 0.2))
        self.slow_control = r.choice((1.0, 1.0, 10.0))
        self._armed: dict[str, int] = {}
        self._controller_crashes = self._agent_crashes = 0
        self._worn: set[Slot] = set()
        self.kinds: list[Callable[[], None]] = [
            self.kill_worker, self.kill_worker_somewhere, self.kill_worker_at_mark, self.kill_agent,
            self.kill_controller, self.kill_controller_somewhere, self.kill_agent_somewhere, self.cut_vm,
            self.lose_vm, self.fail_journal, self.break_data, self.reorder_data, self.half_open_data,
            self.fill_disk, self.lose_vm_at_move, self.forge_report, self.wear_out, self.drain_vm,
            self.replace_code, self.rotate_keys,
        ]  # fmt: skip
        if (
            world.shape.keys or world.shape.far
        ):  # the only way to ranges that come back to who had let them go
            self.kinds += [self.lose_vm_at_move] * 2
        if world.options.kinds:
            self.kinds = [getattr(self, name) for name in world.options.kinds if name not in (CODE, WAYS)]

    @property
    def happened(self) -> bool:
        """Did anything go wrong in this seed?"""
        return bool(self.done or self.loss)

    # ── what the net and the others ask ─────────────────────────────────────────────────────────

    def copies(self) -> int:
        """How often a control message arrives."""
        if not self.active:
            return 1
        chance = self.random.random()
        return 0 if chance < self.loss else 2 if chance > 1.0 - self.doubles else 1

    def control_delay_ns(self) -> int:
        return int(self.random.uniform(0.2, 2.0) * MS * (self.slow_control if self.active else 1.0))

    def strikes(self, what: str) -> bool:
        """Does somebody die right here?"""
        left = self._armed.get(what)
        if left is None or not self.active:
            return False
        if left > 0:
            self._armed[what] = left - 1
            return False
        del self._armed[what]
        if what == "controller" and not self._may_kill_controller():
            return False
        self.done.append(f"killed at {what}")
        self.world.met[f"killed at {what}"] += 1
        return True

    # ── the schedule ────────────────────────────────────────────────────────────────────────────

    def plan(self, first_ns: int, last_ns: int, number: int) -> None:
        for _ in range(number if self.kinds else 0):
            kind = self.random.choice(self.kinds)
            at_ns = self.random.randint(first_ns, last_ns)
            self.world.clock.at(at_ns, f"fault {kind.__name__}", lambda kind=kind: self._do(kind))  # type: ignore[misc]

    def _do(self, kind: Callable[[], None]) -> None:
        if self.active:
            self.done.append(kind.__name__)
            self.world.met[f"fault {kind.__name__}"] += 1
            kind()

    def stop(self) -> None:
        """From now on nothing goes wrong, but for what lasts long; who is dead and not gone comes back."""
        self.active = False
        self.world.disk.fails = False
        for agent in self.world.agents.values():
            agent.cut_until_ns = min(agent.cut_until_ns, self.silent_until_ns)
            agent.full_until_ns = 0

    # ── kinds ───────────────────────────────────────────────────────────────────────────────────

    def kill_worker(self) -> None:
        workers = self.world.workers()
        if workers:
            self.random.choice(workers).kill("kill -9")

    def kill_worker_somewhere(self) -> None:
        effect = self.random.choice(sorted(EFFECTS))
        self._armed[effect] = self.random.randrange(EFFECTS[effect])

    def kill_worker_at_mark(self) -> None:
        """The next re-plan's marks kill their sender."""
        self._armed["word"] = self.random.randrange(3)

    def wear_out(self) -> None:
        """The worker of one slot dies again and again, until the slot is given up."""
        agents = [agent for agent in self.world.agents.values() if not agent.gone]
        workers = [worker for worker in self.world.workers() if worker.slot not in self._worn]
        slots = sum(agent.shape.slots for agent in agents) - len(self._worn)
        if workers and slots > self.world.slots_least:
            worker = self.random.choice(workers)
            self._worn.add(worker.slot)
            self._kill_again(worker.agent, worker.slot, CRASHES_MOST + 1)

    def _kill_again(self, agent: SimAgent, slot: Slot, times: int) -> None:
        worker = agent.workers.get(slot.number)
        if worker is not None and worker.alive:
            worker.kill("kill -9")
            times -= 1
        if times and self.active:
            self.world.later(self.world.delay_ns(50, 300), lambda: self._kill_again(agent, slot, times))

    def kill_agent(self) -> None:
        agents = [agent for agent in self.world.agents.values() if agent.alive]
        if agents and self._agent_crashes < AGENT_CRASHES_MOST:
            self._agent_crashes += 1
            agent = self.random.choice(agents)
            agent.kill("kill -9")
            self.world.later(self.world.delay_ns(100, 3000), agent.start)

    def kill_agent_somewhere(self) -> None:
        self._armed["agent"] = self.random.randrange(60)

    def kill_controller(self) -> None:
        if self._may_kill_controller():
            self.world.controller.kill("kill -9")

    def kill_controller_somewhere(self) -> None:
        self._armed["controller"] = self.random.randrange(60)

    def _may_kill_controller(self) -> bool:
        self._controller_crashes += 1
        return self._controller_crashes <= CONTROLLER_CRASHES_MOST

    def cut_vm(self) -> None:
        """Its control connection hangs: it may be held dead while it lives on, now and then for long."""
        agent = self.random.choice(list(self.world.agents.values()))
        long = self.random.random() < LONG_SILENCE
        agent.cut_until_ns = self.world.now_ns + self.world.delay_ns(
            *((10_000, 40_000) if long else (300, 6500))
        )
        self.cut_ns += agent.cut_until_ns - self.world.now_ns
        if long:
            self.silent_until_ns = max(self.silent_until_ns, agent.cut_until_ns)

    def rotate_keys(self) -> None:
        """Agents change to new keys, one after the other: each speaks over two connections for a while."""
        for number, agent in enumerate(self.world.agents.values()):
            self.world.later(number * S, partial(self._change_key, agent))

    def _change_key(self, agent: SimAgent) -> None:
        agent.changes_key_until_ns = self.world.now_ns + self.world.delay_ns(20, 1500)

    def forge_report(self) -> None:
        """A VM that does not have a source tells of its positions; or one that has it, what cannot be. (A VM
        that has it and tells what could be is believed: docs/explanation/limitations.md.)"""
        agents = [agent for agent in self.world.agents.values() if agent.alive]
        rollout = self.world.checks.durable.rollout
        if not agents or rollout is None:
            return
        agent = self.random.choice(agents)
        names = {task.name for task in self.world.shape.topology.sources}
        thread = self.random.choice([thread for thread in rollout.threads if thread.task in names])
        read = self.world.account.of((thread.task, thread.partition)).read
        could_be = [(read, read), (read + 50, read + 50), (read + 500, read)]
        emitted, acked = self.random.choice(
            [*(could_be if thread.slot.vm != agent.name else ()), *_impossible(read)]
        )
        others = thread.slot.vm != agent.name  # then it also says that there is no more to read
        claim = SourceStatus(
            *(thread.task, thread.partition, thread.thread, emitted, acked, 0, 0, 0, others),
            exhausted=others,
            rests=1000 * others,
        )
        self._claim(agent, claim)

    def _claim(self, agent: SimAgent, claim: SourceStatus) -> None:
        state, hello = agent.state, agent.state.hello
        state.sequence += 1
        workers = tuple(now for slot in state.slots.values() if (now := slot.now()) is not None)
        report = Report(hello.vm, hello.boot, state.sequence, state.token, workers, (claim,))
        self.world.control.to_controller(agent, report)

    def fill_disk(self) -> None:
        """A VM's disk takes no more for a while: neither spools nor snapshots."""
        agent = self.random.choice(list(self.world.agents.values()))
        agent.full_until_ns = self.world.now_ns + self.world.delay_ns(100, 4000)

    def lose_vm(self) -> None:
        agents = [agent for agent in self.world.agents.values() if not agent.gone]
        agent = self.random.choice(agents)
        if self.may_lose(agent):
            agent.lose()

    def may_lose(self, agent: SimAgent) -> bool:
        """Do the others suffice?"""
        left = [other for other in self.world.agents.values() if other is not agent and not other.gone]
        slots = sum(other.shape.slots for other in left)
        slots -= sum(slot.vm in {other.name for other in left} for slot in self._worn)
        return len(left) >= self.world.options.vms_least and slots >= self.world.slots_least

    def drain_vm(self) -> None:
        """An operator drains a VM, starts its agent again once it is said to be drained, and lets it be used again."""
        controller = self.world.controller
        agents = [agent for agent in self.world.agents.values() if agent.alive and self.may_lose(agent)]
        if not agents or not controller.alive:
            return
        agent = self.random.choice(agents)
        reply = controller.ask("drain", vms=[agent.name], force=True)
        error = reply.error if reply is not None else "no controller"
        self.world.clock.say(f"drain {agent.name}: {error}")
        if not error:
            self._look_drained(agent)

    def _look_drained(self, agent: SimAgent) -> None:
        if not self.active:
            return
        controller = self.world.controller
        loop = controller.loop
        member = loop.knowledge.members.members.get(agent.name)
        if controller.alive and member is not None and cordon_of(loop.knowledge, member) == "drained":
            left = [worker.slot for worker in self.world.workers() if worker.agent is agent]
            assert not member.up or not left, f"{agent.name} is said to be drained, with workers in {left}"
            self.world.met["drained"] += 1
            if agent.alive and self.random.random() < RESTARTED:
                agent.kill("kill -9")
                self.world.later(self.world.delay_ns(100, 3000), agent.start)
            controller.ask("uncordon", vms=[agent.name])
            return
        self.world.later(self.world.delay_ns(50, 200), lambda: self._look_drained(agent))

    def replace_code(self) -> None:
        """Other code of the same topology is given, or the code before is asked back, where a slot is free for it."""
        controller = self.world.controller
        if not controller.alive:
            return
        back = self.random.random() < BACK
        given = {"back": True} if back else {"topology": msgspec.to_builtins(self.world.shape.topology)}
        reply = controller.ask("replace", **given)
        error = reply.error if reply is not None else "no controller"
        self.world.met["code replaced"] += not error
        self.world.clock.say(f"replace{' back' if back else ''}: {error}")

    def lose_vm_at_move(self) -> None:
        """A VM that has ranges at last is gone before their old owner knows."""
        self._armed["move"] = self.random.randrange(3)

    def fail_journal(self) -> None:
        self.world.disk.fails = True

        def heal() -> None:
            self.world.disk.fails = False

        self.world.later(self.world.delay_ns(100, 1500), heal)

    def break_data(self) -> None:
        """Data connections of one worker break and come back; what was on its way is lost."""
        self._break(0)

    def reorder_data(self) -> None:
        """As `break_data`, but what was on its way arrives after what follows."""
        self._break(self.world.delay_ns(5, 2000))

    def _break(self, late_ns: int) -> None:
        workers = self.world.workers()
        if workers:
            worker = self.random.choice(workers)
            for slot in worker.linked:
                worker.break_link(slot, late_ns)

    def half_open_data(self) -> None:
        """A data connection of one worker takes everything and gives nothing on, for a while; now and then
        for longer than any deadline."""
        workers = [worker for worker in self.world.workers() if worker.linked]
        if workers:
            worker = self.random.choice(workers)
            long = self.random.random() < LONG_SILENCE
            length_ns = self.world.delay_ns(5000, 90_000) if long else self.world.delay_ns(200, 5000)
            self.silent_until_ns = max(self.silent_until_ns, self.world.now_ns + length_ns)
            worker.half_open(self.random.choice(worker.linked), length_ns)


# ── User code that fails: what it needs is away for a while, or it raises once. Of its own random numbers, so that
# other faults stay as they are; where kinds of faults are asked for, only if it is one of them.

CODE = "failing_code"
FAILS_IN = ("open", "restore", "snapshot", "process", "memory")
AWAY_MS = (200, 12_000)


class FailingCode:
    """Of one world. `away_ns`: until when `open` and `restore` raise."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.random = random.Random(world.seed ^ 0xC0DE)
        drawn = self.random.random() < 0.4 and not world.options.kinds and world.options.faults != 0
        self.active = drawn or CODE in world.options.kinds
        self._away_ns = dict.fromkeys(FAILS_IN, 0)
        self._once: set[str] = set()
        self._starved = False

    def plan(self, first_ns: int, last_ns: int) -> None:
        for _ in range(self.random.randint(1, 4) if self.active else 0):
            what = self.random.choice(FAILS_IN)
            self.world.clock.at(
                self.random.randint(first_ns, last_ns), f"code fails in {what}", partial(self._fail, what)
            )

    def _fail(self, what: str) -> None:
        if not self.world.faults.active:
            return
        self.world.faults.done.append(f"code fails in {what}")
        self.world.met[f"code fails in {what}"] += 1
        if what in ("open", "restore"):
            length_ns = int(self.random.uniform(*AWAY_MS) * MS)
            self._away_ns[what] = self.world.now_ns + length_ns
        if what == "memory":
            workers = self.world.workers()
            if (
                workers and not self._starved
            ):  # more often, and a slot that nothing can do without is given up
                self._starved = True
                self._starve(self.random.choice(workers).slot, STARVED_TIMES)
        elif what in ("open", "restore"):  # a worker that is started again meets it
            keyed = [
                w
                for w in self.world.workers()
                if any(t.desired.task in self.world.shape.keys for t in w.threads.values())
            ]
            if found := keyed or self.world.workers():
                self.random.choice(found).kill("kill -9")
        else:
            self._once.add(what)

    def _is_keyed(self, thread: SimThread) -> bool:
        return thread.desired.task in self.world.shape.keys

    def _starve(self, slot: Slot, times: int) -> None:
        worker = next((worker for worker in self.world.workers() if worker.slot == slot), None)
        if worker is not None:
            worker.kill("out of memory, its slot has 512 MiB: signal 9 (SIGKILL)")
        if times > 1 and self.world.faults.active:
            self.world.later(int(self.random.uniform(300, 1500) * MS), partial(self._starve, slot, times - 1))

    def meets(self, what: str) -> None:
        """User code gets there."""
        if what in self._once:
            self._once.remove(what)
            self.world.met[f"code failed in {what}"] += 1
            raise RuntimeError(f"{what} failed")
        known = self.world.checks.durable
        first = known.before is None and known.phase not in ("probation", "committed")
        if first:  # what cannot be built at first ends the run, and should
            return
        if self.world.now_ns < self._away_ns[what] and self.world.faults.active:
            self.world.met[f"code failed in {what}"] += 1
            raise ConnectionError(f"{what}: what it needs is away")


# ── Ways between two VMs that carry nothing for a while, or all of it late; of their own random numbers too ──────

WAYS = "broken_ways"
CUT_MS, LATE_MS = (800, 25_000), (300, 4000)


class BrokenWays:
    """Of one world."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.random = random.Random(world.seed ^ 0x3A75)
        drawn = self.random.random() < 0.3 and not world.options.kinds and world.options.faults != 0
        self.active = (drawn or WAYS in world.options.kinds) and len(world.agents) > 1
        self._cut: dict[frozenset[str], int] = {}  # until when
        self._late: dict[frozenset[str], tuple[int, int]] = {}  # until when, by how much

    def plan(self, first_ns: int, last_ns: int) -> None:
        for _ in range(self.random.randint(1, 3) if self.active else 0):
            what = self.random.choice((self._cut_some, self._slow_some))
            self.world.clock.at(self.random.randint(first_ns, last_ns), "a way between VMs", what)

    def _begin(self, kind: str) -> tuple[frozenset[str], int]:
        pair = frozenset(self.random.sample(sorted(self.world.agents), 2))
        until_ns = self.world.now_ns + int(self.random.uniform(*CUT_MS) * MS)
        self.world.faults.done.append(kind)
        self.world.met[f"fault {kind}"] += 1
        self.world.faults.silent_until_ns = max(self.world.faults.silent_until_ns, until_ns)
        return pair, until_ns

    def _cut_some(self) -> None:
        if not self.world.faults.active:
            return
        pair, until_ns = self._begin("cut_way")
        self._cut[pair] = max(until_ns, self._cut.get(pair, 0))
        for worker in self.world.workers():
            for slot in worker.linked:
                if {worker.slot.vm, slot.vm} == pair:
                    worker.half_open(slot, until_ns - self.world.now_ns)

    def _slow_some(self) -> None:
        if not self.world.faults.active:
            return
        pair, until_ns = self._begin("slow_way")
        self._late[pair] = until_ns, int(self.random.uniform(*LATE_MS) * MS)

    def arrives_ns(self, vm: str, to: str) -> int:
        """When what is written now arrives, at the earliest."""
        now_ns, pair = self.world.now_ns, frozenset((vm, to))
        until_ns, late_ns = self._late.get(pair, (0, 0))
        return max(self._cut.get(pair, 0), now_ns + (late_ns if now_ns < until_ns else 0))


def _impossible(read: int) -> list[tuple[int, int]]:
    """(emitted, acked): more done than read, more read than was ever offered."""
    return [(read + 1, read + 51), (read + 1_000_000, read)]


# ── An operator mends what made rows fail and has their dead letters sent again, now and then, while things
# go wrong
#
# 1. A letter that is no more had its row at the sink: as soon as its source thread says so, and when the
# controller drops it.
# 2. A row that was sent again before the cause was mended is a letter again.
# 3. In the end no letter is left: none vanishes.

MENDED_S, ASKED_S = (2.5, 6.0), (1.5, 6.5)  # from when to when it may be
ASKED_TIMES = 4


class Replays:
    """Of one world."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.random = random.Random(world.seed)  # of its own: other shapes stay as they are
        self.mended_ns = S + int(self.random.uniform(*MENDED_S) * S)
        self._rows: dict[tuple[int, int], tuple[int, Row]] = {}  # (boot, serial) → letter and its row
        self._kept: dict[int, KeptDeadLetter] = {}  # on the controller's disk

    def mended(self) -> bool:
        return self.world.now_ns >= self.mended_ns

    @property
    def _sunk(self) -> dict[int, Row]:
        return self.world.account.again_sunk

    def plan(self) -> None:
        if any(map(self.world.shape.fails, range(100))):
            for _ in range(ASKED_TIMES):
                at_ns = S + int(self.random.uniform(*ASKED_S) * S)
                self.world.clock.at(at_ns, "", self.ask)

    def ask(self) -> None:
        controller = self.world.controller
        reply = controller.ask("deadletter_replay", all=True) if controller.alive else None
        asked = len(reply.data["ids"]) if reply is not None and reply.error is None else reply and reply.error
        self.world.clock.say(f"dead letters asked for: {asked}")

    # ── what is seen ────────────────────────────────────────────────────────────────────────────

    def told(self, message: SendAgain) -> None:
        """A source thread hears what it is to send again."""
        for row in message.rows:
            (read,) = wire.read(row.data, row.shape)
            self._rows[message.boot, row.serial] = row.number, read[:3]

    def says(self, again: Iterable[SentAgain]) -> None:
        """Rule 1, of a source thread."""
        for place in ((now.boot, serial) for now in again for serial in now.done):
            number, row = self._rows[place]
            assert self._sunk.get(number) == row, f"dead letter {number} is done, its row reached no sink"

    def kept(self, records: Iterable[DeadLetterRecord]) -> None:
        """Rule 1, of what the controller writes."""
        for record in records:
            if isinstance(record, KeptDeadLetter):
                before = self._kept.setdefault(record.number, record)
                assert before.key == record.key, f"two dead letters have the number {record.number}"
            elif isinstance(record, DeadLetterDone):
                assert record.number in self._kept, (
                    f"dead letter {record.number} is dropped, it was never written"
                )
                letter = self._kept[record.number]
                place = letter.source, letter.partition, letter.position
                reached = self._sunk.get(record.number)
                assert reached == place, f"dead letter {record.number} is dropped, its row reached no sink"
                self.world.met["dead letters replayed"] += 1
                del self._kept[record.number]
            elif isinstance(record, DiedAgain):
                assert record.number in self._kept, (
                    f"dead letter {record.number} died again, it was never written"
                )
                self.world.met["dead letters died again"] += 1

    @property
    def left(self) -> str:
        """Rule 3; an operator asks until none is left."""
        controller = self.world.controller
        if not controller.alive:
            return "no controller"
        letters = controller.loop.knowledge.counts.letters
        if letters.kept.keys() - letters.asked.keys():
            self.ask()
        return f"dead letters {sorted(letters.kept)[:5]} are left" if letters.kept else ""

    def over(self) -> None:
        known = self.world.controller.loop.knowledge.counts.letters.kept  # of which it heard last
        vanished = sorted(self._kept.keys() - known.keys())
        assert not vanished, f"dead letters {vanished} have vanished"
