"""Bugs in what an analysis finds, and in policies of a replay."""

from __future__ import annotations

from planted.planting import Plant, one

GROWTH = "topology_runtime/stability/memory_growth.py"
ANALYSES = "dashboards/analytics/analyses/"
FOUND = "tests/analytics/test_analyses.py"
POLICIES = "tests/replay/test_replay_policies.py"
OFFERS = "tests/decisions/test_model_updates.py"

OF_ANALYSIS: tuple[Plant, ...] = (
    one(
        "usual is what is usual in a slow run",
        ANALYSES + "latency_analyses.py",
        "USUAL = 0.1",
        "USUAL = 0.5",
        test=FOUND,
    ),
    one(
        "a stall begins when it is over",
        ANALYSES + "latency_analyses.py",
        "- (high_s[first : last + 1] - usual_s)",
        "",
        test=FOUND,
    ),
    one(
        "near episodes are two",
        ANALYSES + "latency_analyses.py",
        "from_s - found[-1].to_s < GAP_S",
        "False",
        test=FOUND,
    ),
    one(
        "a hiccup is an episode",
        ANALYSES + "latency_analyses.py",
        "one.to_s - one.from_s >= LONG_S",
        "True",
        test=FOUND,
    ),
    one(
        "warming up is a leak",
        GROWTH,
        "slope.low > 0",
        "slope.value > 0",
        test=FOUND,
    ),
    one(
        "another process is the same life",
        GROWTH,
        "(1 - FALLEN) * before",
        "0 * before",
        test=FOUND,
    ),
    one(
        "a slot is as fast as its cost",
        ANALYSES + "slot_analyses.py",
        "math.exp(-value)",
        "math.exp(value)",
        test=FOUND,
    ),
    one(
        "what cannot be told is told",
        ANALYSES + "slot_analyses.py",
        "if length == 0 or",
        "if False and",
        test=FOUND,
    ),
    one(
        "a season is whole bins long",
        "topology_runtime/rates/season_learning.py",
        "period = at / times",
        "pass",
        test=FOUND,
    ),
    one(
        "a plan need not carry what it is for",
        "controller/plan/planner.py",
        "if counted or best.prediction.rate_tps >= enough_tps:",
        "if True:",
        test=POLICIES,
    ),
    one(
        "a static plan asks for more than was offered",
        "controller/replay/replay_policies.py",
        "share *= FIRST_LESS",
        "share *= 1.1",
        test=POLICIES,
    ),
    one(
        "an offer of another run is taken",
        "controller/core/model_updates.py",
        "given.run != k.settings.run or ",
        "",
        test=OFFERS,
    ),
    one(
        "a stale offer is taken",
        "controller/core/model_updates.py",
        "if age_s > STALE_S:",
        "if False:",
        test=OFFERS,
    ),
    one(
        "a refit counts from the model before it",
        "controller/core/model_updates.py",
        "before.time * found.time",
        "found.time",
        test=OFFERS,
    ),
    one(
        "scattered windows prove as much",
        "controller/analyze/model_bias.py",
        "math.hypot(SPREAD, own)",
        "SPREAD",
        test=OFFERS,
    ),
    one(
        "the same evidence refits a model again",
        "controller/knowledge/journal_records.py",
        "refit_s=d.refit_s | self.seconds",
        "refit_s=d.refit_s",
        test=OFFERS,
    ),
    one(
        "what was taken and not planned with is forgotten",
        "controller/knowledge/journal_records.py",
        "refits=d.refits | self.texts",
        "refits={}",
        test=OFFERS,
    ),
    one(
        "a season that is offered is never handed over",
        "controller/core/rate_following.py",
        "self.forecast.hand(handed_of(learned))",
        "pass",
        test=OFFERS,
    ),
    one(
        "a replayed run began in 1970",
        "controller/replay/recorded_run.py",
        "self.offer, utc_ns(self.started)",
        "self.offer, 0",
        test=OFFERS,
    ),
)


# ── Bugs in what Spark adds up, and in which rows, segments and parts count ─────────────────────────────

ANALYTICS = "dashboards/analytics/"
SUMS, PARTS, KEPT = (
    ANALYTICS + name
    for name in (
        "aggregation/aggregate_tables.py",
        "aggregation/aggregate_parts.py",
        "aggregation/aggregate_steps.py",
    )
)
JUDGING, CURATE, FOLLOW = (
    ANALYTICS + name for name in ("curation/trace_segments.py", "curation/curated_tables.py", "follow_run.py")
)
HELD, ROWS, ROW_JOBS = (
    ANALYTICS + name
    for name in ("aggregation/row_sums.py", "aggregation/row_sums.py", "aggregation/aggregate_steps.py")
)
RESIDUALS = ANALYTICS + "analyses/prediction_analyses.py"
ON_SPARK = "tests/analytics/spark/test_sums_on_spark_live.py"
OF_ROWS = "tests/analytics/test_aggregate_parts.py"
OF_PARTS = "tests/analytics/test_aggregate_parts.py"
OF_CURATED = "tests/analytics/test_curated_parts.py"
JUDGED = "tests/analytics/test_segments.py"
FOLLOWING = "tests/analytics/test_following.py"

