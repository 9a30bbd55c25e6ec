"""Rates that rise and fall, on machines that are as they should be and on others: one table.

scenarios  a step, ramp, square, spikes, sine, saw, three public series, a slow VM, one that takes 30 s to come, a
           wrong model: live and short (a sender process, `headgate up`, a sink), and in virtual time and long
"""
# bench: scenarios – what following a rate comes to in a dozen scenarios, live and in virtual time: one table

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from headgate.controller.offline.waiting import waited
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.output import write_table
from scenarios import live, virtual
from scenarios.course import Course, row
from scenarios.shapes import SCENARIOS, Scenario

SCHEMA = "headgate/bench/v1"
FAILED_MOST = 2000  # letters of what a run said that failed
SHOWN = (
    "scenario", "where", "seconds", "of_static", "short_share", "late_share", "plans", "most_in_a_minute", "lost",
    "pause_p95_ms", "pause_max_ms", "alarms",
)  # fmt: skip


def in_virtual_time(scenario: Scenario, seconds: int) -> Course:
    """With a bar."""
    courses = virtual.tried(scenario, seconds)
    course = next(courses)
    for _ in waited(range(seconds), scenario.name):
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


def chosen(names: list[str] | None) -> list[Scenario]:
    unknown = sorted(set(names or ()) - SCENARIOS.keys())
    if unknown:
        raise SystemExit(f"error: no scenario {', '.join(unknown)}\ntry: one of {', '.join(SCENARIOS)}")
    return [scenario for name, scenario in SCENARIOS.items() if not names or name in names]


def order_of(options: argparse.Namespace) -> list[tuple[Scenario, str]]:
    where = ["virtual"] * (not options.live_only) + ["live"] * (options.runs * (not options.virtual_only))
    return [(scenario, place) for scenario in chosen(options.only) for place in where]


def show(rows: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        print(json.dumps({"schema": SCHEMA, "benchmark": "scenarios", "rows": rows}, allow_nan=False))
        return
    write_table([{name: found.get(name) for name in SHOWN} for found in rows])
    for found in rows:
        if found["note"]:
            print(f"{found['scenario']} ({found['where']}): {found['note']}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"of {', '.join(SCENARIOS)}")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--virtual-only", action="store_true")
    where.add_argument("--live-only", action="store_true")
    parser.add_argument("--runs", type=int, default=1, help="of each that is live")
    parser.add_argument("--seconds", type=int, help="of each, instead of its own")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        for number, (scenario, where) in enumerate(order := order_of(options), 1):
            print(
                f"{number} of {len(order)}: {scenario.name} {where}, {scenario.about}",
                file=sys.stderr,
                flush=True,
            )
            rows.append(one(scenario, where, options.seconds))
    except KeyboardInterrupt:
        print("interrupted: what there is", file=sys.stderr)
        show(rows, options.output)
        raise SystemExit(130) from None
    show(rows, options.output)
    if any(found["note"].startswith("failed") for found in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
