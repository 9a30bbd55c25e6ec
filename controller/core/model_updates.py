"""What an analysis that follows the run offers: refitted models, a season. Pure.

`offer` is an operator's command. Whatever of it is not to be believed is refused with the reason, each part by itself;
what is taken is journaled before anything rests on it, so a controller that was killed keeps it. A model that is taken
corrects the one in force (`model_bias.py`), as the prediction ledger does, and is planned with as soon as nothing
is on its way. A season is handed to the forecast, which believes it once its forecast proved right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headgate.controller.analyze.model_bias import AGAIN, RefitFound, refit_of
from headgate.controller.analyze.season_detection import SAME
from headgate.controller.core.profiling import may_plan
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.journal_records import OfferTaken, Submitted
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import KeepModel
from headgate.controller.models.model_data import model_data, model_of
from headgate.controller.models.prediction_ledger import corrected, correction_of, version_of
from headgate.controller.models.task_models import Model
from headgate.controller.plan.predict.slot_fit import near
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.rates.learned_season import SCHEMA as SEASON_SCHEMA
from headgate.topology_runtime.rates.learned_season import LearnedSeason, season_faults
from headgate.topology_runtime.traces.trace_tables import CORRECTED
from headgate.topology_runtime.wording import utc_iso

Arguments = dict[str, Any]
SCHEMA = "headgate/offer/v1"
NS = 1_000_000_000
STALE_S, AHEAD_S = (
    600.0,
    60.0,
)  # the newest sample of an analysis is so old at most, and so far ahead of our clock
MODELS_MOST = 1000
AGAIN_NS = 60 * NS  # a plan that came to nothing is tried again


class AnalysisOffer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `offer`. run, started: as `run.json` has them. until_us: UTC of the newest sample analysed. models:
    the data of model files; season: of a season's file. Without both it is asked whether an offer would be heard."""

    run: str
    started: str
    until_us: int = 0
    models: tuple[Any, ...] = ()
    season: Any = None


