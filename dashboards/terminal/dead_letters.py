"""The dead letters of a run that is over, from `dead_letters.jsonl` of its trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from topology_runtime.errors import InvalidInput
from topology_runtime.trace_tables import DEAD_LETTERS, RUN_FILE
from topology_runtime.utc import utc_iso

Found = dict[str, Any]
Spans = list[tuple[int, int]]  # begin … end − 1 each


def from_trace(folder: Path) -> Found:
    """As the controller tells them, with row and traceback of each. Raises InvalidInput."""
    records = _records(folder)
    dropped = {record["number"] for record in records if record["record"] == "dropped"}
    letters = {r["number"]: _letter(r) for r in records if r["record"] == "letter"}
    kept = Counter(letter["task"] for number, letter in letters.items() if number not in dropped)
    everywhere: defaultdict[tuple[str, int], Spans] = defaultdict(list)
    of_task: defaultdict[tuple[str, str, int], Spans] = defaultdict(list)
    for r in records:
        if r["record"] == "dead":
            everywhere[r["source"], r["partition"]].append((r["begin"], r["end"]))
            of_task[r["task"], r["source"], r["partition"]].append((r["begin"], r["end"]))
    rows = Counter[str]()
    for (task, _, _), spans in of_task.items():
        rows[task] += length(spans)
    return {
        "dead_lettered": sum(map(length, everywhere.values())),
        "dropped": len(dropped & letters.keys()),
        "tasks": [{"task": task, "rows": n, "kept": kept[task]} for task, n in sorted(rows.items())],
        "letters": [letter for number, letter in sorted(letters.items()) if number not in dropped],
    }


def length(spans: Iterable[tuple[int, int]]) -> int:
    """Of their union."""
    total, at = 0, -1
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, at))
        at = max(at, end)
    return total


def _records(folder: Path) -> list[Found]:
    file = folder / DEAD_LETTERS
    if not (folder / RUN_FILE).exists() and not file.exists():
        raise InvalidInput(f"{folder} is no trace", hint="name a folder traces/TOPOLOGY/RUN")
    try:
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line]
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{file} cannot be read", cause=str(error)) from error


def _letter(record: Found) -> Found:
    return {
        "id": record["number"],
        "time": utc_iso(record["wall_ns"]),
        **{name: record[name] for name in ("task", "source", "partition", "position")},
        "n": 1,
        **{name: record[name] for name in ("error", "thread", "row", "traceback")},
    }
