"""A VM that only the controller does not reach, a controller that is away, a host that stands still for seconds, and
keys that are rotated: real processes, every row and every key counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counted_hosts import CountedHosts

pytestmark = pytest.mark.live

VMS = ("vm1", "vm2", "vm3")
STANDS_STILL_S = 4.0  # besides what it takes to be noticed
BLINKS_S = 2.0  # less than a VM rests after, without contact


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[CountedHosts]:
    found = CountedHosts(tmp_path, VMS)
    try:
        yield found
    finally:
        found.close()


def of(hosts: CountedHosts, task: str) -> str:
    return min(hosts.slots_of(task))[0]


def plans(summary: dict[str, Any]) -> list[str]:
    return [plan["reason"] for plan in summary["plans"]]


def lost(summary: dict[str, Any]) -> set[int]:
    return {sink["lost"] for sink in summary["found"]["sinks"].values()}


def said(hosts: CountedHosts, words: str) -> Callable[[], bool]:
    return lambda: words in hosts.log


def test_a_vm_that_is_cut_off_from_the_controller_alone_rests_before_its_work_begins_elsewhere(
    hosts: CountedHosts,
) -> None:
    """Its peers and its sinks' files are still in its reach."""
    vm = of(hosts, "source")
    assert vm == of(hosts, "numbers") and vm not in {vm for vm, _ in hosts.slots_of("tally")}
    hosts.lines[vm].become("silent")
    hosts.wait(said(hosts, f"{vm} was not heard for 4"))
    resting = hosts.written_by(vm)
    hosts.wait(said(hosts, "plan 2 is in force"))
    hosts.rows_come(400)
    assert hosts.written_by(vm) == resting, "it worked beside its successor"
    hosts.lines[vm].become("open")
    hosts.wait(said(hosts, f"VM {vm} is back and empty"))
    hosts.rows_come(200)
    summary = hosts.summary()
    assert lost(summary) == {0} and summary["found"]["whole"] and plans(summary) == ["start", "vm_lost"]


def test_a_controller_that_is_away_for_longer_than_any_lease_stops_nothing(hosts: CountedHosts) -> None:
    hosts.controller.kill()
    hosts.controller.wait()
    started = time.monotonic()
    hosts.rows_come(1600)  # ten seconds of both sinks
    assert time.monotonic() - started > 8.0
    hosts.start_again()
    hosts.rows_come(400)
    summary = hosts.summary()
    assert summary["found"]["whole"], summary
    assert plans(summary) == ["start"] and "it is lost" not in hosts.log


def test_a_host_that_stands_still_for_seconds_keeps_its_key_ranges(hosts: CountedHosts) -> None:
    vm = of(hosts, "tally")
    with hosts.stopped(vm):
        hosts.wait(said(hosts, "its keyed state is waited for"))
        time.sleep(STANDS_STILL_S)
    hosts.rows_come(800)
    summary = hosts.summary()
    found = summary["found"]
    assert found["whole"] and found["applied_again"] == 0
    assert summary["state"]["lost_ranges"] == 0 and plans(summary) == ["start"]


def test_a_host_that_stands_still_for_two_seconds_costs_no_row_a_second_time(hosts: CountedHosts) -> None:
    """Nobody is read or processed elsewhere yet, and its kernel takes what comes: no link breaks."""
    for vm in (of(hosts, "tally"), of(hosts, "source")):
        with hosts.stopped(vm):
            time.sleep(BLINKS_S)
        hosts.rows_come(400)
    summary = hosts.summary()
    sinks = summary["found"]["sinks"].values()
    assert summary["found"]["whole"] and {sink["duplicates"] for sink in sinks} == {0}, summary
    assert plans(summary) == ["start"]


def test_keys_are_rotated_under_load_and_no_row_is_lost_or_comes_twice(hosts: CountedHosts) -> None:
    """Of agents, with an overlap and without; of the controller, which is started again with its new one."""
    agents = hosts.root / "agent.log"
    before, keys = {vm: sorted(hosts.pids(vm)) for vm in VMS}, ("--keys", hosts.state / "keys")
    for round_, overlap in enumerate((("--overlap", "1"), ("--overlap", "0")), 1):
        for number, vm in enumerate(VMS, 1):
            hosts.headgate("keys", "rotate", "agent", vm, *overlap, *keys)
            changed = (round_ - 1) * len(VMS) + number
            hosts.wait(lambda changed=changed: agents.read_text().count("answers by the new key") == changed)
        hosts.rows_come(200)
    hosts.headgate("keys", "rotate", "controller", *keys)
    hosts.wait(lambda: agents.read_text().count("answers by the new key") == 3 * len(VMS))
    hosts.controller.kill()
    hosts.controller.wait()
    hosts.start_again()
    hosts.rows_come(400)
    assert {vm: sorted(hosts.pids(vm)) for vm in VMS} == before
    summary = hosts.summary()
    sinks = summary["found"]["sinks"].values()
    assert summary["found"]["whole"] and {sink["duplicates"] for sink in sinks} == {0}, summary
    assert plans(summary) == ["start"] and "it is lost" not in hosts.log
