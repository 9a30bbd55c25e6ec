"""The report as a browser draws it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from report_made import write

from headgate.dashboards.report import build

CHROMIUM = shutil.which("chromium")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=10000",
)  # fmt: skip

pytestmark = pytest.mark.live


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
