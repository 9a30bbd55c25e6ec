"""What a controller is handed of the prediction ledger when it starts."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from test_ledger_file import entry

from headgate.controller.cli import ledger_of
from headgate.controller.knowledge.corrections import version_of
from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.knowledge.records import Submitted
from headgate.controller.recording.ledger_file import LEARNED_FROM, LedgerFile
from headgate.topology_runtime.topology import Task, Topology

MODEL = Model("work", ModelSlot(), (Point(1, 100.0, 0.5, 0.1),))
SUBMITTED = Submitted(Topology("line", (Task("work"),), ()), (MODEL,), ((0.0, 1.0),), 0.0, (), 0)


def test_it_is_what_speaks_of_its_models_and_what_is_spoiled_is_told(tmp_path: Path) -> None:
    ledger = LedgerFile(tmp_path / "line" / "ledger.jsonl")
    (tmp_path / "line").mkdir()
    for run in range(LEARNED_FROM + 5):
        found = entry(run=f"r{run}")
        ledger.append(replace(found, tasks=(replace(found.tasks[0], version=version_of(MODEL)),)))
    ledger.append(entry(run="of another version"))
    with open(tmp_path / "line" / "ledger.jsonl", "ab") as file:
        file.write(b"torn\n" * 5)
    given = ledger_of(tmp_path / "line" / "run", SUBMITTED)
    assert [one.run for one in given["ledger"]] == [f"r{run}" for run in range(5, LEARNED_FROM + 5)]
    assert given["ledger_trouble"].count("no entry") == 3 and given["ledger_trouble"].endswith(" …")


def test_without_a_trace_a_topology_or_a_ledger_there_is_none(tmp_path: Path) -> None:
    assert ledger_of(None, SUBMITTED) == ledger_of(tmp_path / "line" / "run", None) == {}
    assert ledger_of(tmp_path / "line" / "run", SUBMITTED) == {"ledger": (), "ledger_trouble": ""}
