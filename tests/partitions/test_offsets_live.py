"""A source with offsets: whatever is killed, its rows come again from where they are kept, and only those."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from counted_hosts import RATE_TPS, CountedHosts

pytestmark = pytest.mark.live


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[CountedHosts]:
    begun = tmp_path / "begun"
    begun.touch()
    log = {"run": "counted_tasks:Log", "params": {"begun": str(begun), "rate_tps": RATE_TPS}}
    found = CountedHosts(tmp_path, ("vm1", "vm2", "vm3"), log)
    try:
        yield found
    finally:
        found.close()


def committed(hosts: CountedHosts) -> int:
    said = hosts.root / "begun.done-0"
    return int(said.read_text()) if said.exists() else 0


def test_rows_are_read_again_from_their_offset_after_any_kill_and_committed_when_they_are_done(
    hosts: CountedHosts,
) -> None:
    """A worker, the controller, and, while it is away, a VM with its disk. The log forgets what is done."""
    (vm,) = {vm for vm, _ in hosts.slots_of("source")}
    assert vm not in {vm for vm, _ in hosts.slots_of("tally")}
    _, *workers = hosts.pids(vm)
    os.kill(workers[0], signal.SIGKILL)
    before = committed(hosts)
    hosts.rows_come(400)
    hosts.wait(lambda: committed(hosts) > before + 300)  # what was sent again is done
    hosts.controller.kill()
    hosts.controller.wait()
    hosts.rows_come(800)
    before = committed(hosts)
    for pid in hosts.pids(vm):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(hosts.root / vm)
    hosts.start_again()
    hosts.rows_come(800)
    assert vm not in {vm for vm, _ in hosts.slots_of("source")}
    hosts.wait(lambda: committed(hosts) > before)
    summary = hosts.summary()
    found, tuples = summary["found"], summary["tuples"]
    assert found["whole"] and tuples["left"] == 0, summary
    assert committed(hosts) == 3 * (tuples["emitted"] - 1) + 1
    assert tuples["lost"] == 0


def test_while_the_service_of_the_sinks_is_away_rows_wait_and_no_plan_is_made(
    hosts: CountedHosts,
) -> None:
    away = hosts.root / "trouble" / "service"
    away.parent.mkdir()
    away.touch()
    hosts.wait(lambda: any("waits for a service" in alarm["text"] for alarm in hosts.status()["alarms"]))
    hosts.wait(lambda: (hosts.status()["rates"]["lag_rows"] or 0) > 800)
    assert hosts.log.count("is in force") == 1, "more threads would wait, too"
    away.unlink()
    hosts.rows_come(1200)
    hosts.wait(lambda: not any("waits for a service" in alarm["text"] for alarm in hosts.status()["alarms"]))
    summary = hosts.summary()
    assert summary["found"]["whole"] and summary["tuples"]["dead_lettered"] == 0, summary
    assert summary["found"]["sinks"]["counts"]["duplicates"] == 0
