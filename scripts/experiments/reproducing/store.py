"""What was run so far: one line per cell, so that a run which was killed goes on at the next one."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import Conflict, InvalidInput

SCHEMA = "headgate/reproduction-cells/v1"

Record = dict[str, Any]


class Store:
    """`WORK/cells.jsonl`: first the settings, then the cells; of one key the last line counts."""

    def __init__(self, work: Path, settings: Record) -> None:
        """Raises InvalidInput when what is there was run with other settings, or is damaged in its middle."""
        self.file = work / "cells.jsonl"
        self.records: dict[str, Record] = {}
        head = {"schema": SCHEMA, "settings": json.loads(json.dumps(settings))}
        lines = self._lines()
        if not lines:
            work.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(head) + "\n", "utf-8")
            return
        differs = _differences(lines[0].get("settings") or {}, head["settings"])
        if lines[0].get("schema") != SCHEMA or differs:
            raise InvalidInput(
                f"{self.file} is of another experiment",
                faults=differs,
                hint="--work another folder, or delete this one",
            )
        self.records = {line["key"]: line for line in lines[1:]}

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def is_done(self, key: str) -> bool:
        """What failed is tried again."""
        return key in self.records and not self.records[key].get("failed")

    def _lines(self) -> list[Record]:
        """A last line that was cut off is cut away."""
        try:
            content = self.file.read_bytes()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.file.write_bytes(whole)
        lines = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise InvalidInput(f"{self.file}: line {number} is no JSON", cause=str(error)) from error
        return lines


def _differences(there: Record, wanted: Record) -> list[str]:
    names = dict.fromkeys((*there, *wanted))
    return [
        f"{name}: {there.get(name)!r} there, {wanted.get(name)!r} now"
        for name in names
        if there.get(name) != wanted.get(name)
    ]


@contextmanager
def alone_in(work: Path) -> Iterator[None]:
    """Raises Conflict when another one works in this folder."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(
                f"another reproduction runs in {work}", hint="wait, or --work elsewhere"
            ) from error
        yield
