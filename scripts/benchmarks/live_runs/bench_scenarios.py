"""Rates that rise and fall, on machines that are as they should be and on others: one table.

scenarios  a step, ramp, square, spikes, sine, saw, three public series, a slow VM, one that takes 30 s to come, a
           wrong model: live and short (a sender process, `headgate up`, a sink), and in virtual time and long
"""
# bench: scenarios – what following a rate comes to in a dozen scenarios, live and in virtual time: one table

from __future__ import annotations

import sys
from typing import Any

from benchmarks.benchmark_runner import table as figures
from headgate.controller.planning_commands.planning_options import with_progress_bar
from headgate.topology_runtime.errors import HeadgateError
from scenarios import live_scenario as live
from scenarios import virtual_scenario as virtual
from scenarios.scenario_course import Course, row
from scenarios.scenario_shapes import SCENARIOS, Scenario

FAILED_MOST = 2000  # letters of what a run said that failed
SHOWN = (
    "scenario", "where", "seconds", "of_static", "short_share", "late_share", "plans", "most_in_a_minute", "lost",
    "pause_p95_ms", "pause_max_ms", "alarms",
)  # fmt: skip


def in_virtual_time(scenario: Scenario, seconds: int) -> Course:
    """With a bar."""
    courses = virtual.tried(scenario, seconds)
    course = next(courses)
    for _ in with_progress_bar(range(seconds), scenario.name):
        course = next(courses, course)
    *_, course = course, *courses
    return course


def nothing(scenario: Scenario, where: str, why: str) -> dict[str, Any]:
    return dict.fromkeys(SHOWN) | {"scenario": scenario.name, "where": where, "note": why}


def one(scenario: Scenario, where: str, seconds: int | None) -> dict[str, Any]:
    """Its row; one without figures, and with the reason, where it cannot be tried."""
    try:
        if where == "live":
            course = live.tried(scenario, seconds or scenario.live_s)
        else:
            course = in_virtual_time(scenario, seconds or scenario.long_s)
    except FileNotFoundError as error:
        return nothing(scenario, where, f"skipped: {error.filename} is not there")
    except (RuntimeError, HeadgateError) as error:
        return nothing(scenario, where, f"failed: {str(error)[-FAILED_MOST:]}")
    return row(scenario.name, where, course)


def chosen(names: tuple[str, ...]) -> list[Scenario]:
    unknown = sorted(set(names) - SCENARIOS.keys())
    if unknown:
        raise SystemExit(f"error: no scenario {', '.join(unknown)}\ntry: one of {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if not names or name in names]


def scenarios(
    only: tuple[str, ...] = (),
    virtual_only: bool = False,
    live_only: bool = False,
    repeats: int = 1,
    seconds: int | None = None,
) -> dict[str, Any]:
    """repeats: of each that is live; seconds: of each, instead of its own. Interrupted: what there is."""
    where = ["virtual"] * (not live_only) + ["live"] * (repeats * (not virtual_only))
    order = [(scenario, place) for scenario in chosen(only) for place in where]
    rows: list[dict[str, Any]] = []
    try:
        for number, (scenario, place) in enumerate(order, 1):
            told = f"{number} of {len(order)}: {scenario.name} {place}, {scenario.about}"
            print(told, file=sys.stderr, flush=True)
            rows.append(one(scenario, place, seconds))
    except KeyboardInterrupt:
        print("interrupted: what there is", file=sys.stderr)
    whole = len(rows) == len(order) and not any(found["note"].startswith("failed") for found in rows)
    return {"rows": rows, "whole": whole}


def table(found: dict[str, Any]) -> str:
    shown = {"rows": [{name: row.get(name) for name in SHOWN} for row in found["rows"]]}
    notes = [f"{row['scenario']} ({row['where']}): {row['note']}" for row in found["rows"] if row["note"]]
    return "\n".join((figures(shown), *notes))


BENCHMARKS = {"scenarios": scenarios}
