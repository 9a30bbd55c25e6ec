"""The same job on a standalone Spark cluster: master and worker from the pip package, on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from made_traces.generate_trace import Wanted, generate

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.live, pytest.mark.full]
START_S, LIMIT_S = 90, 500
DEPLOY = "org.apache.spark.deploy"


def wait_for(log, pattern, process):
    """The match of this pattern in the log of a process."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if found := re.search(pattern, log.read_text("utf-8", "replace")):
            return found
        assert process.poll() is None, log.read_text("utf-8", "replace")
        time.sleep(0.2)
    raise AssertionError(f"{pattern!r} did not come within {START_S} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def cluster(spark, tmp_path_factory):
    """The master's URL; ends both processes by their ids."""
    import pyspark

    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    started = []

    def start(name, *words):
        log = folder / f"{name}.log"
        env = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("wb") as file:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *words],
                env=env,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        started.append(process)
        return process, log

    try:
        process, log = start(
            "master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        url = wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", process)[1]
        process, log = start(
            "worker", f"{DEPLOY}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2",
            "--memory", "2g", url,
        )  # fmt: skip
        wait_for(log, "Successfully registered with master", process)
        yield url
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            process.wait(30)


def test_the_job_runs_on_a_cluster_and_finds_the_same(cluster, tmp_path):
    truth = generate(
        tmp_path / "traces", Wanted(rows=4_000, threads=8, slots=4, epochs=2, segment_rows=1_000)
    )
    command = [
        sys.executable, "-m", "headgate", "analyze", tmp_path / "traces", "--output", tmp_path / "out",
        "--master", cluster, "-o", "json", "--set", "memory=1g", "--set", "spark=spark.executor.memory=1g",
        "--set", "spark=spark.sql.shuffle.partitions=2",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == truth["rows"]
    assert found["left_out"] == []
    for of in ("cpu", "memory"):
        assert found[of]["r2"] == pytest.approx(truth["runs"][0]["r2"][of], abs=1e-6)
