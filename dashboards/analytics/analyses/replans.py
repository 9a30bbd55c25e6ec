"""What each plan cost: time to decide, to come into force, silence and dip of the output around it.

decisions.jsonl has the decision and, in later ones, what came of it (of older traces: for how long its plan has been
in force); inputs.jsonl and its parts have how long planning took; the samples around the decision have the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboards.analytics.asked import AnalysisInput, number
from dashboards.analytics.data_places import DataPlace
from dashboards.analytics.results import LeftOut, Replan
from topology_runtime.faults.words import counted
from topology_runtime.trace_tables import DECISIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECISION = (
    "time string, epoch long, trigger string, action string, text string, evidence struct<in_force_s: double>, "
    "plan struct<rate_tps: double, predicted_tps: double, slots: long, moves: long>, "
    "enacted struct<epoch: long, enacted_s: double, pause_ms: double>, torn string"
)
BEFORE_S, AFTER_S = 5, 10
SECONDS = range(-BEFORE_S, AFTER_S + 1)  # from a plan on
MOST = 200  # re-plans whose surroundings are read
INPUTS = re.compile(r"^inputs(-\d+)?\.jsonl(\.gz)?$")

Forced = tuple[float | None, float | None]  # enacted_s, pause_ms


def replans(asked: AnalysisInput) -> tuple[list[Replan], list[LeftOut]]:
    """(every plan in order, lines and files that could not be read)."""
    from pyspark.sql import functions as f

    found: list[Replan] = []
    left: list[LeftOut] = []
    for run in asked.runs.values():
        file = run.place / DECISIONS
        if not file.is_file():
            left.append(LeftOut(file.uri, "missing", "there is no such file: re-plans are unknown", None))
            continue
        lines = read_decisions(asked, file)
        torn = lines.where(f.col("torn").isNotNull() | f.col("epoch").isNull()).count()
        if torn:
            left.append(LeftOut(file.uri, "truncated", f"no decisions: {counted(torn, 'line')}", torn))
        plans = lines.where(f.col("action") == "plan").orderBy("time").limit(10 * MOST).collect()
        forced = _in_force(asked, lines, plans) | _enacted(lines)
        decided = _decided(asked, run.place)
        around = _around(asked, run.key, [row["at_us"] for row in plans[:MOST]])
        epochs = epochs_of([row["epoch"] for row in plans])
        found += [
            _replan(asked, run.key, epoch, row, forced, decided, around)
            for epoch, row in zip(epochs, plans, strict=True)
        ]
    return found, left


def read_decisions(asked: AnalysisInput, file: DataPlace) -> DataFrame:
    from pyspark.sql import functions as f

    reader = asked.spark.read.schema(DECISION).option("columnNameOfCorruptRecord", "torn")
    return reader.json(file.uri).withColumn("at_us", f.unix_micros(f.to_timestamp("time")))


def epochs_of(written: Sequence[int]) -> list[int]:
    """The epoch that each plan got. A plan that has to wait for VMs is written with the epoch before its own."""
    return [epoch + 1 if epoch in written[:n] else epoch for n, epoch in enumerate(written)]


def _enacted(lines: DataFrame) -> dict[int, Forced]:
    """Epoch → what later decisions say came of its plan."""
    from pyspark.sql import functions as f

    rows = lines.where(f.col("enacted.epoch").isNotNull()).select("enacted.*").distinct().collect()
    return {row["epoch"]: (number(row["enacted_s"]), number(row["pause_ms"])) for row in rows}


def _in_force(asked: AnalysisInput, lines: DataFrame, plans: Sequence[Any]) -> dict[int, Forced]:
    """The same of older traces, from how long a plan has been in force according to later decisions. Until then
    they tell of the plan before."""
    from pyspark.sql import functions as f

    if not plans:
        return {}
    epochs = epochs_of([row["epoch"] for row in plans])
    decided = asked.facts(
        [(epoch, row["at_us"]) for epoch, row in zip(epochs, plans, strict=True)],
        "epoch long, decided_us long",
    )
    since = f.col("at_us") - f.col("evidence.in_force_s") * 1e6
    rows = (
        lines.join(f.broadcast(decided), "epoch")
        .where((f.col("evidence.in_force_s") > 0) & (since >= f.col("decided_us")))
        .groupBy("epoch")
        .agg(f.min(since - f.col("decided_us")).alias("us"))
        .collect()
    )
    return {row["epoch"]: (round(row["us"] / 1e6, 3), None) for row in rows}


def _decided(asked: AnalysisInput, run: DataPlace) -> dict[int, float]:
    """Epoch → seconds that planning took."""
    from pyspark.sql import functions as f

    files = [file.uri for file, is_folder in run.children() if not is_folder and INPUTS.match(file.name)]
    if not files:
        return {}
    lines = asked.spark.read.text(files).where(f.col("value").contains('"kind":"measured"'))
    rows = lines.select(
        f.get_json_object("value", "$.event.epoch").cast("long").alias("epoch"),
        f.get_json_object("value", "$.event.seconds").cast("double").alias("seconds"),
    ).where(f.col("epoch").isNotNull())
    return {row["epoch"]: row["seconds"] for row in rows.collect()}


def _around(asked: AnalysisInput, run: str, times_us: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Decision's time → `seconds`: task → second from the decision on → rows out; `before`, `after`: rows out of
    the threads that were there before and after, in the 5 s before and from the decision on."""
    from pyspark.sql import functions as f

    if not times_us:
        return {}
    at_us = f.unix_micros("time")
    near = f.lit(False)
    for us in times_us:  # the parts' extremes of `time` tell Spark what need not be read
        near |= f.col("time").between(_time(us - BEFORE_S * 10**6), _time(us + AFTER_S * 10**6))
    plans = asked.facts([(us,) for us in times_us], "plan_us long")
    rows = (
        asked.frames["samples"]
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
    found: dict[int, dict[str, Any]] = {us: {"seconds": {}, "before": None, "after": None} for us in times_us}
    for row in tasks.collect():
        its = found[row["plan_us"]]
        outs = {n: row[f"at_{n + BEFORE_S}"] for n in SECONDS}
        its["seconds"][row["task"]] = {n: value for n, value in outs.items() if value is not None}
        for name in ("before", "after"):
            if row[name] is not None:
                its[name] = (its[name] or 0) + row[name]
    return found


def _time(us: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(us / 1e6, UTC)


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
    row: Any,
    forced: Mapping[int, Forced],
    decided: Mapping[int, float],
    around: Mapping[int, Any],
) -> Replan:
    plan, at_us = row["plan"], row["at_us"]
    near = around.get(at_us)
    enacted_s, pause_ms = forced.get(epoch, (None, None))
    first = row["trigger"] == "start"
    return Replan(
        run=run,
        epoch=epoch,
        at_s=asked.at_s(run, at_us),
        reason=row["trigger"] or "unknown",
        rate_tps=number(plan["rate_tps"]) if plan else None,
        predicted_tps=number(plan["predicted_tps"]) if plan else None,
        slots=plan["slots"] if plan else None,
        moves=plan["moves"] if plan else None,
        decided_s=number(decided.get(epoch)),
        enacted_s=enacted_s,
        pause_ms=pause_ms,
        silent_s=silent_s(near["seconds"]) if near and not first else None,
        dip=1 - near["after"] / near["before"] if near and not first and near["before"] else None,
        text=row["text"] or "",
    )
