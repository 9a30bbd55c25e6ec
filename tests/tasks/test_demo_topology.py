"""The demo's topology: valid, plain, and its tasks fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.loading import build
from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.tasks import demo
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.validate import faults_of

SENML = '1,{"e":[{"n":"source","sv":"s1","u":"string"},{"n":"dust","v":"4.5","u":"per"}],"bt":1}\n'


def topology(input: str | None = None, slot_cores: float = 0.12) -> Topology:
    return demo.topology("127.0.0.1:7000", input, "archive", slot_cores)


@pytest.mark.parametrize("input", [None, "events.csv"])
@pytest.mark.parametrize("slot_cores", [0.05, 0.12, 1.0])
def test_is_valid_and_survives_json(input: str | None, slot_cores: float) -> None:
    made = topology(input, slot_cores)
    assert faults_of(made) == []
    assert msgspec.json.decode(msgspec.json.encode(made), type=Topology) == made
    assert [task.name for task in made.tasks if task.static] == ["events", "archive"]


def test_every_event_reaches_the_archive_once() -> None:
    rates = topology().rates(100.0)
    assert rates == {
        "events": 100.0,
        "parse": 100.0,
        "score": 100.0,
        "lookup": 100.0,
        "join": 200.0,
        "tag": 100.0,
        "archive": 100.0,
    }


@pytest.mark.parametrize("live", [True, False])
def test_events_flow_from_the_source_to_a_file(tmp_path: Path, live: bool) -> None:
    """Every task but the look-up, whose answers are put in, on a few real events."""
    (tmp_path / "events.csv").write_text(SENML * 3)
    made = demo.topology("127.0.0.1:1", None if live else str(tmp_path / "events.csv"), str(tmp_path / "out"))
    tasks: dict[str, Any] = {task.name: build(task) for task in made.tasks}
    for name in ("events", "archive"):
        tasks[name].open(Context(name, 1, 0, 1, str(tmp_path)))
    source = tasks["events"]
    events = source.poll(3) if live else source.read(0, 3)
    rows = [tasks["score"](tasks["parse"](event)) for event in events]
    for row in rows:
        weight = {"id": row["id"], "weight": 7}
        assert tasks["join"].ready(row["id"], [row, weight])
        (united,) = tasks["join"].finish(row["id"], [row, weight])
        tasks["archive"].finish(None, [tasks["tag"](united)])
    if not live:
        source.close()
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    written = [msgspec.json.decode(line) for line in lines]
    assert {row["id"] for row in written} == {name for name, _ in events} and len(events) == 3
    assert all(row["level"] in ("low", "medium", "high") and row["weight"] == 7 for row in written)
