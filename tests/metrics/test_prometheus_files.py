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
from scraped_metrics import ROOT, names, needs_promtool

from headgate.dashboards.up.up_session import file_of, metrics_option, port_of, targets, write_targets
from makers import grafana_boards

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


def test_the_boards_are_those_that_the_script_makes():
    assert set(BOARDS) == {"overview.json", "slots.json", "fidelity.json"}
    assert len({board["uid"] for board in BOARDS.values()}) == 3
    for name, text in grafana_boards.boards().items():
        assert (GRAFANA / "boards" / name).read_text("utf-8") == text, "run scripts/makers/grafana_boards.py"


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
        "headgate_run_info",
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
    source = yaml.safe_load((GRAFANA / "datasource.yaml").read_text())
    boards = yaml.safe_load((GRAFANA / "board_provider.yaml").read_text())
    assert source["apiVersion"] == boards["apiVersion"] == 1
    assert [(one["type"], one["isDefault"]) for one in source["datasources"]] == [("prometheus", True)]
    assert [one["type"] for one in boards["providers"]] == ["file"]
    assert boards["providers"][0]["options"]["path"].startswith("/")


# ── Prometheus's configuration and alert rules, judged by promtool ──────────────────────────────────────

FOLDER = ROOT / "dashboards" / "prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]


@needs_promtool
@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")], ids="_".join
)
def test_promtool_is_content(words):
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_exists_and_says_what_to_do(rule):
    assert set(re.findall(r"\b(?:headgate_\w+|up)\b", rule["expr"])) - {"up"} <= names()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".") and rule["annotations"]["description"].endswith(".")


def test_every_alert_is_seen_firing_in_the_rules_own_tests():
    tests = (FOLDER / "alerts_test.yml").read_text("utf-8")
    assert [rule["alert"] for rule in RULES if rule["alert"] not in tests] == []


# ── Where Prometheus finds the processes of a run of `up` ───────────────────────────────────────────────


def test_vms_have_the_ports_after_the_controllers():
    assert [port_of(9400, vm) for vm in ("vm1", "vm2", "vm12")] == [9401, 9402, 9412]
    assert metrics_option(9400, "vm3") == ["--metrics-port", "9403"]
    none = [metrics_option(65000, vm) for vm in ("vm", "vm0", "vm9999")] + [metrics_option(None, "vm1")]
    assert none == [[]] * 4, "no such port, and nobody asked"


def test_prometheus_reads_who_is_there(tmp_path: Path):
    state = tmp_path / "run"
    write_targets(state, 9400, ["vm2", "vm1"])
    write_targets(state, 9400, ["vm2", "vm1", "odd"])
    found = json.loads(file_of(state).read_text())
    assert found == targets(9400, ["vm1", "vm2"])
    assert [(one["targets"], one["labels"]) for one in found] == [
        (["127.0.0.1:9400"], {"role": "controller"}),
        (["127.0.0.1:9401", "127.0.0.1:9402"], {"role": "agent"}),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["run.targets.json"]
