"""`headgate lab advise`: what headgate would do with a deployment that it does not run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.lab.rate_policies.rate_options import (
    check_numbers,
    enact_s,
    headroom,
    machine_s,
    number,
    rate_scale,
    season,
)
from headgate.topology_runtime.commands.output import Format, emit, emit_line, format_options, write_table
from headgate.topology_runtime.commands.rare_settings import SettingsCommand
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import counted, significant, utc_iso

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.lab.rate_policies.advisor import Advice, Advisor
    from headgate.lab.rate_policies.backtest_world import BacktestQuestion

SCHEMA, LINE_SCHEMA = "headgate/advised/v1", "headgate/advice/v1"
PAST_S, VALUES_MOST = 1800.0, 11_000
SAME_LEAST_S = 30.0  # a value that is the same for less is none to wonder about
NS = 1e9


@click.command(cls=SettingsCommand)
@click.argument("topology", required=False)
@click.option(
    "--models", metavar="DIR", help="A folder of models (default: those of an example, or of the run)."
)
@click.option(
    "--prometheus",
    "from_prometheus",
    metavar="URL",
    help="Take the input rate from this server: http://HOST:9090.",
)
@click.option("--query", metavar="PROMQL", help="… as one series of rows/s: 'sum(rate(requests_total[1m]))'.")
@click.option(
    "--trace", "from_trace", metavar="DIR", help="Instead: of a recorded run (its topology and models too)."
)
@rate_scale
@number("--past", PAST_S, "S", "Begin so long ago.")
@number("--step", 1.0, "S", "Between two values.")
@number("--every", 5.0, "S", "Ask so often.")
@click.option("--once", is_flag=True, help="Say what it would do now, and end.")
@click.option("--seconds", type=float, metavar="N", help="End after so long (default: Ctrl-C).")
@number("--max-vms", 64, "N", "VMs that may be had.")
@number("--vm-slots", 4, "N", "Slots of each.")
@headroom
@enact_s
@machine_s
@season
@format_options
def advise(output: Format, **options: Any) -> None:
    """Say when and what headgate would plan for a deployment that it does not run, and why; nothing is run or changed.

    The input rate of TOPOLOGY comes from a Prometheus server: the past half hour first, then what is new, every five
    seconds until Ctrl-C. The rules are the controller's own, as `headgate lab backtest` tries them, and it is
    reckoned as if each plan were brought into force when it is advised.

    \b
    headgate lab advise linear --prometheus http://127.0.0.1:9090 --query 'sum(rate(requests_total[1m]))'
    headgate lab advise flow.py:flow --models models --prometheus URL --query PROMQL --once -o json
    headgate lab advise --trace traces/demo/RUN"""
    check(options)
    try:
        if options["from_trace"] is not None:
            of_trace(options, output)
        else:
            of_prometheus(options, output)
    except KeyboardInterrupt:
        click.echo("no more is asked", err=True)


def check(options: dict[str, Any]) -> None:
    """Raises UsageError, InvalidInput with every fault."""
    if (options["from_prometheus"] is None) == (options["from_trace"] is None):
        raise UsageError(
            "missing source of rates: --prometheus URL or --trace DIR", hint="see headgate lab advise --help"
        )
    if options["from_prometheus"] is not None and (options["topology"] is None or not options["query"]):
        missing = "TOPOLOGY" if options["topology"] is None else "--query PROMQL"
        raise UsageError(
            f"{missing} is missing", hint="headgate lab advise TOPOLOGY --prometheus URL --query PROMQL"
        )
    many = options["past"] / max(options["step"], 1.0) > VALUES_MOST
    steps = f"past {options['past']:g} in steps of {options['step']:g} s is more than {VALUES_MOST:,} values"
    check_numbers(options, (0.0, 1e9), [steps] if many else [])


def advisor_of(options: dict[str, Any]) -> Advisor:
    """Raises UsageError, InvalidInput."""
    from headgate.controller.files.season_files import read_season
    from headgate.lab.rate_policies.advisor import Advisor

    question = question_of(options)
    known = None if options["season"] is None else read_season(options["season"], question.topology.name)
    return Advisor(question, options["headroom"], known)


def question_of(options: dict[str, Any]) -> BacktestQuestion:
    """What to plan with: as the options say, or as the trace does."""
    from headgate.controller.planning_commands.planning_options import topology_and_models
    from headgate.controller.replay.ideal_machines import Delays
    from headgate.lab.rate_policies.backtest_inputs import question_for

    if options["topology"] is None:
        from headgate.controller.files.planning_inputs import read_models
        from headgate.controller.replay.trace_reading import recorded_run

        run = recorded_run(Path(options["from_trace"]))
        topology, models = run.topology, {model.task: model for model in run.models}
        if options["models"] is not None:
            models = read_models(options["models"])
    else:
        topology, models = topology_and_models(options)
    delays = Delays(options["enact_s"], options["machine_s"])
    return question_for(topology, models, delays, options["max_vms"], options["vm_slots"])


# ── of a trace ──────────────────────────────────────────────────────────────────────────────────


def of_trace(options: dict[str, Any], output: Format) -> None:
    """All of it, at once. Raises InvalidInput."""
    from headgate.controller.planning_commands.planning_options import with_progress_bar
    from headgate.lab.rate_policies.backtest_inputs import of_rates
    from headgate.topology_runtime.rates.offered_rates import read

    folder = options["from_trace"]
    advisor = advisor_of(options)
    series = of_rates(folder, read(folder, options["rate_scale"]), options["seconds"])
    ends = [*(at_s for at_s, _ in series.steps[1:]), series.seconds]
    spans = zip(ends, (tps for _, tps in series.steps), strict=True)
    found: list[Advice] = []
    for to_s, rate_tps in with_progress_bar(list(spans), "reading the run"):
        found += advisor.hear(to_s, rate_tps)
    tell_all(output, {"trace": folder, "seconds": series.seconds}, advisor, found, None)


# ── of a Prometheus server ──────────────────────────────────────────────────────────────────────


def of_prometheus(options: dict[str, Any], output: Format) -> None:
    """The past, then what is new. Raises Unreachable, InvalidInput where the past cannot be had."""
    from headgate.lab.rate_policies.prometheus_rates import PrometheusServer, RateAsked, ServerFollower

    server = PrometheusServer(options["from_prometheus"])
    if not options["once"] and output not in ("table", "jsonl"):
        raise UsageError(f"-o {output} is for what has an end", hint="--once, or -o jsonl")
    asked = RateAsked(options["query"], options["step"], options["rate_scale"], options["every"])
    began_s = time.time() - options["past"]
    advisor = advisor_of(options)
    follower = ServerFollower(server, asked, advisor, began_s, lambda text: click.echo(text, err=True))
    now_s = time.time()
    said = follower.ask(now_s)
    source = {"prometheus": server.url, "query": options["query"], "step_s": options["step"]}
    if options["once"]:
        if not said:
            raise InvalidInput(
                "there is nothing to advise on",
                cause=follower.trouble or "no value",
                hint="--set past=S, or another --query",
            )
        source["value_age_s"] = age_s = round(follower.age_s(now_s), 3)
        source["sample_times_known"] = follower.taken_s is not None
        source["value_unchanged_s"] = round(follower.unchanged_s(), 3)
        if follower.stale(now_s):
            raise InvalidInput(
                f"the last value is {age_s:,.0f} s old: nothing is advised",
                cause="what is offered now is not known",
                hint="see why the query gives nothing newer, or a larger step (--set step=S)",
            )
        return tell_all(output, source, advisor, said, follower.began_s)
    tell(output, said, follower.began_s, now_s + follower.lag_s)
    began_s = time.monotonic()
    while options["seconds"] is None or time.monotonic() - began_s < options["seconds"]:
        time.sleep(follower.wait_s)
        now_s = time.time()
        said = follower.go_on(now_s)
        tell(output, said, follower.began_s, now_s + follower.lag_s)


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


def row_of(advice: Advice, began_s: float | None, now_s: float | None = None) -> dict[str, Any]:
    """A line for programs. began_s: UTC of second 0, now_s: of this one, where they are known."""
    age_s = None if began_s is None or now_s is None else round(max(0.0, now_s - began_s - advice.at_s), 3)
    plan = advice.plan
    return {
        "schema": LINE_SCHEMA,
        "time": utc_iso(round((began_s + advice.at_s) * NS)) if began_s is not None else None,
        "at_s": round(advice.at_s, 3),
        "value_age_s": age_s,
        "action": advice.action,
        "reason": advice.reason,
        "text": advice.text,
        "offered_tps": round(advice.offered_tps, 3),
        **plan_facts(plan),
    }


def plan_facts(plan: Plan) -> dict[str, Any]:
    from headgate.controller.models.plans import usd_per_hour
    from headgate.controller.views.sentences import figure

    return {
        "plan": plan.id,
        "rate_tps": round(plan.rate_tps, 3),
        "predicted_tps": figure(plan.prediction.told_tps),
        "slots": plan.slots.used,
        "vms": len(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
    }


def tell(output: Format, found: Sequence[Advice], began_s: float, now_s: float) -> None:
    """As it comes."""
    for advice in found:
        row = row_of(advice, began_s, now_s)
        if output == "jsonl":
            emit_line(row)
        else:
            age = f" (its value is {row['value_age_s']:.0f} s old)"
            click.echo(f"{row['time'][:19]}Z  {advice.reason} → {advice.action}: {advice.text}{age}")


def tell_all(
    output: Format, source: dict[str, Any], advisor: Advisor, found: Sequence[Advice], began_s: float | None
) -> None:
    """What was advised, and what would run at the end."""
    from headgate.controller.models.plan_data import plan_data

    plan = advisor.plan
    if plan is None:
        raise InvalidInput("nothing was offered for a second", cause="no rate to plan for was seen")
    rows = [row_of(advice, began_s) for advice in found]
    if output != "table":
        topology = advisor.question.topology.name
        document = {"schema": SCHEMA, "topology": topology, **source, "advice": rows, "now": plan_data(plan)}
        emit(output, document, rows)
        return
    for row, advice in zip(rows, found, strict=True):
        when = f"{row['time'][:19]}Z" if row["time"] else f"{row['at_s']:9.2f} s"
        click.echo(f"{when}  {advice.reason} → {advice.action}: {advice.text}")
    facts = plan_facts(plan)
    click.echo(
        f"\nnow: plan {plan.id} for {significant(facts['rate_tps'], 6)} rows/s, "
        f"{counted(facts['slots'], 'slot')} on {counted(facts['vms'], 'VM')}, ${facts['usd_per_hour']:g} per hour"
        + value_words(source)
    )
    write_table(task_rows(plan))


def value_words(source: dict[str, Any]) -> str:
    """What is known of the value that it goes by; of a trace nothing has to be."""
    if "value_age_s" not in source:
        return ""
    found = f"; by a value of {source['value_age_s']:.0f} s ago"
    if source["sample_times_known"] or source["value_unchanged_s"] < SAME_LEAST_S:
        return found
    same = f"the same for {source['value_unchanged_s']:.0f} s"
    return f"{found}, {same}: of an expression the server does not say how old its samples are"


def task_rows(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "task": task.task,
            "rows/s": round(task.rate_tps, 1),
            "threads": task.threads,
            "slots of CPU": round(task.cpu_slots, 2),
        }
        for task in plan.allocation.tasks
    ]
