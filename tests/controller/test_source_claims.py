"""Whose word about a source's positions counts, and what nobody can claim."""

from __future__ import annotations

from typing import Any

import pytest
from arriving_world import ArrivingWorld
from enactment_world import World
from msgspec.structs import replace

from headgate.controller.core.loop import Loop
from headgate.controller.execute.run_end import backlogs_of, offered_of
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.knowledge import SourceKnown
from headgate.controller.knowledge.loop_events import Now
from headgate.controller.monitor.admission import check
from headgate.controller.views.run_documents import summary
from headgate.dashboards.up.up_run import check_lost, lines_of
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import BadMessage, CheckFailed
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.messages import SpoolLeft

NS = 1_000_000_000


def running() -> World:
    return World().start().until("committed").run(1)


def known(world: World) -> SourceKnown:
    return world.loop.knowledge.counts.source("source", 0)


def claim(world: World, vm: str, **changes: object) -> list[t.Instruction]:
    """The VM's report says this of the source's thread, besides what is so."""
    source = world.source_thread()
    said = m.SourceStatus("source", 0, source.thread, known(world).emitted, known(world).acked, 0, 0, 0)
    report = replace(world.vms[vm].report(), sources=(replace(said, **changes),))
    return world.do(t.FromVm(report))


def test_a_backlog_is_as_of_when_its_source_was_heard() -> None:
    world = running()
    k, now = world.loop.knowledge, world.now
    rows = backlogs_of(k, now)
    soon, later = (Now(now.mono_ns + ns, now.wall_ns + ns) for ns in (NS, 4 * NS))
    assert backlogs_of(k, soon) == rows, "what it has done since is not known"
    due = offered_of(k, later.wall_ns) - known(world).done
    assert backlogs_of(k, later) == {"source": due} != rows, "it says nothing: its rows wait"


def owner(world: World) -> str:
    return world.source_thread().slot.vm


def other(world: World) -> str:
    return next(name for name in world.vms if name != owner(world))


def distrusted(out: list[t.Instruction]) -> list[str]:
    return [one.why for one in out if isinstance(one, t.Distrust)]


def test_another_vm_has_no_say() -> None:
    world = running()
    before = known(world).acked
    out = claim(world, other(world), emitted=before + 5, acked=before + 5)
    assert known(world).acked == before and not distrusted(out), "it may be out of date only"


def test_nor_has_a_thread_that_the_plan_does_not_have() -> None:
    world = running()
    before = known(world).acked
    claim(world, owner(world), thread=4711, emitted=before + 5, acked=before + 5)
    claim(world, owner(world), task="other", emitted=before + 5, acked=before + 5)
    assert known(world).acked == before and ("other", 0) not in world.loop.knowledge.counts.sources


def test_another_vm_cannot_say_that_the_input_has_ended_or_that_a_thread_does_not_run() -> None:
    """It could: what it said of a thread of another VM counted until that one was heard again."""
    world = running()
    liar, sink = other(world), next(thread for thread in world.rollout.threads if thread.task == "sink")
    where = next(name for name in world.vms if name != sink.slot.vm)
    for _ in range(60):
        claim(world, liar, stopped=True, exhausted=True, rests=1000)
        report = world.vms[where].report()
        failed = m.ThreadStatus(sink.thread, failed="open: no", ended=True)
        workers = tuple(replace(worker, threads=(*worker.threads, failed)) for worker in report.workers) or (
            m.WorkerStatus(Slot(where, 3), 1, "running", "", m.Token(), True, (failed,), 0, ""),
        )
        world.do(t.FromVm(replace(report, workers=workers)))
        world.run(0.05)
    assert world.loop.knowledge.ending.stage == "running" and world.phase == "committed"
    assert not [text for text in world.alarms.values() if "open: no" in text]
    status = world.loop.knowledge.members.thread(sink)
    assert status is not None and not status.ended


def test_the_owner_is_believed() -> None:
    world = running()
    before = known(world).acked
    assert not distrusted(claim(world, owner(world), emitted=before + 5, acked=before + 5))
    assert known(world).acked == before + 5


