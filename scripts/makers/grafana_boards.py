"""Writes the boards in dashboards/grafana/boards; change them here, not there.

    .venv/bin/python scripts/makers/grafana_boards.py

Three boards: overview (rate, errors, duration), slots and VMs (utilisation, saturation, errors), model
fidelity and re-plans. Every panel asks the source chosen in `datasource` about the `controller` chosen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BOARDS = Path(__file__).resolve().parents[2] / "dashboards" / "grafana" / "boards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = '{instance=~"$controller"}'
MEASURED = '{instance=~"$controller",source="measured"}'
PREDICTED = '{instance=~"$controller",source="predicted"}'
WIDTH, HEIGHT = 8, 8  # of a panel: three in a row of 24 columns
BLUE, AMBER, RED = "blue", "#E0A000", "dark-red"  # told apart by everyone; a word stands beside each

Panel = dict[str, Any]
Series = tuple[str, str]  # expression, legend


def panel(title: str, about: str, series: Sequence[Series], unit: str = "short", **options: Any) -> Panel:
    """A chart over time."""
    targets = [
        {"refId": chr(ord("A") + n), "expr": expression, "legendFormat": legend, "datasource": SOURCE}
        for n, (expression, legend) in enumerate(series)
    ]
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {
            "defaults": {"unit": unit, "custom": {"lineWidth": 2, "showPoints": "never"}, **options},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }


def figure(title: str, about: str, expression: str, unit: str = "short", **options: Any) -> Panel:
    """One number, the newest."""
    made = panel(title, about, [(expression, "")], unit, **{"noValue": "N/A", **options})
    for target in made["targets"]:
        target["instant"] = True
    made["type"] = "stat"
    made["fieldConfig"]["defaults"].pop("custom")
    made["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
    }
    return made


def steps(*found: tuple[float | None, str]) -> dict[str, Any]:
    """From each value on, this colour."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in found]}


def words(**meaning: tuple[str, str]) -> list[dict[str, Any]]:
    """value=(word, colour), the values written n0, n1, …"""
    options = {
        value[1:]: {"text": text, "color": color, "index": n}
        for n, (value, (text, color)) in enumerate(meaning.items())
    }
    return [{"type": "value", "options": options}]


def quantiles(metric: str, by: str = "") -> list[Series]:
    """p50, p95, p99 of a histogram; by a label: p95 and p99 of each."""
    labels = f"le, {by}" if by else "le"
    inner = f"sum by ({labels}) (rate({metric}_bucket{HERE}[$__rate_interval]))"
    shares = {"0.95": "p95", "0.99": "p99"} if by else {"0.5": "p50", "0.95": "p95", "0.99": "p99"}
    whose = f"{{{{{by}}}}} " if by else ""
    return [(f"histogram_quantile({share}, {inner})", whose + legend) for share, legend in shares.items()]


def off(what: str) -> str:
    """Measured minus predicted, per slot."""
    metric = f"headgate_slot_{what}_ratio"
    return f"{metric}{MEASURED} - ignoring(source) {metric}{PREDICTED}"


def overview() -> dict[str, Any]:
    rate, room = f"headgate_input_rate_tps{HERE}", f"headgate_headroom_tps{HERE}"
    lost = f"headgate_tuples_lost_total{HERE}"
    small = [
        figure("Stable", "Does the topology keep up?", f"headgate_stable{HERE}", noValue="unknown",
               mappings=words(n1=("stable", BLUE), n0=("unstable", RED))),
        figure("Input rate", "Offered to every source now.", rate, "suffix: rows/s"),
        figure("Headroom", "What the plan carries beyond that.", room, "suffix: rows/s",
               thresholds=steps((None, RED), (0, BLUE))),
        figure("Slots used", "Of the VMs that are there.", 'headgate_slots{instance=~"$controller",state="used"}'),
        figure("Lost", "Never to be anything but 0.", lost, thresholds=steps((None, BLUE), (1, RED))),
        figure("Latency grows by", "Slope of the median.", f"headgate_latency_slope{HERE}", "suffix: s/s", decimals=4),
    ]  # fmt: skip
    large = [
        panel("Rate", "Offered, and what the plan is predicted to carry.",
              [(rate, "offered"), (f"{rate} + {room}", "predicted to fit")], "suffix: rows/s", min=0),
        panel("Rate by task", "Rows that each task takes in.",
              [(f"headgate_task_rate_tps{HERE}", "{{task}}")], "suffix: rows/s", min=0),
        panel("Errors", "Rows sent again each second; lost ones and dead letters in all.",
              [(f"rate(headgate_tuples_replayed_total{HERE}[$__rate_interval])", "replayed per s"), (lost, "lost"),
               (f"headgate_dead_letters_total{HERE}", "dead in {{task}}")], min=0),
        panel("Duration, end to end", "From the intended emit time to the sink.",
              [*quantiles("headgate_latency_seconds"), (f"headgate_predicted_p95_seconds{HERE}", "p95, predicted")],
              "s", min=0),
        panel("Duration by task", "From arrival in a task to done.",
              quantiles("headgate_task_latency_seconds", "task"), "s", min=0),
        panel("Rows not done", "Due or arrived; how many, and for how long the oldest has waited.",
              [(f"headgate_backlog_seconds{HERE}", "oldest, s"), (f"headgate_backlog_rows{HERE}", "rows")], min=0),
        panel("Verdict", "1 for what it is.", [(f"headgate_verdict{HERE}", "{{state}}")], min=0, max=1),
        panel("Latency slope", "Above 0.02 s/s it is unstable; no line: no verdict.",
              [(f"headgate_latency_slope{HERE}", "slope")], "suffix: s/s"),
    ]  # fmt: skip
    return board("headgate-overview", "headgate: overview", small, large)


