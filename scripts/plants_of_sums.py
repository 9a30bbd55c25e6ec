"""Bugs in what Spark adds up, and in which rows, segments and parts count."""

from __future__ import annotations

from planting import Plant, one

ANALYTICS = "dashboards/analytics/"
SUMS, PARTS, KEPT = (ANALYTICS + name for name in ("aggregates.py", "aggregate_parts.py", "aggregating.py"))
JUDGING, CURATE, FOLLOW = (ANALYTICS + name for name in ("judging.py", "curate.py", "follow.py"))
RESIDUALS = ANALYTICS + "analyses/residuals.py"
ON_SPARK = "tests/analytics/test_sums_on_spark_live.py"
OF_PARTS = "tests/analytics/test_aggregate_parts.py"
OF_CURATED = "tests/analytics/test_curated_parts.py"
JUDGED = "tests/analytics/test_segments_judged.py"
FOLLOWING = "tests/analytics/test_following.py"

OF_SUMS: tuple[Plant, ...] = (
    one(
        "the row at a stretch's end is its own too",
        SUMS,
        "each.end * SPAN_US - 1",
        "each.end * SPAN_US",
        test=ON_SPARK,
    ),
    one(
        "rates do not look back",
        SUMS,
        'tables.rows("rates", BEFORE_S)',
        'tables.rows("rates")',
        test=ON_SPARK,
    ),
    one(
        "what an absence left counts as rates",
        SUMS,
        '(f.col("since_s") > 0) & (f.col("since_s") < LATE_S)',
        'f.col("since_s") > 0',
        test=ON_SPARK,
    ),
    one(
        "a missing prediction is a number",
        SUMS,
        "f.col(name).isNotNull() & ~f.isnan(name)",
        "~f.isnan(name)",
        test=ON_SPARK,
    ),
    one(
        "R² has rows without a prediction",
        SUMS,
        "a = f.when(there, f.col(actual))",
        "a = f.col(actual)",
        test=ON_SPARK,
    ),
    one(
        "a bundle ends with its last row",
        SUMS,
        ' / SECOND_US + f.col("window_s") / f.col("n")',
        " / SECOND_US",
        test=ON_SPARK,
    ),
    one(
        "a second counts for each link",
        SUMS,
        'f.max("window_s").alias("window_s")',
        'f.sum("window_s").alias("window_s")',
        test=ON_SPARK,
    ),
    one(
        "the highest of two parts is their sum",
        KEPT,
        '(c, "max" if c.startswith("max") else "sum")',
        '(c, "sum")',
        test=ON_SPARK,
    ),
    one(
        "of two parts the first counts",
        KEPT,
        "adds = name in ADDED_UP and",
        "adds = False and",
        test=ON_SPARK,
    ),
    one(
        "a fused part has the number of what it was",
        KEPT,
        "f.lit(each.part.number)",
        "f.lit(each.of[0].number)",
        test=ON_SPARK,
    ),
    one(
        "the first window of a plan is judged",
        RESIDUALS,
        'known & (f.col("w") > f.col("first"))',
        "known",
        test=ON_SPARK,
    ),
    one(
        "a plan that nobody tried is right",
        RESIDUALS,
        "later.where(more).unionByName(slow)",
        "later",
        test=ON_SPARK,
    ),
    one(
        "whoever held rows up before held them up now",
        ANALYTICS + "analyses/episodes.py",
        '(f.col("first_us") < f.col("to_us")) & (f.col("last_us") > f.col("from_us"))',
        "f.lit(True)",
        test=ON_SPARK,
    ),
    one(
        "a plan whose rows waited kept up",
        ANALYTICS + "analyses/stability.py",
        '"unstable" if slow_s >= SLOW_LEAST_S else verdict_of',
        "verdict_of",
        test=ON_SPARK,
    ),
    one(
        "a stretch does not see the minute before it",
        PARTS,
        "(end_us + BEFORE_US) // SPAN_US + 1",
        "end_us // SPAN_US + 1",
        test=OF_PARTS,
    ),
    one(
        "what has to be made again is fused",
        PARTS,
        "len(parts) > 1 and not again and",
        "len(parts) > 1 and",
        test=OF_PARTS,
    ),
    one(
        "open stretches are fused",
        PARTS,
        " and (block + 1) * length < max(there)",
        "",
        test=OF_PARTS,
    ),
    one(
        "a run is curated anew in each turn",
        CURATE,
        "part.rows > MERGED_MOST * rows or ",
        "",
        test=OF_CURATED,
    ),
    one(
        "a part stays beside the one it is in",
        CURATE,
        "if _name(part) not in gone",
        "if True",
        test=OF_CURATED,
    ),
    one(
        "a segment counts twice",
        JUDGING,
        "if twin is None:",
        "if True:",
        test=JUDGED,
    ),
    one(
        "a jumped clock is believed",
        JUDGING,
        "if n not in whys], left",
        "], left",
        test=JUDGED,
    ),
    one(
        "a run that says so is over at once",
        FOLLOW,
        "(SETTLE_S if _says_over(run) else QUIET_S)",
        "(0.0 if _says_over(run) else QUIET_S)",
        test=FOLLOWING,
    ),
    one(
        "a file that has changed is as it was",
        JUDGING,
        "if file not in self._found]",
        "if file[:2] not in {known[:2] for known in self._found}]",
        test=FOLLOWING,
    ),
)  # fmt: skip
