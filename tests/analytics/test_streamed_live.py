"""What Spark does to see what is new in a run: segments by name, and no job over those that it knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.dashboards.analytics.data_places import place
from headgate.dashboards.analytics.follow import streamed
from headgate.dashboards.analytics.trace_runs import run_of

pytestmark = pytest.mark.live
MANY = 1_100  # more than Spark looks up by itself


def test_a_look_at_the_folder_is_no_job_over_the_files_that_are_there(spark: None, tmp_path: Path) -> None:
    from headgate.dashboards.analytics.spark import FOLLOWING, session

    folder, out = tmp_path / "demo" / "one", tmp_path / "out"
    for table in ("samples", "rates"):
        (folder / table).mkdir(parents=True)
    for number in range(MANY):
        (folder / "samples" / f"{number}-000000.parquet").write_bytes(b"PAR1")
    (folder / "samples" / "_2000-000000.parquet").write_bytes(b"PAR1")  # not finished
    (folder / "samples" / "2001-000000.parquet.bad").write_bytes(b"PAR1")
    (folder / "run.json").write_text("{}")
    with session("local[2]", "1g", tmp_path / "spark.log", FOLLOWING) as found:
        with streamed(found, run_of(place(str(folder)), {}), place(str(out))) as (query, batches):
            for _ in range(2):  # of 1,000, and what is left
                assert batches.next(60.0) is not None
                batches.done(True)
            (folder / "latency").mkdir()  # a table that is not there from the beginning
            (folder / "latency" / "3000-000000.parquet").write_bytes(b"PAR1")
            assert batches.next(60.0) is not None
            batches.done(True)
            assert batches.next(2.5) is None, "nothing else is new"
        jobs = found.sparkContext.statusTracker()
        numbers = [*jobs.getJobIdsForGroup(), *jobs.getJobIdsForGroup(str(query.runId))]
        known = [info for number in numbers if (info := jobs.getJobInfo(number)) is not None]
        stages = [jobs.getStageInfo(stage) for info in known for stage in info.stageIds]
    log = sorted((out / "follow" / "checkpoint" / "sources" / "0").glob("[0-9]*"))
    names = [line for file in log for line in file.read_text().splitlines() if line.startswith("{")]
    assert len(names) == MANY + 1
    assert all(stage is None or stage.numTasks < 1_000 for stage in stages), "a task for each file"
