"""What goes wrong while plans are enacted: VMs and workers die in every phase, journals fail, and the
stories B1, B2 and B6 of the protocol.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from enactment_world import World, vm
from msgspec.structs import replace

from headgate.controller.knowledge import journal_records
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.journal_records import (
    Durable,
    Moved,
    PhaseEntered,
    Record,
    RolloutStarted,
    SoFar,
    fold_all,
)
from headgate.controller.views.controller_metrics import replans_of
from headgate.controller.views.run_documents import summary
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.wire import messages as m

S = 1_000_000_000
THREE = (vm("vm1"), vm("vm2"), vm("vm3"))


def spread(rate_tps: float = 1400.0, **settings: Any) -> World:
    """A world whose committed plan uses all its three VMs."""
    world = World(THREE, rate_tps=rate_tps, **settings).start().until("committed")
    assert {slot.vm for slot in world.rollout.slots} == {"vm1", "vm2", "vm3"} or rate_tps < 900
    return world


def to_phase(world: World, phase: str, rate_tps: float) -> World:
    """Raise the rate and stop when the plan for it is in this phase."""
    epoch = world.durable.next_epoch
    world.ask("rate_set", rate_tps=rate_tps)
    for _ in range(400):
        world.run(0.05)
        if world.durable.next_epoch > epoch and world.phase == phase:
            return world
    raise AssertionError(f"never {phase}")


def free_slots(world: World, *names: str) -> set[Slot]:
    return {Slot(n, i) for n in names for i in range(4)} - set(world.vms[names[0]].workers)


# ── workers ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["prepared", "switched", "probation", "committed"])
def test_a_worker_that_dies_only_delays(phase: str) -> None:
    world = to_phase(World(rate_tps=100.0).start().until("committed"), phase, 500.0)
    epoch = world.rollout.epoch
    slot = sorted(world.vms["vm1"].workers)[0]
    world.vms["vm1"].kill_worker(slot.number)
    world.until("committed", 25).run(2)
    assert world.rollout.epoch == epoch, "no other plan"
    assert world.loop.knowledge.counts.acked >= world.loop.knowledge.counts.emitted - 100
    told = {event["kind"] for event in world.loop.knowledge.events}
    assert "worker_died" in told


def test_a_killed_source_reads_on_from_what_was_acked() -> None:
    world = World().start().until("committed")
    world.hold_acks = True
    world.run(1)
    known = world.loop.knowledge.counts.source("source", 0)
    acked, emitted = known.acked, known.emitted
    assert acked < emitted
    source = world.source_thread()
    world.vms[source.slot.vm].kill_worker(source.slot.number)
    world.hold_acks = False
    world.run(2)
    assert world.started[-1] == (source.thread, acked)
    counts = world.loop.knowledge.counts
    assert counts.emitted > emitted and counts.emitted - counts.acked < 20


def test_a_start_is_told_only_until_the_source_runs() -> None:
    world = World().start().until("committed").run(1)
    desired = world.loop.knowledge.desired
    assert desired is not None and desired.starts == ()


def test_a_quarantined_slot_is_planned_round() -> None:
    world = World(rate_tps=500.0).start().until("committed")
    bad = next(slot for slot in world.slots_of("work") if slot != world.source_thread().slot)
    world.vms[bad.vm].quarantine(bad.number)
    world.run(0.6)
    assert world.rollout.reason == "slot_quarantined"
    assert bad not in world.rollout.slots
    world.until("committed", 20)
    assert bad not in world.rollout.slots


def test_a_quarantined_source_moves_and_starts_where_it_was_acked() -> None:
    world = World(rate_tps=500.0).start().until("committed")
    old = world.source_thread()
    world.vms[old.slot.vm].quarantine(old.slot.number)
    acked = world.loop.knowledge.counts.source("source", 0).acked
    world.run(3)
    new = world.source_thread()
    assert new.slot != old.slot and new.thread != old.thread
    assert world.started[-1][0] == new.thread and world.started[-1][1] >= acked
    counts = world.loop.knowledge.counts
    assert counts.emitted - counts.acked < 60 and counts.emitted > acked


# ── VMs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("phase", ["prepared", "switched", "probation", "committed"])
def test_a_lost_vm_is_planned_round_in_every_phase(phase: str) -> None:
    """B2: the dead VM is part of the old plan and of the new one; nobody waits for it."""
    world = to_phase(spread(300.0), phase, 1400.0)
    dead = "vm3" if world.source_thread().slot.vm != "vm3" else "vm2"
    assert dead in {slot.vm for slot in world.rollout.slots}
    world.vms[dead].down = True
    world.run(4.6)
    assert world.durable.held_dead == (dead,)
    assert dead not in {slot.vm for slot in world.rollout.slots}
    assert world.rollout.reason in ("vm_lost", "rolled_back")
    world.until("committed", 25)
    told = world.loop.knowledge.desired
    assert told is not None and told.held_dead == (dead,)


def test_a_lost_vm_with_the_source_loses_nothing() -> None:
    world = spread()
    old = world.source_thread()
    world.vms[old.slot.vm].down = True
    acked = world.loop.knowledge.counts.source("source", 0).acked
    world.run(6.5)
    new = world.source_thread()
    assert new.slot.vm != old.slot.vm
    assert world.started[-1] == (new.thread, acked), "below it all was acked, above it nothing is lost"


def test_routes_avoid_dead_threads_before_the_new_plan_is_ready() -> None:
    world = spread()
    dead = next(name for name in ("vm2", "vm3") if name != world.source_thread().slot.vm)
    gone = {t.thread for t in world.rollout.threads if t.slot.vm == dead}
    for one in world.vms.values():
        one.hung = {Slot(one.name, n) for n in range(4)}
    world.vms[dead].down = True
    world.run(4.6)
    assert world.phase == "prepared"
    desired = world.loop.knowledge.desired
    assert desired is not None
    assert not gone & {thread for route in desired.routes for thread, _ in route.targets}
    assert all(abs(sum(weight for _, weight in route.targets) - 1) < 1e-9 for route in desired.routes)


def test_a_vm_held_dead_that_comes_back_is_fenced_until_it_is_empty() -> None:
    world = spread()
    dead = next(name for name in ("vm2", "vm3") if name != world.source_thread().slot.vm)
    incarnations = {slot: w.incarnation for slot, w in world.vms[dead].workers.items()}
    world.vms[dead].cut = True
    world.run(5)
    desired = world.loop.knowledge.desired
    assert desired is not None
    fences = {at.slot: at for at in desired.workers if at.slot.vm == dead}
    assert {slot: at.incarnation - 1 for slot, at in fences.items()} == incarnations
    assert all(at.endpoint == "" for at in fences.values())
    world.vms[dead].cut = False
    world.until("committed", 25).run(3)
    assert world.durable.held_dead == ()
    assert not [w for w in world.vms[dead].workers.values() if w.state == "running"] or dead in {
        slot.vm for slot in world.rollout.slots
    }


def test_an_agent_that_is_back_within_four_seconds_keeps_its_plan() -> None:
    world = spread()
    epoch = world.rollout.epoch
    world.vms["vm3"].down = True
    world.run(2.5)
    world.vms["vm3"].restart()
    world.do(t.FromVm(world.vms["vm3"].hello()))
    world.run(8)
    assert world.rollout.epoch == epoch
    assert all(world.worker(slot) is not None for slot in world.rollout.slots)


def test_too_many_lost_at_once_is_an_alarm_and_no_plan() -> None:
    world = spread()
    epoch = world.rollout.epoch
    for name in ("vm2", "vm3"):
        world.vms[name].down = True
    world.run(8)
    assert world.rollout.epoch == epoch
    assert "mass_loss" in world.loop.knowledge.alarms
    assert "held back" in world.loop.knowledge.last_decision["text"]  # type: ignore[index]
    for name in ("vm2", "vm3"):
        world.vms[name].restart()
        world.do(t.FromVm(world.vms[name].hello()))
    world.run(3)
    assert "mass_loss" not in world.loop.knowledge.alarms
    assert world.rollout.epoch == epoch


def test_a_stalled_controller_declares_nobody_dead() -> None:
    world = spread()
    epoch = world.rollout.epoch
    world.mono_ns += 30 * S
    world.do(t.Tick())
    world.run(8)
    assert world.rollout.epoch == epoch and world.durable.held_dead == ()


# ── stories ─────────────────────────────────────────────────────────────────────────────────────


def test_b1_marks_are_states_and_come_again_from_a_restarted_sender() -> None:
    """A sender that is started again in SWITCHED never used the old routes; its marks count all the same."""
    world = spread(600.0)
    world.run(45)
    epoch = world.durable.next_epoch
    world.ask("rate_set", rate_tps=100.0)
    while world.durable.next_epoch == epoch or world.phase != "switched":
        world.run(0.05)
    assert world.rollout.leaving
    source = world.source_thread().slot
    world.vms[source.vm].kill_worker(source.number)
    world.until("committed", 25).run(1)
    assert not world.rollout.leaving


def test_b6_what_is_not_journaled_is_not_sent() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    before, told = world.durable, world.loop.knowledge.desired
    reply = world.ask("rate_set", rate_tps=500.0)
    assert reply.error is None
    world.journal_fails = True
    world.run(6)
    assert world.durable.rollout == before.rollout
    assert told is not None
    assert {token.epoch for token in world.tokens} == {1}
    assert "journal" in world.loop.knowledge.alarms
    refused = world.ask("rate_set", rate_tps=50.0)
    assert refused.error is not None and "journal" in refused.error[2]
    world.journal_fails = False
    world.run(20)
    assert world.rollout.epoch > 1, "the plan comes when the journal takes it"
    assert "journal" not in world.loop.knowledge.alarms


@pytest.mark.parametrize("at", range(8))
def test_b6_a_journal_that_fails_anywhere_leaves_a_journaled_state(at: int) -> None:
    world = World(rate_tps=100.0).start().until("committed")
    world.ask("rate_set", rate_tps=500.0)
    world.run(0.3 + 0.15 * at)
    world.journal_fails = True
    world.run(1)
    world.journal_fails = False
    world.run(25)
    assert world.phase == "committed" and world.rollout.epoch >= 2
    assert fold_all(tuple(world.journal)) == world.durable


# ── recovery ────────────────────────────────────────────────────────────────────────────────────


def test_a_restarted_controller_adopts_what_runs() -> None:
    world = spread()
    rollout, count = world.rollout, len(world.started)
    acked = world.loop.knowledge.counts.acked
    world.restart_controller()
    assert {token.boot for token in world.tokens} == {1}, "first it listens"
    world.run(3)
    assert world.rollout == rollout and len(world.started) == count
    assert world.tokens[-1].boot == 2 and world.tokens[-1].epoch == rollout.epoch
    assert world.loop.knowledge.counts.acked > acked


def test_a_restarted_controller_says_nothing_before_it_knows_what_runs() -> None:
    world = spread()
    for one in world.vms.values():
        one.cut = True
    world.restart_controller()
    told = len(world.tokens)
    world.run(3.5)
    assert len(world.tokens) == told
    for one in world.vms.values():
        one.cut = False
    world.run(0.5)
    assert len(world.tokens) > told


def test_a_crash_after_every_record_ends_old_or_new() -> None:
    """The journal cut behind each of its records: what a new controller does with it."""
    world = risen_once()
    good = [record for record in world.journal if isinstance(record, RolloutStarted)]
    for count in range(1, len(world.journal) + 1):
        part = tuple(world.journal[:count])
        later = risen_once(stop_after=count)
        later.run(30)
        epochs = [r.epoch for r in later.journal if isinstance(r, RolloutStarted)]
        assert later.phase == "committed", f"after {part[-1]}"
        assert epochs == sorted(set(epochs))
        assert later.rollout.plan.placement in [p.plan.placement for p in good]


def risen_once(stop_after: int | None = None) -> World:
    """One plan, then a second one; the controller is killed when its journal has so many records."""
    world = World(rate_tps=100.0)
    world.start()
    killed = asked = False
    for _ in range(800):
        world.run(0.05)
        if world.phase == "committed" and not asked:
            asked = True
            world.ask("rate_set", rate_tps=500.0)
        if stop_after is not None and not killed and len(world.journal) >= stop_after:
            del world.journal[stop_after:]
            killed = True
            world.restart_controller()
        if asked and world.phase == "committed" and world.rollout.epoch > 1:
            break
    return world


def test_a_third_crash_in_a_row_holds_the_last_good_plan_until_it_is_cleared() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    world.run(20)
    for _ in range(3):
        world.restart_controller()
        world.run(2)
    assert not world.loop.knowledge.held, "the first life was long"
    world.restart_controller()
    world.run(2)
    assert "3 times in a row" in world.loop.knowledge.held
    world.ask("rate_set", rate_tps=500.0)
    world.run(10)
    assert world.rollout.epoch == 1
    assert world.ask("status").data["held"]
    assert world.ask("resume").error is None
    world.run(10)
    assert world.rollout.epoch > 1


def test_crashes_far_apart_are_not_in_a_row() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    for _ in range(5):
        world.run(20)
        world.restart_controller()
    assert not world.loop.knowledge.held


def test_positions_outlive_the_controller_that_knew_them() -> None:
    world = World().start().until("committed").run(5)
    source = world.source_thread()
    world.hold_acks = True
    world.run(1.2)
    acked = world.loop.knowledge.counts.source("source", 0).acked
    world.vms[source.slot.vm].down = True
    world.restart_controller()
    world.run(1)
    assert world.loop.knowledge.counts.source("source", 0).acked == acked


# ── bad plans ───────────────────────────────────────────────────────────────────────────────────


def test_a_plan_far_worse_than_predicted_is_taken_back() -> None:
    world = World(rate_tps=400.0).start().until("committed").run(15)
    world.run(1)
    assert world.loop.knowledge.proven.get(1, 0) > 350
    to_phase(world, "probation", 480.0)
    bad = world.rollout.epoch
    # the new plan gets nothing through
    world.hold_acks = True
    world.ask("rate_set", rate_tps=390.0)
    world.run(14)
    assert world.durable.rollouts[-1].reason == "rolled_back"
    assert next(r for r in world.durable.rollouts if r.epoch == bad).rolled_back


# ── spools ──────────────────────────────────────────────────────────────────────────────────────


def test_a_spool_that_nobody_reads_has_its_source_go_there() -> None:
    world = World()
    world.vms["vm2"].spools = (m.SpoolLeft("source", 0, 40, 90, "earlier", 3),)
    world.start().until("probation")
    assert world.source_thread().slot.vm == "vm2"
    assert world.started[0][1] == 0, "they are accepted anew: their positions were another thread's"
    world.run(3)
    assert not world.loop.knowledge.spools


def test_the_journal_names_every_phase_once() -> None:
    world = risen_once()
    phases = [(r.epoch, r.phase) for r in world.journal if isinstance(r, PhaseEntered)]
    assert phases == [(e, p) for e in (1, 2) for p in ("switched", "probation", "committed")]


@pytest.mark.parametrize(("up_tps", "down_tps"), [(200.0, 40.0), (400.0, 80.0), (500.0, 60.0)])
def test_threads_that_leave_come_back_when_the_rate_rises_again(up_tps: float, down_tps: float) -> None:
    """The placement that would carry it is there still, but it is on its way out: it does not "run already"."""
    world = World(rate_tps=100.0).start().until("committed")
    to_phase(world, "committed", up_tps)
    high = {t.slot for t in world.rollout.threads}
    to_phase(world, "probation", down_tps)
    assert world.rollout.leaving, "the plan before it is on its way out"
    world.ask("rate_set", rate_tps=up_tps)
    world.run(8)
    staying = [t for t in world.rollout.threads if not t.leaving]
    placed = sum(bundle.threads for bundle in world.rollout.plan.placement.bundles)
    assert world.rollout.plan.rate_tps >= up_tps and {t.slot for t in staying} == high
    assert len(staying) == placed, "what the plan says is what runs"


# ── A run of months: what is journaled stays as small as what is known, and what is known stays bounded ───


def busy() -> World:
    """Two plans were in force, and a third is on its way."""
    world = World(rate_tps=100.0).start().until("committed")
    assert world.ask("rate_set", rate_tps=500.0).error is None
    world.run(30)
    assert world.durable.next_epoch > 2
    assert world.ask("rate_set", rate_tps=50.0).error is None
    return world.run(1)


def test_what_records_add_up_to_is_written_and_read_without_a_change() -> None:
    known = Durable()
    for record in busy().journal:
        known = record.after(known)
        written = msgspec.msgpack.encode((SoFar(known),))
        assert fold_all(msgspec.msgpack.decode(written, type=tuple[Record, ...])) == known


def test_a_controller_goes_on_from_a_shortened_journal() -> None:
    world = busy()
    world.journal[:] = [SoFar(fold_all(tuple(world.journal)))]
    world.restart_controller()
    world.run(60)
    assert world.durable.phase == "committed"
    assert world.durable.boot == 2


def test_of_many_plans_the_first_and_the_newest_are_known_and_the_others_counted() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    (planned,) = (record for record in world.journal if isinstance(record, RolloutStarted))
    known, more = world.durable, journal_records.REIGNS_KEPT + 200
    for epoch in range(2, more):
        reason = "rate_changed" if epoch % 3 else "operator"
        known = replace(planned, epoch=epoch, reason=reason).after(known)
    assert len(known.rollouts) == journal_records.REIGNS_KEPT
    assert known.rollouts[0].reason == "start"
    assert known.rollouts[-1].epoch == more - 1
    world.loop.knowledge.durable = known
    told = replans_of(world.loop.view(world.now))
    assert told["rate_changed"] == sum(1 for epoch in range(2, more) if epoch % 3)
    assert told["operator"] == sum(1 for epoch in range(2, more) if not epoch % 3)
    found = summary(world.loop.view(world.now))
    assert len(found["plans"]) + found["plans_dropped"] == more - 1


def test_a_machine_is_not_given_back_before_the_events_on_it_are_read() -> None:
    world = World((vm("vm1"),), rate_tps=900.0, spare=vm("spare"), max_vms=2).start().until("committed")
    world.run(20)
    (had,) = {one.vm for one in world.durable.machines}
    world.ask("rate_set", rate_tps=60.0)
    world.until("switched", 60)  # nothing is to be left there
    world.vms[had].spools = left = (m.SpoolLeft("source", 0, 40, 90, "earlier", 3),)
    for _ in range(240):
        world.run(0.25)
        if had not in world.vms or world.vms[had].spools != left:
            break
    assert had in world.vms, "a source went there first"


# ── a controller out of an archive ──────────────────────────────────────────────────────────────


def imported(world: World, records: int | None = None) -> World:
    """The controller is gone; another one begins with the first records of its journal, as an import leaves them."""
    world.journal = world.journal[:records]
    d = fold_all(tuple(world.journal))
    world.journal.append(Moved(max(d.boot + 1, 1_700_000_000), world.mono_ns))
    world.restart_controller()
    return world


def test_a_controller_that_was_moved_adopts_what_runs_and_plans_on() -> None:
    world = spread()
    rollout, acked = world.rollout, world.loop.knowledge.counts.acked
    imported(world).run(3)
    assert world.rollout == rollout and world.tokens[-1].boot > 1_700_000_000
    assert world.loop.knowledge.counts.acked > acked and world.finish is None
    world.do(world.command("rate_set", {"rate_tps": 300.0}))
    world.run(30)
    assert world.rollout.epoch > rollout.epoch and world.phase == "committed"


def test_a_controller_out_of_an_archive_that_is_older_than_the_plan_in_force_ends_and_commands_nothing() -> (
    None
):
    world = risen_once()
    second = max(n for n, record in enumerate(world.journal) if isinstance(record, RolloutStarted))
    said: list[object] = []
    world.deliver = lambda vm, message: said.append(message)  # type: ignore[method-assign]
    imported(world, second).run(10)
    assert world.finish is not None and isinstance(world.finish.error, Conflict)
    assert "the archive is older than what runs" in world.finish.error.what
    assert said == [], "who hears a higher boot obeys the controller that knows the plan no more"
