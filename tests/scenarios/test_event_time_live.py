"""Counts of ten seconds of event time while workers and controllers are killed and key ranges move: what a batch gives,
each once by its name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from patience import until
from timed_tasks import LATENESS_S, PARTITIONS, batch

from benchmarks.live_runs.bench_replan import command
from headgate.topology_runtime.errors import HeadgateError
from watched_runs.trials import Trial

pytestmark = pytest.mark.live
HERE = Path(__file__).parent
ROWS = 1800  # of each partition
STATIC = {"threads": 1, "cpu": 0.1, "memory": 0.1}


class Timely(Trial):
    """`headgate up` of a source with timestamps, a task with timers, and a sink that keeps names, on three VMs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "60", 600, ["--vms", "3,3,3"])

    def _write_topology(self) -> None:
        lines = self.folder.resolve() / "lines.txt"
        times = {"at": 2, "lateness": LATENESS_S}
        topology = {
            "schema": "headgate/topology/v1",
            "name": "timely",
            "tasks": [
                {
                    "name": "source",
                    "kind": "source",
                    "run": "timed_tasks:Happenings",
                    "params": {"rows": ROWS},
                }
                | {"static": {**STATIC, "threads": PARTITIONS}, "timestamps": times},
                {"name": "pass", "run": "timed_tasks:passed"},
                {"name": "tens", "run": "timed_tasks:PerTenSeconds"},
                {"name": "lines", "run": "timed_tasks:NamedLines", "params": {"path": str(lines)}}
                | {"static": STATIC},
            ],
            "edges": [
                {"from": "source", "to": "pass"},
                {"from": "pass", "to": "tens", "grouping": "fields", "key": 0},
                {"from": "tens", "to": "lines", "selectivity": 0.1, "grouping": "global"},
            ],
        }
        (self.folder / "topology.json").write_text(json.dumps(topology))
        (self.folder / "timed_tasks.py").write_text((HERE / "timed_tasks.py").read_text())
        (self.folder / "models").mkdir()
        for task, rate in (("pass", 400.0), ("tens", 50.0)):  # one slot carries 50/s: more rate, more owners
            point = {"threads": 1, "rate_tps": rate, "cpu": 0.9, "memory": 0.05}
            slot = {"cores": 0.12, "memory_bytes": 536870912, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": [point]}
            (self.folder / "models" / f"{task}.json").write_text(json.dumps(model))

    def lines(self) -> list[list[Any]]:
        path = self.folder / "lines.txt"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def more(self, count: int) -> None:
        """So many more rows reach the sink."""
        before = len(self.lines())
        until(lambda: len(self.lines()) >= before + count, self.log, self.process)

    def moves(self) -> None:
        """A plan for another rate than now, with key ranges in other threads, is under way. (Which plan is in force is
        not known: a controller that is killed while it brings one into force may go back.)"""

        def applied() -> bool:
            try:
                status = command(self, "status")
                if status["plan"] is None or status["stage"] not in ("committed", "probation"):
                    return False
                rate_tps = 60.0 if status["plan"]["rate_tps"] > 100.0 else 140.0
                command(self, "apply", id=command(self, "plan", rate_tps=rate_tps, propose=True)["id"])
            except (HeadgateError, RuntimeError):  # the controller was killed, or is not ready yet
                return False
            return True

        until(applied, self.log, self.process)


def test_timers_give_what_a_batch_gives_under_kills_and_moves(tmp_path: Path) -> None:
    run = Timely(tmp_path)
    try:
        run.more(20)
        run.kill("worker")
        run.more(20)
        run.moves()
        run.kill("worker", 0)
        run.more(30)
        run.kill("controller")
        run.more(30)
        run.moves()
        run.kill("worker")
        run.more(20)
        summary = run.finish()
    finally:
        run.end()
    named: dict[str, tuple[int, int, int]] = {}
    for name, *row in run.lines():
        assert named.setdefault(name, tuple(row)) == tuple(row), f"{name} is two rows"
    assert Counter(named.values()) == batch(ROWS)
    assert summary["state"]["lost_ranges"] == 0 and summary["tuples"]["lost"] == 0
    assert len(summary["plans"]) >= 2, summary["plans"]
