"""What a run cost per tuple, when a plan was in force too shortly for a thread to be sampled; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headgate.dashboards.analytics.analyses.cost import cost
from headgate.dashboards.analytics.asked import AnalysisInput
from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.trace_runs import TraceRun

RUN = "flow/one"


def asked(folder: Path, counted: bool) -> AnalysisInput:
    run = TraceRun(
        place(str(folder)), "flow", "one", None, False, 0, {}, ("source",), (), {}, {}, {"vm1": 0.5}, {}, {}
    )
    presence = {
        "run": [RUN] * 2,
        "epoch": [1, 3],
        "vm": ["vm1"] * 2,
        "slot_s": [20.0, 40.0],
        "vm_s": [10.0, 20.0],
    }
    windows = {
        "run": [RUN] * 4,
        "epoch": [1, 1, 2, 3],
        "w": [0, 1, 2, 3],
        "acked": [100, 200, 58, 400] if counted else pa.nulls(4, pa.int64()),
        "acked_tps": [20.0, 20.0, 11.6, 20.0],
    }
    held = {"presence": pa.table(presence), "rate_windows": pa.table(windows)}
    return AnalysisInput(cast(Any, None), {RUN: run}, {RUN: 0}, 5, 1, {}, held)


def test_a_run_has_the_tuples_of_a_plan_that_was_never_sampled(tmp_path: Path) -> None:
    found = {row.epoch: row for row in cost(asked(tmp_path, True))}
    assert {epoch: row.tuples_acked for epoch, row in found.items()} == {1: 300, 3: 400, None: 758}
    usd = 0.5 * 30 / 3600
    assert found[None].usd == pytest.approx(usd)
    assert found[None].usd_per_million_tuples == pytest.approx(usd / 758 * 1e6)


def test_of_a_trace_without_counts_the_rates_of_sampled_plans_count(tmp_path: Path) -> None:
    found = {row.epoch: row for row in cost(asked(tmp_path, False))}
    assert {epoch: row.tuples_acked for epoch, row in found.items()} == {1: 200, 3: 400, None: 600}
