"""`scripts/bench once` leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

from watched_runs.trials import lives

RUNNER = Path(__file__).parents[2] / "scripts/benchmarks/benchmark_runner.py"

pytestmark = pytest.mark.live


def test_asked_to_end_it_ends_its_run_and_its_broker(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    words = [sys.executable, "-P", str(RUNNER), "once", "--sink", "nats", "--rows", "1000000"]
    with (tmp_path / "log").open("wb") as log:
        bench = subprocess.Popen(words, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=log, stderr=log)
    began: dict[int, str] = {}

    def all_there() -> bool:
        for child in psutil.Process(bench.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                began[child.pid] = " ".join(child.cmdline())
        return all(any(word in one for one in began.values()) for word in ("nats-server", " up ", "worker"))

    try:
        until(all_there, (tmp_path / "log").read_text, bench)
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(PATIENCE_S) == 128 + signal.SIGTERM, (tmp_path / "log").read_text()
        until(lambda: not any(map(lives, began)), lambda: str(began))
        assert not list(tmp_path.glob("headgate-once-*"))
    finally:
        bench.kill()
