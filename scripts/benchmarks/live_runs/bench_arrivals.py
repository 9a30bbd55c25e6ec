"""A stream at its own pace, up and down: what headgate says of it against what its sender and its sink measured.

arrivals  a process sends 20, 100, 400 and 50 rows/s by UDP for a while each, `-n` times: rows offered in two
          seconds, the time until a step is decided on, the lag and how long it took to go, latency
"""
# bench: arrivals – a sender at its own pace, 20 to 400 rows/s: offered, decided, lag, latency by its own clock

from __future__ import annotations

import statistics
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from watched_runs.arrivals import Followed, S, followed

RATES = (20.0, 100.0, 400.0, 50.0)
LOOK_S, LATE_S = 2.5, 1.0  # a present rate is the mean of at most so long, and told so much later at most
DECIDING = ("plan", "adopt")
SPARE_S = 8.0  # of the run beside that, for a sender that begins late
DRAINED_S = 1.0  # a lag of less is none


def decided_s(run: Followed) -> list[float | None]:
    """From each step to the first decision for it; None: nothing was decided."""
    at_ns = [
        int(datetime.fromisoformat(d["time"]).timestamp() * S)
        for d in run.decisions()
        if d["action"] in DECIDING
    ]
    steps = pairwise(run.steps_ns[1:])
    return [
        next((round((at - begin_ns) / S, 2) for at in at_ns if begin_ns < at <= end_ns), None)
        for begin_ns, end_ns in steps
    ]


def offered_off(run: Followed) -> list[float]:
    """By how many rows each told rate is off in two seconds, more than max(3 %, 2 rows) allows; 0: it is not."""
    off = []
    for asked_ns, status in run.looks:
        begin_ns = asked_ns - int((LOOK_S + LATE_S) * S)
        if not any(begin_ns > begin and asked_ns < end for begin, end in pairwise(run.steps_ns)):
            continue
        came = [run.came(end_ns - 2 * S, end_ns) for end_ns in (asked_ns - n * S // 20 for n in range(21))]
        told = 2 * status["rates"]["offered_now_tps"]
        low, high = min(came) - max(0.03 * min(came), 2), max(came) + max(0.03 * max(came), 2)
        off.append(max(0.0, low - told, told - high))
    return off


def drained_s(run: Followed) -> float:
    """The longest time for which rows had waited a second or more."""
    longest, since = 0.0, 0
    for asked_ns, status in run.looks:
        late = (status["rates"]["lag_s"] or 0.0) >= DRAINED_S
        since = (since or asked_ns) if late else 0
        longest = max(longest, (asked_ns - since) / S if since else 0.0)
    return longest


def row(number: int, run: Followed) -> dict[str, Any]:
    waits_ms, told = run.waits_ms(), run.summary["latency_ms"]
    off = offered_off(run)
    return {
        "run": number,
        "rows": len(run.sent),
        "lost": len(set(range(len(run.sent))) - {at for at, _, _ in run.stored}),
        "offered": run.summary["tuples"]["offered"],
        "looks": len(off),
        "looks_off": sum(rows > 0 for rows in off),
        "off_most_rows": round(max(off, default=0.0), 1),
        "decided_s": decided_s(run),
        "lag_lasted_s": round(drained_s(run), 1),
        "p50_ms": (told["p50"], round(waits_ms[len(waits_ms) // 2], 2)),
        "p95_ms": (told["p95"], round(waits_ms[int(0.95 * (len(waits_ms) - 1))], 2)),
    }


def arrivals(repeats: int = 4, each: float = 20.0) -> dict[str, Any]:
    """each: seconds at each rate."""
    steps = [(rate, each) for rate in RATES]
    rows = []
    for number in range(1, repeats + 1):
        with tempfile.TemporaryDirectory(prefix="headgate-arrivals-") as folder:
            run = followed(Path(folder), steps, len(RATES) * each + SPARE_S, "4,4,4,4")
            rows.append(row(number, run))
        print(f"run {number} of {repeats}", file=sys.stderr)
    decided = [s for one in rows for s in one["decided_s"] if s is not None]
    return {
        "steps": len(decided),
        "decided_s_median": round(statistics.median(decided), 2) if decided else None,
        "decided_s_most": max(decided, default=None),
        "lost": sum(one["lost"] for one in rows),
        "looks_off": f"{sum(one['looks_off'] for one in rows)} of {sum(one['looks'] for one in rows)}",
        "runs": rows,
    }


BENCHMARKS = {"arrivals": arrivals}
