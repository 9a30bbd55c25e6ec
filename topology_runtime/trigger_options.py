"""When an online mapper plans again: what `--traffic-triggers` says, as plain values. Pure."""

from __future__ import annotations

import math
from typing import Any

from headgate.topology_runtime.errors import UsageError

DEFAULT = "every=60,saves=0.2,load=0.9,for=10"
HELP = (
    "When the mapper traffic plans again at the same rate: every so many s, where that saves more than this part of "
    "what goes between VMs; for a VM above this load for so many s; first=dsm: the first plan by that mapper."
)
NAMES = {"every": "every_s", "saves": "saves", "load": "load_bound", "for": "load_s", "first": "first"}
SHARES = ("saves", "load")  # from 0 to 1
MOST_S = 1e9


def parse_triggers(text: str) -> dict[str, Any]:
    """`every=60,saves=0.2,load=0.9,for=10,first=dsm` (any of these). Raises UsageError with every fault."""
    found: dict[str, Any] = {}
    faults = []
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name not in NAMES:
            faults.append(f"{part.strip()!r}: not one of every=S, saves=PART, load=PART, for=S, first=MAPPER")
        elif NAMES[name] in found:
            faults.append(f"{name} is there twice")
        elif name == "first":
            found[name] = number
        elif name in SHARES and not 0 <= value <= 1:
            faults.append(f"{part.strip()!r}: not a part from 0 to 1")
        elif name not in SHARES and not 1 <= value <= MOST_S:
            faults.append(f"{part.strip()!r}: not a number of seconds from 1 on")
        else:
            found[NAMES[name]] = value
    if faults:
        raise UsageError(
            f"--traffic-triggers: {text!r} says no triggers", faults=faults, hint=f"for example {DEFAULT}"
        )
    return found
