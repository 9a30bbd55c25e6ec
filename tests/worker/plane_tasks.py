"""Small tasks for the plane, and what their sinks get when every row passes every task once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from headgate.topology_runtime.logic import Hold, Keyed
from headgate.topology_runtime.topology import Edge

S = 1_000_000_000
MS = 1_000_000
Row = tuple[int, str]  # (id, the way it came)


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Spec:
    """One task: `source` (with `rows` to offer), `map`, `flat_map`, `filter`, `batch`, `join`, `keyed` or
    `sink`."""

    name: str
    kind: str
    threads: int = 1
    rows: int = 0


class Batch(Hold):
    """Lets its rows go `most` at a time, or after 50 ms."""

    max_age_s = 0.05

    def __init__(self, most: int, keep: Callable[[Row], None] | None = None) -> None:
        self.most, self._keep = most, keep

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        assert 0 < len(rows) <= self.most, "a batch never sees more than it asked for"
        return len(rows) == self.most

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        for row in rows:
            if self._keep is not None:
                self._keep(row)
        return rows


class Pairs(Hold):
    """A row of each branch with the same id, as one row."""

    def key(self, row: Row, source: str) -> Hashable:
        return row[0]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({way for _, way in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert len(rows) == 2 and len({i for i, _ in rows}) == 1, f"a pair of {rows}"
        return [(rows[0][0], "+".join(sorted(way for _, way in rows)))]


class Seen(Keyed):
    """Which rows of a key were processed; lets them pass."""

    def new(self, key: Hashable) -> list[str]:
        return []

    def process(self, key: Hashable, row: Row, state: list[str]) -> tuple[list[str], Iterable[Row]]:
        return [*state, row[1]], [row]


def copies(row: Row) -> list[Row]:
    return [(row[0], f"{row[1]}.{n}") for n in range(row[0] % 3)]


def passes(row: Row) -> bool:
    return (row[0] + len(row[1])) % 4 != 0


# ── what is to come out ─────────────────────────────────────────────────────────────────────────────


def expected(specs: Sequence[Spec], edges: Sequence[Edge]) -> Counter[tuple[str, Row]]:
    """What the sinks get when every row passes every task once, worked out row by row."""
    reference = _Reference(specs, edges)
    for spec in specs:
        if spec.kind == "source":
            for n in range(spec.threads * spec.rows):
                reference.waiting = {}
                partition, position = divmod(n, spec.rows)
                reference.follow(spec, (partition * 1000 + position, ""))
    return reference.found


class _Reference:
    def __init__(self, specs: Sequence[Spec], edges: Sequence[Edge]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._edges = edges
        self.waiting: dict[str, list[Row]] = {}  # join → the halves of the row that is followed
        self.found: Counter[tuple[str, Row]] = Counter()

    def follow(self, spec: Spec, row: Row) -> None:
        outs = self._outs(spec, row)
        edges = [edge for edge in self._edges if edge.source == spec.name]
        if not edges:
            self.found.update((spec.name, out) for out in outs)
        for edge in edges:
            target = self._specs[edge.target]
            for out in outs:
                for _ in range(target.threads if edge.grouping == "all" else 1):
                    self.follow(target, out)

    def _outs(self, spec: Spec, row: Row) -> list[Row]:
        match spec.kind:
            case "map":
                return [(row[0], f"{row[1]}{spec.name}")]
            case "flat_map":
                return copies(row)
            case "filter":
                return [row] if passes(row) else []
            case "join":
                halves = self.waiting.setdefault(spec.name, [])
                halves.append(row)
                return [(row[0], "+".join(sorted(way for _, way in halves)))] if len(halves) == 2 else []
            case _:
                return [row]
