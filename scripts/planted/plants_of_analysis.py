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
        "memory that comes and goes is a leak",
        GROWTH,
        "slope.low <= 0",
        "slope.value <= 0",
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


# ── Bugs in what is added up, and in which rows, segments and parts count ───────────────────────────────

ANALYTICS = "dashboards/analytics/"
WINDOWS, SUMS = "dashboards/tables/views/windows/", "dashboards/tables/views/sums/"
JUDGING, FOLLOW, KEPT = (
    ANALYTICS + name for name in ("curation/trace_segments.py", "follow_run.py", "kept_sums.py")
)
RESIDUALS = ANALYTICS + "analyses/prediction_analyses.py"
OF_SUMMED, OF_KEPT = "tests/analytics/test_sums.py", "tests/analytics/test_kept_sums.py"
JUDGED = "tests/analytics/test_segments.py"
FORESEEN = "dashboards/tables/views/sums/sum_predicted_latency.sql"
OF_FORESEEN = "tests/tables/test_predicted_latency.py"
FOLLOWING = "tests/analytics/test_following.py"

OF_SUMS: tuple[Plant, ...] = (
    one(
        "rates are not told from the row before",
        WINDOWS + "sum_rate_windows.sql",
        "sum(offered / each_s) as offered_sum",
        "sum(offered) as offered_sum",
        test=OF_SUMMED,
    ),
    one(
        "what an absence left counts as rates",
        WINDOWS + "sum_rate_windows.sql",
        "s.since_s > 0 and s.since_s < 60",
        "s.since_s > 0",
        test=OF_SUMMED,
    ),
    one(
        "R² has rows without a prediction",
        WINDOWS + "sum_slot_windows.sql",
        "sum(case when cpu_residual is not null then cpu end) as cpu_sum",
        "sum(cpu) as cpu_sum",
        test=OF_SUMMED,
    ),
    one(
        "a bundle ends with its last row",
        WINDOWS + "sum_bundles.sql",
        "coalesce((last_us - first_us) / 1e6, 0e0) + window_s / n",
        "coalesce((last_us - first_us) / 1e6, 0e0)",
        test=OF_SUMMED,
    ),
    one(
        "threads are rounded to the even",
        WINDOWS + "sum_bundles.sql",
        "+ 0.5e0)",
        "+ 0.49e0)",
        test=OF_SUMMED,
    ),
    one(
        "a second counts for each link",
        SUMS + "sum_link_seconds.sql",
        "max(window_s) as window_s",
        "sum(window_s) as window_s",
        test=OF_SUMMED,
    ),
    one(
        "a row costs the same whoever is beside",
        SUMS + "sum_groups.sql",
        "group by run, epoch, task, vm, slot, beside",
        "group by run, epoch, task, vm, slot, beside having beside = ''",
        test=OF_SUMMED,
    ),
    one(
        "few rows tell what a row costs",
        SUMS + "sum_groups.sql",
        "case when tuples >= 20 and cpu_s > 0 and window_s > 0 then ln(greatest(cpu_s",
        "case when tuples >= 1 and cpu_s > 0 and window_s > 0 then ln(greatest(cpu_s",
        test=OF_SUMMED,
    ),
    one(
        "a task is at its peak while nothing waits",
        WINDOWS + "sum_peaks.sql",
        "* b.threads >= 1",
        "* b.threads >= 0",
        test=OF_SUMMED,
    ),
    one(
        "a task that shares its slot is at its peak",
        WINDOWS + "sum_peaks.sql",
        "where b.beside = ''",
        "where true",
        test=OF_SUMMED,
    ),
    one(
        "a slot is as busy as in every window",
        SUMS + "sum_slot_uses.sql",
        "sum(s.cpu * s.window_s)",
        "sum(s.cpu)",
        test="tests/tables/test_tables_made.py",
    ),
    one(
        "latency grows where its rows are of one moment",
        WINDOWS + "sum_latency_windows.sql",
        "case when max(at_s) > min(at_s) then regr_slope(latency_s, at_s - w * width_s) end",
        "regr_slope(latency_s, at_s - w * width_s)",
        test=OF_SUMMED,
    ),
    one(
        "what was not recorded costs nothing",
        "dashboards/tables/views/marts/mart_cost.sql",
        "slot_seconds * seconds / nullif(recorded_s, 0) as slot_s",
        "slot_seconds as slot_s",
        test=OF_SUMMED,
    ),
    one(
        "a stretch of time has no gap in it",
        WINDOWS + "sum_recorded.sql",
        ") > 2000000 then 1",
        ") > 2000000000 then 1",
        test=OF_SUMMED,
    ),
    one(
        "steps between plans are leaks",
        ANALYTICS + "analyses/slot_analyses.py",
        "step += next_held - memory - pace * (next_s - at_s)",
        "step += 0.0",
        test=OF_SUMMED,
    ),
    one(
        "a leak is none where plans change",
        ANALYTICS + "analyses/slot_analyses.py",
        " - pace * (next_s - at_s)",
        "",
        test=OF_SUMMED,
    ),
    one(
        "blocks of memory are as many as there are windows",
        SUMS + "sum_memory_blocks.sql",
        "power(2e0, k.level)) < 48",
        "power(2e0, k.level)) < 480",
        test=OF_SUMMED,
    ),
    one(
        "whoever held rows up before held them up now",
        ANALYTICS + "analyses/latency_analyses.py",
        " and b.first_us < e.to_us and b.last_us > e.from_us",
        "",
        test=OF_SUMMED,
    ),
    one(
        "a stretch does not see the minute before it",
        KEPT,
        "end_us = segment.end_us + LOOKS_BACK_US.get(segment.table, 0)",
        "end_us = segment.end_us",
        test=OF_KEPT,
    ),
    one(
        "what came late is never in",
        KEPT,
        "now <= part.files and not",
        "not",
        test=OF_KEPT,
    ),
    one(
        "what is open is kept",
        KEPT,
        "last + 1 - OPEN",
        "last + 1",
        test=OF_KEPT,
    ),
    one(
        "rates of a stretch do not look back",
        KEPT,
        "from_us = begin * STRETCH_US - LOOKS_BACK_US.get(table, 0)",
        "from_us = begin * STRETCH_US",
        test=OF_KEPT,
    ),
    one(
        "of two parts one counts",
        KEPT,
        'rows += f" union all select',
        'rows = f"select',
        test=OF_KEPT,
    ),
    one(
        "rows of another rate are set beside a predicted latency",
        FORESEEN,
        "    and abs(p.offered_tps - s.rate_tps) <= 0.1 * s.rate_tps\n",
        "",
        test=OF_FORESEEN,
    ),
    one(
        "a predicted latency counts before its plan has settled",
        FORESEEN,
        "us + cast(settled_in_s * 1e6 as bigint) as from_us",
        "us as from_us",
        test=OF_FORESEEN,
    ),
    one(
        "the longest of two parts is their sum",
        KEPT,
        "EXTREMES.get(of.name[:3], 'sum')",
        "'sum'",
        test=OF_KEPT,
    ),
    one(
        "the first window of a plan is judged",
        RESIDUALS,
        'row["w"] > first[row["run"], row["epoch"]]',
        "True",
        test=OF_SUMMED,
    ),
    one(
        "a plan that nobody tried is right",
        RESIDUALS,
        '(row["offered_tps"] or 0) > row["predicted_tps"]',
        "True",
        test=OF_SUMMED,
    ),
    one(
        "a plan whose rows waited kept up",
        ANALYTICS + "analyses/load_analyses.py",
        '"unstable" if slow_s >= SLOW_LEAST_S else verdict_of',
        "verdict_of",
        test=OF_SUMMED,
    ),
    one(
        "quantiles of errors are a bin too high",
        RESIDUALS,
        "(bucket + 0.5) / ERRORS_PER_DOUBLING",
        "(bucket + 1.5) / ERRORS_PER_DOUBLING",
        test=OF_SUMMED,
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
        "a file that has changed is as it was",
        JUDGING,
        "if file not in self._found]",
        "if file[:2] not in {known[:2] for known in self._found}]",
        test=FOLLOWING,
    ),
)  # fmt: skip
