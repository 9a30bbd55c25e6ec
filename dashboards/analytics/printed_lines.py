"""What `headgate analyze` prints of an analysis: a line each, short enough for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.topology_runtime.faults.words import counted

Line = dict[str, Any]
Analysis = dict[str, Any]
EPISODES_MOST, FOUND_MOST, BUSIEST_MOST = 5, 5, 10


def lines_of(analysis: Analysis) -> list[Line]:
    """The analysis in lines: what, how much, and a remark. Of several runs each has a number, given with its hours."""
    number = {run: f", run {n}" for n, run in enumerate(analysis["runs"], 1)}
    of = number if len(number) > 1 else dict.fromkeys(number, "")
    known = [row["stable"] for row in analysis["stability"]]
    words = f"{known.count(False)} unstable, {known.count(None)} too short to tell"
    refitted = [row["task"] for row in analysis["refitted"] if row["file"]]
    bottlenecks = [row for row in analysis["bottlenecks"] if row["rank"] == 1]
    return [
        _line("rows", analysis["rows"], f"of samples, of {counted(len(number), 'run')}"),
        *(_fit(analysis[kind], kind) for kind in ("rate", "cpu", "memory")),
        _line("stable epochs, paths", known.count(True), f"of {len(known)}; {words}"),
        *(_line(f"latency {name}, ms", value) for name, value in analysis["latency_ms"].items()),
        *_episodes(analysis["episodes"], of),
        *_slow_slots(analysis["slow_slots"], of),
        *_pairs(analysis["disturbing_pairs"], of),
        *_leaks(analysis["leaks"], of),
        *_skewed(analysis["skewed_threads"], of),
        _line("re-plans", len(analysis["replans"]), _reasons(analysis["replans"])),
        *(_bottleneck(row, of) for row in bottlenecks[:BUSIEST_MOST]),
        *_hours(analysis["cost"], of),
        *(_policy(row, of) for row in analysis["policies_tried"]),
        _line("models refitted", len(refitted), ", ".join(refitted) or "no task was busy all along, alone"),
        _line("left out", len(analysis["left_out"]), "files, columns or models"),
    ]


def _fit(fit: dict[str, Any], kind: str) -> Line:
    median, p95, worst = (_short(fit[f"{name}_error"]) for name in ("median", "p95", "worst"))
    return _line(f"{kind}: R² predicted", fit["r2"], f"off by {median}, 95 % {p95}, worst {worst}")


def _episodes(episodes: list[Line], of: dict[str, str]) -> Iterator[Line]:
    """Those in which rows waited longest; each with when, for how long at most, and who held them up."""
    worst = max((one["peak_s"] for one in episodes), default=None)
    longest = "rows never waited for long" if worst is None else f"rows took up to {worst:,.3g} s"
    yield _line("episodes of overload", len(episodes), longest)
    for one in sorted(episodes, key=lambda one: -one["peak_s"])[:EPISODES_MOST]:
        who = "nobody alone" if one["task"] is None else f"{one['task']} in {_place(one)}"
        when = f"{one['from_s']:,.0f} to {one['to_s']:,.0f} s, due to {who}"
        yield _line(f"  longest, s{of[one['run']]}", one["peak_s"], when)


def _slow_slots(rows: list[Line], of: dict[str, str]) -> Iterator[Line]:
    yield _line("slow slots", len(rows), "" if rows else "none was found")
    for row in sorted(rows, key=lambda row: row["speed"])[:FOUND_MOST]:
        where = f"VM {row['vm']}" if row["slot"] is None else _place(row)
        words = f"that of others ({_between(row)}): {where}"
        yield _line(f"  speed, ×{of[row['run']]}", row["speed"], words)


def _pairs(rows: list[Line], of: dict[str, str]) -> Iterator[Line]:
    yield _line("disturbing pairs", len(rows), "" if rows else "none was found")
    for row in sorted(rows, key=lambda row: -row["factor"])[:FOUND_MOST]:
        words = f"({_between(row)}) CPU: {row['task']} beside {row['beside']}"
        yield _line(f"  a row costs, ×{of[row['run']]}", row["factor"], words)


def _leaks(rows: list[Line], of: dict[str, str]) -> Iterator[Line]:
    yield _line("leaks", len(rows), "" if rows else "none was found")
    for row in sorted(rows, key=lambda row: row["full_in_s"])[:FOUND_MOST]:
        words = f"of {_place(row)} at {row['to_s']:,.0f} s; full {row['full_in_s']:,.0f} s later"
        yield _line(f"  held{of[row['run']]}", row["held"], words)


def _skewed(rows: list[Line], of: dict[str, str]) -> Iterator[Line]:
    yield _line("skewed threads", len(rows), "" if rows else "none was found")
    for row in sorted(rows, key=lambda row: -row["times"])[:FOUND_MOST]:
        where = f"epoch {row['epoch']}, {_place(row)}"
        words = f"the middle of {row['task']}: {where}"
        yield _line(f"  thread {row['thread']}, ×{of[row['run']]}", row["times"], words)


def _bottleneck(row: Line, of: dict[str, str]) -> Line:
    words = f"{row['task']} in {_place(row)}"
    return _line(f"busiest, epoch {row['epoch']}{of[row['run']]}", row["busy_share"], words)


def _hours(cost: list[Line], of: dict[str, str]) -> Iterator[Line]:
    for row in cost:
        if row["epoch"] is None:
            price = "no price" if row["usd"] is None else f"{row['usd']:.4g} USD"
            yield _line(f"slot-hours{of[row['run']]}", row["slot_hours"], f"{price}: {row['run']}")


def _policy(row: Line, of: dict[str, str]) -> Line:
    """Of a policy that was tried, or of the run itself, the same by the models."""
    what = f"  by policy{of[row['run']]}"
    if row["why"] is not None:
        return _line(what, None, f"{row['policy']}: {row['why']}")
    short = f"{row['violated_tuples']:,.0f} tuples short" if row["violated_tuples"] else "never short"
    return _line(what, row["slot_hours"], f"{row['policy']}: {short}")


def _place(row: Line) -> str:
    return f"{row['vm']}/{row['slot']}"


def _between(row: Line) -> str:
    return f"{row['low']:.3g} to {row['high']:.3g}"


def _line(what: str, value: Any, remark: str = "") -> Line:
    return {"what": what, "value": value, "remark": remark}


def _reasons(replans: list[Line]) -> str:
    reasons = [row["reason"] for row in replans]
    return ", ".join(f"{reasons.count(reason)} {reason}" for reason in sorted(set(reasons)))


def _short(value: float | None) -> str:
    return "N/A" if value is None else f"{value:.2g}"
