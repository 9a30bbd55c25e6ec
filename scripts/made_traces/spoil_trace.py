"""Plants files among a trace's good ones that no analysis should trust, each of its own kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

YEARS_US = 3 * 365 * 86_400_000_000


def truncated(good: Path) -> Path:
    path = good.with_name("0-truncated.parquet")
    path.write_bytes(good.read_bytes()[: good.stat().st_size * 2 // 3])
    return path


def foreign(good: Path) -> Path:
    """A text that somebody named so."""
    path = good.with_name("0-foreign.parquet")
    path.write_text("time,value\n1,2\n", "utf-8")
    return path


def other_columns(good: Path) -> Path:
    """A Parquet file of something else."""
    path = good.with_name("0-other-columns.parquet")
    pq.write_table(pa.table({"city": ["Oslo"], "height_m": [1.5]}), path)
    return path


def empty(good: Path) -> Path:
    path = good.with_name("0-empty.parquet")
    path.write_bytes(b"")
    return path


def mixed_types(good: Path) -> Path:
    """`slot` as text, `cpu_s` absent."""
    path = good.with_name("0-mixed-types.parquet")
    table = pq.ParquetFile(good).read().slice(0, 100)
    at = table.schema.get_field_index("slot")
    table = table.set_column(at, "slot", pc.cast(table["slot"], pa.string())).drop_columns(["cpu_s"])
    pq.write_table(table, path)
    return path


def clock_jump(good: Path) -> Path:
    """Its clock was three years behind."""
    path = good.with_name("0-clock-jump.parquet")
    table = pq.ParquetFile(good).read().slice(0, 100)
    times = pc.subtract(pc.cast(table["time"], pa.int64()), YEARS_US)
    at = table.schema.get_field_index("time")
    pq.write_table(table.set_column(at, "time", pc.cast(times, pa.timestamp("us", tz="UTC"))), path)
    return path


def duplicate(good: Path) -> Path:
    path = good.with_name("9-duplicate.parquet")
    shutil.copyfile(good, path)
    return path


def unfinished(good: Path) -> Path:
    path = good.with_name(f"_{good.name}")
    path.write_bytes(good.read_bytes()[:100])
    return path


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {  # name → how, and the kind that it is
    "truncated": (truncated, "truncated"),
    "foreign": (foreign, "foreign"),
    "other-columns": (other_columns, "foreign"),
    "empty": (empty, "empty"),
    "mixed-types": (mixed_types, "schema"),
    "clock-jump": (clock_jump, "clock"),
    "duplicate": (duplicate, "duplicate"),
    "unfinished": (unfinished, "unfinished"),
}


def plant(topology: Path) -> list[dict[str, Any]]:
    """One file of every kind among the samples of `run-1`, and two runs beside it: of a future version, and
    without models. What was planted: file (below the folder of all traces), kind, rows it holds."""
    good = min((topology / "run-1" / "samples").glob("[1-8]*.parquet"))
    planted = []
    for spoil, kind in BAD.values():
        path = spoil(good)
        planted.append({"file": str(path.relative_to(topology.parent)), "kind": kind, "rows": _rows(path)})
    for name, kind in (("future", "future-version"), ("no-models", "models")):
        run = topology / name
        (run / "samples").mkdir(parents=True)
        shutil.copyfile(good, run / "samples" / good.name)
        head = json.loads((topology / "run-1" / "run.json").read_text("utf-8")) | {"run": name}
        key, value = ("schema", "headgate/trace/v9") if name == "future" else ("models", [])
        head[key] = value
        (run / "run.json").write_text(json.dumps(head) + "\n", "utf-8")
        planted.append(
            {"file": str((run / "run.json").relative_to(topology.parent)), "kind": kind, "rows": None}
        )
    return planted


def _rows(path: Path) -> int | None:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return None
