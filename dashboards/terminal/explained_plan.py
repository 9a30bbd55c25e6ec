"""`headgate explain ID`: one plan, found in all runs and in the running controller, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.terminal.connection import asked
from headgate.dashboards.terminal.decisions import (
    BROUGHT,
    Decision,
    decisions_of,
    seconds_between,
    with_unsaid,
    words_of,
)
from headgate.topology_runtime.errors import InvalidInput, Unreachable
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import write_table
from headgate.topology_runtime.trace_plans import PlanHead, plans_in, the_id
from headgate.topology_runtime.trace_tables import DECISIONS

SCHEMA = "headgate/explained-plan/v1"
Document = dict[str, Any]


def explained_plan(beginning: str, traces: Path, controller: str | None) -> Document:
    """All that is known of the one plan whose id begins so. Raises InvalidInput when there is none, or several."""
    runs = [
        *_runs_of_traces(beginning, traces),
        *([] if (live := _live(beginning, controller)) is None else [live]),
    ]
    whole = [plan for plan in plans_in(traces, beginning) if plan.head.id.startswith(beginning)]
    heads = {plan.head.id: plan.head for plan in whole}
    for run in runs:
        for decision in run["decisions"]:
            head = _head_of(decision, run["topology"])
            if head is not None and head.id.startswith(beginning):
                heads.setdefault(head.id, head)
    if not heads:
        the_id(
            beginning, (plan.head for plan in plans_in(traces)), f"{traces}, and in no running controller,"
        )
    found = the_id(beginning, heads.values(), str(traces))
    told = [_told(run, found) for run in runs]
    return {
        "schema": SCHEMA,
        "id": found,
        "topology": heads[found].topology,
        "rate_tps": heads[found].rate_tps,
        "runs": _each_once([run for run in told if run["decisions"]]),
        "plan": next((plan.data for plan in whole if plan.head.id == found), None),
    }


def _runs_of_traces(beginning: str, traces: Path) -> list[Document]:
    """The runs in whose decisions these letters are; one that cannot be read is told."""
    runs = []
    for file in sorted(traces.glob(f"*/*/{DECISIONS}")):
        folder = file.parent
        try:
            if f'"{beginning}'.encode() in file.read_bytes():
                runs.append(
                    {"run": folder.name, "topology": folder.parent.name, "decisions": decisions_of(folder)}
                )
        except (OSError, InvalidInput) as error:
            click.echo(f"left out: {error}", err=True)
    return runs


def _live(beginning: str, controller: str | None) -> Document | None:
    """What the running controller decided in this life; None without one, unless it was named."""
    try:
        decisions = asked(controller, "explain", {"last": 1000})["decisions"]
        status = asked(controller, "status")
    except Unreachable:
        if controller is not None:
            raise
        return None
    return {"run": status["run"], "topology": status["topology"], "decisions": decisions}


def _each_once(runs: list[Document]) -> list[Document]:
    """A running controller and its trace tell the same; what the trace tells is more."""
    return list({run["run"]: run for run in reversed(runs)}.values())[::-1]


def _head_of(decision: Decision, topology: str) -> PlanHead | None:
    try:
        head = msgspec.convert({"topology": topology, **decision["plan"]}, PlanHead)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None
    return msgspec.structs.replace(head, time=str(decision.get("time", "")))


def _told(run: Document, plan: str) -> Document:
    """Of a run: the decisions about the plan that led to something, each with what came of it."""
    decisions = with_unsaid(run["decisions"])
    mine = [
        {**decision, "came": came_of(decision, decisions[number + 1 :])}
        for number, decision in enumerate(decisions)
        if (decision.get("plan") or {}).get("id") == plan and decision.get("action") != "none"
    ]
    return {**run, "decisions": mine}


def came_of(decision: Decision, later: list[Decision]) -> Document | None:
    """Of a decision that brought a plan into force: when it was, and what took its place, as far as it is known."""
    if decision["action"] not in BROUGHT or not later:
        return None
    began = decision["time"]
    enacted = [one["enacted"] for one in later if one.get("enacted")]
    mine = next((one for one in enacted if one["decided"] == began), None)
    after = next((one for one in later if one["action"] in BROUGHT and one.get("plan")), None)
    return {
        "in_force": mine["in_force"] if mine else None,
        "enacted_s": mine["enacted_s"] if mine else None,
        "pause_ms": mine["pause_ms"] if mine else None,
        "stood_s": seconds_between(began, (after or later[-1])["time"]),
        "next": {"plan": after["plan"]["id"], "reason": after["trigger"]} if after else None,
    }


# ── for people ──────────────────────────────────────────────────────────────────────────────────


def print_explained(found: Document) -> None:
    plan = found["plan"]
    click.echo(f"plan {found['id']} of {found['topology']}, for {significant(found['rate_tps'], 6)} tuples/s")
    for run in found["runs"]:
        click.echo(f"\nrun {run['run']} of {run['topology']}")
        for decision in run["decisions"]:
            click.echo(words_of(decision))
            if decision["came"]:
                click.echo(f"    came of it: {_came_words(decision['came'])}")
    if plan is None:
        click.echo(
            "\nits placement is not kept: this run was recorded by an older version, or its trace is elsewhere"
        )
        return
    predicted = plan["prediction"]
    limit = predicted.get("limited_by")
    words = f"; {limit} on {predicted['limited_by_slot']} limits it" if limit else ""
    click.echo(
        f"\n{plan['slots']['used']} slots, predicted to carry {predicted['rate_tps']:.1f} tuples/s{words}"
    )
    write_table([_task_row(task, plan["placement"]) for task in plan["allocation"]])


def _came_words(came: Document) -> str:
    pause = f" (pause {came['pause_ms']:g} ms)" if came["pause_ms"] is not None else ""
    force = f"in force after {came['enacted_s']:g} s{pause}, " if came["in_force"] else ""
    after = came["next"]
    end = f"until plan {after['plan'][:8]} ({after['reason']})" if after else "the last that is known"
    return f"{force}stood {came['stood_s']:,.0f} s, {end}"


def _task_row(task: Document, placement: list[Document]) -> Document:
    counts = ((one, one["threads"].get(task["task"])) for one in placement)
    at = [f"{one['vm']}/{one['slot']}×{count}" for one, count in counts if count]
    return {
        "task": task["task"],
        "t/s": round(task["rate_tps"], 1),
        "threads": task["threads"],
        "where": " ".join(at[:8]) + (f" and {len(at) - 8} more" if len(at) > 8 else ""),
    }


def as_rows(found: Document) -> list[Document]:
    """For CSV and JSON lines: the decisions."""
    return [{"run": run["run"], **decision} for run in found["runs"] for decision in run["decisions"]]
