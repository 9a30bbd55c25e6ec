"""How many rows a sink got twice: what the summary tells against the sink's own file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from watched_runs.trials import Trial

pytestmark = pytest.mark.live
KILLS = 2
SLOW_SINK = """
import time
from headgate.topology_runtime.tasks.collect_to_file import CollectToFile

class Slow(CollectToFile):
    def __call__(self, row):
        super().__call__(row)
        time.sleep(0.005)
"""


class OneSlot(Trial):
    """Source and sink in one slot; the sink is at a row most of the time."""

    def _write_topology(self) -> None:
        (self.folder / "slow_sink.py").write_text(SLOW_SINK)
        static = {"threads": 1, "cpu": 0.1, "memory": 0.1}
        source = {
            "name": "source",
            "kind": "source",
            "run": "headgate.topology_runtime.tasks.counter:Counter",
        }
        store = {
            "name": "store",
            "run": "slow_sink:Slow",
            "params": {"path": str(self.folder / "stored.txt")},
        }
        topology = {
            "schema": "headgate/topology/v1",
            "name": "trial",
            "edges": [{"from": "source", "to": "store"}],
        }
        topology["tasks"] = [source | {"static": static}, store | {"static": static}]
        (self.folder / "topology.json").write_text(json.dumps(topology))
        (self.folder / "models").mkdir()


def test_what_a_killed_slot_did_twice_is_counted_to_the_row(tmp_path: Path) -> None:
    running = OneSlot(tmp_path, "150", 12, ["--vms", "1", "--max-vms", "1"])
    try:
        for _ in range(KILLS):
            running.wait_for_tuples(more_than=len(running.stored()) + 200)
            running.kill("worker")
        tuples = running.finish()["tuples"]
    finally:
        running.end()
    assert running.missing(tuples["emitted"]) == []
    assert not running.miscounted(tuples)
    assert tuples["finished_dropped"] <= KILLS, "a slow sink logs row by row"
    assert tuples["duplicates_exact"] == (tuples["finished_dropped"] == 0)
