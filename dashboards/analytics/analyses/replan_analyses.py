"""What each plan cost: time to decide, to come into force, silence and dip of the output around it.

decisions.jsonl has the decision and, in later ones, what came of it; inputs.jsonl and its parts have how long planning
took; the samples around the decision have the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as f

from headgate.dashboards.analytics.aggregation.analysis_input import AnalysisInput, number
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut, Replan, RunNote, TuplesTold
from headgate.dashboards.analytics.storage.trace_runs import (
    COUNTED,
    PublishedEvent,
    PublishedView,
    PublishedViews,
    epochs_of,
    lines_of,
)
from headgate.topology_runtime.traces.trace_tables import DECISIONS
from headgate.topology_runtime.wording import counted

BEFORE_S, AFTER_S = 5, 10
SECONDS = range(-BEFORE_S, AFTER_S + 1)  # from a plan on
MOST_REPLANS = 200  # re-plans whose surroundings are read
INPUTS = re.compile(r"^inputs(-\d+)?\.jsonl(\.gz)?$")
SECOND_US = 1_000_000
START = datetime(1970, 1, 1, tzinfo=UTC)

Forced = tuple[float | None, float | None]  # enacted_s, pause_ms
Around = dict[str, Any]


class _Plan(msgspec.Struct):
    rate_tps: float | None = None
    predicted_tps: float | None = None
    slots: int | None = None
    moves: int | None = None


class _Enacted(msgspec.Struct):
    epoch: int | None = None
    enacted_s: float | None = None
    pause_ms: float | None = None


class Decision(msgspec.Struct):
    """A line of decisions.jsonl, as far as it is asked for."""

    time: str
    epoch: int
    trigger: str | None = None
    action: str | None = None
    text: str | None = None
    plan: _Plan | None = None
    enacted: _Enacted | None = None

    @property
    def at_us(self) -> int:
        """µs since 1970."""
        at = datetime.fromisoformat(self.time)
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - START) // timedelta(microseconds=1)


_line = msgspec.json.Decoder(Decision)


def replans(asked: AnalysisInput) -> tuple[list[Replan], list[LeftOut]]:
    """(every plan in order, lines and files that could not be read)."""
    found: list[Replan] = []
    left: list[LeftOut] = []
    for run in asked.runs.values():
        file = run.place / DECISIONS
        if not file.is_file():
            left.append(LeftOut(file.uri, "missing", "there is no such file: re-plans are unknown", None))
            continue
        lines, torn = read_decisions(file)
        if torn:
            left.append(LeftOut(file.uri, "truncated", f"no decisions: {counted(torn, 'line')}", torn))
        plans = sorted((line for line in lines if line.action == "plan"), key=lambda line: line.time)
        plans = plans[: 10 * MOST_REPLANS]
        epochs = epochs_of([plan.epoch for plan in plans])
        forced = _enacted(lines)
        decided = _decided(asked, run.place)
        around = _around(asked, run.key, [plan.at_us for plan in plans[:MOST_REPLANS]])
        found += [
            _replan(asked, run.key, epoch, plan, forced, decided, around)
            for epoch, plan in zip(epochs, plans, strict=True)
        ]
    return found, left


def read_decisions(file: DataPlace) -> tuple[list[Decision], int]:
    """(decisions, how many lines are none)."""
    found, torn = [], 0
    for line in file.read().splitlines():
        if not line.strip():
            continue
        try:
            one = _line.decode(line)
            one.at_us  # noqa: B018 - a time that is none
        except ValueError:
            torn += 1
        else:
            found.append(one)
    return found, torn


def _enacted(lines: Iterable[Decision]) -> dict[int, Forced]:
    """Epoch → what later decisions say came of its plan."""
    return {
        line.enacted.epoch: (number(line.enacted.enacted_s), number(line.enacted.pause_ms))
        for line in lines
        if line.enacted is not None and line.enacted.epoch is not None
    }


def _decided(asked: AnalysisInput, run: DataPlace) -> dict[int, float]:
    """Epoch → seconds that planning took."""
    files = [name for name, _, _ in run.sizes() if INPUTS.match(name)]
    if not files:
        return {}
    lines = asked.spark.read.text([(run / name).uri for name in files])
    rows = lines.where(f.col("value").contains('"kind":"measured"')).select(
        f.get_json_object("value", "$.event.epoch").cast("long").alias("epoch"),
        f.get_json_object("value", "$.event.seconds").cast("double").alias("seconds"),
    )
    return {row["epoch"]: row["seconds"] for row in rows.where(f.col("epoch").isNotNull()).collect()}


def _around(asked: AnalysisInput, run: str, times_us: Sequence[int]) -> dict[int, Around]:
    """Decision's time → what happened around it; what is known of the same rows is not read again."""
    keys = {
        us: (
            "around",
            run,
            us,
            asked.made_of(run, "samples", us - BEFORE_S * SECOND_US, us + AFTER_S * SECOND_US),
        )
        for us in times_us
    }
    fresh = [us for us, key in keys.items() if key not in asked.memory]
    for us, its in _read_around(asked, run, fresh).items():
        asked.memory[keys[us]] = its
    return {us: asked.memory[key] for us, key in keys.items()}