OF_SUMS: tuple[Plant, ...] = (
    one(
        "the row at a stretch's end is its own too",
        SUMS,
        "each.end * span_us - 1",
        "each.end * span_us",
        test=ON_SPARK,
    ),
    one(
        "rates do not look back",
        SUMS,
        "each.begin * span_us - LOOKS_BACK_US.get(table, 0)",
        "each.begin * span_us",
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
        ROWS,
        'pc.add(spanned_s, pc.divide(found["window_s"], pc.cast(found["n"], pa.float64())))',
        "spanned_s",
        test=OF_ROWS,
    ),
    one(
        "the row at a task's end is its own too",
        ROWS,
        "pc.less(us, to_us)",
        "pc.less_equal(us, to_us)",
        test=OF_ROWS,
    ),
    one("rows without a time are in no window", ROWS, "pc.fill_null(us, -1)", "us", test=OF_ROWS),
    one("threads are rounded to the even", ROWS, "half_towards_infinity", "half_to_even", test=OF_ROWS),
    one("tasks cut windows", ROW_JOBS, "// tasks) * width_us", "// tasks) * width_us + 1", test=OF_ROWS),
    one(
        "what tasks say of different parts is added up",
        ROW_JOBS,
        '(*held.KEYS["threads"], "part")',
        'held.KEYS["threads"]',
        test=OF_ROWS,
    ),
    one(
        "what ends where a stretch begins is outside",
        ROW_JOBS,
        "self.end_us >= from_us",
        "self.end_us > from_us",
        test=OF_ROWS,
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
        HELD,
        'EXTREMES.get(c[:3], "sum")',
        '"sum"',
        test=ON_SPARK,
    ),
    one(
        "of two parts the first counts",
        HELD,
        "if name in KEYS else table",
        "if False else table",
        test=ON_SPARK,
    ),
    one(
        "a fused part has the number of what it was",
        KEPT,
        "[each.part.number] * table.num_rows",
        "[each.of[0].number] * table.num_rows",
        test=ON_SPARK,
    ),
    one(
        "the first window of a plan is judged",
        RESIDUALS,
        'row["w"] > first[row["run"], row["epoch"]]',
        "True",
        test=ON_SPARK,
    ),
    one(
        "a plan that nobody tried is right",
        RESIDUALS,
        '(row["offered_tps"] or 0) > row["predicted_tps"]',
        "True",
        test=ON_SPARK,
    ),
    one(
        "whoever held rows up before held them up now",
        ANALYTICS + "analyses/latency_analyses.py",
        '(f.col("first_us") < f.col("to_us")) & (f.col("last_us") > f.col("from_us"))',
        "f.lit(True)",
        test=ON_SPARK,
    ),
    one(
        "a plan whose rows waited kept up",
        ANALYTICS + "analyses/load_analyses.py",
        '"unstable" if slow_s >= SLOW_LEAST_S else verdict_of',
        "verdict_of",
        test=ON_SPARK,
    ),
    one(
        "a stretch does not see the minute before it",
        PARTS,
        "(end_us + later_us) // span_us + 1",
        "end_us // span_us + 1",
        test=OF_PARTS,
    ),
    one(
        "what has to be made again is fused",
        PARTS,
        "len(parts) > 1 and clear and",
        "len(parts) > 1 and",
        test=OF_PARTS,
    ),
    one(
        "open stretches are fused",
        PARTS,
        " and (block + 1) * length < max(its)",
        "",
        test=OF_PARTS,
    ),
    one(
        "what comes of one table makes another again",
        PARTS,
        "if (p.run, p.table) == (run, table) and p.made_of == made_of(its, p.begin, p.end)",
        "if (p.run, p.table) == (run, table) and not known.spans",
        test=OF_PARTS,
    ),
    one(
        "the queue of a part grows from its own begin",
        HELD,
        '"xy": xy + far * y',
        '"xy": xy',
        test=ON_SPARK,
    ),
    one(
        "blocks of memory are as long as their part asks for",
        HELD,
        'np_of(table["block"]) >> (to - np_of(table["level"]))',
        'np_of(table["block"])',
        test=ON_SPARK,
    ),
    one(
        "quantiles of errors are a bin too high",
        RESIDUALS,
        "(bucket + 0.5) / ERRORS_PER_DOUBLING",
        "(bucket + 1.5) / ERRORS_PER_DOUBLING",
        test=ON_SPARK,
    ),
    one(
        "a row costs the same whoever is beside",
        ANALYTICS + "aggregation/time_sums.py",
        'f.array_join(others, ",")',
        'f.lit("")',
        test=ON_SPARK,
    ),
    one(
        "few rows tell what a row costs",
        ANALYTICS + "aggregation/time_sums.py",
        "COSTED_TUPLES = 20",
        "COSTED_TUPLES = 1",
        test=ON_SPARK,
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
        "still_s = SETTLE_S if _says_over(run) else QUIET_S",
        "still_s = 0.0 if _says_over(run) else QUIET_S",
        test=FOLLOWING,
    ),
    one(
        "a folder without a file is a run that is over",
        FOLLOW,
        "return next(still, False) and all(still)",
        "return all(still)",
        test=FOLLOWING,
    ),
    one(
        "what is new in a run is looked for by a pattern of files",
        FOLLOW,
        """folders = f"{run.place.uri}/{{{','.join(TABLES)}}}\"""",
        """folders = f"{run.place.uri}/{{{','.join(TABLES)}}}/*.parquet\"""",
        test="tests/analytics/spark/test_streamed_live.py",
    ),
    one(
        "a file that has changed is as it was",
        JUDGING,
        "if file not in self._found]",
        "if file[:2] not in {known[:2] for known in self._found}]",
        test=FOLLOWING,
    ),
)  # fmt: skip
