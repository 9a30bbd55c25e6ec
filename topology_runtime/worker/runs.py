"""Runs: whose rows are in a frame. A run is (root number, offset, count, variant); pure.

Row j of a run is row `offset + j` of its root. `variant` tells apart rows of one source position that
came different ways: every edge and every flat-map index changes it the same way on every replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import msgspec

from headgate.topology_runtime.messages import Frame, RootPart
from headgate.topology_runtime.worker.columns import Columns

Run = tuple[int, int, int, int]
VARIANT_MASK = 0x7FFFFFFF
OFFSET_MOST = 1 << 32  # more rows than any root has


class Batch(msgspec.Struct):
    """Rows on their way through a thread, and whose they are: the runs name the roots by their places."""

    rows: Sequence[Any]
    runs: Sequence[Run]
    roots: Sequence[RootPart]

    def part(self, start: int, stop: int) -> Batch:
        if stop - start == len(self.rows):
            return self
        return Batch(self.rows[start:stop], part(self.runs, start, stop), self.roots)

    def where(self, chosen: Sequence[bool]) -> Batch:
        """The rows for which this is true."""
        rows, runs = self.rows, joined(compress(single(self.runs), chosen))
        some = rows.where(chosen) if type(rows) is Columns else list(compress(rows, chosen))
        return Batch(some, runs, self.roots)


def over_edge(variant: int, edge: int, copy: int = 0) -> int:
    """By this edge; `copy` tells apart the rows that an edge to all threads makes of one."""
    return (variant * 1_000_003 + edge + 1 + copy * 100_003) & VARIANT_MASK


def over_index(variant: int, index: int) -> int:
    """Row `index` of a flat-map's output; the first keeps its variant."""
    return (variant * 69_069 + index * 40_503) & VARIANT_MASK if index else variant


def over_pane(rows: Iterable[tuple[int, int, int, int]]) -> int:
    """The variant of what comes of these rows, (source, partition, position, variant) each, in order: other
    rows give another one, and a row alone keeps its own."""
    rows = iter(rows)
    mixed = next(rows)[3]
    for source, partition, position, variant in rows:
        mixed = mixed * 69_069 + variant
        mixed = (mixed * 1_000_003 + (source * 8_191 + partition) * 131_071 + position) & VARIANT_MASK
    return mixed


def part(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """The runs of rows start … stop − 1."""
    out: list[Run] = []
    at = 0
    for root, offset, count, variant in runs:
        low, high = max(start, at), min(stop, at + count)
        if low < high:
            out.append((root, offset + low - at, high - low, variant))
        at += count
        if at >= stop:
            break
    return out


def single(runs: Sequence[Run]) -> Iterable[tuple[int, int, int]]:
    """(root number, offset, variant) of every row."""
    for root, offset, count, variant in runs:
        for j in range(count):
            yield root, offset + j, variant


def joined(rows: Iterable[tuple[int, int, int]]) -> list[Run]:
    """Rows (root number, offset, variant) → runs, neighbours joined."""
    out: list[Run] = []
    for root, offset, variant in rows:
        if out:
            r, o, c, v = out[-1]
            if r == root and v == variant and o + c == offset:
                out[-1] = (r, o, c + 1, v)
                continue
        out.append((root, offset, 1, variant))
    return out


def fits(frame: Frame) -> bool:
    """Do the runs of a peer's frame name its rows and its roots? Asked before it is believed."""
    roots, left = len(frame.roots), len(frame.rows)
    for root, offset, count, variant in frame.runs:
        if not (0 <= root < roots and 0 <= offset <= OFFSET_MOST and 0 <= variant <= VARIANT_MASK):
            return False
        left -= count
        if count < 1 or left < 0:
            return False
    return left == 0 and all(0 <= number < roots for root in frame.roots for number in root.along)
