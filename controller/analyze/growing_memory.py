"""A task whose memory grows without end: named while the run goes on, with its pace and when its slot is full.

Each slot's memory is taken once a turn, net of the states of keyed tasks in it (they are told, and have a bound), in
means of at most 48 blocks. A life of a slot begins with other threads there, or where memory falls by a tenth. What
came with another plan, within half a minute, is taken off. It grows without end if it is a leak (`memory_growth.py`)
over five minutes or more. Turns in which the run does not keep up do not count: what waits in queues is bounded, but
not full yet. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.stability.memory_growth import (
    BLOCKS,
    FALLEN,
    GROWN,
    SETTLED_S,
    has_fallen,
    leak_of,
)
from headgate.topology_runtime.wire.report_messages import STATE_BYTES
from headgate.topology_runtime.wording import counted

LEAST_S = 300.0  # of a life, before an alarm
AGAIN, QUIET = 15, 20  # turns between two looks; looks without growth, after which an alarm is over
SETTLED = round(SETTLED_S)  # turns
NS = 1_000_000_000

Threads = tuple[tuple[str, int], ...]  # (task, how many) of a slot


@dataclass(slots=True)
class _Block:
    """Sums of turns: at (s), memory net of states, load, states (fractions of the slot, and its cores)."""

    turns: int = 0
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)

    def add(self, values: Iterable[float], turns: int = 1) -> None:
        self.turns += turns
        self.sums = [a + b for a, b in zip(self.sums, values, strict=True)]

    def means(self) -> list[float]:
        return [value / self.turns for value in self.sums]


@dataclass(slots=True)
class MemoryLife:
    """What a slot held, since it has these threads. Bounded: twice as many turns in a block once there are 48."""

    threads: Threads = ()
    width: int = 1
    blocks: list[_Block] = field(default_factory=list)
    stepped: float = 0.0
    settling: int = 0

    def replanned(self) -> None:
        """Another plan is in force: a step that comes now is taken off."""
        self.settling = SETTLED

    def take(self, at_s: float, memory: float, load: float, states: float = 0.0) -> None:
        """One turn's. memory: of the slot, without `states`, both fractions of it; load: in cores."""
        if self.settling and self.blocks:
            self.settling -= 1
            if not self.settling:
                self.stepped = memory - self.blocks[-1].means()[1]
            return
        memory -= self.stepped
        if self.blocks and has_fallen(self.blocks[-1].means()[1], memory):
            self.blocks, self.width, memory, self.stepped = [], 1, memory + self.stepped, 0.0
        if not self.blocks or self.blocks[-1].turns >= self.width:
            if len(self.blocks) == BLOCKS:
                self._halve()
            self.blocks.append(_Block())
        self.blocks[-1].add((at_s, memory, load, states))

    def pace(self) -> float | None:
        """Fractions of the slot per second by which it grows without end; None: it does not."""
        if self.seconds() < LEAST_S:
            return None
        points = (block.means() for block in self.blocks)
        slope = leak_of([(at_s, memory, load) for at_s, memory, load, _ in points])
        return None if slope is None else slope.value

    def seconds(self) -> float:
        """How long it has been looked at."""
        return self.blocks[-1].means()[0] - self.blocks[0].means()[0] if self.blocks else 0.0

    def states_grew(self) -> float:
        """By so much, in fractions of the slot, and only ever; 0: not by a tenth of what is held, or not for long."""
        points = [block.means() for block in self.blocks]
        if self.seconds() < LEAST_S:
            return 0.0
        states = [point[3] for point in points]
        grew, held = states[-1] - states[len(states) // 2], points[-1][1] + states[-1]
        steady = all(b >= (1 - FALLEN) * a for a, b in zip(states, states[1:], strict=False))
        return states[-1] - states[0] if steady and grew > GROWN / 2 * held else 0.0

    def _halve(self) -> None:
        merged = []
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            first.add(second.sums, second.turns)
            merged.append(first)
        self.blocks, self.width = merged, 2 * self.width


class GrowthWatch:
    """Of all slots, over the turns of a run."""

    def __init__(self) -> None:
        self.lives: dict[Slot, MemoryLife] = {}
        self._told: set[tuple[Slot, Threads]] = set()
        self._quiet: dict[str, int] = {}
        self._turns, self._plan = 0, ""

    def look(self, turn: Turn, window: MeasuredWindow, keeps_up: bool) -> None:
        """Once a turn: an alarm for each slot whose memory grows without end, an event where it is its states."""
        k = turn.knowledge
        if k.plan is None or not keeps_up:
            return
        sizes = {vm.vm: vm.slot_memory_bytes for vm in k.plan.vms}
        there, states = _threads_of(k), _states_of(k)
        self.lives = {slot: life for slot, life in self.lives.items() if slot in there}
        if self._plan != k.plan.id:
            self._plan = k.plan.id
            for life in self.lives.values():
                life.replanned()
        for slot, threads in there.items():
            used = window.slots.get(slot)
            if used is None or used.memory <= 0 or slot.vm not in sizes:
                continue
            life = self.lives.setdefault(slot, MemoryLife())
            if life.threads != threads:
                life = self.lives[slot] = MemoryLife(threads)
            part = sum(memory for _, memory in states[slot].values()) / sizes[slot.vm]
            part = min(part, used.memory)
            life.take(turn.now.mono_ns / NS, used.memory - part, used.cpu_cores, part)
        self._turns += 1
        if self._turns % AGAIN == 0:
            self._tell(turn, window, sizes, states)

    def _tell(
        self,
        turn: Turn,
        window: MeasuredWindow,
        sizes: Mapping[str, int],
        states: Mapping[Slot, Mapping[str, tuple[int, int]]],
    ) -> None:
        alarms, paces = turn.knowledge.alarms, {slot: life.pace() for slot, life in self.lives.items()}
        growing = {slot: pace for slot, pace in paces.items() if pace is not None and slot in window.slots}
        told = set[str]()
        for slot, pace in growing.items():
            tasks, size = self._named(slot, growing), sizes[slot.vm]
            left_s = max(0.0, 1 - window.slots[slot].memory) / pace
            text = f"memory of {tasks} in {slot} grows by {pace * size * 3600 / 1e6:,.0f} MB an hour at any load: "
            text += f"the slot is full in {_hours(left_s)}, and its worker is ended then"
            turn.alarm(f"growth {slot}", text)
            told.add(f"growth {slot}")
        for what in [what for what in alarms if what.startswith("growth ")]:
            quiet = self._quiet[what] = 0 if what in told else self._quiet.get(what, 0) + 1
            if quiet >= QUIET:
                turn.alarm(what, "", "its memory grows no more")
        for slot, life in self.lives.items():
            if (
                slot in window.slots
                and (slot, life.threads) not in self._told
                and (grew := life.states_grew())
            ):
                self._told.add((slot, life.threads))
                task, (saved, memory) = max(
                    states[slot].items(), key=lambda one: one[1][1], default=("", (0, 0))
                )
                keys = counted((memory - saved) // STATE_BYTES, "key")
                text = (
                    f"states of {task} in {slot} grew by {grew * sizes[slot.vm] / 1e6:,.0f} MB: about {keys}"
                )
                turn.event("states_grow", f"{text}; what memory has no room for goes to disk", slot=str(slot))

    def _named(self, slot: Slot, growing: Mapping[Slot, float]) -> str:
        """The tasks in the slot that are in no slot, looked at as long, which does not grow."""
        calm = {
            task
            for other, life in self.lives.items()
            if other not in growing and life.seconds() >= LEAST_S
            for task, _ in life.threads
        }
        here = [task for task, _ in self.lives[slot].threads]
        return " or ".join([task for task in here if task not in calm] or here)


def _threads_of(k: Knowledge) -> dict[Slot, Threads]:
    rollout = k.durable.rollout
    found: defaultdict[Slot, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for thread in rollout.threads if rollout is not None else ():
        found[thread.slot][thread.task] += 1
    return {slot: tuple(sorted(tasks.items())) for slot, tasks in found.items()}


def _states_of(k: Knowledge) -> defaultdict[Slot, dict[str, tuple[int, int]]]:
    """Slot → task → bytes of its states there: as they are saved, in memory."""
    found: defaultdict[Slot, dict[str, tuple[int, int]]] = defaultdict(dict)
    rollout = k.durable.rollout
    for thread in rollout.threads if rollout is not None else ():
        if (held := k.states_held.get(thread.thread)) is not None:
            saved, memory = found[thread.slot].get(thread.task, (0, 0))
            found[thread.slot][thread.task] = saved + held.saved_bytes, memory + held.memory_bytes
    return found


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 5400 else f"{seconds / 60:,.0f} min"
