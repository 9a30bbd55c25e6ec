"""User code that fails outside a row, or in ways that end programs, costs its own row or thread, by name, and never the
run: it is tried again until it works."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import until

from benchmarks.live_runs.bench_replan import command
from watched_runs.trials import Trial

pytestmark = pytest.mark.live
HERE = Path(__file__).parent
TASKS = "headgate.topology_runtime.tasks"
STATIC = {"threads": 1, "cpu": 0.1, "memory": 0.1}
MORE = 200  # rows at the sink: the run goes on


class Failing(Trial):
    """`headgate up` of a keyed task that fails while a file says so."""

    def __init__(self, folder: Path, tally: str) -> None:
        self.tally = tally
        super().__init__(folder, "60", 600, ["--vms", "2,2"])

    def _write_topology(self) -> None:
        tasks: list[dict[str, Any]] = [
            {"name": "source", "kind": "source", "run": f"{TASKS}.row_sources:Counter", "static": STATIC},
            {"name": "group", "run": "failing_tasks:group"},
            {"name": "tally", "kind": "keyed", "state": "keyed", "run": f"failing_tasks:{self.tally}"},
            {"name": "store", "run": f"{TASKS}.sinks:CollectToFile", "static": STATIC}
            | {"params": {"path": str(self.folder / "stored.txt")}},
        ]
        edges: list[dict[str, Any]] = [
            {"from": "source", "to": "group"},
            {"from": "group", "to": "tally", "grouping": "fields", "key": 0},
            {"from": "tally", "to": "store"},
        ]
        topology = {"schema": "headgate/topology/v1", "name": "failing", "tasks": tasks, "edges": edges}
        (self.folder / "topology.json").write_text(json.dumps(topology))
        (self.folder / "failing_tasks.py").write_text((HERE / "failing_tasks.py").read_text())
        (self.folder / "models").mkdir()
        for task in ("group", "tally"):
            point = {"threads": 1, "rate_tps": 400.0, "cpu": 0.9, "memory": 0.05}
            slot = {"cores": 0.12, "memory_bytes": 536870912, "machine": "any"}
            model = {"schema": "headgate/model/v1", "task": task, "slot": slot, "points": [point]}
            (self.folder / "models" / f"{task}.json").write_text(json.dumps(model))

    def lines(self) -> list[str]:
        path = self.folder / "stored.txt"
        return path.read_text().splitlines() if path.exists() else []

    def more(self, rows: int = MORE) -> None:
        least = len(self.lines()) + rows
        until(lambda: len(self.lines()) >= least, self.log, self.process)

    def alarms(self) -> str:
        return json.dumps(command(self, "status")["alarms"])

    def counted(self) -> Counter[tuple[int, int]]:
        return Counter(tuple(json.loads(line)) for line in self.lines())

    def ended(self) -> dict[str, Any]:
        self.end()
        return self.finish()


def letters_of(run: Failing) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command(run, "status")["dead_letters"]
    return found


@contextmanager
def failing(folder: Path, tally: str) -> Iterator[Failing]:
    run = Failing(folder, tally)
    try:
        until(run.lines, run.log, run.process)
        yield run
    finally:
        run.end()


@pytest.mark.parametrize("what", ["open", "restore"])
def test_what_a_thread_needs_is_away_while_its_worker_starts_again(what: str, tmp_path: Path) -> None:
    with failing(tmp_path, "Tally") as run:
        run.more()
        (tmp_path / "away").write_text(what)
        for _ in run.pids("worker"):
            run.kill("worker", 0)
        until(lambda: f"no database for {what}" in run.alarms(), run.log, run.process)
        told = run.alarms()
        (tmp_path / "away").unlink()
        run.more()
        until(lambda: "no database" not in run.alarms(), run.log, run.process)
        summary = run.ended()
    assert "of tally on vm" in told and "failing_tasks.py:" in told and "ConnectionError" in told
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["dead_lettered"], tuples["in_flight"]) == (0, 0, 0)
    assert summary["state"]["lost_ranges"] == 0
    seen = run.counted()
    assert {(g, n) for g in range(20) for n in range(1, len(range(g, tuples["emitted"], 20)) + 1)} == set(
        seen
    )


def test_code_that_ends_programs_or_spoils_its_state_costs_its_own_rows(tmp_path: Path) -> None:
    with failing(tmp_path, "Spoilt") as run:
        until(lambda: len(letters_of(run)) >= 3, run.log, run.process)
        run.more(2 * MORE)
        letters = letters_of(run)
        summary = run.ended()
    assert sorted(letter["position"] for letter in letters) == [300, 340, 380]
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["dead_lettered"], tuples["in_flight"]) == (0, 3, 0)
