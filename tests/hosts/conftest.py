"""What beds of hosts are installed from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from watched_runs.host_bed import wheelhouse


@pytest.fixture(scope="session")
def wheels() -> Path:
    try:
        return wheelhouse()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no index of packages is reached: {error.stderr[-300:]!r}")
