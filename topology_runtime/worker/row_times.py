"""When rows of a live source came: what they say themselves, within bounds, else when they were taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.logic import LiveSource
from headgate.topology_runtime.schedule import NS

OLDEST_S = 60.0  # a row that says it is older is of another time, or its clock is off


def times_of(source: LiveSource, rows: Sequence[Any], now_ns: int) -> tuple[list[int], str]:
    """UTC of each row (ns), and what is wrong with one; empty: nothing is."""
    times = [now_ns] * len(rows)
    if type(source).came is LiveSource.came:
        return times, ""
    wrong = ""
    for place, row in enumerate(rows):
        try:
            told_s = source.came(row)
            if told_s is None:
                continue
            old_s = now_ns / NS - float(told_s)
        except Exception as error:  # user code: the row is taken all the same
            wrong = f"came() raised {type(error).__name__}: {error}"
            continue
        if not math.isfinite(old_s) or old_s > OLDEST_S:
            wrong = f"a row says that it came {old_s:,.0f} s ago"
        else:
            times[place] = now_ns - max(0, int(old_s * NS))
    return times, wrong
