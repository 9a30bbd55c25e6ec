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
    return int((hosts.root / "begun.done-0").read_text())


def test_rows_are_read_again_from_their_offset_after_any_kill_and_committed_when_they_are_done(
    hosts: CountedHosts,
) -> None:
    """A worker, the controller, and a VM with all that is on its disk."""
    (vm,) = {vm for vm, _ in hosts.slots_of("source")}
    assert vm not in {vm for vm, _ in hosts.slots_of("tally")}
    _, *workers = hosts.pids(vm)
    os.kill(workers[0], signal.SIGKILL)
    hosts.rows_come(400)
    hosts.controller.kill()
    hosts.controller.wait()
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
