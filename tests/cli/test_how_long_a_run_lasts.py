"""The demo ends after its day; other runs last until Ctrl-C unless told otherwise."""

from __future__ import annotations

import pytest

from headgate.dashboards.up.settings import DEMO_SECONDS, UpSettings


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (UpSettings(), DEMO_SECONDS),
        (UpSettings(seconds=20.0), 20.0),
        (UpSettings(seconds=float("inf")), None),
        (UpSettings(rates="50"), None),
        (UpSettings(topology="mine.py:flow", rates="50"), None),
        (UpSettings(topology="mine.py:flow", rates="50", seconds=7.0), 7.0),
    ],
)
def test_a_run_lasts(settings: UpSettings, seconds: float | None) -> None:
    assert settings.ends_after_s == seconds
