"""Where Spark cannot run, the tests that need it say so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spark() -> None:
    """Skips a test where Spark or Java is missing."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'headgate[spark]'")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")


@pytest.fixture(scope="session")
def java(spark: None) -> Iterator[dict[str, str]]:
    """A Java process that sessions of Spark share, one after the other, each a process of its own: where to find it.
    One is slow until it has seen its code, and that is most of what a small analysis takes."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    gateway = launch_gateway(conf.set("spark.driver.memory", "2g"), quiet)
    at = gateway.java_parameters
    yield {"PYSPARK_GATEWAY_PORT": str(at.port), "PYSPARK_GATEWAY_SECRET": at.auth_token}
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
