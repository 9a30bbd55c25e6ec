"""Every decision is replayable: the recorded inputs of a real run give the same decisions (promise P10)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from trials import trial

from controller.config import Settings
from controller.knowledge import turns as t
from controller.knowledge.model_files import model_of
from controller.knowledge.records import Submitted
from controller.loop import Loop
from topology_runtime.topology import Topology

pytestmark = pytest.mark.live


class Line(msgspec.Struct):
    now_ns: t.Now
    kind: str
    event: t.Event


def loop_of(run: dict[str, Any]) -> Loop:
    """A controller as it was when the run began."""
    topology = msgspec.convert(run["topology"], Topology)
    models = tuple(found for model in run["models"] if (found := model_of(model)[0]) is not None)
    steps = tuple((at, rate) for at, rate in run["schedule"]["steps"])
    submitted = Submitted(topology, models, steps, run["schedule"]["period_s"], (), 0)
    return Loop(msgspec.convert(run["settings"], Settings), submitted)


def decisions_again(trace: Path) -> list[dict[str, Any]]:
    loop = loop_of(json.loads((trace / "run.json").read_text()))
    decoder = msgspec.json.Decoder(Line)
    found: list[dict[str, Any]] = []
    for text in (trace / "inputs.jsonl").read_bytes().splitlines():
        line = decoder.decode(text)
        for instruction in loop.step(line.event, line.now_ns):
            if isinstance(instruction, t.Trace) and instruction.kind == "decision":
                found.append(json.loads(msgspec.json.encode(instruction.data)))
    return found


def test_recorded_inputs_give_the_same_decisions(tmp_path: Path) -> None:
    (tmp_path / "steps.txt").write_text("0,30\n6,90\n")
    with trial(tmp_path, "steps.txt", 14, ["--vms", "4,4"]) as running:
        summary = running.finish()
    trace = tmp_path / "traces" / "trial" / summary["run"]
    recorded = [json.loads(text) for text in (trace / "decisions.jsonl").read_text().splitlines()]
    assert {decision["action"] for decision in recorded} >= {"none", "plan"}
    assert decisions_again(trace) == recorded
