"""A scenario in virtual time: the controller's own loop among machines of a made world.

What is counted is read off the desired states that the machines get and off what is offered, by arithmetic of its
own: which slots have threads, by which routes rows reach which threads, how fast those truly are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil

from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.exact_replay import Moment
from headgate.controller.replay.ideal_machines import Delays, IdealAccount, IdealWorld
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire.messages import (
    SAMPLE_COLUMNS,
    SLOT_COLUMNS,
    DesiredState,
    SampleBlock,
    Token,
)
from scenarios.scenario_course import HEADROOM, Course, note_alarms, waits_of
from scenarios.scenario_shapes import LATE_VM_S, Scenario

NS = 1_000_000_000
WALL_NS = 1_790_000_000 * NS
THREAD_TPS = 3.0  # of a thread that has its slot to itself
WORK_CPU = 0.75  # of its slot
SLOTS, VMS, FIRST_VMS = 4, 12, 2
SLOW_VM, SLOW = "vm2", 0.5
NEIGHBOUR_S = (60.0, 180.0)  # from when to when a neighbour is on that VM, where it is not slow all the time
TOPOLOGY = Topology(
    "scenario",
    (
        Task("in", kind="source", static=Static(1, 0.1, 0.1)),
        Task("work"),
        Task("out", static=Static(1, 0.1, 0.1)),
    ),
    (Edge("in", "work"), Edge("work", "out")),
)


class Letters:
    """What machines were told, and when: all that is counted comes from here."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.began_ns = 0
        self.carried: list[tuple[float, float]] = []
        self.held: list[tuple[float, float]] = []
        self.plans_s: list[float] = []
        self.asked: dict[str, float] = {}  # VMs that were asked for and have no work yet
        self.waits_s: list[float] = []  # from asking for a VM to its first work
        self.idle: list[str] = []  # VMs that were given back without any
        self.weights: dict[int, float] = {}  # of the rows, by thread
        self._token: Token | None = None
        self._epoch: int | None = None

    def at_s(self, now: t.Now) -> float:
        return (now.wall_ns - self.began_ns) / NS if self.began_ns else 0.0

    def see(self, moment: Moment) -> None:
        for instruction in moment.instructions:
            if isinstance(instruction, t.RequestMachine):
                self.asked[instruction.vm.vm] = self.at_s(moment.now)
            elif isinstance(instruction, t.ReleaseMachine):
                if instruction.vm in self.asked:
                    self.idle.append(f"{instruction.vm} at {self.asked.pop(instruction.vm):.0f} s")
            elif isinstance(instruction, t.Send) and isinstance(instruction.message, DesiredState):
                self._told(instruction.message, self.at_s(moment.now))

    def _told(self, desired: DesiredState, at_s: float) -> None:
        if desired.token == self._token:
            return  # told to another VM before
        if desired.token.epoch != self._epoch:
            if self._epoch is not None:
                self.plans_s.append(at_s)
            self._epoch = desired.token.epoch
        self._token = desired.token
        self.held.append((at_s, float(len({thread.slot for thread in desired.threads}))))
        if desired.phase == "prepared":
            return
        self.carried.append((at_s, self._carries(desired)))
        for vm in {thread.slot.vm for thread in desired.threads if not thread.leaving} & set(self.asked):
            self.waits_s.append(at_s - self.asked.pop(vm))

    def _carries(self, desired: DesiredState) -> float:
        """The input rate at which the busiest thread, by its share of the rows, has all that it can do."""
        place = {thread.thread: thread.slot.vm for thread in desired.threads if thread.task == "work"}
        self.weights = {
            thread: weight
            for route in desired.routes
            for thread, weight in route.targets
            if thread in place and weight > 0
        }
        at_s = self.held[-1][0]
        tops = [
            THREAD_TPS * self.speed(place[thread], at_s) / weight for thread, weight in self.weights.items()
        ]
        return min(tops, default=0.0)

    def speed(self, vm: str, at_s: float) -> float:
        machines = self._scenario.machines
        busy = machines == "neighbour" and NEIGHBOUR_S[0] <= at_s < NEIGHBOUR_S[1]
        return SLOW if vm == SLOW_VM and (machines == "slow" or busy) else 1.0


