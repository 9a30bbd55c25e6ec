"""What must be true of the state of keyed tasks, from nothing but the rows that were read and what tasks did.

1. Once all is settled, each key range has one owner.
2. At the end each key's state counts every row of the key that the run read, and it lies with one owner.
3. It counts no row twice, whoever is killed, unless a VM was lost.
4. A row at a sink says what its key's state was after it: the state at the end tells the same story.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from headgate.controller.simulation.account import SimAccount, twice
from headgate.controller.simulation.logic import Origin, Row
from headgate.controller.simulation.topologies import Shape
from headgate.topology_runtime.topology import KEY_RANGES
from headgate.topology_runtime.worker.keyed import KeyedTask
from headgate.topology_runtime.worker.keyed_rows import KeyedRows

if TYPE_CHECKING:
    from headgate.controller.simulation.thread import SimThread

Key = tuple[str, Hashable]  # keyed task, key


class KeyedAccount:
    """Of all keyed tasks of a world."""

    def __init__(self, shape: Shape, account: SimAccount) -> None:
        self.shape, self.account = shape, account
        self.counted: dict[Key, list[Origin]] = {}  # rows in the order in which tasks counted them
        self.sunk: list[tuple[Key, Origin, int]] = []  # what rows at sinks said of their keys
        self.final: dict[Key, list[list[Origin]]] = {}  # states at the end, one for each owner
        self.owners_killed = 0
        self.states_lost = 0  # with their VM: what is not promised

    def count(self, task: str, counted: Iterable[tuple[Hashable, Origin]]) -> None:
        key_of = self.shape.keys[task]
        for key, origin in counted:
            assert key == key_of(origin), f"{origin} was counted under {key!r} in {task}"
            self.counted.setdefault((task, key), []).append(origin)

    def see(self, rows: Sequence[Row]) -> None:
        """Rows at a sink."""
        for row in rows:
            for at in range(4, len(row), 3):
                if row[at] in self.shape.keys:
                    self.sunk.append(((row[at], row[at + 1]), row[:3], row[at + 2]))

    # ── owners ──────────────────────────────────────────────────────────────────────────────────

    def one_owner_each(self, threads: Iterable[SimThread]) -> None:
        """Rule 1."""
        owned: dict[str, list[int]] = {task: [] for task in self.shape.keys}
        for thread in threads:
            if thread.desired.task in owned:
                owned[thread.desired.task] += owned_by(thread)
        for task, ranges in owned.items():
            assert not twice(ranges), f"{twice(ranges)} ranges of {task} have two owners"
            assert len(ranges) == KEY_RANGES, f"{KEY_RANGES - len(ranges)} ranges of {task} have no owner"

    def ends(self, thread: SimThread) -> None:
        """The run is over, and this owner with it."""
        for key, state in states_of(thread).items():
            self.final.setdefault((thread.desired.task, key), []).append(state)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def all_counted(self, emitted: dict[tuple[str, int], int]) -> None:
        """emitted: how many positions of each partition the run read."""
        rows = [(*place, p) for place, n in emitted.items() for p in range(n)]
        for task, key_of in self.shape.keys.items():
            sequential: dict[Hashable, set[Origin]] = {}
            for origin in rows:
                sequential.setdefault(key_of(origin), set()).add(origin)
            for key, expected in sequential.items():
                self._one((task, key), expected)
        for key, origin, count in self.sunk:
            self._told(key, origin, count)

    def _one(self, key: Key, expected: set[Origin]) -> None:
        states = self.final.get(key, [])
        assert len(states) <= 1, f"{len(states)} owners have state of {key}"
        state = states[0] if states else []
        again = twice(state)
        if not self.states_lost:
            missing = sorted(expected - set(state))
            assert not missing, f"the state of {key} counts {len(state)} rows and lacks {missing[:5]}"
        if not self.states_lost:
            assert not again, f"the state of {key} counts {again} rows twice, and no VM was lost"
        assert again <= self.account.again, f"the state of {key} counts {again} rows twice"

    def _told(self, key: Key, origin: Origin, count: int) -> None:
        state = (self.final.get(key) or [[]])[0]
        most = len(self.counted[key])
        assert 0 < count <= most, f"{origin} says that {key} has {count} rows, {most} were counted"
        if not self.owners_killed and not self.states_lost and count <= len(state):
            assert state[count - 1] == origin, (
                f"row {count} of {key} was {origin}, its state says {state[count - 1]}"
            )


# ── the only words about how a keyed thread keeps its state ─────────────────────────────────────


def owned_by(thread: SimThread) -> list[int]:
    rows = rows_of(thread)
    return sorted(rows.ranges.owned) if rows is not None else []


def copies_of(thread: SimThread) -> set[int]:
    """Ranges of which it has a copy, its own or not."""
    rows = rows_of(thread)
    return set(rows.ranges.versions) if rows is not None else set()


def answered_by(thread: SimThread) -> set[int]:
    """Ranges of others that it has let go, and of which it still has the copy."""
    rows = rows_of(thread)
    if rows is None:
        return set()
    return (rows.ranges.pending - rows.ranges.owned) & rows.ranges.versions.keys()


def claiming(thread: SimThread) -> set[int]:
    """Ranges that are its own by the routes that it obeys."""
    rows = rows_of(thread)
    return rows.ranges.missing | rows.ranges.owned if rows is not None else set()


def states_of(thread: SimThread) -> dict[Hashable, list[Origin]]:
    """States of the keys that this thread owns."""
    rows = rows_of(thread)
    if rows is None:
        return {}
    return {
        key: list(state)
        for key_range in rows.ranges.owned
        for key, state in rows.states.of(key_range).items()
    }


def rows_of(thread: SimThread) -> KeyedRows | None:
    """What the thread of a keyed task has, once it is built."""
    behaviour = thread.core.behaviour
    return behaviour.rows if isinstance(behaviour, KeyedTask) else None
