"""Alarms: for what a person should act on, raised and cleared with times, and told everywhere alike."""

from __future__ import annotations

import re
from typing import Any

import pytest
from enactment_world import World, replace, vm

from headgate.controller.core.decisions import question
from headgate.controller.core.plan_choice import moving_little
from headgate.controller.knowledge import loop_events as t
from headgate.controller.views.run_documents import summary
from headgate.dashboards.runs.live_view import notes as notes_of
from headgate.dashboards.terminal.status_commands import check_stable
from headgate.topology_runtime.errors import CheckFailed
from headgate.topology_runtime.wire import messages as m


def alarms(world: World) -> dict[str, str]:
    return {alarm["what"]: alarm["text"] for alarm in world.ask("status").data["alarms"]}


def fills(world: World, rate_tps: float) -> World:
    """So much is offered, and no more done than the plan carries."""
    world.acks_at_once = int(world.rollout.plan.prediction.rate_tps * 0.05)
    world.ask("rate_set", rate_tps=rate_tps)
    return world


def test_a_stable_run_has_no_alarm_also_where_its_plan_is_less_than_was_asked_for() -> None:
    """Rates that would need more than the slots there are when stretched ahead, and that never come."""
    world = World((vm("vm1", 3),), rate_tps=300.0).start().until("committed")
    for rate in (310.0, 330.0, 350.0, 360.0, 365.0):
        world.ask("rate_set", rate_tps=rate)
        world.run(4)
    world.run(60)
    assert alarms(world) == {} and not world.events("alarm")


def test_more_offered_than_carried_is_an_alarm_with_its_times_until_it_is_over() -> None:
    world = World((vm("vm1", 2),), rate_tps=100.0).start().until("committed")
    fills(world, 1000.0).run(40)
    most = world.rollout.plan.prediction.rate_tps
    assert alarms(world)["short"].startswith(
        f"1,000 rows/s are offered, the plan in force carries {most:,.0f}"
    )
    assert "--max-vms" in alarms(world)["short"]
    since = world.ask("status").data["alarms"][0]["since"]
    world.run(10)
    assert world.ask("status").data["alarms"][0]["since"] == since, "since it was raised"
    world.acks_at_once = 1 << 40
    world.ask("rate_set", rate_tps=50.0)
    world.run(12)
    assert "short" not in alarms(world)
    assert [event["what"] for event in world.events("alarm") if event["what"] == "short"] == ["short"]
    assert [event["what"] for event in world.events("alarm_over") if event["what"] == "short"] == ["short"]


def held(mode: str) -> World:
    made = World(rate_tps=165.0).start().until("committed")
    plan = moving_little(question(made.loop.knowledge, 165.0))
    return World(rate_tps=165.0, plan=plan, mode=mode).start().run(20)


def test_a_plan_that_is_held_below_what_is_offered_is_an_alarm() -> None:
    world = held("auto")
    assert alarms(world) == {}
    fills(world, 2 * world.rollout.plan.prediction.rate_tps).run(12)
    assert "the plan was given and is held" in alarms(world)["short"]


def test_advise_mode_advises_and_enacts_nothing() -> None:
    for world in (World(rate_tps=165.0, mode="advise").start().run(20), held("advise")):
        epoch = world.durable.next_epoch
        fills(world, 2 * world.rollout.plan.prediction.rate_tps).run(12)
        status = world.ask("status").data
        assert "slots for" in status["advice"] and f"advice: {status['advice']}" in alarms(world)["short"]
        assert 1 <= len(world.events("advice")) <= 2, "told once, and once more where it takes other slots"
        assert world.durable.next_epoch == epoch
        world.acks_at_once = 1 << 40
        world.ask("rate_set", rate_tps=165.0)
        world.run(40)
        assert alarms(world) == {}


def test_a_spike_that_the_queue_takes_is_no_alarm() -> None:
    world = World((vm("vm1", 2),), rate_tps=100.0).start().until("committed")
    for _ in range(4):
        world.ask("rate_set", rate_tps=1000.0)
        world.run(2)
        world.ask("rate_set", rate_tps=100.0)
        world.run(15)
    assert not world.events("alarm")


def test_a_slot_that_is_given_up_is_named_where_no_plan_can_do_without_it() -> None:
    """Not the models, which are right."""
    world = World((vm("vm1", 1),), rate_tps=20.0).start().until("committed")
    world.run(20)
    world.vms["vm1"].quarantine(0)
    world.run(60)
    assert alarms(world).keys() == {"plan", "slot"}
    text = alarms(world)["slot"]
    assert "slot vm1/0 is given up" in text and "the last time by kill -9" in text and "worker-0.log" in text
    world.vms["vm1"].workers.clear()  # it is tried again
    world.run(20)
    assert alarms(world) == {}


def test_a_slot_that_is_planned_round_is_no_alarm() -> None:
    world = World(rate_tps=500.0).start().until("committed")
    bad = next(slot for slot in world.slots_of("work") if slot != world.source_thread().slot)
    world.vms[bad.vm].quarantine(bad.number)
    world.run(30)
    assert not world.events("alarm")


def test_terminal_and_check_say_the_same() -> None:
    world = World((vm("vm1", 2),), rate_tps=100.0).start().until("committed")
    status = fills(world, 1000.0).run(40).ask("status").data
    (alarm,) = status["alarms"]
    notes = notes_of(status)
    assert any(alarm["text"] in note and alarm["since"][11:19] in note for note in notes)
    with pytest.raises(CheckFailed) as caught:
        check_stable({**status, "verdict": {"verdict": "stable"}})
    assert caught.value.exit_code == 8 and alarm["text"] in caught.value.faults