def offer(turn: Turn, arguments: Arguments) -> Any:
    """Take what is to be believed; what was taken, and what was not and why."""
    k = turn.knowledge
    try:
        given = msgspec.convert(arguments, AnalysisOffer, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput("invalid offer", cause=str(error)) from error
    submitted = _run_of(turn, given)
    if (given.models or given.season is not None) and (why := _not_of_now(given, turn.now.wall_ns)):
        raise Conflict("stale offer", cause=why, hint="headgate analyze --follow TRACE --offer")
    if len(given.models) > MODELS_MOST:
        raise InvalidInput(
            f"the offer has {len(given.models)} models", cause=f"at most {MODELS_MOST} are taken"
        )
    models: list[Model] = []
    found: dict[str, RefitFound] = {}
    refused: list[dict[str, str]] = []
    for data in given.models:
        one = _model_of(k, submitted, data)
        if isinstance(one, str):
            refused.append({"what": f"model {task_named(data)}", "why": one})
        elif one[0].task in found:
            refused.append({"what": f"model {task_named(data)}", "why": "it was offered twice"})
        else:
            found[one[0].task] = one[1]
            models.append(_refitted(*one, utc_iso(turn.now.wall_ns)))
    season = _season_of(k, submitted, given.season) if given.season is not None else None
    if isinstance(season, str):
        refused.append({"what": "season", "why": season})
        season = None
    return {"schema": SCHEMA, "taken": _take(turn, models, found, season), "refused": refused}


def found(turn: Turn, need: Demand) -> Diagnosis | None:
    """A plan to be made since models were taken that none was made with yet."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    refits = k.durable.refits
    if not refits or not may_plan(k) or now_ns < k.journal_retry_ns:
        return None
    if k.refits_tried_ns and now_ns - k.refits_tried_ns < AGAIN_NS:
        return None
    k.refits_tried_ns = now_ns
    evidence = {name: correction_of(k.models[name]).time for name in refits if name in k.models}
    return Diagnosis("replan", "refitted", "; ".join(refits.values()), need.target_tps, evidence, ())


# ── what is believed ────────────────────────────────────────────────────────────────────────────


def _run_of(turn: Turn, given: AnalysisOffer) -> Submitted:
    """What is run here. Raises Conflict when the offer is not of that."""
    k = turn.knowledge
    here = k.durable.run
    if here is None or given.run != k.settings.run or given.started != utc_iso(here.wall_ns):
        raise Conflict(
            f"the offer is of run {given.run}, which this controller does not run",
            cause=f"it runs {k.settings.run} since {utc_iso(here.wall_ns)}"
            if here
            else "it runs nothing yet",
            hint="name the controller of the run: --controller WHERE",
        )
    if turn.stage != "running":
        raise Conflict(f"run {given.run} is ending, so nothing is planned any more")
    if k.settings.plan is not None:
        raise Conflict("the plan was given and is held, so nothing would come of an offer")
    return here


def _not_of_now(given: AnalysisOffer, wall_ns: int) -> str:
    age_s = (wall_ns - given.until_us * 1000) / NS
    if age_s > STALE_S:
        return f"its newest sample is {age_s:.0f} s old, {STALE_S:.0f} s at most are taken"
    return f"its newest sample is {-age_s:.0f} s ahead of the controller's clock" if age_s < -AHEAD_S else ""


def _model_of(k: Knowledge, submitted: Submitted, data: Any) -> tuple[Model, RefitFound] | str:
    """(the model in force, by how much it is off), or why this one is refused."""
    offered, faults = model_of(data)
    if offered is None:
        return "; ".join(faults[:3])
    task = submitted.topology.by_name.get(offered.task)
    if task is None:
        return f"topology {submitted.topology.name} has no such task"
    if task.static is not None:
        return "it is of fixed size: no plan asks for its model"
    sharing = [
        t.name for t in submitted.topology.tasks if t.static is None and t.model_name == task.model_name
    ]
    if len(sharing) > 1:
        return f"{', '.join(sharing)} share one model, and what one of them costs the others need not"
    model = k.models[task.model_name]
    if model.unmeasured:
        return "it has no model yet, and is measured on its first rows"
    if k.durable.recoded_ns:
        return f"its code may be another since {utc_iso(k.durable.recoded_ns)}, and what came before was seen too"
    if why := _other_slots(k, model, offered):
        return why
    found = refit_of(model, offered, k.durable.refit_s.get(model.task, 0.0))
    return found if isinstance(found, str) else (model, found)


def _other_slots(k: Knowledge, model: Model, offered: Model) -> str:
    """Why what was seen says nothing of the slots that are planned with."""
    mine, its = model.slot, offered.slot
    if not (near(its.cores, mine.cores) and near(its.memory_bytes, mine.memory_bytes)):
        return (
            f"it was seen in slots of {its.cores:g} cores and {its.memory_bytes} bytes, "
            f"and plans are of slots of {mine.cores:g} and {mine.memory_bytes}"
        )
    named = offered.more.get("vms")
    vms = {vm.vm: vm for vm in k.durable.joined}
    if not isinstance(named, list) or not named or not all(isinstance(vm, str) and vm in vms for vm in named):
        return "it does not say on which VMs of this run it was seen"
    if slow := [vm for vm in named if f"VM {vm}" in k.found_off]:
        return f"it was seen on {', '.join(slow)}, where rows cost more than elsewhere"
    speeds = {vm.speed for vm in vms.values()}
    return (
        f"VMs here are of speeds {_listed(speeds)}: what is seen on one says too little"
        if len(speeds) > 1
        else ""
    )


def _season_of(k: Knowledge, submitted: Submitted, data: Any) -> LearnedSeason | str:
    """The season, or why it is refused."""
    try:
        season = msgspec.convert(data, LearnedSeason, strict=False)
    except msgspec.ValidationError as error:
        return f"invalid season: {error}"
    if season.schema != SEASON_SCHEMA:
        return f"invalid season: its schema is {season.schema[:64]!r}, not {SEASON_SCHEMA!r}"
    if faults := list(season_faults(season)):
        return "; ".join(faults)
    if season.topology != submitted.topology.name:
        return f"it was learned from {season.topology[:64]!r}"
    known = k.durable.season or k.settings.season
    if known is None or abs(season.period_s / known.period_s - 1) > SAME:
        return season
    least_s = AGAIN * known.learned.seconds
    if season.learned.seconds >= least_s:
        return season
    return f"one of {known.period_s:.0f} s is known, and {least_s:.0f} s are needed to learn it better"


# ── what is taken ───────────────────────────────────────────────────────────────────────────────


def _refitted(model: Model, found: RefitFound, when: str) -> Model:
    """The next version of the model in force."""
    before = correction_of(model)
    provenance = {
        "at": when,
        "by": "refit",
        "measured": round(found.time, 6),
        "seconds": round(found.seconds, 3),
    }
    return corrected(model, before.time * found.time, before.cpu * found.cost, provenance)


def _take(
    turn: Turn, models: Sequence[Model], found: dict[str, RefitFound], season: LearnedSeason | None
) -> list[dict[str, str]]:
    """Journal these, and say so."""
    k = turn.knowledge
    texts = {model.task: _change(k.models[model.task], model, found[model.task]) for model in models}
    if not models and season is None:
        return []
    seconds = {name: one.seconds for name, one in found.items()}
    turn.record(OfferTaken(tuple(models), seconds, texts, season, turn.now.wall_ns))
    for model in models:
        turn.do(KeepModel(model_data(model), CORRECTED))
        turn.event("refitted", texts[model.task], model=model.task)
        k.found_off.pop(f"model {model.task}", None)
    taken = [{"what": f"model {name}", "text": text} for name, text in texts.items()]
    if models:
        k.refits_tried_ns = 0
    if season is not None:
        text = (
            f"a season of {season.period_s:.0f} s was learned from {season.learned.seconds:.0f} s of this run: it is "
            "planned with once its forecast proved right"
        )
        turn.event("season", text)
        taken.append({"what": "season", "text": text})
    return taken


def _change(before: Model, after: Model, found: RefitFound) -> str:
    versions = f"version {version_of(before)[:8]} → {version_of(after)[:8]}"
    return f"the model of {after.task} is corrected by an analysis of this run: {found.text}: {versions}"


def task_named(data: Any) -> str:
    return str(data.get("task", "?"))[:64] if isinstance(data, dict) else "?"


def _listed(speeds: set[float]) -> str:
    return ", ".join(f"{speed:g}" for speed in sorted(speeds))