def test_a_vm_held_dead_is_not_believed_any_more() -> None:
    """It reads on while it is cut off; its positions are not of the run."""
    world = running()
    lost = owner(world)
    world.vms[lost].cut = True
    world.run(12)
    assert lost in world.loop.knowledge.durable.held_dead and owner(world) != lost
    old = world.loop.knowledge.counts.source("source", 0)
    before = old.emitted, old.acked
    claim(world, lost, emitted=before[0] + 50, acked=before[0] + 50)
    assert (old.emitted, old.acked) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"emitted": 10, "acked": 11},
        {"emitted": 10, "acked": 8, "acked_above": 3},
        {"emitted": 1 << 61, "acked": 3},
    ],
)
def test_what_cannot_be_is_blamed_and_changes_nothing(changes: dict[str, int]) -> None:
    world = running()
    before = replace_known(known(world))
    out = claim(world, owner(world), **changes)
    assert len(distrusted(out)) == 1 and replace_known(known(world)) == before
    world.run(1)
    assert known(world).acked > before[1], "the run goes on"


def replace_known(source: SourceKnown) -> tuple[int, int, int]:
    return source.emitted, source.acked, source.done


def test_a_clock_ahead_and_an_older_rate_are_allowed_for() -> None:
    world = running()
    ahead = known(world).emitted + 30 * 100
    assert not distrusted(claim(world, owner(world), emitted=ahead))
    assert known(world).emitted == ahead


def test_a_stranger_with_a_left_over_spool_moves_no_position() -> None:
    world = running()
    before = known(world).acked
    hello = replace(world.vms[other(world)].hello(), spools=(m.SpoolLeft("source", 0, 1 << 40, 1 << 41),))
    world.do(t.FromVm(hello))
    assert known(world).acked == before


@pytest.mark.parametrize("spooled", [False, True])
def test_what_a_source_accepted_early_may_be_read_before_it_is_due(spooled: bool) -> None:
    """Of one that cannot be read twice, and of no other."""
    world = World()
    task, *others = world.submitted.topology.tasks
    topology = replace(
        world.submitted.topology, tasks=(replace(task, arriving=False if spooled else None), *others)
    )
    world.submitted = replace(world.submitted, topology=topology)
    world.loop = Loop(world.settings, world.submitted)
    world.start().until("committed").run(1)
    early = 1_000_000
    out = claim(world, owner(world), emitted=early, acked=early, arrived=early, seen_ns=world.now.wall_ns)
    assert (known(world).acked == early) is spooled and bool(distrusted(out)) is not spooled


# ── Events that a source had accepted on a VM that is lost: told, about, until they are accepted anew ───


def behind() -> ArrivingWorld:
    """More comes than is read: rows wait on the source's VM."""
    world = ArrivingWorld(200.0, 200.0)
    world.start().until("committed")
    world.carries_tps = 20.0
    world.run(3)
    return world


def test_a_thread_that_begins_anew_may_have_acked_what_a_controller_that_does_too_has_not_heard() -> None:
    """It has emitted nothing, so nothing came, and it says what the thread before it had acked."""
    world = behind()
    acked = known(world).emitted + 500
    assert not distrusted(claim(world, owner(world), emitted=0, acked=acked))
    assert known(world).acked == acked


def told(world: ArrivingWorld) -> dict[str, Any]:
    return summary(world.loop.view(world.now))


def kinds(world: ArrivingWorld) -> list[str]:
    return [event["kind"] for event in world.loop.knowledge.events if event["kind"].startswith("events_")]


