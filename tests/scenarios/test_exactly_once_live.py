"""Counted exactly once, from the source through keyed state into SQLite, under twenty kills of everything: two of them
of a VM with its disk."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
from patience import PATIENCE_S
from test_keyed_state_live import counted_once, write_work

from watched_runs.trials import Trial

pytestmark = [pytest.mark.live, pytest.mark.full]
KILLS = 20
DISKS_AT = (7, 14)  # of the kills


class Exact(Trial):
    more: tuple[str, ...] = ()  # options

    def __init__(self, folder: Path) -> None:
        options = ["--vms", "4,4,4", "--exactly-once", "--state-to", str(folder / "far"), *self.more]
        super().__init__(folder, "40", 3600, options)

    def _write_topology(self) -> None:
        write_work(self.folder, "Tally")
        path = self.folder / "topology.json"
        topology = json.loads(path.read_text())
        (store,) = (task for task in topology["tasks"] if task["name"] == "store")
        store["run"] = "headgate.connectors:SqliteSink"
        store["params"] = {"path": str(self.folder / "out.sqlite"), "table": "counts", "columns": ["g", "n"]}
        path.write_text(json.dumps(topology))

    def stored(self) -> Counter[tuple[int, int]]:
        if not (self.folder / "out.sqlite").exists():
            return Counter()
        with sqlite3.connect(self.folder / "out.sqlite", timeout=PATIENCE_S) as database:
            try:
                return Counter(database.execute("select g, n from counts").fetchall())
            except sqlite3.OperationalError:  # there is no table yet
                return Counter()

    def waits_for(self, more: int) -> None:
        before, end_s = sum(self.stored().values()), time.monotonic() + 120.0
        while sum(self.stored().values()) < before + more:
            assert time.monotonic() < end_s and self.process.poll() is None, self.log()[-3000:]
            time.sleep(0.2)

    def lose(self, choose: random.Random) -> None:
        """A VM's agent and workers at once, and all that it had on its disk."""
        vm = choose.choice(["vm1", "vm2", "vm3"])
        here = [pid for role in ("agent", "worker") for pid in self.pids(role) if self._is_of(pid, vm)]
        for pid in here:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder / "state" / "agents" / vm, ignore_errors=True)

    def _is_of(self, pid: int, vm: str) -> bool:
        try:
            return vm in Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("/", "\0").split("\0")
        except OSError:
            return False


def test_sums_are_those_of_a_run_that_nothing_befell(tmp_path: Path) -> None:
    choose = random.Random(39)
    run = Exact(tmp_path)
    try:
        run.waits_for(60)
        for kill in range(KILLS):
            if kill in DISKS_AT:
                run.lose(choose)
            else:
                role = choose.choices(["worker", "agent", "controller"], [6, 2, 1])[0]
                if pids := run.pids(role):
                    os.kill(choose.choice(pids), signal.SIGKILL)
            time.sleep(choose.uniform(0.0, 1.5))
            run.waits_for(30)
        run.end()
        summary = run.finish()
    finally:
        run.end()
    assert summary["state"]["lost_ranges"] == 0 and summary["state"]["applied_again_at_most"] == 0
    found, expected = run.stored(), counted_once(summary["tuples"]["emitted"])
    assert not found - expected and not expected - found, (found - expected, expected - found)
