"""Traces that cannot be replayed are refused with file, line and reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import moments, write

from headgate.controller.replaying.exact_replay import Moment
from headgate.controller.replaying.trace_reading import Recording
from headgate.topology_runtime.errors import InvalidInput


@pytest.fixture(scope="module")
def found() -> list[Moment]:
    return moments(2.0)


@pytest.fixture
def trace(tmp_path: Path, found: list[Moment]) -> Path:
    return write(tmp_path, found)


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        list(Recording(folder).lines())
    return "\n".join(caught.value.lines())


def run_with(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    run = json.loads((folder / "run.json").read_text())
    change(run)
    (folder / "run.json").write_text(json.dumps(run))


@pytest.mark.parametrize("name", ["run.json", "inputs.jsonl", "decisions.jsonl"])
def test_a_missing_file_is_named(trace: Path, name: str) -> None:
    (trace / name).unlink()
    assert f"{name}: No such file" in refusal(trace)


def test_a_folder_that_is_no_trace_says_which_to_name(tmp_path: Path) -> None:
    assert "name the folder of one run" in refusal(tmp_path / "nowhere")


def test_a_newer_trace_and_a_foreign_one_are_told_apart(trace: Path) -> None:
    run_with(trace, lambda run: run.update(schema="headgate/trace/v7"))
    assert "of a newer headgate" in refusal(trace) and "headgate/trace/v7" in refusal(trace)
    run_with(trace, lambda run: run.update(schema="storm/trace/v1"))
    assert "no trace of headgate" in refusal(trace)
    (trace / "run.json").write_text("[1]")
    assert "no trace of headgate" in refusal(trace)


def test_every_fault_of_the_run_is_listed(trace: Path) -> None:
    def spoil(run: dict[str, Any]) -> None:
        run["settings"]["headroom"] = "much"
        run["models"][0]["points"] = []
        del run["topology"]

    run_with(trace, spoil)
    text = refusal(trace)
    assert "settings: " in text and "headroom" in text
    assert "models[0].points" in text and "topology: is missing" in text


@pytest.mark.parametrize("name", ["inputs.jsonl", "decisions.jsonl"])
@pytest.mark.parametrize("less", [1, 20])
def test_a_half_written_last_line_is_left_out(trace: Path, name: str, less: int) -> None:
    whole = Recording(trace)
    inputs, decisions = list(whole.lines()), whole.decisions
    (trace / name).write_bytes((trace / name).read_bytes()[:-less])
    torn = Recording(trace)
    assert whole.torn == [] and torn.torn == [name]
    assert list(torn.lines()) == (inputs[:-1] if name == "inputs.jsonl" else inputs)
    assert torn.decisions == (decisions[:-1] if name == "decisions.jsonl" else decisions)


def test_half_a_line_that_others_follow_is_refused(trace: Path) -> None:
    data = (trace / "inputs.jsonl").read_bytes()
    (trace / "inputs-000001.jsonl").write_bytes(data[:5000])
    (trace / "inputs.jsonl").write_bytes(data[5000:])
    assert "inputs-000001.jsonl ends in half a line, but inputs.jsonl goes on" in refusal(trace)


def test_a_part_that_is_spoiled_is_refused_by_name(trace: Path) -> None:
    packed = gzip.compress((trace / "inputs.jsonl").read_bytes())
    (trace / "inputs.jsonl").write_bytes(b"")
    for data in (packed[:-30], b"no gzip at all", packed[:2000] + b"xxxx" + packed[2004:]):
        (trace / "inputs-000001.jsonl.gz").write_bytes(data)
        assert "inputs-000001.jsonl.gz" in refusal(trace)


def test_a_fault_in_a_part_is_named_by_the_line_of_that_part(trace: Path) -> None:
    lines = (trace / "inputs.jsonl").read_bytes().splitlines(keepends=True)
    (trace / "inputs-000001.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:10])))
    (trace / "inputs.jsonl").write_bytes(b"".join((lines[10], b"{}\n", *lines[11:])))
    assert "inputs.jsonl: line 2 is no input" in refusal(trace)


def test_a_run_whose_first_parts_are_gone_is_refused(trace: Path) -> None:
    data = (trace / "inputs.jsonl").read_bytes()
    (trace / "inputs.jsonl").rename(trace / "inputs-000003.jsonl")
    (trace / "inputs.jsonl").write_bytes(data)
    assert "its beginning is gone" in refusal(trace) and "the first 2 parts" in refusal(trace)


def test_a_line_broken_in_the_middle_is_refused_with_its_number(trace: Path) -> None:
    path = trace / "inputs.jsonl"
    lines = path.read_bytes().splitlines()
    lines[7] = lines[7][:30]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert "line 8 is torn or no JSON" in refusal(trace)
    lines[7] = b'{"now_ns":[1,2],"kind":"tick","event":{"type":"tock"}}'
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert "line 8 is no input" in refusal(trace) and "tock" in refusal(trace)


def test_a_foreign_decision_is_refused_with_its_line(trace: Path) -> None:
    path = trace / "decisions.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({"schema": "headgate/decision/v9"})
    path.write_text("\n".join(lines) + "\n")
    assert "line 2: schema" in refusal(trace)


def test_a_clock_that_jumps_back_is_refused_where_it_does(trace: Path) -> None:
    path = trace / "inputs.jsonl"
    lines = path.read_text().splitlines()
    line = json.loads(lines[9])
    line["now_ns"][0] -= 5_000_000_000
    lines[9] = json.dumps(line)
    path.write_text("\n".join(lines) + "\n")
    assert "line 10: the monotonic clock jumps back by" in refusal(trace)


def test_inputs_without_their_beginning_are_refused(trace: Path) -> None:
    path = trace / "inputs.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]) + "\n")
    assert "not the start of a controller" in refusal(trace)
    path.write_text("")
    assert "holds no inputs" in refusal(trace)
