"""What the prediction ledger says of models, for commands that plan without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headgate.topology_runtime.trace_tables import LEDGER

if TYPE_CHECKING:
    from headgate.controller.knowledge.certainty import ErrorSpread
    from headgate.controller.knowledge.models import Model
    from headgate.topology_runtime.topology import Topology

TRACES = Path("traces")


def learned_for(
    topology: Topology, models: dict[str, Model], named: str | None
) -> tuple[dict[str, Model], ErrorSpread, list[str]]:
    """(the models, corrected where they are surely off; by how much plans err; both in words). Raises InvalidInput when
    the ledger that is named is not there."""
    from headgate.controller.analyze.lessons import corrections, spread_of
    from headgate.controller.recording.ledger_file import read_ledger, speaking_of
    from headgate.topology_runtime.errors import InvalidInput

    place = Path(named) if named is not None else TRACES
    path = place / topology.name / LEDGER if place.is_dir() else place
    if named is not None and not path.is_file():
        raise InvalidInput(f"there is no prediction ledger {str(path)!r}", hint="`headgate up` writes one")
    read = read_ledger(path)
    entries = speaking_of(read.entries, topology.name, models.values())
    used = {task.model_name for task in topology.tasks if task.static is None}
    told = [*read.faults]
    for model, words in corrections({name: models[name] for name in used if name in models}, entries):
        models = {**models, model.task: model}
        told.append(f"by {path}: {words}; corrected")
    spread = spread_of({name: models[name] for name in used if name in models}, entries)
    if spread.models:
        told.append(f"errors of {', '.join(sorted(spread.models))}: learned, {path}")
    else:
        told.append(
            f"errors: {spread.slot:.1%} each slot and {spread.together:.1%} together, as in trials "
            "(docs/measured-models.md); the ledger knows too few runs of these models"
        )
    return models, spread, told
