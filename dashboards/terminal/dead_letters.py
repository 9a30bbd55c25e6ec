"""The dead letters of a run that is over, from `dead_letters.jsonl` of its trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.trace_tables import DEAD_LETTERS, RUN_FILE
from headgate.topology_runtime.utc import utc_iso

ALWAYS = ("number", "task", "source", "partition", "position", "thread", "row", "error", "traceback")
LATELY: dict[str, Any] = {"variant": 0, "feeder": "", "shape": 0, "data": ""}  # not in older traces

Found = dict[str, Any]
Spans = list[tuple[int, int]]  # begin … end − 1 each


def from_trace(folder: Path) -> Found:
    """As the controller tells them, with row and traceback of each. Raises InvalidInput."""
    records = _records(folder)
    letters, dropped, replayed = _standing(records)
    kept = Counter(letter["task"] for letter in letters.values())
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
        "dropped": dropped,
        "replayed": replayed,
        "tasks": [{"task": t, "rows": rows[t], "kept": kept[t]} for t in sorted(rows.keys() | kept.keys())],
        "letters": [_letter(record) for _, record in sorted(letters.items())],
    }


def rows_from_trace(folder: Path) -> list[Found]:
    """Letters that are neither dropped nor done, with what it takes to send their rows again (`data` is base64, empty
    when the row was not kept). Raises InvalidInput."""
    letters, _, _ = _standing(_records(folder))
    return [
        {
            **{name: one[name] for name in ALWAYS},
            **{name: one.get(name, bare) for name, bare in LATELY.items()},
        }
        for _, one in sorted(letters.items())
    ]


def _standing(records: list[Found]) -> tuple[dict[int, Found], int, int]:
    """Letters by number as they were at the end, how many were dropped, how many were sent again and are done."""
    letters: dict[int, Found] = {}
    gone: dict[str, set[int]] = {"dropped": set(), "replayed": set()}
    for record in records:
        kind, number = record["record"], record.get("number")
        if kind == "letter" and number is not None:
            letters[number] = record
        elif kind in gone and number in letters:
            gone[kind].add(number)
        elif kind == "died_again" and number in letters:
            letters[number] = {**letters[number], "error": record["error"], "traceback": record["traceback"]}
    left = {n: one for n, one in letters.items() if n not in gone["dropped"] | gone["replayed"]}
    return left, len(gone["dropped"]), len(gone["replayed"])


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
