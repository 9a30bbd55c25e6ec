"""The state of keys is asked for while rows flow, a worker is killed and ranges move: it is never behind what sinks
have, never ahead of what they get, and the run ends with every row counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_keyed_state_live import RATE_TPS, holders, planned, settled

from watched_runs.counted_run import CountedRun
from watched_runs.counted_tasks import KEYS

pytestmark = pytest.mark.live


def state_of(run: CountedRun, *words: str) -> tuple[int, Any]:
    """Exit code, and what `headgate state get` says."""
    place = ["--controller", str(run.folder / "state"), "-o", "json"]
    command = [sys.executable, "-m", "headgate", "state", "get", *words, *place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def counted(found: dict[str, Any]) -> int:
    again, spans = found["state"]
    assert again == 0
    return sum(spans[1::2]) - sum(spans[::2])


@pytest.mark.parametrize("options", [(), ("--exactly-once",)], ids=["at-least-once", "exactly-once"])
def test_a_state_is_what_the_rows_have_made_of_it(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600, more=[*options, "--dashboard"])
    try:
        run.wait_for_rows(more=300)
        settled(run)
        looked: dict[int, int] = {}
        for key in range(0, KEYS, 7):
            run.segments.drain()
            before = run.checker.applied[key]
            code, found = state_of(run, "tally", str(key))
            assert code == 0, found
            looked[key] = counted(found)
            assert before <= looked[key] and (found["task"], found["key"], found["timers"]) == (
                "tally",
                key,
                [],
            )
            slots = {
                vm["vm"]: {s["slot"]: s["threads"] for s in vm["slots"]}
                for vm in run.command("status")["vms"]
            }
            assert "tally" in slots[found["vm"]][found["slot"]]
        until(
            lambda: run.segments.drain() or all(run.checker.applied[k] >= n for k, n in looked.items()),
            run.log,
            run.process,
        )
        for words, code, what in (
            (("tallies", "1"), 3, "there is no task tallies"),
            (("keyed", "1"), 3, "keyed has no state per key"),
            (("tally", str(KEYS)), 3, f"tally has no state of key {KEYS}"),
            (("tally", '"1"'), 3, "tally has no state of key"),
        ):
            assert state_of(run, *words)[0] == code and what in state_of(run, *words)[1]
        page = next(word for word in run.log().split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(
            f"{page.partition('#')[0]}api/state?task=tally&key=7", timeout=30
        ) as answer:
            assert counted(json.load(answer)) >= looked[7]
        planned(run, 1.8)
        os.kill(holders(run, leaving=False)[0], signal.SIGKILL)
        seen = set()
        until(
            lambda: seen.add(state_of(run, "tally", "7")[0]) or run.command("status")["stage"] == "committed"
        )
        assert seen <= {0, 5, 6}, "it is there, nobody answers, or it moves"
        until(lambda: state_of(run, "tally", "7")[0] == 0, run.log, run.process)
        run.wait_for_rows(more=300)
        settled(run)
        run.end()
        summary = run.finish()
        found = run.verdict(summary)
    finally:
        run.end()
    assert found["whole"], found
    assert not options or found["applied_again"] == 0
