"""Numbers, durations and lists in words. What is not known is N/A, never NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headgate.topology_runtime.wording import visible

NOTHING = "N/A"


def number(value: float | None, unit: str = "", digits: int = 3) -> str:
    """`1,234`, `0.0123 s`: so many significant digits, whole above a thousand."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        text = "0"
    elif abs(value) >= 1000:
        text = f"{value:,.0f}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{min(places, 9)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text} {unit}".rstrip()


def percent(share: float | None, digits: int = 3) -> str:
    """`12.3 %`."""
    return NOTHING if share is None else number(100 * share, "%", digits)


def duration(seconds: float | None) -> str:
    """`40 ms`, `1.2 s`, `125 s`, `3.5 h`, `2.1 days`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    for limit, factor, unit in (
        (1, 1e3, "ms"),
        (600, 1, "s"),
        (7200, 1 / 60, "min"),
        (172_800, 1 / 3600, "h"),
    ):
        if abs(seconds) < limit:
            return number(seconds * factor, unit)
    return number(seconds / 86_400, "days")


def count(many: int, what: str) -> str:
    """`1 thread`, `2 threads`, `no threads`."""
    return f"{'no' if many == 0 else f'{many:,}'} {what}{'' if many == 1 else 's'}"


def listed(parts: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; of many the first ones and how many more."""
    shown = [*parts[:most], *([f"{len(parts) - most} more"] if len(parts) > most else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def seen(value: object) -> object:
    """What a template is about to write: foreign text as people may see it. What is marked as safe stays."""
    return visible(value) if type(value) is str else value


def cell(value: object) -> str:
    """A value in a table."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, digits=4)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(cell(part) for part in value)
    return str(value)


def span(values: Sequence[float]) -> str:
    """`60 to 120`; `60` when that is all."""
    return " to ".join(dict.fromkeys(number(end) for end in (min(values), max(values))))


def points(share: float | None) -> str:
    """`12.8 points`: hundredths, of a share that is itself in per cent."""
    return number(None if share is None else 100 * share, "points")
