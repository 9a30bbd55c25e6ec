"""Where Spark cannot run, the tests that need it say so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spark() -> None:
    """Skips a test where Spark or Java is missing."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'headgate[spark]'")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        pytest.skip("Spark needs Java: apt-get install openjdk-17-jre-headless")
