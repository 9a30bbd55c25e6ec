"""The tables of a trace as columns in memory, by rising time, of which a window is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = {
    "samples": (
        "time", "vm", "slot", "task", "thread", "tuples_in", "tuples_out", "queue", "busy_s", "window_s",
        "latency_p50_s", "latency_p99_s",
    ),
    "slots": ("time", "vm", "slot", "cpu", "memory", "predicted_cpu", "predicted_memory"),
    "rates": (
        "time", "epoch", "source", "offered_tps", "emitted_tps", "acked_tps", "planned_tps", "predicted_tps",
    ),
    "latency": ("time", "latency_s", "tuples"),
    "links": (
        "time", "from_task", "to_task", "tuples", "frames", "buffer_latency_s", "channel_latency_s",
    ),
}  # fmt: skip

Array = NDArray[Any]


@dataclass(frozen=True)
class Cut:
    """Some rows of a table."""

    columns: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["time"])

    def where(self, rows: Array) -> Cut:
        return Cut({name: values[rows] for name, values in self.columns.items()})


class Table:
    """One table, by rising time (seconds since 1970)."""

    def __init__(self, columns: dict[str, Array]) -> None:
        order = np.argsort(columns["time"], kind="stable")
        self._columns = {name: values[order] for name, values in columns.items()}
        self._times = self._columns["time"]

    @property
    def times(self) -> Array:
        return self._times

    def between(self, after_s: float, until_s: float) -> Cut:
        """Rows with after < time ≤ until."""
        begin, end = np.searchsorted(self._times, (after_s, until_s), side="right")
        return Cut({name: values[begin:end] for name, values in self._columns.items()})


def read_table(folder: Path, name: str, faults: list[str]) -> Table:
    """All segments of a table; one that cannot be read is a fault and left out."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    wanted = COLUMNS[name]
    read = []
    for path in sorted((folder / name).glob("[!_]*.parquet")):
        try:
            read.append(parquet.read_table(path, columns=list(wanted)))
        except (OSError, pa.ArrowException) as error:
            faults.append(f"{name}/{path.name}: {str(error).splitlines()[0]}")
            continue
        missing = [column for column in wanted if column not in read[-1].column_names]
        if missing:
            faults.append(f"{name}/{path.name}: no column {', '.join(missing)}")
            read.pop()
    try:
        table = pa.concat_tables(read, promote_options="permissive") if read else None
    except pa.ArrowException as error:
        faults.append(f"{name}: its segments do not fit together: {error}")
        table = None
    if table is None:
        return Table({column: np.zeros(0) for column in wanted})
    return Table({column: _array(table.column(column), column) for column in wanted})


def _array(column: Any, name: str) -> Array:
    import pyarrow.compute as pc

    found: Array = (pc.cast(column, "int64") if name == "time" else column).to_numpy()
    return found / 1e6 if name == "time" else found


def quantiles(values: Array, weights: Array, shares: Sequence[float]) -> list[float | None]:
    """Weighted quantiles; None without weight."""
    total = float(weights.sum()) if len(weights) else 0.0
    if total <= 0:
        return [None for _ in shares]
    order = np.argsort(values)
    heights = np.cumsum(weights[order])
    places = np.searchsorted(heights, [share * total for share in shares])
    return [float(values[order][min(place, len(values) - 1)]) for place in places]
