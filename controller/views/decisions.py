"""Decisions as a picture shows them, those that led to nothing too, but each kind of these once in a row. Pure."""

from __future__ import annotations

from typing import Any

from headgate.controller.views.figures import figure, plain
from headgate.controller.views.sentences import rule_of
from headgate.topology_runtime.snapshot import DecisionNow

Decision = dict[str, Any]  # `headgate/decision/v1`


def decision_now(found: Decision) -> DecisionNow:
    """What is known of a decision when it is taken."""
    plan = found.get("plan") or {}
    return DecisionNow(
        time=found["time"],
        epoch=found["epoch"],
        trigger=found["trigger"],
        rule=rule_of(found["trigger"]),
        action=found["action"],
        text=found["text"],
        numbers=plain(found.get("evidence") or {}),
        alternatives=tuple(found.get("alternatives") or ()),
        plan=plan.get("id"),
        rate_tps=figure(plan.get("rate_tps"), 4),
        predicted_tps=figure(plan.get("predicted_tps"), 4),
        slots=plan.get("slots"),
        moves=plan.get("moves"),
    )


def is_new(found: Decision, last_trigger: str) -> bool:
    """Is it worth a line, after a decision with this trigger? What led to nothing is shown when its reason
    is another one, and never when all is fine."""
    if found["action"] != "none":
        return True
    return found["trigger"] not in ("fine", last_trigger)
