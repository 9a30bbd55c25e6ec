"""A key that becomes hot in a running topology is named: in `status`, in `explain`, in an alarm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from watched_runs.user_project import LIMIT_S, UserProject, user_project

pytestmark = [pytest.mark.live, pytest.mark.alone]
FLOW = """
import os

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.sinks import CollectToFile
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.tasks.row_sources import Counter


def mark(number):
    hot = number % 5 and os.path.exists({hot!r})
    return "customer-X" if hot else f"customer-{{number % 997}}", number


flow = topology("skewed")
marked = flow.source("numbers", Counter) >> flow.task("mark", mark)
marked >> flow.task("tally", CountByKey).by(0) >> flow.task("store", CollectToFile, path={path!r})
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[UserProject]:
    flow = FLOW.format(hot=str(tmp_path / "hot"), path=str(tmp_path / "stored.txt"))
    with user_project(tmp_path, flow, dict.fromkeys(("mark", "tally", "store"), 400.0)) as project:
        project.up("--rates", "300", "--vms", "4")
        yield project


def alarms(status: dict[str, Any]) -> dict[str, str]:
    return {alarm["what"]: alarm["text"] for alarm in status.get("alarms", ())}


def until(run: UserProject, hot: bool) -> tuple[float, dict[str, Any]]:
    """How long until the alarm is there, or is not, and the status that says so."""
    begin = time.monotonic()
    while time.monotonic() - begin < LIMIT_S:
        asked_at = time.monotonic()
        status = run.asked("status")
        if status and ("hot key tally" in alarms(status)) == hot:
            return asked_at - begin, status
    raise AssertionError(f"the hot key is {'not ' * hot}named\n{run.log()[-3000:]}")


def test_a_hot_key_is_named_within_five_seconds(run: UserProject) -> None:
    stored, hot = run.home / "stored.txt", run.home / "hot"
    run.until(lambda: stored.exists() and stored.read_text().count("\n") >= 900, "rows")
    assert alarms(run.asked("status")) == {}, "no key of 997 is hot"
    hot.touch()
    took_s, status = until(run, hot=True)
    assert "of the rows of tally are of key 'customer-X' (range" in alarms(status)["hot key tally"]
    time.sleep(2.0)  # the second in which it began is over
    hottest = run.asked("status")["hot_keys"][0]
    assert (hottest["task"], hottest["key"]) == ("tally", "'customer-X'")
    assert hottest["share"] == pytest.approx(0.8, abs=0.06)
    told = run.asked("explain")["hot_keys"][0]
    assert told.endswith(f"key 'customer-X' (range {hottest['key_range']})")
    hot.unlink()
    until(run, hot=False)
    assert took_s <= 5.0
