"""What a recorded run failed to carry, as it was measured: by the counts of tuples that its trace has of each second.

Beside what is modelled of the same run it says how far the models, and what is not in them (faults, latency between
tasks, a disturbed machine), can be trusted for the policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

WINDOW_S = 10.0
MORE = 0.05  # of what was offered: as much may be on its way

Second = tuple[float, int, int]  # time in s, offered and acked since the second before


def measured_of(trace: Path) -> tuple[float, float] | None:
    """(seconds in which fewer tuples were finished than offered, by how many); None of a trace without counts."""
    rows = seconds_of(trace)
    return None if rows is None else violations_of(rows)


def violations_of(rows: Iterable[Second]) -> tuple[float, float]:
    """Of stretches of ten seconds in which more than a twentieth of what was offered was not finished."""
    windows: dict[int, list[float]] = {}
    ordered = sorted(rows)
    before = None
    for at_s, offered, acked in ordered:
        window = windows.setdefault(int((at_s - ordered[0][0]) // WINDOW_S), [0.0, 0.0, 0.0])
        length_s = 1.0 if before is None else min(WINDOW_S, at_s - before)
        for place, value in enumerate((length_s, offered, acked)):
            window[place] += value
        before = at_s
    late = [window for window in windows.values() if window[1] - window[2] > MORE * window[1]]
    return sum(window[0] for window in late), sum(window[1] - window[2] for window in late)


def seconds_of(trace: Path) -> list[Second] | None:
    """All sources together, from the first tuple on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["time", "offered", "acked"]
    found: dict[float, list[int]] = {}
    for file in sorted((trace / "rates").glob("[!_]*.parquet")):
        try:
            if not set(names) <= set(pq.read_schema(file).names):
                return None
            table = pq.read_table(file, columns=names)
        except (OSError, pa.ArrowInvalid):
            continue  # `analyze` lists what cannot be read
        for at_us, offered, acked in zip(
            table["time"].cast(pa.int64()).to_pylist(),
            table["offered"].to_pylist(),
            table["acked"].to_pylist(),
            strict=True,
        ):
            sums = found.setdefault(at_us / 1e6, [0, 0])
            sums[0] += offered or 0
            sums[1] += acked or 0
    seconds = [(at_s, sums[0], sums[1]) for at_s, sums in sorted(found.items())]
    began = next((n for n, (_, offered, _) in enumerate(seconds) if offered), None)
    return None if began is None else [(at_s, offered, acked) for at_s, offered, acked in seconds[began:]]
