"""`headgate plan … --for TARGET`: the plan as text to paste into another system, or as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headgate.topology_runtime.output import Format, emit

if TYPE_CHECKING:
    from headgate.controller.knowledge.plans import Plan
    from headgate.controller.offline.elsewhere.leaving import Leaving
    from headgate.controller.offline.request import PlanWanted

TARGETS = ("flink", "storm", "kubernetes")


def leaving(target: str, plan: Plan, question: PlanWanted) -> Leaving:
    """The plan in the words of one of `TARGETS`."""
    from headgate.controller.offline.elsewhere.for_flink import for_flink
    from headgate.controller.offline.elsewhere.for_kubernetes import for_kubernetes
    from headgate.controller.offline.elsewhere.for_storm import for_storm
    from headgate.controller.plan.reasons import supported

    if target == "kubernetes":
        return for_kubernetes(plan)
    shuffle_tps = supported(plan, question.topology, question.models, "shuffle").rate_tps
    return (
        for_storm(plan, shuffle_tps) if target == "storm" else for_flink(plan, question.topology, shuffle_tps)
    )


def write_leaving(output: Format, target: str, plan: Plan, question: PlanWanted) -> None:
    """Print it: for people as text to paste, with what is lost in its comments."""
    found = leaving(target, plan, question)
    if output == "table":
        click.echo(text_of(found, plan))
    else:
        emit(output, found.document(plan), found.rows)


def text_of(found: Leaving, plan: Plan) -> str:
    """Everything as one text whose sentences are comments; of Kubernetes it is YAML, for `kubectl apply -f -`."""
    from headgate.controller.offline.tables import headline

    parts = [_comment(headline(plan))]
    inside = found.target == "kubernetes"
    for place, text in found.blocks:
        parts.append(f"# {place}\n{_comment(text) if inside else text}")
    parts.append("# What this cannot say:\n" + "\n".join(f"# - {line}" for line in found.lost))
    if inside:
        import yaml

        parts += ["---\n" + yaml.safe_dump(one, sort_keys=False).rstrip() for one in found.told["manifests"]]
    return "\n\n".join(parts)


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())