def _read_around(asked: AnalysisInput, run: str, times_us: Sequence[int]) -> dict[int, Around]:
    """Decision's time → `seconds`: task → second from the decision on → rows out; `before`, `after`: rows out of
    the threads that were there before and after, in the 5 s before and from the decision on."""
    if not times_us:
        return {}
    at_us = f.unix_micros("time")
    near = f.lit(False)
    for us in times_us:  # the parts' extremes of `time` tell Spark what need not be read
        near |= f.col("time").between(_time(us - BEFORE_S * 10**6), _time(us + AFTER_S * 10**6))
    plans = asked.facts([(us,) for us in times_us], "plan_us long")
    rows = (
        asked.frames["samples"]()
        .where((f.col("run") == run) & near)
        .select("task", "thread", "tuples_out", at_us.alias("us"))
        .join(
            f.broadcast(plans), (f.col("us") - f.col("plan_us")).between(-BEFORE_S * 10**6, AFTER_S * 10**6)
        )
        .withColumn("second", f.floor((f.col("us") - f.col("plan_us")) / 1e6))
    )
    second, out = f.col("second"), f.col("tuples_out")
    each = {n: f.sum(f.when(second == n, out)).alias(f"at_{n + BEFORE_S}") for n in SECONDS}
    threads = rows.groupBy("plan_us", "task", "thread").agg(
        *each.values(),
        f.sum(f.when(second < 0, out)).alias("before"),
        f.sum(f.when(second.between(0, BEFORE_S - 1), out)).alias("after"),
        f.max("second").alias("last"),
    )
    stayed = f.col("before").isNotNull() & f.col("after").isNotNull() & (f.col("last") >= AFTER_S - 2)
    tasks = threads.groupBy("plan_us", "task").agg(
        *(f.sum(f"at_{n + BEFORE_S}").alias(f"at_{n + BEFORE_S}") for n in SECONDS),
        *(f.sum(f.when(stayed, f.col(name))).alias(name) for name in ("before", "after")),
    )
    found: dict[int, Around] = {us: {"seconds": {}, "before": None, "after": None} for us in times_us}
    for row in tasks.collect():
        its = found[row["plan_us"]]
        outs = {n: row[f"at_{n + BEFORE_S}"] for n in SECONDS}
        its["seconds"][row["task"]] = {n: value for n, value in outs.items() if value is not None}
        for name in ("before", "after"):
            if row[name] is not None:
                its[name] = (its[name] or 0) + row[name]
    return found


def _time(us: int) -> Column:
    return f.timestamp_micros(f.lit(us))


def silent_s(seconds: Mapping[str, Mapping[int, int]]) -> float | None:
    """The longest stretch without output of a task that had some before; None when none had."""
    active = [of for of in seconds.values() if sum(n for second, n in of.items() if second < 0) > 0]
    if not active:
        return None
    longest = 0
    for of in active:
        stretch = 0
        for second in range(AFTER_S):
            stretch = stretch + 1 if of.get(second, 0) == 0 else 0
            longest = max(longest, stretch)
    return float(longest)


def _replan(
    asked: AnalysisInput,
    run: str,
    epoch: int,
    line: Decision,
    forced: Mapping[int, Forced],
    decided: Mapping[int, float],
    around: Mapping[int, Any],
) -> Replan:
    plan, at_us = line.plan, line.at_us
    near = around.get(at_us)
    enacted_s, pause_ms = forced.get(epoch, (None, None))
    first = line.trigger == "start"
    return Replan(
        run=run,
        epoch=epoch,
        at_s=asked.at_s(run, at_us),
        reason=line.trigger or "unknown",
        rate_tps=number(plan.rate_tps) if plan else None,
        predicted_tps=number(plan.predicted_tps) if plan else None,
        slots=plan.slots if plan else None,
        moves=plan.moves if plan else None,
        decided_s=number(decided.get(epoch)),
        enacted_s=enacted_s,
        pause_ms=pause_ms,
        silent_s=silent_s(near["seconds"]) if near and not first else None,
        dip=1 - near["after"] / near["before"] if near and not first and near["before"] else None,
        text=line.text or "",
    )


# ── What the controller itself told of a run: what became of the tuples, and what happened besides plans ───

OF_PLANS = {"submitted", "plan", "prepared", "switched", "probation", "committed"}
MOST_NOTES = 500  # events of a run
OVER = "over"


def told(asked: AnalysisInput) -> tuple[list[TuplesTold], list[RunNote]]:
    """(one row per run, the events of all)."""
    counted: list[TuplesTold] = []
    notes: list[RunNote] = []
    for key, run in asked.runs.items():
        its, its_notes = read(key, asked.begin_us.get(key, 0), lines_of(run.place))
        counted.append(its)
        notes += its_notes
    return counted, notes


def read(run: str, begin_us: int, lines: Iterable[bytes]) -> tuple[TuplesTold, list[RunNote]]:
    """What the lines say, put together."""
    last: PublishedView | None = None
    events: set[PublishedEvent] = set()
    for last in PublishedViews(lines):
        events |= set(last.events)
    tuples = (last.tuples if last else None) or {}
    counts = {name: _whole(tuples.get(name)) for name in COUNTED}
    known = last if tuples else None
    found = [
        RunNote(run, at_s, event.epoch, event.kind, event.text)
        for event in events
        if event.kind not in OF_PLANS and (at_s := _at_s(event.time, begin_us)) is not None
    ]
    its = TuplesTold(
        run, _at_s(known.now, begin_us) if known else None, known.stage == OVER if known else None, **counts
    )
    return its, sorted(found, key=lambda note: (note.at_s, note.kind, note.text))[:MOST_NOTES]


def _whole(value: int | float | None) -> int | None:
    return None if value is None else round(value)


def _at_s(text: str, begin_us: int) -> float | None:
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return round(at.timestamp() - begin_us / 1e6, 3)
