"""Which of Nexmark's queries a peer does not answer as DuckDB does, and why; all others it has to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOT_INSTALLED = "cannot be installed: "
KINDS_OF = {
    "q3": ("person", "auction"),
    "q8": ("person", "auction"),
    "q4": ("auction", "bid"),
    "q9": ("auction", "bid"),
}
IN_PYTHON = ("q1", "q2", "q13")
WITHOUT: dict[str, dict[str, str]] = {  # system, query: why
    "flink-sql": {"q9": "2.3.0 takes back no winner (FLINK-40368)"},
    "pyflink": dict.fromkeys(
        ("q0", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q15", "q16"),
        "as flink-sql: nothing of it is a function of a row",
    ),
}


def kinds_of(query: str) -> tuple[str, ...]:
    """Which events a query reads."""
    return KINDS_OF.get(query, ("bid",))


def reason(system: str, query: str) -> str:
    """Why it is not run; nothing, where it is to give DuckDB's answer."""
    return WITHOUT.get(system, {}).get(query, "")


def unexpected(line: Mapping[str, Any]) -> bool:
    """Has this line of the table no answer, though it is to have one? A system may not exist for a machine."""
    why = line.get("why", "")
    return bool(why) and why != reason(line["system"], line["query"]) and not why.startswith(NOT_INSTALLED)
