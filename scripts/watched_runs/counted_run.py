"""A run of `headgate up` that counts (counted_tasks.py), with its sinks checked as it goes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.dashboards.runs.connection import contact_of
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Request
from watched_runs.counted_tasks import KEYS, Spans
from watched_runs.trials import Trial

# ── What reached the sinks of a counted run, checked row by row while it runs, in little memory and disk ───
#
# Every number that was read must reach both sinks; more than once is a duplicate. The state of each key must
# have had every row of that key (`Tally` of counted_tasks.py says which it had, and what it took again).

SINKS = ("counts", "numbers")
SHOWN = 20


@dataclass
class Sink:
    """The rows of one sink so far."""

    rows: int = 0
    seen: Spans = field(default_factory=Spans)

    def add(self, number: int) -> None:
        self.rows += 1
        self.seen.add(number)

    def missing(self, emitted: int) -> list[int]:
        """Of the numbers below `emitted` the first that never came, and any that nobody had read."""
        holes = zip([0, *self.seen.ends], [*self.seen.starts, emitted], strict=True)
        found = [number for start, end in holes for number in range(start, min(end, start + SHOWN))]
        return found[:SHOWN]

    def verdict(self, emitted: int) -> dict[str, Any]:
        end = self.seen.ends[-1] if self.seen.ends else 0
        return {
            "rows": self.rows,
            "lost": emitted - self.seen.count,
            "duplicates": self.rows - self.seen.count,
            "first_lost": self.missing(emitted),
            "never_read": max(0, end - emitted),
        }


class Checker:
    """The sinks of one run whose only source thread reads 0, 1, 2 …"""

    def __init__(self) -> None:
        self.sinks = {name: Sink() for name in SINKS}
        self.applied = [0] * KEYS
        self.again = [0] * KEYS

    def take(self, sink: str, line: str) -> None:
        """One line of a sink's file."""
        numbers = [int(word) for word in line.split()]
        if sink == "numbers":
            (number,) = numbers
        else:
            key, number, applied, again = numbers
            self.applied[key] = max(self.applied[key], applied)
            self.again[key] = max(self.again[key], again)
        self.sinks[sink].add(number)

    def short(self, emitted: int) -> dict[int, int]:
        """Keys whose state never had all their rows → how many it lacked (less than 0: had too many)."""
        lacks = {key: len(range(key, emitted, KEYS)) - had for key, had in enumerate(self.applied)}
        return {key: rows for key, rows in lacks.items() if rows}

    def verdict(self, emitted: int) -> dict[str, Any]:
        """Of a run that is over and says that it read so many rows."""
        short = self.short(emitted)
        sinks = {name: sink.verdict(emitted) for name, sink in self.sinks.items()}
        wrong = any(one["lost"] or one["never_read"] for one in sinks.values())
        return {
            "whole": not short and not wrong,
            "rows_read": emitted,
            "sinks": sinks,
            "keys_short": short,
            "applied_again": sum(self.again),
        }

    @property
    def rows(self) -> int:
        return sum(sink.rows for sink in self.sinks.values())


class Segments:
    """Reads on in the files that the sinks write (counted_tasks.py), and takes away those that are over."""

    def __init__(self, folder: Path, checker: Checker) -> None:
        self.folder, self._checker = folder, checker
        self._read: dict[str, int] = {}

    def drain(self) -> None:
        names = sorted(entry.name for entry in os.scandir(self.folder))
        newest = {name.rpartition("-")[0]: name for name in names}
        for name in names:
            over = name not in newest.values() or not os.path.exists(f"/proc/{name.split('-')[1]}")
            self._read_on(name)
            if over:
                (self.folder / name).unlink()
                self._read.pop(name, None)

    def _read_on(self, name: str) -> None:
        """Whole lines that are new."""
        with open(self.folder / name, "rb") as file:
            file.seek(self._read.get(name, 0))
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[name] = self._read.get(name, 0) + len(whole) + len(newline)
        sink = name.partition("-")[0]
        for line in whole.decode().splitlines():
            self._checker.take(sink, line)


OWN = Path(__file__).with_name("counted_tasks.py")
SLOTS_OF = {"keyed": 1.5, "tally": 0.6, "batch": 1.0}  # one slot carries the offered rate × this
SLOT = {"memory_bytes": 536870912, "machine": "any"}


class CountedRun(Trial):
    """`rate_tps` is what it is offered and what its models are made for; twice as much needs more slots."""

    def __init__(
        self,
        folder: Path,
        rate_tps: float,
        seconds: float,
        vms: str = "4,4,4",
        slot_cores: float = 0.12,
        more: Sequence[str] = (),
    ) -> None:
        self.rate_tps, self.slot_cores = rate_tps, slot_cores
        self.checker = Checker()
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        self.segments = Segments(folder / "rows", self.checker)
        super().__init__(
            folder, f"{rate_tps:g}", seconds, ["--vms", vms, "--slot-cores", f"{slot_cores:g}", *more]
        )

    def _write_topology(self) -> None:
        (self.folder / "counted_tasks.py").write_text(OWN.read_text())
        (self.folder / "topology.json").write_text(json.dumps(topology(self.folder / "rows")))
        (self.folder / "models").mkdir(exist_ok=True)
        for task, share in SLOTS_OF.items():
            points = [{"threads": 1, "rate_tps": self.rate_tps * share, "cpu": 0.8, "memory": 0.1}]
            slot = SLOT | {"cores": self.slot_cores}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (self.folder / "models" / f"{task}.json").write_text(json.dumps(model))

    def command(self, name: str, *, answer_s: float = 30.0, **arguments: Any) -> Any:
        """What the controller answers within so many seconds; raises HeadgateError when it refuses or is not there."""
        reply = ask(contact_of(str(self.folder / "state")), Request(name, arguments), answer_s)
        if reply.error:
            raise HeadgateError(reply.error[2])
        return reply.data

    def wait_for_rows(self, timeout_s: float = 120.0, more: int = 0) -> float:
        """Until both sinks together have `more` rows than now; how long it took."""
        start, before = time.monotonic(), self.checker.rows
        while self.checker.rows <= before + more:
            if time.monotonic() - start > timeout_s or self.process.poll() is not None:
                raise TimeoutError(f"no row in {timeout_s:g} s:\n{self.log()[-3000:]}")
            time.sleep(0.05)
            self.segments.drain()
        return time.monotonic() - start

    def verdict(self, summary: dict[str, Any]) -> dict[str, Any]:
        self.segments.drain()
        return self.checker.verdict(summary["tuples"]["emitted"])


def topology(rows: Path) -> dict[str, Any]:
    tasks = "headgate.topology_runtime.tasks"
    static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
    sinks = [
        {"name": name, "run": "counted_tasks:Segments", "static": static}
        | {"params": {"folder": str(rows.resolve()), "name": name}}
        for name in ("counts", "numbers")
    ]
    return {
        "schema": "headgate/topology/v1",
        "name": "counted",
        "tasks": [
            {"name": "source", "kind": "source", "run": f"{tasks}.row_sources:Counter", "static": static},
            {"name": "keyed", "run": "counted_tasks:keyed"},
            {"name": "tally", "kind": "keyed", "state": "keyed", "run": "counted_tasks:Tally"},
            {"name": "batch", "kind": "hold", "run": "counted_tasks:Batch"},
            *sinks,
        ],
        "edges": [
            {"from": "source", "to": "keyed"},
            {"from": "keyed", "to": "tally", "grouping": "fields", "key": 0},
            {"from": "tally", "to": "counts"},
            {"from": "source", "to": "batch"},
            {"from": "batch", "to": "numbers"},
        ],
    }
