"""A recorded run as it is read for showing: what ran, its decisions, its tables. Raises InvalidInput."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dashboards.feeding.trace_tables import COLUMNS, Table, read_table
from topology_runtime.errors import InvalidInput
from topology_runtime.faults.words import counted
from topology_runtime.topology import Topology
from topology_runtime.trace_tables import DECISIONS, RUN_FILE, SCHEMA

FAULTS_SHOWN = 10
HINT = "name the folder of one run, such as traces/TOPOLOGY/RUN"

Decision = dict[str, Any]


class Sizes(msgspec.Struct, frozen=True):
    """What is said of a VM."""

    vm: str
    slots: int
    slot_cores: float = 1.0
    slot_memory_bytes: int = 0
    usd_per_hour: float = 0.0


class Pair(msgspec.Struct, frozen=True):
    """The part of a controller's settings that is shown."""

    allocator: str = ""
    mapper: str = ""
    routing: str = ""
    mode: str = ""
    spare: Sizes | None = None


class Measured(msgspec.Struct, frozen=True):
    threads: int
    rate_tps: float
    cpu: float
    memory: float


class Curve(msgspec.Struct, frozen=True):
    task: str
    points: tuple[Measured, ...]


class RunFile(msgspec.Struct, frozen=True):
    """`run.json`."""

    schema: str
    run: str
    topology: Topology
    settings: Pair
    models: tuple[Curve, ...] = ()
    vms: tuple[Sizes, ...] = ()


@dataclass
class TraceRun:
    """decisions: (seconds since 1970, decision) by rising time. began_s, ended_s: of the samples."""

    file: RunFile
    decisions: list[tuple[float, Decision]]
    tables: dict[str, Table]
    began_s: float
    ended_s: float
    faults: list[str] = field(default_factory=list)

    @cached_property
    def plans(self) -> list[tuple[float, Decision]]:
        """Decisions that brought a plan."""
        return [(at_s, d) for at_s, d in self.decisions if d["action"] in ("plan", "adopt") and d.get("plan")]

    @cached_property
    def decided_s(self) -> list[float]:
        return [at_s for at_s, _ in self.decisions]

    def decision_at(self, at_s: float) -> Decision | None:
        """The newest decision at that time."""
        place = bisect_right(self.decided_s, at_s)
        return self.decisions[place - 1][1] if place else None

    def decisions_after(self, at_s: float) -> Iterator[tuple[float, Decision]]:
        yield from self.decisions[bisect_right(self.decided_s, at_s) :]


def read_run(folder: Path) -> TraceRun:
    """All of a trace but its inputs. Segments that cannot be read are left out, and named on stderr."""
    file = _run_file(folder)
    faults: list[str] = []
    decisions = _decisions(folder / DECISIONS, faults)
    tables = {name: read_table(folder, name, faults) for name in COLUMNS}
    times = [table.times for table in (tables["samples"], tables["rates"]) if len(table.times)]
    if not times:
        raise InvalidInput(f"{folder} holds no samples", faults=faults[:FAULTS_SHOWN], hint=HINT)
    began_s, ended_s = min(float(t[0]) for t in times), max(float(t[-1]) for t in times)
    if faults:
        sys.stderr.write(f"warning: left out of the trace: {counted(len(faults), 'part')}\n")
        sys.stderr.writelines(f"  - {fault}\n" for fault in faults[:FAULTS_SHOWN])
    return TraceRun(file, decisions, tables, began_s, ended_s, faults)


def _run_file(folder: Path) -> RunFile:
    path = folder / RUN_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=RunFile)
    except OSError as error:
        raise InvalidInput(
            f"{folder} is no trace", cause=f"{RUN_FILE}: {error.strerror}", hint=HINT
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not what headgate records", cause=str(error)) from error
    if found.schema != SCHEMA:
        raise InvalidInput(f"{path} is of another headgate", cause=f"schema {found.schema}, known {SCHEMA}")
    return found


def _decisions(path: Path, faults: list[str]) -> list[tuple[float, Decision]]:
    """Those that can be read, by rising time."""
    found = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        faults.append(f"{path.name}: {error.strerror}")
        return []
    for number, line in enumerate(lines, 1):
        try:
            decision = msgspec.json.decode(line, type=dict[str, Any])
            at_s = datetime.fromisoformat(decision["time"]).timestamp()
            decision["trigger"], decision["action"], decision["epoch"], decision["text"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            faults.append(f"{path.name}: line {number}: {type(error).__name__}: {error}")
            continue
        found.append((at_s, decision))
    return sorted(found, key=lambda each: each[0])
