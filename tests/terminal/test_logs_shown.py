"""`headgate logs` of a run that is over, and what a console shows of a run that goes on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headgate.dashboards.runs.task_lines import ConsoleLines
from headgate.dashboards.terminal.logs_command import logs
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wire.output_messages import SaidLine, record

NS = 1_000_000_000


def line(number: int, text: str, task: str | None = "parse", level: str = "out") -> dict[str, Any]:
    return {"number": number, "time": f"2026-01-01T00:{number:02}:00.500000Z", "vm": "vm1", "slot": 0, "task": task,
            "thread": 3 if task else None, "level": level, "text": text}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with its lines in two parts, the last one torn."""
    folder = tmp_path / "traces" / "flow" / "run"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"topology": {"tasks": [{"name": "parse"}, {"name": "mean"}]}})
    )
    with gzip.open(folder / "output-000001.jsonl.gz", "wt") as file:
        file.write(json.dumps(line(1, "first")) + "\n" + json.dumps(line(2, "from C", None, "err")) + "\n")
    rows = json.dumps(line(8, "low \x1b[2J", level="warning")) + "\n" + json.dumps(line(9, "last")) + "\n"
    (folder / "output.jsonl").write_text(rows + '{"number": 10, "ti')
    monkeypatch.chdir(tmp_path)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(logs, words, catch_exceptions=False)


def shown(*words: str) -> list[str]:
    return [row.partition("  ")[2] for row in run(*words).stdout.splitlines()]


def test_lines_have_their_thread_or_slot_in_front_and_nothing_moves_the_cursor(trace: Path) -> None:
    assert shown("--trace", str(trace)) == [
        "parse/3 | first", "vm1/0 | from C", "parse/3 | warning: low \\x1b[2J", "parse/3 | last",
    ]  # fmt: skip


def test_a_task_a_slot_a_span_before_the_end_and_a_number_of_lines(trace: Path) -> None:
    words = ("--trace", str(trace))
    assert len(shown("parse", *words)) == 3 and len(shown("vm1/0", *words)) == 4
    assert shown("--since", "90s", *words) == ["parse/3 | warning: low \\x1b[2J", "parse/3 | last"]
    assert shown("--since", "2026-01-01T00:09:00Z", *words) == ["parse/3 | last"]
    assert shown("--last", "1", *words) == ["parse/3 | last"]
    assert shown("mean", *words) == []


def test_as_data_a_line_is_as_it_was_said(trace: Path) -> None:
    document = json.loads(run("--trace", str(trace), "-o", "json").stdout)
    assert document["schema"] == "headgate/logs/v1" and document["run"] == "run"
    assert document["lines"][2] == line(8, "low \x1b[2J", level="warning")


def test_a_run_that_failed_before_its_lines_were_passed_on_has_those_of_its_slots(trace: Path) -> None:
    for file in trace.glob("output*"):
        file.unlink()
    assert shown("--trace", str(trace)) == []
    logs = Path(".headgate") / trace.name / "agents" / "vm2" / "logs"
    logs.mkdir(parents=True)
    said = record(SaidLine(1_767_225_600_000_000_000, "parse", 3, "err", "no database"))
    (logs / "worker-1.log").write_bytes(b"from C\n" + said)
    assert sorted(shown("--trace", str(trace))) == ["parse/3 | no database", "vm2/1 | from C"]
    assert shown("parse", "--trace", str(trace)) == ["parse/3 | no database"]


def test_what_is_wrong_is_said(trace: Path) -> None:
    with pytest.raises(UsageError, match="'pars'; did you mean 'parse'"):
        run("pars", "--trace", str(trace))
    with pytest.raises(UsageError, match="'soon' is neither a span nor a time"):
        run("--since", "soon", "--trace", str(trace))
    with pytest.raises(UsageError, match="-f needs a run that goes on"):
        run("-f", "--trace", str(trace))
    with pytest.raises(InvalidInput, match="is no trace of a run"):
        run("--trace", "traces")


def test_a_console_shows_some_lines_a_second_and_counts_the_rest() -> None:
    console = ConsoleLines()
    flood = [line(1, f"row {number}") for number in range(12_000)]
    first = console.shown([*flood, line(2, "… 345 lines more", level="dropped")], 10**6 * NS)
    assert first[0] == "parse/3 | row 0"
    assert first[-1] == f"… {12_345 - len(first) + 1:,} lines more: headgate logs"
    assert len(first) <= 201
    assert console.shown([], (10**6 + 5) * NS) == []
    assert console.shown([line(3, "calm again")], (10**6 + 6) * NS) == ["parse/3 | calm again"]
