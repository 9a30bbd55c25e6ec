"""`headgate topology validate|show|dot`, as the command line calls them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.topology_runtime.commands import topology_cli
from headgate.topology_runtime.errors import InvalidInput

STAR = {
    "name": "star",
    "tasks": [
        {"name": "source", "kind": "source", "static": {"threads": 1, "cpu": 0.1, "memory": 0.15}},
        {"name": "hub", "model": "pi"},
        {"name": "left"},
        {"name": "right", "state": "keyed"},
    ],
    "edges": [
        {"from": "source", "to": "hub", "selectivity": 2},
        {"from": "hub", "to": "left", "grouping": "all"},
        {"from": "hub", "to": "right", "selectivity": 0.5, "grouping": "fields", "key": 'odd "key"\\'},
    ],
}


@pytest.fixture
def star(tmp_path: Path) -> str:
    path = tmp_path / "star.json"
    path.write_text(json.dumps(STAR))
    return str(path)


def out(command: str, *arguments: str) -> str:
    result = CliRunner().invoke(getattr(topology_cli, command), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_valid_topology(star: str) -> None:
    assert out("validate", star) == "star: valid, 4 tasks, 3 edges\n"
    document: dict[str, Any] = json.loads(out("validate", star, "-o", "json"))
    assert document["schema"] == "headgate/validation/v1"
    assert (document["valid"], document["sources"], document["sinks"]) == (
        True,
        ["source"],
        ["left", "right"],
    )


def test_secrets_that_cannot_be_read_here_are_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "star.json"
    tasks = [{**STAR["tasks"][0], "params": {"x": ["${FILE:/no/such}"]}}, *STAR["tasks"][1:]]  # type: ignore[index]
    path.write_text(json.dumps({**STAR, "tasks": tasks}))
    assert "\nhere, cannot read ${FILE:/no/such}: No such file" in out("validate", str(path))
    assert len(json.loads(out("validate", str(path), "-o", "json"))["unreadable_here"]) == 1


def test_an_invalid_topology_ends_with_all_faults_and_exit_3(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**STAR, "name": "", "edges": STAR["edges"][1:]}))  # type: ignore[index]
    result = CliRunner().invoke(topology_cli.validate, [str(path)])
    assert isinstance(result.exception, InvalidInput)
    assert result.exception.exit_code == 3
    assert len(result.exception.faults) == 2
    assert result.stdout == ""


def test_show_gives_rates_at_the_rate(star: str) -> None:
    document = json.loads(out("show", star, "--rate", "50", "-o", "json"))
    rates = {task["task"]: task["rate_tps"] for task in document["tasks"]}
    assert rates == {"source": 50.0, "hub": 100.0, "left": 100.0, "right": 50.0}
    assert [edge["rate_tps"] for edge in document["edges"]] == [100.0, 100.0, 50.0]
    assert document["tasks"][1]["model"] == "pi"
    assert document["tasks"][0]["model"] is None


def test_show_as_rows(star: str) -> None:
    rows = list(csv.DictReader(io.StringIO(out("show", star, "-o", "csv"))))
    lines = [json.loads(line) for line in out("show", star, "-o", "jsonl").splitlines()]
    assert [row["task"] for row in rows] == ["source", "hub", "left", "right"]
    assert [row["task"] for row in lines] == ["source", "hub", "left", "right"]


def test_show_as_a_table(star: str) -> None:
    text = out("show", star, "--rate", "1500")
    assert "star at 1500 rows/s" in text
    assert "3,000" in text


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "many"])
def test_a_rate_that_is_none(star: str, rate: str) -> None:
    assert CliRunner().invoke(topology_cli.show, [star, "--rate", rate]).exit_code == 2


def test_dot(star: str) -> None:
    assert out("dot", star).splitlines() == [
        'digraph "star" {',
        "  rankdir=LR;",
        "  node [shape=ellipse];",
        '  "source" [shape=box];',
        '  "hub";',
        '  "left" [shape=box];',
        '  "right" [shape=box];',
        '  "source" -> "hub" [label="× 2"];',
        '  "hub" -> "left" [label="all"];',
        '  "hub" -> "right" [label="fields odd \\"key\\"\\\\, × 0.5"];',
        "}",
    ]
