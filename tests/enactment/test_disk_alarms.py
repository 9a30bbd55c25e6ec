"""A disk that takes no more is an alarm that names it, until it takes everything again."""

from __future__ import annotations

from typing import Any

from enactment_world import World, replace

from headgate.controller.knowledge import turns as t
from headgate.controller.views.summary import summary
from headgate.topology_runtime import messages as m

FULL = "the log of finished rows cannot be written: No space left on device (/d/1.log, on the disk at /d)"


def told(world: World, name: str, *troubles: str, unlogged: int = 0) -> None:
    report = replace(world.vms[name].report(), troubles=troubles, unlogged=unlogged)
    world.do(t.FromVm(report))


def events(world: World, kind: str) -> list[str]:
    return [event["text"] for event in world.loop.knowledge.events if event["kind"] == kind]


def test_a_vms_disk_is_an_alarm_while_it_takes_nothing() -> None:
    world = World().start().until("committed")
    told(world, "vm1", FULL)
    told(world, "vm1", FULL)
    told(world, "vm2", FULL)
    alarms = world.loop.knowledge.alarms
    assert alarms["disk vm1"] == f"vm1: {FULL}" and "disk vm2" in alarms
    assert events(world, "alarm") == [f"vm1: {FULL}", f"vm2: {FULL}"], "once each"
    told(world, "vm1")
    assert "disk vm1" not in alarms and "disk vm2" in alarms
    assert events(world, "alarm_over") == ["vm1: the disk takes everything again"]


def test_the_alarm_goes_with_its_vm() -> None:
    world = World().start().until("committed")
    told(world, "vm2", FULL)
    world.vms["vm2"].cut = True
    world.run(6)
    assert "disk vm2" not in world.loop.knowledge.alarms


def test_the_journals_alarm_ends_when_it_takes_records_again_though_nothing_is_decided() -> None:
    world = World().start().until("committed")
    world.journal_fails = True
    world.ask("rate_set", rate_tps=50.0)
    assert "journal" in world.loop.knowledge.alarms
    world.do(t.DiskSeen(("the journal cannot be written",), journal=False))
    assert "journal" in world.loop.knowledge.alarms and "disk the controller" in world.loop.knowledge.alarms
    world.journal_fails = False
    world.do(t.DiskSeen(()))
    assert not world.loop.knowledge.alarms


def test_duplicates_are_not_exact_once_a_log_of_finished_rows_misses_some() -> None:
    world = World().start().until("committed")
    assert summary(world.loop.view(world.now))["tuples"]["duplicates_exact"]
    told(world, "vm1", unlogged=3)
    told(world, "vm2", unlogged=4)
    told(world, "vm1", unlogged=5)
    tuples = summary(world.loop.view(world.now))["tuples"]
    assert (tuples["duplicates_exact"], tuples["finished_dropped"]) == (False, 9)


def test_an_agent_started_again_counts_anew_and_nothing_is_forgotten() -> None:
    world = World().start().until("committed")
    told(world, "vm1", unlogged=3)
    before = world.vms["vm1"].boot
    world.vms["vm1"].restart()
    world.do(t.FromVm(world.vms["vm1"].hello()))
    assert world.vms["vm1"].boot > before
    told(world, "vm1", unlogged=2)
    assert world.loop.knowledge.counts.finished_dropped == 5


def again(world: World, name: str, *, killed: bool) -> dict[str, Any]:
    """What the summary says of tuples once the agent of a VM has ended and another one has come in its place."""
    one = world.vms[name]
    if not killed:
        world.do(t.FromVm(m.Goodbye(name, one.boot)))
    one.restart()
    world.do(t.FromVm(one.hello()))
    told(world, name)
    found: dict[str, Any] = summary(world.loop.view(world.now))["tuples"]
    return found


def test_an_agent_that_ended_as_it_should_was_not_killed() -> None:
    world = World().start().until("committed")
    told(world, "vm1")
    for _ in range(2):
        tuples = again(world, "vm1", killed=False)
        assert (tuples["duplicates_exact"], tuples["duplicates_why"]) == (True, [])
    told(world, "vm1", unlogged=3)
    why = [again(world, "vm1", killed=killed)["duplicates_why"] for killed in (False, True, False)]
    rows, was_killed = (
        "3 rows that may have reached a sink, in no log",
        "vm1: its agent was killed, and its sinks with it",
    )
    assert why == [[rows], [rows, was_killed], [rows, was_killed]], "whatever ends well later"


def test_a_report_with_endless_troubles_is_refused() -> None:
    from headgate.controller.monitor.border import check
    from headgate.topology_runtime.errors import BadMessage

    world = World().start().until("committed")
    report = world.vms["vm1"].report()
    check(replace(report, troubles=("x",) * 16))
    for bad in (replace(report, troubles=("x",) * 17), replace(report, troubles=("x" * 20_000,)), m.Report(
        report.vm, report.boot, report.sequence, report.token, unlogged=-1
    )):  # fmt: skip
        try:
            check(bad)
        except BadMessage:
            continue
        raise AssertionError("it was let through")
