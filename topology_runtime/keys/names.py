"""Names that keys are for: an agent's is its VM's, others' are people's or machines'. Pure."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def fault_of(role: str, name: str) -> str | None:
    """What is wrong with a name."""
    if NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"{role}: {name!r} is not a name of 1 to 64 letters, digits, '.', '_' and '-'"
