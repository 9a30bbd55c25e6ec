"""Names models and VMs that are surely off, by what the prediction ledger says, and corrects the models. Pure.

A corrected model is a new version that tells where it comes from (`knowledge/corrections.py`); the one before it stays
where it was read. It is planned with at once. VMs are named only: their rows do not count against models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.controller.analyze.bias import ModelBias, slow_vms, words_of
from headgate.controller.analyze.lessons import corrected_by, off_models
from headgate.controller.core.accounting import Accounts
from headgate.controller.core.first_rows import may_plan
from headgate.controller.knowledge.corrections import correction_of, version_of
from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.model_data import model_data
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.prediction_ledger import LedgerEntry
from headgate.controller.knowledge.records import Modelled
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import KeepModel
from headgate.topology_runtime.trace_tables import CORRECTED
from headgate.topology_runtime.utc import utc_iso


def by_ledger(turn: Turn) -> None:
    """Before the first plan, by what earlier runs found. A plan that was given is of the models as they are."""
    settings = turn.knowledge.settings
    if settings.ledger_trouble:
        turn.event("trouble", f"the prediction ledger is spoiled: {settings.ledger_trouble}", level="warning")
    if settings.plan is None:
        _correct(turn, _off(turn, settings.ledger))


def named(turn: Turn, accounts: Accounts) -> list[ModelBias]:
    """Models that are off by all that is known, after a new entry, until they are corrected; told of, once each."""
    k = turn.knowledge
    if not accounts.fresh:
        return []
    off = _off(turn, (*k.settings.ledger, *accounts.entries.values()))
    accounts.fresh = bool(off)
    return off


def found(turn: Turn, off: Sequence[ModelBias], need: Demand) -> Diagnosis | None:
    """A plan to be made since these models were corrected; None where none was."""
    k = turn.knowledge
    if not off or not may_plan(k):
        return None
    told = _correct(turn, off)
    evidence = {bias.model: round(bias.cost.factor, 4) for bias in off}
    return Diagnosis("replan", "model_off", told, need.target_tps, evidence, ())


def _off(turn: Turn, entries: Iterable[LedgerEntry]) -> list[ModelBias]:
    """The models at hand that are off from what they are corrected by already; each that was not is told of, and so
    are slow VMs."""
    k, known = turn.knowledge, tuple(entries)
    words = {
        f"VM {vm}": f"VM {vm} is slow: the same rows cost {how.factor:.2g} times the CPU there that they cost elsewhere"
        for vm, how in slow_vms(known).items()
    }
    off: list[ModelBias] = []
    for model, bias in off_models(k.models, known):
        off.append(bias)
        words[f"model {model.task}"] = words_of(bias, correction_of(model).time)
    for what, text in words.items():
        if what not in k.found_off:
            turn.event("off", text, level="warning", what=what)
    k.found_off = words
    return off


def _correct(turn: Turn, off: Iterable[ModelBias]) -> str:
    """Bring these into the models, and say so."""
    k = turn.knowledge
    fresh = [corrected_by(k.models[bias.model], bias, utc_iso(turn.now.wall_ns)) for bias in off]
    if not fresh:
        return ""
    texts = [_change(k.models[model.task], model) for model in fresh]
    turn.record(Modelled(tuple(fresh), turn.now.wall_ns))
    for model, text in zip(fresh, texts, strict=True):
        turn.do(KeepModel(model_data(model), CORRECTED))
        turn.event("corrected", text, model=model.task)
        k.found_off.pop(f"model {model.task}", None)
    return "; ".join(texts)


def _change(before: Model, after: Model) -> str:
    old, new = correction_of(before), correction_of(after)
    return (
        f"the model of {after.task} is corrected, its rates × {old.time / new.time:.3g}: version "
        f"{version_of(before)[:8]} → {version_of(after)[:8]}"
    )
