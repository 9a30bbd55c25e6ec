"""Open-loop trials in a real worker in a real slot, one after the other on the same bench."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.measuring.bench import Bench, BenchPlace, bench_topology
from headgate.topology_runtime.measuring.bench_trials import run_trial
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.worker.meters import sample_rows

CORES, THREADS = 0.2, 2
WAIT = Task(
    "wait", run="headgate.topology_runtime.tasks.waiting:Wait", params={"ms": 20.0}
)  # 2 threads: 100 rows/s


@pytest.mark.live
@pytest.mark.alone
def test_half_the_capacity_is_stable_and_half_more_is_not(tmp_path: Path) -> None:
    source = Task("source", "source", "headgate.topology_runtime.tasks.row_sources:Counter")
    whole = Topology("t", (source, WAIT, Task("sink")), (Edge("source", "wait"), Edge("wait", "sink")))
    rows = tmp_path / "wait.rows"
    sample_rows.write(rows, [("source", n) for n in range(10)])
    small, quotas = bench_topology(whole, WAIT, rows), Quotas()
    bench = Bench(small, "wait", THREADS, 1, BenchPlace(str(tmp_path), (), CORES), threading.Event())
    try:
        bench.begin(quotas, "open-loop", 0)
        over = run_trial(bench, 150.0, 5.0, waits=False)
        under = run_trial(bench, 50.0, 5.0, waits=False)
    finally:
        bench.end()
        quotas.remove()
    assert over.verdict == "unstable" and under.verdict == "stable"
    assert over.slope == pytest.approx(1 / 3, abs=0.1) and abs(under.slope) < 0.02
    assert under.achieved_tps == pytest.approx(50.0, rel=0.1) and over.achieved_tps < 110.0
    assert 0.015 < under.p50_s < 0.1 < over.p99_s and under.p50_s <= under.p95_s <= under.p99_s
    assert 0.0 < under.cpu < 0.9 and under.seconds == pytest.approx(5.0, abs=0.2)
    assert len(under.bins) == 20 and sum(b.offered for b in under.bins) == pytest.approx(250, rel=0.05)
