"""The same analysis through a Spark Connect server, which runs apart: results, refusals, Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from followed import HEADGATE
from results_compared import differences, results

from made_traces.generate_trace import Wanted, generate

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[3]
START_S, LIMIT_S = 120, 300
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def server(spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own on loopback: its URL. Ends by its process's id."""
    for name in ("grpc", "grpc_status", "pandas", "zstandard"):
        pytest.importorskip(name, reason="the client is not installed: pip install 'headgate[connect]'")
    import pyspark

    home, port, log = Path(pyspark.__file__).parent, free_port(), tmp_path_factory.mktemp("server") / "log"
    if not list((home / "jars").glob("spark-connect_*.jar")):
        pytest.skip("this PySpark has no Connect server")
    words = ["--master", "local[2]", "--class", SERVER]
    for key, value in {
        "spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.local.dir": log.parent, "spark.sql.warehouse.dir": log.parent / "warehouse",
    }.items():  # fmt: skip
        words += ["--conf", f"{key}={value}"]
    env = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", "org.apache.spark.deploy.SparkSubmit", *words, "spark-internal"],
            env=env, stdout=file, stderr=file, cwd=log.parent, start_new_session=True,
        )  # fmt: skip
    try:
        until_s = time.monotonic() + START_S
        while "Spark Connect server started" not in log.read_text("utf-8", "replace"):
            assert process.poll() is None and time.monotonic() < until_s, log.read_text("utf-8", "replace")
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*HEADGATE, "analyze", *map(str, words), "-o", "json"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT_S)


def test_a_connect_server_gives_the_results_of_duckdb(server: str, tmp_path: Path) -> None:
    generate(tmp_path / "made", Wanted(30_000, threads=20, slots=8, segment_rows=2_000), bad=True)
    there = analyze(tmp_path / "made", "--output", tmp_path / "there", "--master", server)
    assert there.returncode == 0, there.stderr
    here = analyze(tmp_path / "made", "--output", tmp_path / "here")
    assert here.returncode == 0, here.stderr
    assert list(differences(results(tmp_path / "there"), results(tmp_path / "here"))) == []
    assert results(tmp_path / "there")["analysis.json"]["rows"] > 29_000
    again = analyze(
        tmp_path / "made", "--output", tmp_path / "there", "--master", server, "--set", "again=yes"
    )
    assert again.returncode == 0, "the server serves the next session: " + again.stderr


def test_a_server_that_is_not_there_is_named_at_once(spark: None, tmp_path: Path) -> None:
    for name in ("grpc", "pandas"):
        pytest.importorskip(name, reason="the client is not installed: pip install 'headgate[connect]'")
    generate(tmp_path / "made", Wanted(3_000, threads=10, slots=8))
    url = f"sc://127.0.0.1:{free_port()}"
    began_s = time.monotonic()
    refused = analyze(tmp_path / "made", "--output", tmp_path / "out", "--master", url)
    assert refused.returncode == 5 and f"no Spark Connect server answers at {url}" in refused.stderr
    assert time.monotonic() - began_s < 60
    followed = analyze(tmp_path / "made" / "made" / "run-1", "--follow", "--master", url)
    assert followed.returncode == 2 and "--follow" in followed.stderr