def slots() -> dict[str, Any]:
    full = f"sum(headgate_slot_cpu_ratio{MEASURED} > bool 0.9)"
    small = [
        figure("Slots used", "With threads.", 'headgate_slots{instance=~"$controller",state="used"}'),
        figure("Slots free", "Without threads.", 'headgate_slots{instance=~"$controller",state="free"}'),
        figure("Quarantined", "Given up after crashes.",
               'headgate_slots{instance=~"$controller",state="quarantined"}',
               thresholds=steps((None, BLUE), (1, RED))),
        figure("Nearly full", "Slots with more than 90 % of their CPU in use.", full,
               thresholds=steps((None, BLUE), (1, AMBER))),
        figure("VMs", "Agents that answer.", 'sum(up{job="headgate",role="agent"})'),
        figure("Threads", "Task threads that run.", "sum(headgate_agent_threads)"),
    ]  # fmt: skip
    large = [
        panel("Utilisation: CPU", "Fraction of each slot, measured.",
              [(f"headgate_slot_cpu_ratio{MEASURED}", "{{vm}}/{{slot}}")], "percentunit", min=0, max=1),
        panel("Utilisation: memory", "Fraction of each slot, measured.",
              [(f"headgate_slot_memory_ratio{MEASURED}", "{{vm}}/{{slot}}")], "percentunit", min=0, max=1),
        panel("Utilisation: VMs", "Mean CPU of a VM's slots with threads.",
              [(f"avg by (vm) (headgate_slot_cpu_ratio{MEASURED})", "{{vm}}")], "percentunit", min=0, max=1),
        panel("Saturation: nearly full slots", "Slots with more than 90 % of their CPU in use.",
              [(full, "slots")], min=0),
        panel("Saturation: load by task", "The present rate as a part of the one at which it saturates.",
              [(f"headgate_task_load_ratio{HERE}", "{{task}}"),
               (f"headgate_bottleneck_load_ratio{HERE}", "the first to")], "percentunit", min=0, max=1),
        panel("Slots by state", "Of the VMs that are there.", [(f"headgate_slots{HERE}", "{{state}}")], min=0),
        panel("Errors: workers that died", "In all, by VM; and alarms and disks that take no more now.",
              [("headgate_agent_worker_crashes_total", "{{vm}}"),
               (f"headgate_alarms{HERE}", "alarm: {{what}}"),
               (f"headgate_disk_trouble{HERE}", "disk of {{vm}}")], min=0),
        panel("Errors: unreadable messages", "In all, by VM and sender.",
              [("headgate_agent_bad_messages_total", "{{vm}} {{sender}}")], min=0),
        panel("Ways between VMs", "There and back between their workers; absent where nothing carries.",
              [(f"headgate_link_delay_seconds{HERE}", "{{vm}} → {{to}}")], "s", min=0),
        panel("Cost of sampling", "Of a core, by VM.",
              [("rate(headgate_agent_sampling_seconds_total[$__rate_interval])", "{{vm}}")], "percentunit", min=0),
        panel("Workers by state", "Slots by what their worker does.",
              [("sum by (state) (headgate_agent_workers)", "{{state}}")], min=0),
    ]  # fmt: skip
    return board("headgate-slots", "headgate: slots and VMs", small, large)