def test_they_are_told_and_the_run_does_not_end_well() -> None:
    world = behind()
    assert told(world)["tuples"]["left_on_vms"] == 0
    check_lost(told(world))
    source, waited = world.source_thread(), world.arrived - world.loop.knowledge.counts.acked
    world.vms[source.slot.vm].cut = True
    world.run(8)
    left = told(world)["tuples"]["left_on_vms"]
    assert waited > 100 and left == pytest.approx(waited, abs=0.6 * 200), "as its last report had it"
    assert world.ask("status").data["tuples"]["left_on_vms"] == left and kinds(world) == ["events_gone"]
    ended = {**told(world), "tuples": {**told(world)["tuples"], "lost": 0}}
    assert any(f"about {left:,} events on VMs" in line for line in lines_of(ended))
    with pytest.raises(CheckFailed, match=f"about {left:,} events were left") as failed:
        check_lost(ended)
    assert failed.value.exit_code == 8
    world.restart_controller()
    assert told(world)["tuples"]["left_on_vms"] == left, "journaled"


@pytest.mark.parametrize("kept", [True, False])
def test_they_are_back_with_a_vm_whose_disk_still_has_them(kept: bool) -> None:
    world = behind()
    vm = world.source_thread().slot.vm
    fake = world.vms[vm]
    fake.cut = True
    world.run(8)
    left = told(world)["tuples"]["left_on_vms"]
    assert left and vm in world.durable.held_dead
    report = fake.report
    spools = (SpoolLeft("source", 0, 0, left, "test", 0),) if kept else ()
    fake.report = lambda: replace(report(), spools=spools)  # type: ignore[method-assign]
    fake.cut = False
    world.run(3)
    assert vm not in world.durable.held_dead
    assert (vm in world.durable.events_gone) is not kept
    assert ("events_back" in kinds(world)) is kept


def test_of_a_vm_that_this_controller_never_heard_it_is_said_that_nobody_knows() -> None:
    world = behind()
    world.vms[world.source_thread().slot.vm].cut = True
    world.restart_controller()
    world.run(12)
    gone = [event for event in world.loop.knowledge.events if event["kind"] == "events_gone"]
    assert [event["events"] for event in gone] == [None] and "no report said" in gone[0]["text"]


# ── A VM whose clock is set: what was measured before is dropped, and said; by one that lies about it, not
# for ever

NS, MS = 1_000_000_000, 1_000_000


def clocks_running() -> World:
    return World().start().until("committed")


def tell(world: World, *clock: int, vm: str = "vm1") -> None:
    report = replace(world.vms[vm].report(), clock=clock)  # type: ignore[arg-type]
    world.do(t.FromVm(report))


def steps(world: World) -> list[str]:
    return [str(event["text"]) for event in world.loop.knowledge.events if event["kind"] == "clock_step"]


def test_a_clock_that_is_set_lets_the_window_go() -> None:
    world = clocks_running()
    tell(world, 0, MS)
    before = world.loop.intake
    tell(world, 3600 * NS, MS)
    assert world.loop.intake is not before
    assert steps(world) == [
        "the clock of vm1 was set by -3600.000 s, or the controller's: what was measured before is dropped"
    ]


@pytest.mark.parametrize("clock", [(20 * MS, MS), (60 * MS, 20 * MS), (3600 * NS, 0)])
def test_what_lies_within_the_errors_or_is_not_known_is_no_step(clock: tuple[int, int]) -> None:
    world = clocks_running()
    tell(world, 0, MS)
    before = world.loop.intake
    tell(world, *clock)
    assert world.loop.intake is before and not steps(world)


def test_an_agent_that_says_so_with_every_report_is_believed_twice_a_minute() -> None:
    world = clocks_running()
    for _ in range(240):
        tell(world, 0, MS)
        tell(world, 3600 * NS, MS)
        world.run(0.25)
    assert len(steps(world)) == 2


@pytest.mark.parametrize("clock", [((1 << 62) + 1, MS), (-(1 << 63), MS), (0, -1)])
def test_a_clock_that_cannot_be_is_refused(clock: tuple[int, int]) -> None:
    world = clocks_running()
    check(replace(world.vms["vm1"].report(), clock=(-(10**17), MS)))
    with pytest.raises(BadMessage):
        check(replace(world.vms["vm1"].report(), clock=clock))
