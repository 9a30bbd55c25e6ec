"""`headgate history`: the plans of all recorded runs, with their reasons; or all about one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from headgate.dashboards.runs.connection import asked, controller_option, traces_option
from headgate.dashboards.runs.live_view import carries_words
from headgate.topology_runtime.commands.output import (
    FILE,
    Format,
    answer,
    emit,
    format_options,
    to_json,
    write_table,
)
from headgate.topology_runtime.errors import InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.traces.trace_plans import (
    ID_LEAST,
    ID_SHOWN,
    TRACES,
    PlanHead,
    plans_in,
    the_id,
)
from headgate.topology_runtime.traces.trace_tables import DECISIONS
from headgate.topology_runtime.wording import significant

# ── Decisions as a trace holds them, and in words ───────────────────────────────────────────────────────

Document = dict[str, Any]
Decision = Document
BROUGHT = ("plan", "adopt")  # actions that bring a plan into force


def decisions_of(folder: Path) -> list[Decision]:
    """All decisions of a trace; a line that a kill left half written does not count. Raises InvalidInput."""
    try:
        whole, _, _ = (folder / DECISIONS).read_text("utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot read trace {folder}", cause=str(error)) from error


def with_unsaid(decisions: list[Decision]) -> list[Decision]:
    """Also the plans that came into force by no decision of the controller, by their times: approved ones, and those
    that were rolled back to. Each is told of by the decisions after it."""
    timed = [decision for decision in decisions if decision.get("time")]
    known = {decision["time"] for decision in timed if decision.get("action") in BROUGHT}
    unsaid: dict[str, Decision] = {}
    for decision in timed:
        enacted = decision.get("enacted") or {}
        if enacted.get("plan") and enacted["decided"] not in known:
            unsaid.setdefault(enacted["decided"], _unsaid(enacted, timed))
    return sorted([*timed, *unsaid.values()], key=lambda decision: str(decision["time"]))


def _unsaid(enacted: Document, decisions: list[Decision]) -> Decision:
    facts = {"id": enacted["plan"], "rate_tps": enacted["rate_tps"], "slots": enacted["slots"]}
    about = [one for one in decisions if (one.get("plan") or {}).get("id") == enacted["plan"]]
    before = next((one for one in reversed(about) if one["time"] <= enacted["decided"]), None)
    back = enacted["reason"] == "rolled_back"
    return {
        "time": enacted["decided"],
        "trigger": enacted["reason"],
        "action": "plan",
        "text": "the plan after it did not prove itself" if back else "an operator approved it",
        "evidence": before["evidence"] if before and not back else {},
        "alternatives": before["alternatives"] if before and not back else [],
        "plan": {"predicted_tps": None, "moves": None, **(before["plan"] if before else {}), **facts},
    }


def words_of(decision: Decision) -> str:
    lines = [f"{decision['time']}  {decision['trigger']} → {decision['action']}: {decision['text']}"]
    if decision.get("evidence"):
        lines.append(f"    evidence: {_pairs(decision['evidence'])}")
    plan = decision.get("plan")
    if plan:
        lines.append(f"    plan: {_pairs(plan)}")
    lines += [f"    rejected: {other}" for other in decision.get("alternatives") or ()]
    return "\n".join(lines)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in values.items() if value not in (None, {}, []))


def _short(value: Any) -> str:
    """For people: `-o json` has every digit."""
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, dict):
        return f"{{{_pairs(value)}}}"
    return value if isinstance(value, str) else to_json(value)


def seconds_between(time: str, later: str) -> float:
    return round((datetime.fromisoformat(later) - datetime.fromisoformat(time)).total_seconds(), 1)


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

HISTORY_SCHEMA = "headgate/history/v1"
LAST_PLANS = 30


@click.command()
@click.argument("plan", metavar="[ID]", required=False)
@traces_option("The folder of traces.")
@click.option("--topology", help="Only runs of this topology.")
@click.option(
    "--last", type=click.IntRange(1, 100_000), default=LAST_PLANS, show_default=True, help="So many plans."
)
@click.option("--predictions", is_flag=True, help="What plans were predicted to do, beside what they did.")
@click.option("--model-errors", is_flag=True, help="By how much models and VMs were off, over all runs.")
@click.option("--plot", type=FILE, metavar="FILE", help="Draw --predictions: FILE.svg, .png or .pdf.")
@format_options
def history(
    plan: str | None,
    traces: Path,
    topology: str | None,
    last: int,
    predictions: bool,
    model_errors: bool,
    plot: Path | None,
    output: Format,
) -> None:
    """List the plans of all runs below the folder of traces, the newest last: when, why, for what rate (rows/s).

    With ID, the first 4 letters of a plan's id or more: each decision for that plan with its evidence and what was
    rejected, and what it was predicted to carry and use beside what it did."""
    if (predictions and model_errors) or (plan is not None and (predictions or model_errors)):
        raise UsageError("--predictions, --model-errors and ID exclude each other", hint="give one of them")
    if plot is not None and not predictions:
        raise UsageError("--plot needs --predictions", hint="leave it out, or add --predictions")
    if predictions or model_errors:
        _of_predictions("show")("models" if model_errors else "plans", traces, topology, last, plot, output)
    elif plan is not None:
        _show_plan(plan, traces, topology, last, output)
    else:
        rows = list(plans_of(traces, topology))[-last:]
        if rows and output == "table":
            write_table([shown(row) for row in rows])
        else:
            none = f"no plan was made in any run below {traces}"
            answer(output, HISTORY_SCHEMA, {"plans": rows}, none, list(map(without_decision, rows)))


def _of_predictions(what: str) -> Any:
    from headgate.dashboards.headgate_command import PREDICTIONS, imported

    return imported(PREDICTIONS[what])


def _show_plan(plan: str, traces: Path, topology: str | None, last: int, output: Format) -> None:
    if len(plan) < ID_LEAST:
        raise InvalidInput(f"plan id {plan!r} is too short", hint=f"give at least {ID_LEAST} letters of it")
    rows = [row for row in plans_of(traces, topology) if row["plan"].startswith(plan)][-last:]
    predicted = _of_predictions("of_plan")(plan, traces, topology)[-last:]
    if not rows and not predicted:
        raise InvalidInput(f"no plan begins with {plan!r}", hint="list them all with `headgate history`")
    recorded = {
        (row["topology"], row["run"]): _recorded(traces / row["topology"] / row["run"]) for row in rows
    }
    rows = [row | {"recorded": recorded[row["topology"], row["run"]]} for row in rows]
    document = {"plans": rows, "predictions": predicted}
    words = [
        f"run {row['run']} of {row['topology']}{_recorded_words(row['recorded'])}\n{words_of(row['decision'])}"
        for row in rows
    ]
    answer(output, HISTORY_SCHEMA, document, "\n".join(words), list(map(without_decision, rows)))
    if output != "table":
        return
    for entry in predicted:
        _of_predictions("print_plan")(entry)


def _recorded(run: Path) -> Document | None:
    """How long a run was, and the gaps of its record; None where its tables cannot be asked."""
    from headgate.dashboards.tables.recorded_time import recorded_time

    found = next(iter(recorded_time(run).values()), None)
    if found is None:
        return None
    gaps = [{"epoch": gap.epoch, "seconds": gap.seconds, "text": gap.text} for gap in found.gaps]
    return {
        "seconds": found.seconds,
        "missing_s": found.missing_s,
        "gaps": gaps,
    }


def _recorded_words(recorded: Document | None) -> str:
    if recorded is None or not recorded["gaps"]:
        return ""
    return f", {recorded['seconds']:,.0f} s long: {'; '.join(gap['text'] for gap in recorded['gaps'])}"


def plans_of(traces: Path, topology: str | None = None) -> Iterator[dict[str, Any]]:
    """The plans of all runs, by their time. Raises InvalidInput."""
    if not traces.is_dir():
        raise InvalidInput(
            f"no traces in {traces}", hint="record some with `headgate up`, or name others with --traces"
        )
    runs = [path.parent for path in traces.glob(f"{topology or '*'}/*/{DECISIONS}")]
    rows: list[dict[str, Any]] = []
    for run in sorted(runs):
        try:
            rows += of_run(run)
        except InvalidInput as error:
            click.echo(f"left out: {error.what}: {error.cause}", err=True)
    yield from sorted(rows, key=lambda row: row["time"])


def of_run(run: Path) -> list[dict[str, Any]]:
    """The plans of one run; `stood_s`: until the next one, or the last decision."""
    decisions = with_unsaid(decisions_of(run))
    made = [decision for decision in decisions if decision.get("action") in BROUGHT and decision.get("plan")]
    ends = [*(decision["time"] for decision in made[1:]), decisions[-1]["time"] if decisions else ""]
    return [
        {
            "plan": decision["plan"]["id"],
            "topology": run.parent.name,
            "run": run.name,
            "time": decision["time"],
            "reason": decision["trigger"],
            "rate_tps": decision["plan"]["rate_tps"],
            "predicted_tps": decision["plan"]["predicted_tps"],
            "slots": decision["plan"]["slots"],
            "moves": decision["plan"]["moves"],
            "stood_s": seconds_between(decision["time"], end),
            "decision": decision,
        }
        for decision, end in zip(made, ends, strict=True)
    ]


def without_decision(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "decision"}


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """As a line of a table of 80 columns."""
    return {
        "plan": row["plan"][:ID_SHOWN],
        "topology": row["topology"],
        "time": row["time"][:19].replace("T", " "),
        "reason": row["reason"],
        "rate": round(row["rate_tps"], 1),
        "slots": row["slots"],
        "moves": row["moves"],
        "stood": f"{row['stood_s']:,.0f} s",
    }


# ── `headgate explain ID`: one plan, found in all runs and in the running controller, and what came of it ───

PLAN_SCHEMA = "headgate/explained-plan/v1"


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
    told = [one for one in (_told(run, found) for run in runs) if one["decisions"]]
    once = {
        run["run"]: run for run in reversed(told)
    }  # what its trace tells is more than the controller does
    return {
        "schema": PLAN_SCHEMA,
        "id": found,
        "topology": heads[found].topology,
        "rate_tps": heads[found].rate_tps,
        "runs": list(once.values())[::-1],
        "plan": next((plan.data for plan in whole if plan.head.id == found), None),
    }


def _runs_of_traces(beginning: str, traces: Path) -> list[Document]:
    """The runs in whose decisions these letters are; one that cannot be read is named."""
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
    click.echo(f"plan {found['id']} of {found['topology']}, for {significant(found['rate_tps'], 6)} rows/s")
    for run in found["runs"]:
        click.echo(f"\nrun {run['run']} of {run['topology']}")
        for decision in run["decisions"]:
            click.echo(words_of(decision))
            if decision["came"]:
                click.echo(f"    came of it: {_came_words(decision['came'])}")
    if plan is None:
        click.echo(
            "\nits placement is not recorded: an older version recorded this run, or its trace is elsewhere"
        )
        return
    predicted = plan["prediction"]
    limit = predicted.get("limited_by")
    words = f"; {limit} on {predicted['limited_by_slot']} limits it" if limit else ""
    click.echo(
        f"\n{plan['slots']['used']} slots, predicted to carry {predicted['rate_tps']:.1f} rows/s{words}"
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
        "rows/s": round(task["rate_tps"], 1),
        "threads": task["threads"],
        "where": " ".join(at[:8]) + (f" and {len(at) - 8} more" if len(at) > 8 else ""),
    }


# ── `headgate explain`: each decision with its reason and evidence, from a live controller or from a trace

LAST_DECISIONS = 10


@click.command()
@click.argument("plan", metavar="[ID]", required=False)
@controller_option
@click.option("--trace", type=FILE, help="Explain a run that is over, from its trace folder.")
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=LAST_DECISIONS,
    show_default=True,
    help="So many decisions.",
)
@traces_option("The folder of traces, for an ID.")
@click.option("--all", "quiet_too", is_flag=True, help="Also the decisions to do nothing.")
@format_options
def explain(
    plan: str | None,
    controller: str | None,
    trace: Path | None,
    last: int,
    traces: Path,
    quiet_too: bool,
    output: Format,
) -> None:
    """Say why the plan is what it is: each decision, what triggered it, its evidence, what was rejected.

    Without a running controller: from the newest trace below ./traces. With an ID (4 letters of a plan's id are
    enough, `headgate history` lists them): all about that plan, in all runs. For a plan that is not made yet see
    `headgate plan TOPOLOGY --rate R --explain`.
    """
    if plan is not None:
        if trace is not None:
            raise UsageError("--trace names one run, an ID is looked for in all", hint="--traces DIR")
        whole = explained_plan(plan, traces, controller)
        if output == "table":
            print_explained(whole)
        else:
            rows = [{"run": run["run"], **decision} for run in whole["runs"] for decision in run["decisions"]]
            emit(output, whole, rows)
        return
    found = from_trace(trace) if trace else from_controller(controller)
    decisions = [d for d in found["decisions"] if quiet_too or d.get("action") != "none"][-last:]
    if output != "table":
        emit(output, {**found, "decisions": decisions}, decisions)
        return
    if not decisions:
        click.echo("no decision but to do nothing" if found["decisions"] else "no decision yet")
    for decision in decisions:
        click.echo(words_of(decision))
    for words in found.get("hot_keys", ()):
        click.echo(f"hot key: {words}")
    if found.get("plan"):
        print_plan(found["plan"])


def from_controller(where: str | None) -> dict[str, Any]:
    """What the controller says; without one, the newest trace."""
    try:
        found: dict[str, Any] = asked(where, "explain", {"last": 1000})
        return found
    except Unreachable:
        newest = newest_trace()
        if where is not None or newest is None:
            raise
        click.echo(f"no controller is running; this is from {newest}", err=True)
        return from_trace(newest)


def newest_trace(folder: Path = TRACES) -> Path | None:
    """The run below a folder of runs, or of all traces, that decided last."""
    files = [*folder.glob(f"*/{DECISIONS}"), *folder.glob(f"*/*/{DECISIONS}")]
    return max(files, key=lambda path: path.stat().st_mtime).parent if files else None


def from_trace(folder: Path) -> dict[str, Any]:
    """The decisions of a run that is over; of several, the newest. Raises InvalidInput."""
    if not (folder / DECISIONS).exists() and (newest := newest_trace(folder)) is not None:
        click.echo(f"this is from {newest}", err=True)
        folder = newest
    return {"schema": "headgate/explain/v1", "decisions": decisions_of(folder), "plan": None}


def print_plan(plan: dict[str, Any]) -> None:
    limit = f"; {plan['limited_by']} on {plan['limited_by_slot']} limits it" if plan.get("limited_by") else ""
    for_rate = f"for {plan['rate_tps']:.1f} rows/s on {plan['slots']['used']} slots"
    carries = carries_words(plan["predicted_tps"])
    click.echo(f"\nplan {plan['epoch']} ({plan['reason']}): {for_rate}, {carries}{limit}")
    write_table(plan["tasks"])
