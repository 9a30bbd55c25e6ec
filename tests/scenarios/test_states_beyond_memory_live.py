"""Workers whose keyed state has almost no room in memory are killed, and every row counts once."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from test_exactly_once_live import Exact
from test_keyed_state_live import counted_once

pytestmark = pytest.mark.live
KILLS = 4


class Tight(Exact):
    more = ("--set", "state-in-memory-mb=0.001")


def test_each_row_counts_once_with_states_beyond_memory_and_kills(tmp_path: Path) -> None:
    choose = random.Random(4)
    run = Tight(tmp_path)
    try:
        run.waits_for(60)
        for _ in range(KILLS):
            os.kill(choose.choice(run.pids("worker")), signal.SIGKILL)
            run.waits_for(30)
        folders = list((tmp_path / "state").rglob("overflow"))
        run.end()
        summary = run.finish()
    finally:
        run.end()
    assert folders, "nothing went to a scratch file"
    assert not any(list(folder.iterdir()) for folder in folders if folder.exists())
    assert summary["state"]["lost_ranges"] == 0 and summary["state"]["applied_again_at_most"] == 0
    assert run.stored() == counted_once(summary["tuples"]["emitted"])
