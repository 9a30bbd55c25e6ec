"""Numbers as a picture shows them: few digits, so that what nobody can see changes nothing. Pure."""

from __future__ import annotations

import math
from typing import Any

DIGITS = 4


def figure(value: float | None, digits: int = 3) -> float | None:
    """So many significant digits, whole numbers as such; None for what is none, also NaN and infinity."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def share(value: float | None) -> float | None:
    """A fraction, to a hundredth."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, 2) + 0.0


def plain(value: Any, name: str = "") -> dict[str, Any]:
    """Nested evidence as one flat object, `demand.offered_tps`; without what is not known."""
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, part in value.items():
            found |= plain(part, f"{name}.{key}" if name else str(key))
        return found
    if isinstance(value, float) and not isinstance(value, bool):
        value = figure(value, 4)
    return {} if value is None else {name: value}


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values with as many digits as anyone reads."""
    return {name: round(v, DIGITS) if isinstance(v, float) else v for name, v in values.items()}
