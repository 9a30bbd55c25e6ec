"""Numbers that were given as options of a command, against what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def number_faults(options: Mapping[str, Any], limits: Mapping[str, tuple[float, float]]) -> list[str]:
    """One for each that is given and not within its limits. limits: name → (least, most)."""
    return [
        f"--{name.replace('_', '-')}: expected {least:g} to {most:g}, got {options[name]:g}"
        for name, (least, most) in limits.items()
        if options[name] is not None and not least <= options[name] <= most
    ]
