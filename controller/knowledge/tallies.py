"""Counts of a run that outlive a controller: of sources, sinks and latency. Types only.

They are best effort: lost ones cost duplicates (sources resume at an older position) and counts, never a tuple.
"""

from __future__ import annotations

import msgspec


class SourceTally(msgspec.Struct, frozen=True, array_like=True):
    """A partition's highest known positions: read, all below done, done in all; and rows sent again. `apart`:
    (thread, emitted, acked, done) of those whose open positions are not counted in them. `again`: was a part
    of it read once more?"""

    task: str
    partition: int
    emitted: int
    acked: int
    done: int
    replayed: int
    apart: tuple[tuple[int, int, int, int], ...] = ()
    again: bool = False


class FinishedTally(msgspec.Struct, frozen=True):
    """Rows that reached sinks, of settled positions: `floors`: (source number, partition, settled below);
    `tasks`: (sink, rows, distinct rows) of those; `logs`: (sink, thread, incarnation, bytes read)."""

    floors: tuple[tuple[int, int, int], ...] = ()
    tasks: tuple[tuple[str, int, int], ...] = ()
    logs: tuple[tuple[str, int, int, int], ...] = ()


class Tallies(msgspec.Struct, frozen=True):
    """Counts of a run so far. `latency`: (sink, source, buckets). `dead`: of older versions.
    `planning_s`: (epoch, seconds from the beginning of the turn until the plan was journaled)."""

    wall_ns: int
    sources: tuple[SourceTally, ...] = ()
    latency: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    dead: tuple[tuple[str, int, int], ...] = ()
    planning_s: tuple[tuple[int, float], ...] = ()
    finished: FinishedTally | None = None
    unlogged: tuple[tuple[str, int, int], ...] = ()  # VM, boot, rows that are in no log
