"""A run of `headgate up` that counts (counted_tasks.py), with its sinks checked as it goes (sink_check.py)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from headgate.dashboards.terminal.connection import contact_of
from headgate.topology_runtime.channels import ask
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.messages import Request
from watched_runs.sink_check import Checker, Segments
from watched_runs.trials import Trial

OWN = Path(__file__).with_name("counted_tasks.py")
SLOTS_OF = {"keyed": 1.5, "tally": 0.6, "batch": 1.0}  # one slot carries the offered rate × this
SLOT = {"memory_bytes": 536870912, "machine": "any"}


class CountedRun(Trial):
    """`rate_tps` is what it is offered and what its models are made for; twice as much needs more slots."""

    def __init__(
        self, folder: Path, rate_tps: float, seconds: float, vms: str = "4,4,4", slot_cores: float = 0.12
    ) -> None:
        self.rate_tps, self.slot_cores = rate_tps, slot_cores
        self.checker = Checker()
        (folder / "rows").mkdir(parents=True, exist_ok=True)
        self.segments = Segments(folder / "rows", self.checker)
        super().__init__(folder, f"{rate_tps:g}", seconds, ["--vms", vms, "--slot-cores", f"{slot_cores:g}"])

    def _write_topology(self) -> None:
        (self.folder / "counted_tasks.py").write_text(OWN.read_text())
        (self.folder / "topology.json").write_text(json.dumps(topology(self.folder / "rows")))
        (self.folder / "models").mkdir(exist_ok=True)
        for task, share in SLOTS_OF.items():
            points = [{"threads": 1, "rate_tps": self.rate_tps * share, "cpu": 0.8, "memory": 0.1}]
            slot = SLOT | {"cores": self.slot_cores}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": points}
            (self.folder / "models" / f"{task}.json").write_text(json.dumps(model))

    def command(self, name: str, *, answer_s: float = 2.0, **arguments: Any) -> Any:
        """What the controller answers within so many seconds; raises HeadgateError when it refuses or is not there."""
        reply = ask(contact_of(str(self.folder / "state")), Request(name, arguments), answer_s)
        if reply.error:
            raise HeadgateError(reply.error[2])
        return reply.data

    def wait_for_rows(self, timeout_s: float = 30.0, more: int = 0) -> float:
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
            {"name": "source", "kind": "source", "run": f"{tasks}.counter:Counter", "static": static},
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