def fidelity() -> dict[str, Any]:
    error, replans = f"headgate_model_error_ratio{HERE}", f"headgate_replans_total{HERE}"
    small = [
        figure("Worst model", "Largest error of a task's rate.", f"max(abs({error}))", "percentunit",
               thresholds=steps((None, BLUE), (0.1, AMBER), (0.2, RED))),
        figure("CPU off by", "Mean over the slots.", f"avg(abs({off('cpu')}))", "percentunit"),
        figure("Memory off by", "Mean over the slots.", f"avg(abs({off('memory')}))", "percentunit"),
        figure("Re-plans", "In the time shown.", f"sum(increase({replans}[$__range]))", decimals=0),
        figure("Last re-plan took", "From decided to in force.", f"headgate_replan_seconds{HERE}", "s"),
        figure("Rolled back", "Plans that did not do what was predicted, in all.",
               'headgate_replans_total{instance=~"$controller",reason="rolled_back"}',
               thresholds=steps((None, BLUE), (1, AMBER))),
    ]  # fmt: skip
    large = [
        panel("Rate: measured against the model", "0: as predicted; -10 %: a tenth less.",
              [(error, "{{task}}")], "percentunit"),
        panel("CPU: measured − predicted", "Points of a slot.", [(off("cpu"), "{{vm}}/{{slot}}")], "percentunit"),
        panel("Memory: measured − predicted", "Points of a slot.",
              [(off("memory"), "{{vm}}/{{slot}}")], "percentunit"),
        panel("CPU: both", "Measured and predicted, by slot.",
              [(f"headgate_slot_cpu_ratio{HERE}", "{{vm}}/{{slot}} {{source}}")], "percentunit", min=0, max=1),
        panel("Re-plans by reason", "In all.", [(f"{replans} > 0", "{{reason}}")], min=0),
        panel("Re-plan: decided to in force", "Of the last one.",
              [(f"headgate_replan_seconds{HERE}", "seconds")], "s", min=0),
        panel("Headroom", "Predicted to fit minus offered; below 0 it must re-plan.",
              [(f"headgate_headroom_tps{HERE}", "headroom")], "suffix: rows/s"),
        panel("Verdict", "1: stable, 0: unstable, no line: unknown.",
              [(f"headgate_stable{HERE}", "stable")], min=0, max=1),
    ]  # fmt: skip
    return board("headgate-fidelity", "headgate: model fidelity and re-plans", small, large)


def board(uid: str, title: str, small: list[Panel], large: list[Panel]) -> dict[str, Any]:
    """Figures in the first row, charts below, three in a row."""
    panels = []
    for n, made in enumerate(small):
        panels.append({"id": n + 1, **made, "gridPos": {"x": 4 * n, "y": 0, "w": 4, "h": 4}})
    for n, made in enumerate(large):
        place = {"x": WIDTH * (n % 3), "y": 4 + HEIGHT * (n // 3), "w": WIDTH, "h": HEIGHT}
        panels.append({"id": len(small) + n + 1, **made, "gridPos": place})
    return {
        "uid": uid,
        "title": title,
        "tags": ["headgate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "5s",
        "time": {"from": "now-15m", "to": "now"},
        "templating": {"list": variables()},
        "annotations": {"list": [replan_marks()]},
        "links": [{"type": "dashboards", "tags": ["headgate"], "title": "headgate", "asDropdown": False}],
        "panels": panels,
    }


def variables() -> list[dict[str, Any]]:
    controller = "label_values(headgate_slots, instance)"
    return [
        {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus", "hide": 0},
        {
            "name": "controller",
            "label": "Controller",
            "type": "query",
            "datasource": SOURCE,
            "definition": controller,
            "query": {"query": controller, "refId": "controllers"},
            "refresh": 2,
            "multi": False,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def replan_marks() -> dict[str, Any]:
    """Every re-plan is a mark on every chart."""
    return {
        "name": "re-plans",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": AMBER,
        "expr": f"sum by (reason) (changes(headgate_replans_total{HERE}[$__rate_interval])) > 0",
        "titleFormat": "re-plan",
        "textFormat": "{{reason}}",
    }


def text_of(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def boards() -> dict[str, str]:
    """File name → text."""
    return {
        "overview.json": text_of(overview()),
        "slots.json": text_of(slots()),
        "fidelity.json": text_of(fidelity()),
    }


if __name__ == "__main__":
    BOARDS.mkdir(parents=True, exist_ok=True)
    for name, text in boards().items():
        (BOARDS / name).write_text(text, "utf-8")
