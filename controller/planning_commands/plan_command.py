"""`headgate plan TOPOLOGY`: every question about plans, of a topology, its models and VMs.

`--rate` asks for a plan, `--explain` for its reasons, `--max-rate` for the highest rate of fixed VMs, `--rates` what
each rate takes, `--compare` for schedulers side by side, `--placement` what a placement made by anyone carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.controller.plan.acquire import MIXES
from headgate.controller.planning_commands.planning_options import (
    PROBABILITIES,
    SLOTS_MOST,
    STEP_TPS,
    SchedulerName,
    asked,
    certainty_asked,
    rate_of,
    refuse_unknown_choices,
    topology_and_models,
)
from headgate.topology_runtime.commands.number_options import Duration, Number
from headgate.topology_runtime.commands.output import Format, emit, format_options, write_table
from headgate.topology_runtime.commands.rare_settings import SET, SettingsCommand, setting
from headgate.topology_runtime.errors import Infeasible, InvalidInput, UsageError
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Placement, Plan, Prediction
    from headgate.controller.models.task_models import Model
    from headgate.controller.planning_commands.plan_exports import PlanExport
    from headgate.controller.planning_commands.plan_request import PlanWanted
    from headgate.topology_runtime.api.cluster import Vm
    from headgate.topology_runtime.api.topology import Topology

Options = dict[str, Any]
_path = click.Path(path_type=Path)
_share = Number(0, 9)

TARGETS = ("flink", "storm", "kubernetes")

_RSM_WEIGHTS = "What counts how much in RSM's distance: memory, CPU, network (default: 1,1,1)."
_SPREAD = (
    "α, β of the topology mapper: how many threads a slot may hold, from 0 (even) to 1; from which part of the tasks "
    "on empty slots come first (default: 0,0.5). α also of traffic, as printed."
)
_GREEDY = (
    "D_CPU, D_BW, objective (deviation, utilization) and seconds of greedy matching: up to which parts of CPU and link "
    "slots are used, by what, and how long (default: 1,inf,deviation,inf)."
)
_AS_PRINTED = "Of traffic, task-level, top-down: what their paper prints; of traffic α, and min(E, W) slots."
_BOUND = "traffic: the part of a VM's CPU that is in use at most (B of paper 1; default: 1)."


@click.command(cls=SettingsCommand)
@click.argument("topology", metavar="TOPOLOGY")
@click.option("--models", metavar="DIR", help="A folder of models (default: those of an example).")
@click.option("--path", "paths", multiple=True, help="A folder to import user code from first.")
@click.option("--rate", type=Number(), metavar="R", help="Plan for this input rate, in rows/s.")
@click.option(
    "--rates", metavar="A:B:STEP|R,R,…|auto", help="What each rate takes, costs, and what breaks first."
)
@click.option("--max-rate", is_flag=True, help="Plan for the highest rate that fixed VMs carry.")
@click.option(
    "--rate-step", metavar="S|fine", help=f"… in steps of S (default: {STEP_TPS:g}), or to half a percent."
)
@click.option("--compare", metavar="A+M,…|paper|all", help="Pairs of allocator and mapper side by side.")
@click.option("--explain", is_flag=True, help="Say why the plan is as it is, and what was rejected.")
@click.option("--placement", metavar="FILE", help='What a plan, or {"placement": […]}, carries.')
@click.option(
    "--usage",
    default="scaled",
    metavar="scaled|peak",
    show_default=True,
    help="… with CPU and memory at the rate, or as if every group of threads ran at its peak.",
)
@click.option("--base", metavar="PLAN.json", help="The plan in force: move little, and print what changes.")
@click.option("--for", "target", type=click.Choice(TARGETS), help="Print what this system takes instead.")
@click.option("--plot", type=_path, metavar="FILE", help="Draw it: FILE.svg or .png.")
@click.option(
    "--from-trace",
    type=_path,
    metavar="TRACE",
    help="Plan with the selectivities, sizes of rows, traffic and CPU that this run measured.",
)
@click.option("--allocator", default="mba", type=SchedulerName("ALLOCATORS"), show_default=True)
@click.option(
    "--mapper",
    type=SchedulerName("MAPPERS"),
    help="Or one that a package adds.  [default: sam; rsm with lsa]",
)
@click.option(
    "--planner", type=click.Choice(["optimal"]), help="Allocator and mapper optimal: the fewest slots."
)
@click.option(
    "--search-seconds",
    type=Number(0),
    metavar="S",
    help="optimal: the best found in so long, with its gap (default: 1.2; of over 40 tasks 3).",
)
@click.option(
    "--margin",
    type=_share,
    metavar="PART",
    help="Plan for so much more than the rate: 0.05 (default: none; optimal: by the models' spread).",
)
@click.option("--rsm-weights", metavar="M,C,N", help=_RSM_WEIGHTS)
@setting("--topology-spread", metavar="A,B", help=_SPREAD)
@setting("--as-printed", is_flag=True, help=_AS_PRINTED)
@setting("--load-bound", metavar="PART,VM=PART,…", help=_BOUND)
@setting("--greedy-bounds", metavar="C,B,WHAT,S", help=_GREEDY)
@click.option("--routing", default="weighted", metavar="weighted|shuffle", show_default=True)
@click.option("--interference", default="cpu", metavar="cpu|none", show_default=True)
@click.option("--vm-sizes", metavar="4,2,1", help="Acquire VMs of these slots (default: 4,2,1).")
@click.option("--prices", metavar="FILE|azure-d", help="Acquire VMs of a price list.")
@click.option("--mix", type=click.Choice(list(MIXES)), help="How to acquire (exact; of a list: cheapest).")
@click.option(
    "--vms",
    metavar="4,4x0.5@r2:1000",
    help="Fixed VMs: slots of each, x its speed, @ rack, : Mbit/s of its link.",
)
@click.option("--slots", type=click.IntRange(1, SLOTS_MOST), help="So many fixed slots.")
@click.option("--max-usd-per-hour", type=Number(0), metavar="X", help="Exit 4 if it costs more.")
@click.option(
    "--sure",
    type=Number(*PROBABILITIES),
    metavar="P",
    help="The rate shall hold with this probability: 0.95.",
)
@click.option(
    "--p95",
    type=Duration(),
    metavar="50ms",
    help="95 of 100 rows shall be done so soon after they are due, by prediction.",
)
@click.option(
    "--ledger",
    metavar="FILE|DIR",
    help="… by what this prediction ledger, or folder of traces, says of the models (default: ./traces).",
)
@format_options
@click.pass_context
def plan(context: click.Context, /, output: Format, **options: Any) -> None:
    """How many threads, slots and VMs TOPOLOGY needs for an input rate, and what they will carry.

    \b
    headgate plan linear --rate 100
    headgate plan linear --rate 100 --explain
    headgate plan linear --rates 100:600:100
    headgate plan linear --compare lsa+rsm,mba+sam --rates 50,100
    headgate plan linear --max-rate --vms 4,4,4,4,4
    headgate plan FILE --models DIR --rate 100 -o json > plan.json
    headgate plan FILE --models DIR --placement plan.json
    headgate plan FILE --models DIR --rate 200 --base plan.json
    headgate plan FILE --models DIR --rate 100 --from-trace traces/NAME/RUN --mapper traffic
    headgate plan linear --rate 100 --for kubernetes | kubectl apply -f -"""
    from headgate.controller.planning_commands.plan_request import refuse_picture

    question = question_of(options)
    refuse_foreign_options(context, question)
    refuse_picture(options["plot"])
    ANSWERS[question](output, options)


# ── Which question it is, and the options that only some of them take ───────────────────────────────────

_VMS = {"vm_sizes", "prices", "mix", "vms", "slots", "max_usd_per_hour"}
_PLANNING = {"from_trace", "search_seconds", "margin", "rsm_weights", *_VMS}
_PLANNING |= {"topology_spread", "as_printed", "load_bound", "greedy_bounds"}
_SCHEDULERS = {"allocator", "mapper", "planner"}
_ALL = {SET, "topology", "models", "paths", "routing", "interference", "output"}

TAKES: dict[str, set[str]] = {
    "--placement": {"placement", "rate", "usage", "sure", "ledger"},
    "--compare": {"compare", "rate", "rates", "max_rate", "rate_step", "base", "plot", *_PLANNING},
    "--rates": {"rates", "plot", *_PLANNING, *_SCHEDULERS},
    "--explain": {"explain", "rate", "plot", *_PLANNING, *_SCHEDULERS},
    "--rate": {
        "rate",
        "max_rate",
        "rate_step",
        "base",
        "target",
        "plot",
        "sure",
        "p95",
        "ledger",
        *_PLANNING,
        *_SCHEDULERS,
    },
}  # question → the options that it takes besides those that all take


def question_of(options: Options) -> str:
    """One of `TAKES`."""
    for question in ("--placement", "--compare", "--rates", "--explain"):
        if options[question[2:]] not in (None, False):
            return question
    return "--rate"


def refuse_foreign_options(context: click.Context, question: str) -> None:
    """Raises UsageError for options on the command line that say nothing about this question."""
    rare: list[click.Parameter] = getattr(context.command, "settings", [])
    typed = (
        param
        for param in (*context.command.params, *rare)
        if param.name is not None
        and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    )
    foreign = [param.opts[0] for param in typed if param.name not in _ALL | TAKES[question]]
    if foreign:
        raise UsageError(f"{question} does not take {', '.join(foreign)}", hint="leave one of them out")


def refuse_rates(options: Options) -> float:
    """The step of `--max-rate`. Raises UsageError where no rate is given, or more than one."""
    given = [f"--{name.replace('_', '-')}" for name in ("rate", "rates", "max_rate") if options[name]]
    given += ["--rate"] if options["rate"] == 0 else []
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", hint="give one of them")
    if not given:
        raise UsageError("no input rate given", hint="add --rate R, or --max-rate with --vms or --slots")
    if options["rate_step"] is not None and not options["max_rate"]:
        raise UsageError("--rate-step needs --max-rate", hint="leave it out, or add --max-rate")
    if options["max_rate"] and options["vms"] is None and options["slots"] is None:
        raise UsageError("--max-rate needs fixed VMs", hint="add --vms 4,4 or --slots 20")
    for name in ("sure", "p95"):
        if options["max_rate"] and options[name] is not None:
            raise UsageError(f"--{name} needs a --rate", hint="leave out --max-rate")
    if options["p95"] is not None and (options["sure"] is not None or options["margin"] is not None):
        raise UsageError("--p95 chooses how much more is planned for", hint="leave out --sure and --margin")
    return _step_tps(options["rate_step"])


def _step_tps(text: str | None) -> float:
    """0 for `fine`. Raises UsageError and InvalidInput."""
    if text is None or text == "fine":
        return STEP_TPS if text is None else 0.0
    try:
        return rate_of(float(text), STEP_TPS, "--rate-step")
    except ValueError as error:
        raise UsageError(f"invalid --rate-step {text!r}", hint="give rows/s, or `fine`") from error


# ── `--rate` and `--max-rate`: the plan, as tables, as data or in the words of another system ───────────


def answer_plan(output: Format, options: Options) -> None:
    from headgate.controller.plan.latency_limit import latency_in
    from headgate.controller.planning_commands.latency_limit import latency_data, latency_sentence

    step_tps, target = refuse_rates(options), options["target"]
    question = asked(options)
    if options["max_rate"]:
        question = replace(question, step_tps=step_tps)
    found, before, less = answered(question, options["base"], options["p95"])
    latency = latency_in(found, question.request)
    draw(found, question, options["plot"])
    lacking = unmeasured(question)
    if target is not None:
        write_export(output, target, found, question)
    elif output == "table":
        print_plan(found, before, question.topology)
        if latency is not None:
            click.echo(f"\nlatency\n{latency_sentence(latency, options['p95'])}")
    else:
        more: Options = {"unmeasured": list(lacking), "tentative": list(tentative(question))}
        more |= {"degraded": less, "latency": latency_data(latency, options["p95"])}
        write_plan(output, found, before, {k: v for k, v in more.items() if v}, question.topology)
    warn(question, lacking, less)


def warn(question: PlanWanted, lacking: Sequence[str], less: str) -> None:
    """Of what the plan rests on, and of what it lacks."""
    if lacking:
        names = ", ".join(lacking)
        click.echo(f"what rows cost is not known yet of {names}: one thread each, at any rate", err=True)
    if names := ", ".join(tentative(question)):
        click.echo(
            f"warning: what rows cost is known by few or disturbed ones of {names}; a run learns more",
            err=True,
        )
    if less:
        click.echo(f"warning: the plan is for less than was asked for: {less}", err=True)


def answered(
    question: PlanWanted, base: str | None, p95_ms: float | None = None
) -> tuple[Plan, Plan | None, str]:
    """(the plan, the plan of the file `base` that it is to replace or None, why it is for less than asked or "").
    p95_ms: so long 95 of 100 rows may take."""
    from headgate.controller.files.planning_inputs import read_base
    from headgate.controller.planning_commands.latency_limit import within
    from headgate.controller.planning_commands.plan_changes import based_on
    from headgate.controller.planning_commands.plan_request import check

    before = read_base(base, question.topology) if base is not None else None
    if before is not None:
        question = question.beside(before)
        if p95_ms is None and (stays := question.as_it_is(before)) is not None:
            return stays, before, ""
    try:
        found, less = question.plan_or_best() if p95_ms is None else within(question, p95_ms)
    except Infeasible as error:
        raise question.with_nearest(error) from error
    if before is not None:
        if p95_ms is None:
            found = question.moving_least(found, before)
        else:
            found = based_on(found, before, question.topology, question.request.fixed)
        check(found, question.topology, question.models)
    return found, before, less


def write_plan(
    output: Format, plan: Plan, before: Plan | None, more: Mapping[str, Any], topology: Topology
) -> None:
    """For programs; CSV and JSON lines have the slots."""
    from headgate.controller.models.plan_data import plan_data
    from headgate.controller.planning_commands.plan_changes import changes_data
    from headgate.controller.planning_commands.plan_sentences import planned_traffic, slot_rows

    document = {**plan_data(plan, planned_traffic(plan, topology)), **more}
    if before is not None:
        document["changes"] = changes_data(before, plan)
    emit(output, document, slot_rows(plan.placement, plan.prediction))


def print_plan(plan: Plan, before: Plan | None, topology: Topology) -> None:
    """For people: a sentence, then what is allocated, where it is, and what changes."""
    from headgate.controller.models.plans import margin_words
    from headgate.controller.planning_commands.plan_sentences import (
        headline,
        readable_slots,
        slot_rows,
        task_rows,
        traffic_data,
        traffic_sentences,
        vm_rows,
    )

    click.echo(headline(plan))
    for words in (plan.allocation.gap_words, margin_words(plan.allocation), plan.allocation.counted):
        if words:
            click.echo(f"{words[:1].upper()}{words[1:]}.")
    click.echo()
    write_table(task_rows(plan), "allocation")
    click.echo()
    slots = readable_slots(slot_rows(plan.placement, plan.prediction))
    write_table(slots, f"slots at {significant(plan.prediction.at_rate_tps, 6)} rows/s")
    click.echo()
    write_table(vm_rows(plan), "VMs")
    click.echo("\ntraffic")
    for line in traffic_sentences(traffic_data(plan, topology)):
        click.echo(line)
    if before is not None:
        from headgate.controller.planning_commands.diff_command import print_diff

        click.echo("\nchanges")
        print_diff(before, plan)


def unmeasured(question: PlanWanted) -> tuple[str, ...]:
    """Tasks that nothing is known of yet."""
    from headgate.controller.models.task_models import unknown_tasks

    return unknown_tasks(question.topology, question.models)


def tentative(question: PlanWanted) -> tuple[str, ...]:
    """Tasks that are known by few or disturbed rows."""
    from headgate.controller.models.task_models import unsure_tasks

    lacking = unmeasured(question)
    return tuple(t for t in unsure_tasks(question.topology, question.models) if t not in lacking)


def draw(plan: Plan, question: PlanWanted, path: Path | None) -> None:
    """The picture of `--plot`."""
    if path is not None:
        from headgate.controller.pictures.plan_picture import plan_picture

        plan_picture(plan, question.topology, question.models, path)
        click.echo(f"drawn: {path}", err=True)


# ── `--for TARGET`: the plan as text to paste into another system, or as data ───────────────────────────


def export_of(target: str, plan: Plan, question: PlanWanted) -> PlanExport:
    """The plan in the words of one of `TARGETS`."""
    from headgate.controller.plan.plan_reasons import supported
    from headgate.controller.planning_commands.plan_exports import for_flink, for_kubernetes, for_storm

    if target == "kubernetes":
        return for_kubernetes(plan)
    shuffle_tps = supported(plan, question.topology, question.models, "shuffle").rate_tps
    return (
        for_storm(plan, shuffle_tps) if target == "storm" else for_flink(plan, question.topology, shuffle_tps)
    )


def write_export(output: Format, target: str, plan: Plan, question: PlanWanted) -> None:
    """Print it: for people as text to paste, with what is lost in its comments."""
    found = export_of(target, plan, question)
    if output == "table":
        click.echo(text_of(found, plan))
    else:
        emit(output, found.document(plan), found.rows)


def text_of(found: PlanExport, plan: Plan) -> str:
    """Everything as one text whose sentences are comments; of Kubernetes it is YAML, for `kubectl apply -f -`."""
    from headgate.controller.planning_commands.plan_sentences import headline

    parts = [_comment(headline(plan))]
    inside = found.target == "kubernetes"
    for place, text in found.blocks:
        parts.append(f"# {place}\n{_comment(text) if inside else text}")
    parts.append("# What this cannot say:\n" + "\n".join(f"# - {line}" for line in found.lost))
    if inside:
        import yaml

        parts += ["---\n" + yaml.safe_dump(one, sort_keys=False).rstrip() for one in found.data["manifests"]]
    return "\n\n".join(parts)


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


# ── `--explain`: why the plan has these threads, these slots, this limit, and not another ───────────────


def answer_explanation(output: Format, options: Options) -> None:
    from headgate.controller.planning_commands.plan_explanation import explanation
    from headgate.controller.planning_commands.plan_sentences import text_of

    if options["rate"] is None:
        raise UsageError("no input rate given", hint="add --rate 100: the plan for it is explained")
    question = asked(options)
    found, _, less = answered(question, None)
    draw(found, question, options["plot"])
    document = explanation(question, found)
    warn(question, unmeasured(question), less)
    if output == "table":
        click.echo(text_of(document))
    else:
        emit(output, document, document["threads"])


# ── `--compare` and `--rates`: a table of pairs, a table of rates ───────────────────────────────────────


def answer_comparison(output: Format, options: Options) -> None:
    """A row per rate and pair; what no plan fits is a row with its reason."""
    from headgate.controller.files.planning_inputs import read_base
    from headgate.controller.planning_commands import rate_questions
    from headgate.controller.planning_commands.plan_request import pairs_of

    step_tps = refuse_rates(options)
    rates = (None,) if options["max_rate"] else rate_questions.rates_asked(options)
    pairs = pairs_of(options["compare"])
    question = asked({**options, "rate": None})
    if options["max_rate"]:
        question = replace(question, step_tps=step_tps)
    base = read_base(options["base"], question.topology) if options["base"] is not None else None
    rows = rate_questions.compared_rows(question, pairs, rates, base)
    rate_questions.write_comparison(output, question, rows)
    if options["plot"] is not None:
        from headgate.controller.pictures.rate_pictures import comparison_picture

        comparison_picture(rows, options["plot"])


def answer_rates(output: Format, options: Options) -> None:
    from headgate.controller.planning_commands import rate_questions

    rates = None if options["rates"] == "auto" else rate_questions.rates_asked(options)
    rows = rate_questions.answer(output, asked(options), rates)
    if options["plot"] is not None:
        from headgate.controller.pictures.rate_pictures import whatif_picture

        whatif_picture(rows, options["plot"])


# ── `--placement FILE`: what a placement will carry, whoever made it ────────────────────────────────────


def answer_placement(output: Format, options: Options) -> None:
    """CPU and memory at --rate, as far as the placement carries it; without it at the highest rate that it carries.
    With --sure also how surely it carries --rate, or the highest one that it carries so surely."""
    from headgate.controller.files.planning_inputs import read_json
    from headgate.controller.models.plan_data import PREDICTION_SCHEMA, placement_of, prediction_data
    from headgate.controller.plan.plan_steps import model_names
    from headgate.controller.plan.predict.latency import latency_of
    from headgate.controller.plan.predict.placement_load import load_of
    from headgate.controller.plan.predict.prediction import with_certainty
    from headgate.controller.planning_commands.latency_limit import latency_data, latency_sentence
    from headgate.controller.planning_commands.plan_sentences import carries, readable_slots, slot_rows

    refuse_unknown_choices(options)
    rate_tps = None if options["rate"] is None else rate_of(options["rate"], 0.0)
    topology, models = topology_and_models(options)
    sure, models = certainty_asked(options, topology, models)
    named = options["placement"]
    placement, vms = placement_of(read_json(named), topology, named)
    prediction = predicted(topology, models, placement, vms, rate_tps, options)
    latency = None
    if rate_tps is not None:
        latency = latency_of(topology, models, placement, vms, prediction, rate_tps)
    if sure is not None:
        load = load_of(topology, models, placement, vms, options["interference"] == "cpu")
        prediction = with_certainty(prediction, load, rate_tps, sure, model_names(topology))
    if output == "table":
        click.echo(f"{topology.name}: {carries(prediction)}")
        if rate_tps is not None and prediction.rate_tps < rate_tps:
            share = prediction.rate_tps / rate_tps
            click.echo(f"it cannot carry {significant(rate_tps, 6)} rows/s: {share:.0%} of them")
        at_rate = f"at {significant(prediction.at_rate_tps, 6)} rows/s"
        at = "at peak" if options["usage"] == "peak" else at_rate
        write_table(readable_slots(slot_rows(placement, prediction)), f"slots {at}")
        if latency is not None:
            click.echo(f"\nlatency\n{latency_sentence(latency, None)}")
        return
    how = {key: options[key] for key in ("routing", "interference", "usage")}
    document = {"schema": PREDICTION_SCHEMA, "topology": topology.name, **how, **prediction_data(prediction)}
    document |= {"latency": data} if (data := latency_data(latency, None)) else {}
    emit(output, document, slot_rows(placement, prediction))


def predicted(
    topology: Topology,
    models: dict[str, Model],
    placement: Placement,
    vms: tuple[Vm, ...],
    rate_tps: float | None,
    options: dict[str, Any],
) -> Prediction:
    """The prediction asked for by `--routing`, `--interference`, `--usage`. Raises InvalidInput when tasks
    have no model, UsageError when nothing says at which rate."""
    from headgate.controller.models.task_models import missing_models
    from headgate.controller.plan.predict import prediction as planning

    faults = missing_models(topology, models)
    if faults:
        raise InvalidInput(f"topology {topology.name!r} cannot be predicted", faults=faults)
    if rate_tps is None and all(task.static is not None for task in topology.tasks):
        raise UsageError("no task has a model, so nothing limits the rate", hint="add --rate R")
    how = {key: options[key] for key in ("routing", "interference", "usage")}
    return planning.predict(topology, models, placement, vms, rate_tps, **how)


ANSWERS: dict[str, Callable[[Format, Options], None]] = {
    "--placement": answer_placement,
    "--compare": answer_comparison,
    "--rates": answer_rates,
    "--explain": answer_explanation,
    "--rate": answer_plan,
}
