"""The boards in dashboards/grafana: their shape, and that what they ask for exists."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from told import ROOT, names, needs_promtool

import grafana_boards

GRAFANA = ROOT / "dashboards" / "grafana"
BOARDS = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(GRAFANA.glob("boards/*.json"))}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OTHERS = {"up"}  # series that Prometheus makes itself
PLAIN = {"$__rate_interval": "1m", "$__range": "15m", "$controller": ".*"}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return list(board["panels"])


def expressions(board: dict[str, Any]) -> Iterator[str]:
    """What the board asks for, its variables filled in."""
    marks = [mark["expr"] for mark in board["annotations"]["list"]]
    for text in [target["expr"] for panel in panels(board) for target in panel["targets"]] + marks:
        for name, value in PLAIN.items():
            text = text.replace(name, value)
        yield text


def test_there_are_three_boards():
    assert set(BOARDS) == {"overview.json", "slots.json", "fidelity.json"}
    assert len({board["uid"] for board in BOARDS.values()}) == 3


def test_the_boards_are_those_that_the_script_makes():
    for name, text in grafana_boards.boards().items():
        assert (GRAFANA / "boards" / name).read_text("utf-8") == text, "run scripts/grafana_boards.py"


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_asks_the_source_that_was_chosen(name):
    variables = {variable["name"]: variable for variable in BOARDS[name]["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for panel in panels(BOARDS[name]):
        assert panel["datasource"] == SOURCE, panel["title"]
        assert panel["targets"] and all(target["datasource"] == SOURCE for target in panel["targets"])
    for mark in BOARDS[name]["annotations"]["list"]:
        assert mark["datasource"] == SOURCE


@pytest.mark.parametrize("name", BOARDS)
def test_panels_say_what_they_show_and_do_not_overlap(name):
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in panels(BOARDS[name])]
    assert len(set(ids)) == len(ids)
    for panel in panels(BOARDS[name]):
        assert panel["title"] and panel["description"] and panel["type"] in ("stat", "timeseries")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", BOARDS)
def test_only_metrics_that_exist_are_asked_for(name):
    asked = {
        word for text in expressions(BOARDS[name]) for word in re.findall(r"\b(?:headgate_\w+|up)\b", text)
    }
    assert asked
    assert asked - OTHERS <= names()


def test_every_metric_of_the_contract_is_on_a_board():
    asked = " ".join(text for board in BOARDS.values() for text in expressions(board))
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names()}
    absent = {name for name in shown if name not in asked} - {
        "headgate_agent_slots",
        "headgate_agent_blocks_total",
    }
    assert absent == set()


@needs_promtool
def test_every_expression_can_be_parsed(tmp_path: Path):
    rules = [
        {"record": f"panel_{n}", "expr": text}
        for n, text in enumerate(text for board in BOARDS.values() for text in expressions(board))
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_provisioning_names_a_prometheus_and_a_folder_of_boards():
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yaml").read_text())
    boards = yaml.safe_load((GRAFANA / "provisioning/dashboards/headgate.yaml").read_text())
    assert source["apiVersion"] == boards["apiVersion"] == 1
    assert [(one["type"], one["isDefault"]) for one in source["datasources"]] == [("prometheus", True)]
    assert [one["type"] for one in boards["providers"]] == ["file"]
    assert boards["providers"][0]["options"]["path"].startswith("/")
