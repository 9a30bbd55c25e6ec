"""Which key ranges a thread of a keyed task owns, which it gives away and for which it waits. Pure.

Rules (docs/decisions/0025-who-owns-a-key-range.md):
 1. A copy of a range has a *version*: the number of the routes by which its owner claimed it. The higher wins.
 2. The desired state names who may *hold* a range. While a plan is in force that is its owner alone.
 3. A keeper that obeys routes n and has their barriers *answers* the owner by n: with its copy, or that it has
    none. From then on it takes no rows of that range and no state by older routes.
 4. The owner claims a range when every other keeper has answered, or is known to be gone. No timer decides.
 5. A keeper is silent for good when it is gone and its snapshot cannot be had. What it may have known
    beyond the best copy is lost, and said to be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NO_COPY = -1  # the version of a copy that is not there


@dataclass(frozen=True)
class Layer:
    """Who may hold each range: its owner by routes `number`. sure: they were in force, so it had it."""

    number: int
    owners: Sequence[int]
    sure: bool = False


@dataclass(frozen=True)
class Standing:
    """The ranges of a task by one desired state. owners: by the routes in it (empty: not known yet).
    living: threads that will answer. homes: threads that are gone → the VM that has their snapshots."""

    number: int = 0
    owners: Sequence[int] = ()
    layers: tuple[Layer, ...] = ()
    living: frozenset[int] = frozenset()
    homes: Mapping[int, str] = field(default_factory=dict)


class Ranges:
    """The ranges as thread `me` sees them.

    versions: copies that are here. owned: those whose rows it processes. missing: its own by the routes, and
    not owned yet. pending: others' by the routes, and not answered (or not taken) yet. lost: claimed although
    a keeper was silent. changes: of `versions`, so far."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.versions: dict[int, int] = {}
        self.owned: set[int] = set()
        self.missing: set[int] = set()
        self.pending: set[int] = set()
        self.lost: set[int] = set()
        self.changes = 0
        self.now = Standing()
        self._keepers: list[dict[int, int]] = []  # of each range; those of many ranges are the same
        self._heard: dict[int, set[int]] = {}  # range → keepers that have answered by these routes
        self._told: set[int] = set()  # answered, and the answer is acknowledged
        self._waits: dict[int, set[int]] | None = None  # missing range → who is yet to answer; None: look
        self._unreadable: set[int] = set()  # threads whose snapshot cannot be read

    def put(self, key_range: int, version: int) -> None:
        """A copy of this version is here now."""
        self.versions[key_range] = version
        self.changes += 1

    def drop(self, key_range: int) -> None:
        """There is no copy of it any more."""
        if self.versions.pop(key_range, None) is not None:
            self.changes += 1

    def owner(self, key_range: int) -> int | None:
        return self.now.owners[key_range] if self.now.owners else None

    def keepers(self, key_range: int) -> dict[int, int]:
        """Thread → newest routes by which it may have claimed this range."""
        return self._keepers[key_range] if self._keepers else {}

    # ── orders ──────────────────────────────────────────────────────────────────────────────────

    def stand(self, now: Standing) -> None:
        """Obey: whose the ranges are from now on, and who may hold them."""
        if now == self.now:
            return  # nearly all desired states leave the ranges where they are
        if now.number != self.now.number:
            self._heard.clear()
            self._told.clear()
        self.now, self._waits = now, None
        self._keepers = _keepers_of(now.layers)
        self.missing = set()
        mine = _owned_by(self.me, now.owners)
        for key_range in mine:
            self._mine(key_range)
        kept = self.versions.keys() | {r for layer in now.layers for r in _owned_by(self.me, layer.owners)}
        self.pending = kept.difference(mine, self._told) if now.owners else set()

    def _mine(self, key_range: int) -> None:
        version = self.versions.get(key_range)
        if version is not None and (
            version == self.now.number or self.keepers(key_range).keys() <= {self.me}
        ):
            self.owned.add(key_range)
        else:
            self.owned.discard(key_range)  # another may have a newer copy
            self.missing.add(key_range)

    # ── as owner ────────────────────────────────────────────────────────────────────────────────

    def hear(self, thread: int, ranges: Iterable[int]) -> None:
        """A keeper has answered by the routes in force (or its snapshot has)."""
        self._waits = None
        for key_range in ranges:
            self._heard.setdefault(key_range, set()).add(thread)

    def cannot_read(self, thread: int) -> None:
        """The snapshot of a thread that is gone does not read."""
        self._unreadable.add(thread)
        self._waits = None

    def waits_for(self, key_range: int) -> set[int]:
        """Keepers that are yet to answer for a range."""
        heard = self._heard.get(key_range, ())
        waited = [thread for thread in self.keepers(key_range) if thread != self.me and thread not in heard]
        return {thread for thread in waited if not self._silent(thread)}

    def _silent(self, thread: int) -> bool:
        return thread not in self.now.living and (thread not in self.now.homes or thread in self._unreadable)

    def _waiting(self) -> dict[int, set[int]]:
        """For every missing range; looked up again only when something was heard."""
        if self._waits is None:
            self._waits = {key_range: self.waits_for(key_range) for key_range in sorted(self.missing)}
        return self._waits

    def claimable(self) -> list[int]:
        return [key_range for key_range, waited in self._waiting().items() if not waited]

    def snapshots_desired(self) -> dict[int, str]:
        """Threads that are gone and whose snapshots must be looked at → their VM."""
        waited = set().union(*self._waiting().values())
        return {thread: self.now.homes[thread] for thread in sorted(waited - self.now.living)}

    def claim(self, key_range: int, version: int) -> None:
        """Take a range, with the best copy there is (`version`, or NO_COPY)."""
        if self._is_lost(key_range, version):
            self.lost.add(key_range)
        self.put(key_range, self.now.number)
        self.owned.add(key_range)
        self.missing.discard(key_range)
        if self._waits is not None:
            self._waits.pop(key_range, None)

    def _is_lost(self, key_range: int, version: int) -> bool:
        heard = self._heard.get(key_range, set())
        silent = (
            number
            for thread, number in self.keepers(key_range).items()
            if thread != self.me and thread not in heard
        )
        if max(silent, default=NO_COPY) > version:
            return True
        return version == NO_COPY and any(layer.sure for layer in self.now.layers)

    # ── as keeper ───────────────────────────────────────────────────────────────────────────────

    def let_go(self) -> set[int]:
        """All barriers are in: ranges of others are processed here no more. Returns those that were."""
        gone = self.owned & self.pending
        self.owned -= gone
        return gone

    def told(self, ranges: Iterable[int]) -> list[int]:
        """Their owner has these durably: copies of them are needed no more. Returns those copies."""
        forgotten = []
        for key_range in self.pending.intersection(ranges) - self.owned:
            self.pending.discard(key_range)
            self._told.add(key_range)
            if key_range in self.versions:
                self.drop(key_range)
                forgotten.append(key_range)
        return forgotten

    @property
    def settled(self) -> bool:
        """Everything that is to come has come, everything that is to go has gone."""
        return not self.missing and not self.pending


def _keepers_of(layers: Sequence[Layer]) -> list[dict[int, int]]:
    """For each range: thread → the newest routes by which it is its owner."""
    known: dict[tuple[int, ...], dict[int, int]] = {}
    for threads in set(of_ranges := list(zip(*(layer.owners for layer in layers), strict=True))):
        numbered = sorted((layer.number, thread) for layer, thread in zip(layers, threads, strict=True))
        known[threads] = {thread: number for number, thread in numbered}
    return [known[threads] for threads in of_ranges]


def _owned_by(thread: int, owners: Sequence[int]) -> list[int]:
    return [key_range for key_range, owner in enumerate(owners) if owner == thread]


def runs_of(ranges: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Run-length code of a set of ranges: (first, how many)."""
    runs: list[tuple[int, int]] = []
    first = end = -1
    for key_range in sorted(ranges):
        if key_range != end:
            runs.append((first, end - first))
            first = key_range
        end = key_range + 1
    return (*runs[1:], (first, end - first)) if runs else ()


def of_runs(runs: Iterable[tuple[int, int]]) -> set[int]:
    return {key_range for first, count in runs for key_range in range(first, first + count)}
