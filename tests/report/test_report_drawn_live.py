"""The report as a browser draws it, and of a run that nobody analysed before."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from report_made import write

from dashboards.report import build
from generate_trace import generate
from made_runs import Wanted

CHROMIUM = shutil.which("chromium")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=10000",
)  # fmt: skip

pytestmark = pytest.mark.live


def ended(words: list[str], limit_s: float) -> tuple[int, str]:
    """(exit code, what it said on stderr); past its limit it ends with all that it started."""
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        return process.wait(limit_s), process.communicate()[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_a_browser_draws_every_plot_and_complains_of_nothing(tmp_path: Path) -> None:
    path = build(write(tmp_path / "a"))
    profile, log = tmp_path / "profile", tmp_path / "console"
    words = [
        str(CHROMIUM),
        *QUIET,
        f"--user-data-dir={profile}",
        "--enable-logging=stderr",
        "--dump-dom",
        path.as_uri(),
    ]
    with open(log, "wb") as said:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=said, timeout=120, check=True)
    dom = done.stdout.decode("utf-8")
    plots = dom.count('class="plot js-plotly-plot"')
    assert plots == dom.count("data-figure=") >= 13
    assert dom.count('<svg class="main-svg"') >= plots
    console = [line for line in log.read_text("utf-8", "replace").splitlines() if "CONSOLE" in line]
    assert console == []


@pytest.mark.skipif(find_spec("pyspark") is None, reason="Spark is not installed")
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_a_run_is_analysed_and_then_told(tmp_path: Path) -> None:
    truth = generate(tmp_path / "traces", Wanted(12_000, threads=20, slots=8))["runs"][0]
    run = tmp_path / "traces" / "made" / "run-1"
    words = ["-P", "-m", "dashboards.cli", "report", str(run), "--output", str(tmp_path / "run.html")]
    code, said = ended([sys.executable, *words], 600)
    assert code == 0, said
    page = (tmp_path / "run.html").read_text("utf-8")
    found = re.search(r'<script type="application/json" id="summary">(.*?)</script>', page)
    assert found is not None
    summary = json.loads(found[1])
    assert summary["runs"] == ["made/run-1"] and summary["analysis"]["rows"] == truth["rows"]["samples"]
    assert summary["analysis"]["cpu"]["r2"] == pytest.approx(truth["r2"]["cpu"], abs=0.1)
    kinds = [sentence["kind"] for sentence in summary["story"][0]["sentences"]]
    assert kinds.count("replan") == 5 and "broke" in kinds
    assert (tmp_path / "run-plots" / "timeline.html").exists()
