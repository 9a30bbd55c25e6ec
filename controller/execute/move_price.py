"""What bringing a plan into force costs: threads that start and end, state that moves, the pause until it has. Pure.

Ranges move in parts of a megabyte: those that stay go on meanwhile, and each that moves goes on once it has arrived.
So the pause is that of the range that comes last. All threads send and take at once; what one has to send or to take
takes longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from headgate.controller.execute.plan_diff import ThreadChanges
from headgate.controller.knowledge.journal_records import Rollout
from headgate.controller.models.plans import ThreadAt
from headgate.topology_runtime.api.topology import KEY_RANGES, Topology
from headgate.topology_runtime.wire.messages import Route
from headgate.topology_runtime.wording import counted, significant

NS = 1_000_000_000
SWITCH_S = 0.25  # until all senders have switched, where nothing moves: the goal's 95th percentile
MOVE_BYTES_S = 20e6  # by one thread, of states of 100 B (decision 106): where the run has measured none
MEASURED_LEAST = 1 << 20  # bytes; the pause of a move of fewer says nothing of their rate
COLD_S = 1.0  # of a slot, for each thread that starts: imports, connections, caches
LASTS_S = 600.0  # a plan is taken to stay in force so long
MB = 1e6

Sizes = Mapping[str, Sequence[int]]  # task → bytes of state in each of its key ranges


class MovePrice(msgspec.Struct, frozen=True):
    """ranges, state_bytes: of each keyed task, those that change their owner; slowest_bytes: the most that one thread
    sends or takes. slot_s: all of it in seconds of a slot. measured: the rate of moves is the run's own."""

    starts: int
    ends: int
    ranges: dict[str, int]
    state_bytes: dict[str, int]
    pause_s: float
    slot_s: float
    slowest_bytes: int = 0
    bytes_s: float = MOVE_BYTES_S
    measured: bool = False

    @property
    def bytes_moved(self) -> int:
        return sum(self.state_bytes.values())

    @property
    def words(self) -> str:
        """What moves, of how many bytes, and the pause that is expected; empty where nothing moves."""
        if not self.pause_s:
            return ""
        many = self.bytes_moved
        what = f"{counted(sum(self.ranges.values()), 'key range')} with {size_words(many)} of state"
        pause = f"a pause of about {significant(self.pause_s, 2)} s is expected"
        return f"{what} to move, {pause}" if self.ranges else pause


def size_words(many: int) -> str:
    """
    >>> size_words(0), size_words(52_345), size_words(1_234_567_890)
    ('0 kB', '52.3 kB', '1,235 MB')
    """
    return f"{significant(many / 1e3, 3)} kB" if many < MB else f"{significant(many / MB, 4)} MB"


def price_of(
    change: ThreadChanges,
    before: Sequence[Route],
    after: Sequence[Route],
    topology: Topology,
    sizes: Sizes,
    rate: float | None = None,
) -> MovePrice:
    """Of this change, with rows sent by `before` until now. rate: bytes/s that one thread moved in this run."""
    keyed = {task.name for task in topology.tasks if task.state == "keyed"}
    was, will = owners_of(before, topology), owners_of(after, topology)
    owners = {task: (was[task], will[task]) for task in will if task in was and task in keyed}
    return price_by_owners(change.start, change.leave, owners, sizes, rate)


def price_by_owners(
    start: Sequence[ThreadAt],
    leave: Sequence[ThreadAt],
    owners: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    sizes: Sizes,
    rate: float | None = None,
) -> MovePrice:
    """owners: of each keyed task, the owner of each of its key ranges before and after."""
    ranges: dict[str, int] = {}
    moved: dict[str, int] = {}
    sent, taken = Counter[int](), Counter[int]()
    for task, (was, will) in owners.items():
        of_ranges = sizes.get(task, ())
        for number, (old, new) in enumerate(zip(was, will, strict=True)):
            if old != new:
                size = of_ranges[number] if of_ranges else 0
                ranges[task] = ranges.get(task, 0) + 1
                moved[task] = moved.get(task, 0) + size
                sent[old] += size
                taken[new] += size
    slowest = max((*sent.values(), *taken.values()), default=0)
    bytes_s = rate or MOVE_BYTES_S
    pause_s = SWITCH_S + slowest / bytes_s if start or leave or ranges else 0.0
    waiting = {thread.slot for thread in (*start, *leave)}
    slot_s = pause_s * max(len(waiting), bool(ranges)) + COLD_S * len(start)
    return MovePrice(
        len(start), len(leave), ranges, moved, pause_s, slot_s, slowest, bytes_s, rate is not None
    )


def price_data(price: MovePrice) -> dict[str, Any]:
    """As plain data, for decisions and files."""
    data = msgspec.structs.asdict(price)
    told = {"pause_s": round(price.pause_s, 3), "slot_s": round(price.slot_s, 3)}
    return {**data, **told, "bytes_s": round(price.bytes_s)}


def owners_of(routes: Sequence[Route], topology: Topology) -> dict[str, list[int]]:
    """Task → owner of each of its key ranges."""
    owners: dict[str, list[int]] = {}
    for route in routes:
        if route.ranges:
            owned = [thread for thread, count in route.ranges for _ in range(count)]
            owners.setdefault(topology.edges[route.edge].target, owned)
    return {task: owned for task, owned in owners.items() if len(owned) == KEY_RANGES}


def measured_rate(rollouts: Sequence[Rollout]) -> float | None:
    """Bytes/s that the thread with most to move moved, in the median of the run's rollouts; None: too little did."""
    known = [
        one.slowest_bytes / ((one.in_force_ns - one.switched_ns) / NS)
        for one in rollouts
        if one.slowest_bytes >= MEASURED_LEAST and one.in_force_ns > one.switched_ns > 0
    ]
    return median(known) if known else None


def gain_s(slots_now: int, slots_then: int) -> float:
    """Seconds of slots that a plan saves while it is in force."""
    return LASTS_S * max(0, slots_now - slots_then)
