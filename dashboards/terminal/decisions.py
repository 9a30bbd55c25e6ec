"""Decisions as a trace holds them, and in words."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.output import to_json
from headgate.topology_runtime.trace_tables import DECISIONS

Document = dict[str, Any]
Decision = Document
BROUGHT = ("plan", "adopt")  # actions that bring a plan into force


def decisions_of(folder: Path) -> list[Decision]:
    """All decisions of a trace; what a kill left half written is none. Raises InvalidInput."""
    try:
        whole, _, _ = (folder / DECISIONS).read_text("utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{folder} is no trace that can be read", cause=str(error)) from error


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
    """A decision on a few lines."""
    lines = [f"{decision['time']}  {decision['trigger']} → {decision['action']}: {decision['text']}"]
    if decision.get("evidence"):
        lines.append(f"    evidence: {_pairs(decision['evidence'])}")
    plan = decision.get("plan")
    if plan:
        lines.append(f"    plan: {_pairs(plan)}")
    lines += [f"    rejected: {other}" for other in decision.get("alternatives") or ()]
    return "\n".join(lines)


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in values.items() if value is not None)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return significant(value)
    return value if isinstance(value, str) else to_json(value)


def seconds_between(time: str, later: str) -> float:
    return round((datetime.fromisoformat(later) - datetime.fromisoformat(time)).total_seconds(), 1)