class TrueSampler:
    """Makes of the blocks of made machines, which count nothing, what the rows done in that second really took."""

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self._done = (0.0, 0.0)  # at the end of the second before, and of this one
        self._at_ns = 0
        self.world: IdealWorld | None = None

    def __call__(self, block: SampleBlock) -> SampleBlock:
        assert self.world is not None
        if block.wall_ns != self._at_ns:
            self._at_ns, self._done = block.wall_ns, (self._done[1], self.world.done)
        rows = self._done[1] - self._done[0]
        at_s = (block.wall_ns - self._letters.began_ns) / NS
        numbers, slots = (array("q", block.threads[name]).tolist() for name in ("thread", "slot"))
        threads = {column: [0] * len(numbers) for column in SAMPLE_COLUMNS} | {
            "thread": numbers,
            "slot": slots,
        }
        used = dict.fromkeys(array("q", block.slots["slot"]).tolist(), 0.01)
        for at, (number, slot, task) in enumerate(zip(numbers, slots, block.tasks, strict=True)):
            taken = rows * self._letters.weights.get(number, 0.0) if task == "work" else rows
            busy = taken / (THREAD_TPS * self._letters.speed(block.vm, at_s)) if task == "work" else 0.02
            cpu = busy * WORK_CPU if task == "work" else busy
            threads["tuples_in"][at] = threads["tuples_out"][at] = round(taken)
            threads["busy_ns"][at], threads["cpu_ns"][at] = int(min(1.0, busy) * NS), int(0.8 * cpu * NS)
            used[slot] = used.get(slot, 0.0) + cpu
        of_slots = {column: ints([0] * len(used)) for column in SLOT_COLUMNS}
        of_slots |= {"slot": ints(used), "cpu_ns": ints(int(min(1.0, cpu) * NS) for cpu in used.values())}
        return replace(
            block, threads={name: ints(values) for name, values in threads.items()}, slots=of_slots
        )


def ints(values: Iterable[int]) -> bytes:
    return array("q", values).tobytes()


class TrueAccount(IdealAccount):
    """What the made machines carry is what they truly can, whatever a model says of them."""

    def __init__(self, letters: Letters) -> None:
        super().__init__()
        self.letters = letters

    def see(self, moment: Moment) -> None:
        super().see(moment)
        self.letters.began_ns = self.began_ns
        self.letters.see(moment)

    def supported_tps(self, topology: Topology) -> float:
        return self.letters.carried[-1][1] if self.letters.carried else 0.0


def steps_of(rates: Sequence[float]) -> tuple[tuple[float, float], ...]:
    changes = [(float(n), b) for n, (a, b) in enumerate(pairwise(rates), 1) if a != b]
    return ((0.0, rates[0]), *changes)


def machine(number: int) -> Vm:
    return Vm(f"vm{number}", SLOTS, usd_per_hour=0.4)


def tried(scenario: Scenario, seconds: int) -> Iterator[Course]:
    """Its course, again and again as it goes on (each second); the last one is whole."""
    rates = scenario.rates(False, seconds)
    modelled_tps = THREAD_TPS * scenario.model
    model = Model("work", ModelSlot(), (Point(1, modelled_tps, WORK_CPU, 0.1),))
    settings = ControllerSettings(
        run="scenario", version="0.1.0", headroom=HEADROOM, max_vms=VMS,
        initial=tuple(machine(n) for n in range(1, FIRST_VMS + 1)), spare=machine(0),
    )  # fmt: skip
    loop = Loop(settings, Submitted(TOPOLOGY, (model,), steps_of(rates), 0.0, (), WALL_NS))
    letters = Letters(scenario)
    delays = Delays(1.0, LATE_VM_S if scenario.machines == "late" else 2.0)
    course = Course(float(seconds), rates, letters.carried, letters.held, [], static_slots(max(rates)))
    last_s = 0.0
    sampler = TrueSampler(letters)
    sampler.world = world = IdealWorld(
        loop, TrueAccount(letters), delays, wall_ns=WALL_NS + NS, sampler=sampler
    )
    for moment in world.moments(seconds):
        at_s = letters.at_s(moment.now)
        note_alarms(course.alarms, set(moment.loop.knowledge.alarms), at_s)
        if at_s - last_s >= 1:
            last_s = at_s
            yield course
    course.plans_s = letters.plans_s
    course.waits = waits_of(rates, letters.carried)
    if scenario.machines == "late":
        course.note = used(letters)
    yield course


def used(letters: Letters) -> str:
    """How often a VM that was asked for got work."""
    many, asked = len(letters.waits_s), len(letters.waits_s) + len(letters.idle) + len(letters.asked)
    text = f"VMs used {many} of {asked} times"
    text += f", after at most {max(letters.waits_s):.0f} s" if letters.waits_s else ""
    return text + (f"; not used: {', '.join(letters.idle)}" if letters.idle else "")


def static_slots(peak_tps: float) -> int:
    """Of one plan for the peak: a slot for each thread, source and sink beside them."""
    return ceil(round(peak_tps * HEADROOM / THREAD_TPS, 6))
