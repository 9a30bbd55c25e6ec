"""What a plan is called: a digest of all it says. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan
from headgate.topology_runtime.topology import Topology, digest_of


def with_id(plan: Plan) -> Plan:
    """The plan with the `id` that its other fields but `base_epoch` give."""
    nameless = msgspec.structs.replace(plan, id="", base_epoch=None)
    return msgspec.structs.replace(plan, id=digest_of(msgspec.json.encode(nameless)))


def models_digest(topology: Topology, models: Mapping[str, Model]) -> str:
    """The digest of the models that the tasks of this topology use."""
    used = sorted({task.model_name for task in topology.tasks if task.static is None})
    return digest_of(*(msgspec.json.encode(models[name], order="deterministic") for name in used))
