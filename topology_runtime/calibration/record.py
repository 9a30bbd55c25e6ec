"""What was measured of one task so far, and its file: a profile that was stopped goes on from it.

DIR/.profile/<task>.jsonl   a head that says of what, then every probe and trial as measured
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.calibration.profile_steps import Probe, Tried
from headgate.topology_runtime.errors import HeadgateError

RECORDS = ".profile"


@dataclass
class ProfileRecord:
    """`notes`: what people should know, a line each; `failed`: why it was not finished."""

    task: str
    probes: list[Probe] = field(default_factory=list)
    trials: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: HeadgateError | None = None
    seconds: float = 0.0

    def put(self, measured: Probe | Tried) -> None:
        if isinstance(measured, Probe):
            self.probes.append(measured)
        else:
            self.trials.append(measured)


class RecordFile:
    """`head`: what this is a record of; one with another head is begun anew."""

    def __init__(self, folder: Path, task: str, head: dict[str, Any]) -> None:
        self._path, self._head = folder / RECORDS / f"{task}.jsonl", head

    def read(self) -> list[Probe | Tried]:
        """What is known already. The file is then whole again, should a kill have torn its last line."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        known = read_record(lines, self._head)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(b"".join([_line(self._head), *(_line(_entry(one)) for one in known)]))
        return known

    def add(self, measured: Probe | Tried) -> None:
        with self._path.open("ab") as file:
            file.write(_line(_entry(measured)))


class _Entry(msgspec.Struct, omit_defaults=True):
    probe: Probe | None = None
    trial: Tried | None = None


def _entry(measured: Probe | Tried) -> _Entry:
    return _Entry(probe=measured) if isinstance(measured, Probe) else _Entry(trial=measured)


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def read_record(lines: Sequence[bytes], head: dict[str, Any]) -> list[Probe | Tried]:
    """What a record with this head holds, up to a line that a kill tore; nothing when it has another."""
    found: list[Probe | Tried] = []
    try:
        if not lines or msgspec.json.decode(lines[0]) != head:
            return []
        for line in lines[1:]:
            entry = msgspec.json.decode(line, type=_Entry)
            found += [part for part in (entry.probe, entry.trial) if part is not None]
    except msgspec.DecodeError:  # torn
        return found
    return found
