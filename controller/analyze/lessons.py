"""What follows from the prediction ledger for models: which are to be corrected, and how surely plans hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from headgate.controller.analyze.bias import PRIOR_RUNS, ModelBias, biases, slow_vms, words_of
from headgate.controller.knowledge.certainty import ErrorSpread
from headgate.controller.knowledge.corrections import corrected, correction_of
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.prediction_ledger import LedgerEntry

ENOUGH_RUNS = 5  # of a model, before its own errors are gone by
PLANS_TOLD = 10  # in a corrected model
QUICKER_MOST = 2.0  # a model gets so much quicker at a time: rows may cost more again when more of them come


def off_models(
    models: Mapping[str, Model], entries: Iterable[LedgerEntry]
) -> Iterator[tuple[Model, ModelBias]]:
    """The models that are surely off from what they are corrected by already."""
    known = tuple(entries)
    found = biases(known, slow_vms(known))
    for model in models.values():
        before = correction_of(model)
        bias = found.get((model.task, before.of))
        if bias is not None and not model.unmeasured and bias.cost.off_from(before.time):
            yield model, bias


def corrections(models: Mapping[str, Model], entries: Iterable[LedgerEntry]) -> Iterator[tuple[Model, str]]:
    """(the corrected model, why) of each that is off."""
    for model, bias in off_models(models, entries):
        yield corrected_by(model, bias), words_of(bias, correction_of(model).time)


def corrected_by(model: Model, bias: ModelBias, when: str | None = None) -> Model:
    """The next version of the model, which says where it comes from."""
    before = correction_of(model)
    time = max(bias.cost.factor, before.time / QUICKER_MOST)
    cpu = bias.cpu.factor * time / bias.cost.factor if bias.by_time and bias.cpu is not None else time
    provenance = {
        **({"at": when} if when is not None else {}),
        "by": "time" if bias.by_time else "cpu",
        "measured": round(bias.cost.raw, 6),
        "runs": bias.cost.runs,
        "plans": list(bias.plans[-PLANS_TOLD:]),
    }
    return corrected(model, time, cpu, provenance)


def spread_of(models: Mapping[str, Model], entries: Iterable[LedgerEntry]) -> ErrorSpread:
    """By how much plans with these models err. What is left of a bias after correction is a part of it; so is that a
    spread was estimated from few runs (the standard deviation of Student's distribution)."""
    known = tuple(entries)
    found = biases(known, slow_vms(known))
    learned: dict[str, tuple[float, float]] = {}
    for model in models.values():
        before = correction_of(model)
        bias = found.get((model.task, before.of))
        if bias is not None and bias.cost.runs >= ENOUGH_RUNS:
            freedom = PRIOR_RUNS + bias.cost.runs - 1
            own = math.hypot(bias.cost.spread * math.sqrt(freedom / (freedom - 2)), bias.cost.error)
            learned[model.task] = math.log(bias.cost.factor / before.time), own
    return ErrorSpread(models=learned)