def test_one_of_a_thing_is_told_as_one_and_thousands_apart() -> None:
    world = World((vm("vm1", 1),), rate_tps=1.0).start().until("committed")
    told = [event["text"] for event in world.loop.knowledge.events]
    assert "vm1 joined with 1 slot" in told and any("; 1 slot for " in text for text in told)
    assert not [text for text in told if re.search(r"\b1 (slots|threads|VMs)\b", text)]
    world.ask("rate_set", rate_tps=12_345.0)
    world.run(20)
    told = [event["text"] for event in world.loop.knowledge.events]
    assert any("12,345" in text for text in told) and not [text for text in told if "12345" in text]


# ── A disk that takes no more is an alarm that names it, until it takes everything again ────────────────

FULL = "the log of finished rows cannot be written: No space left on device (/d/1.log, on the disk at /d)"


def told(world: World, name: str, *troubles: str, unlogged: int = 0) -> None:
    report = replace(world.vms[name].report(), troubles=troubles, unlogged=unlogged)
    world.do(t.FromVm(report))


def test_a_vms_disk_is_an_alarm_while_it_takes_nothing() -> None:
    world = World().start().until("committed")
    told(world, "vm1", FULL)
    told(world, "vm1", FULL)
    told(world, "vm2", FULL)
    alarms = world.loop.knowledge.alarms
    assert alarms["disk vm1"] == f"vm1: {FULL}" and "disk vm2" in alarms
    assert world.texts("alarm") == [f"vm1: {FULL}", f"vm2: {FULL}"], "once each"
    told(world, "vm1")
    assert "disk vm1" not in alarms and "disk vm2" in alarms
    assert world.texts("alarm_over") == ["vm1: the disk takes everything again"]


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
    from headgate.controller.monitor.admission import check
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


# ── The verdict and the alarms say the same, turn by turn ───────────────────────────────────────────────

AGAINST = {"short", "models", "lag", "slot"}  # alarms that say that it does not keep up


def test_no_turn_says_stable_beside_an_alarm_that_it_does_not_keep_up() -> None:
    """Overload, catching up, a slot that is given up, and a rate that it keeps up with though the models doubt it."""
    world = World((vm("vm1", 2),), rate_tps=100.0).start().until("committed")
    seen = set()

    def look(seconds: int) -> None:
        for _ in range(seconds * 2):
            status = world.run(0.5).ask("status").data
            what = {alarm["what"] for alarm in status["alarms"]} & AGAINST
            seen.add((status["verdict"]["verdict"], *sorted(what)))
            assert status["verdict"]["verdict"] != "stable" or not what

    look(10)
    fills(world, 400.0)
    look(40)
    assert ("unstable", "models", "short") in seen
    world.ask("rate_set", rate_tps=20.0)
    look(30)
    assert any(verdict == "catching_up" for verdict, *_ in seen)
    world.acks_at_once = 1 << 40
    look(20)
    world.ask("rate_set", rate_tps=2000.0)
    look(40)
    carried = world.rollout.plan.prediction.rate_tps
    assert (
        carried < 2000 and ("stable",) in seen and world.ask("status").data["verdict"]["verdict"] == "stable"
    )
    world.vms["vm1"].quarantine(0)
    world.vms["vm1"].quarantine(1)
    look(30)
    assert any("slot" in what for what in seen)


def test_catching_up_says_for_how_long_and_the_backlog_is_told_everywhere() -> None:
    world = World((vm("vm1", 2),), rate_tps=100.0).start().until("committed").run(15)
    world.hold_acks = True
    world.run(30)
    behind = world.ask("status").data["verdict"]
    assert behind["verdict"] == "unstable" and behind["backlog_rows"] == pytest.approx(3000, abs=150)
    assert behind["backlog_s"] == pytest.approx(30, abs=1.5)
    world.hold_acks, world.acks_at_once = False, 10  # 200 rows/s: 30 s, as 100 come
    world.run(10)
    now = world.ask("status").data["verdict"]
    assert now["verdict"] == "catching_up" and now["caught_up_s"] == pytest.approx(20, abs=4)
    assert re.match(r"catching up, 2\d s behind, caught up in about \d\d s", now["text"])
    world.run(now["caught_up_s"] + 8)
    assert world.ask("status").data["verdict"]["verdict"] == "stable"


def test_what_is_decided_goes_by_the_verdict_that_is_shown() -> None:
    """An outage of 30 s, then less is offered: nothing grows any more, and no plan for less until it has caught up."""
    world = World((vm("vm1", 4),), rate_tps=300.0).start().until("committed").run(20)
    world.hold_acks, epoch = True, world.durable.next_epoch
    world.run(4)
    world.hold_acks, world.acks_at_once = False, 16  # 320 rows/s
    world.run(6)
    world.hold_acks = True
    world.run(8)
    world.hold_acks = False
    world.ask("rate_set", rate_tps=60.0)
    seen = set()
    for _ in range(60):
        world.run(1)
        status = world.ask("status").data
        shown, decided = status["verdict"]["verdict"], status["last_decision"]
        assert decided["evidence"].get("stability", {}).get("verdict", shown) == shown
        seen.add(shown)
        if shown == "catching_up":
            assert world.rollout.plan.rate_tps >= 300.0, decided["text"]
    assert "catching_up" in seen and "stable" in seen
    assert world.rollout.plan.rate_tps < 300.0 and world.durable.next_epoch > epoch
