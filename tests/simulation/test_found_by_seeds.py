"""What seeds found in the cores and what is too rare to find again in two hundred of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from examples import first_quickly

from headgate.controller.knowledge import loop_events as t
from headgate.lab.simulation.simulated_seeds import run
from headgate.lab.simulation.simulated_world import Options, SimWorld
from headgate.lab.simulation.virtual_time import MS, S
from headgate.topology_runtime.worker.sources import source_task as source
from headgate.topology_runtime.worker.sources.source_task import Read, SourceTask


@pytest.mark.parametrize("seed", [23, 33, 54])
def test_a_killed_worker_takes_no_dead_letter_along(seed: int) -> None:
    SimWorld(seed, Options(shape="failing", kinds=("kill_worker", "kill_worker_somewhere"), faults=5)).run()


def test_no_thread_takes_frames_before_it_knows_where_its_rows_go() -> None:
    """The first plan's source may be told to begin before the workers below it: what these had taken then,
    without a route, went nowhere and was acked as if it were done."""
    world = SimWorld(1, Options(shape="line", faults=0))
    world.begin()
    seen = set()
    while world.now_ns < 4 * S:
        world.clock.run_until(world.now_ns + MS)
        for worker in world.workers():
            for thread in worker.threads.values():
                orders = thread.core.orders
                if thread.desired.task == "work" and orders is not None:
                    seen.add((bool(orders.desired.routes), thread.core.may_work))
    assert seen == {(False, False), (True, True)}


def test_a_source_that_is_cut_off_while_the_rate_falls_reads_on_by_the_old_one() -> None:
    """That is no violation."""
    SimWorld(91064).run()


def test_events_in_a_spool_that_is_lost_with_its_vm_are_no_violation() -> None:
    """The stated exception (protocol: Sources): all others reach the sink."""
    world = SimWorld(1, Options(shape="live", faults=0, queue_ms=500))
    world.begin()
    world.clock.run_until(4 * S)
    world.options = Options(shape="live", faults=0)
    vm = next(iter(world.account.accepted.values()))
    world.agents[vm].lose()
    assert world.met["spools lost"] == 1
    world.settle()
    world.end()
    finish = world.controller.finish
    assert finish is not None and finish.summary is not None
    left = finish.summary["tuples"]["left_on_vms"]
    assert left == pytest.approx(world.account.events_gone, abs=8) and left


def test_a_source_that_leaves_may_wait_for_rows_that_a_task_keeps_for_long() -> None:
    """All was in order: its last rows were in a window, for longer than a world waited for what leaves to be gone."""
    SimWorld(11351, Options(shape="long holds")).run()


@pytest.mark.parametrize("seed", [20827, 21707, 24361])
def test_worlds_that_stood_still(seed: int) -> None:
    """Rows came from a slot that was new to their receiver, and nobody was told that they were refused; a controller
    died between the end of an exclusive thread and its successor's appointment, and nobody was appointed; a worker
    sent on to one that was dead, when the source had long been told of that death."""
    SimWorld(seed).run()


def test_the_only_slot_is_tried_again_after_it_was_given_up() -> None:
    """Its worker was killed four times in a minute, nothing else could take its threads, and all stood still."""
    SimWorld(34169).run()


def test_a_thread_that_ended_in_a_worker_answers_in_the_next_one() -> None:
    """All of a VM's threads went, one after the other, before others had what they kept."""
    SimWorld(912000, Options(shape="times")).run()


def test_a_thread_that_starts_again_answers_with_its_newest_states() -> None:
    """Its user's `snapshot` failed while its ranges moved on: they went with states as they were when they had come."""
    SimWorld(1200650).run()


def test_what_a_task_gives_at_the_end_is_not_late_where_one_of_its_threads_has_not_begun() -> None:
    """It said still that it was idle, the others that all time is over: those below took that for the lowest."""
    SimWorld(912044, Options(shape="times")).run()


@pytest.mark.parametrize("seed", [301733, 302160])
def test_a_slot_that_was_given_up_and_is_in_no_plan_is_tried_again_as_the_last_one(seed: int) -> None:
    """Its threads had gone to a VM that was lost then, and all stood still for twice as long each time."""
    SimWorld(seed).run()


def test_a_vm_that_was_cut_off_rests_in_time_when_the_other_fell_silent() -> None:
    """Both workers had just been killed: what was heard last vouched for longer than it was fresh."""
    SimWorld(306846).run()


def test_a_run_is_not_over_before_a_vm_that_is_heard_again_is_taken_back() -> None:
    """The simulator's own: its events were still on that VM's disk. In a real run they are told as left there."""
    SimWorld(100309).run()


def test_a_paced_source_reads_all_that_it_accepted_before_the_run_ends() -> None:
    """It accepted events anew, was ahead of its schedule, and left them in its spool."""
    SimWorld(939, Options(shape="live")).run()


def test_events_that_nobody_could_read_are_told_though_their_vm_leaves_in_order() -> None:
    """The only slot of the VM was given up, and the run ended: what it had of them was forgotten with the goodbye."""
    SimWorld(500187, Options(shape="live")).run()


def test_rows_for_a_thread_that_was_never_built_are_sent_again_when_its_plan_is_taken_back() -> None:
    """They came when it had been ended, were dropped, and waited for their deadline."""
    SimWorld(400079).run()


def test_events_are_read_though_the_plan_for_the_rate_offered_failed_lately() -> None:
    """Each second it was called for and not made, and nothing else was thought of."""
    SimWorld(400809).run()


def test_a_worker_that_is_to_go_hears_nothing_of_what_takes_its_place() -> None:
    """Its threads had ended and its end was not known yet, when a plan came whose threads there were of other code."""
    SimWorld(148989243).run()


# ── Without a fault no row is sent again, however often it is planned anew: what leaves in order was not
# lost

CALM_SEEDS = (5, 11, 24, 37, 41, 52)  # of all shapes; in two of them a slot is left in order and used again


@pytest.mark.parametrize("seed", CALM_SEEDS)
def test_re_plans_send_nothing_again(seed: int) -> None:
    world = SimWorld(seed, Options(faults=0))
    world.faults.loss = 0.0
    world.run()
    counts = world.controller.loop.knowledge.counts
    assert counts.emitted > 0 and world.checks.durable.next_epoch > 3
    assert counts.replayed == 0


# ── Batched tasks in the simulated house: frames of columns, re-plans, workers and VMs that die; nothing is
# lost


@pytest.mark.parametrize("seed", first_quickly(*range(20)))
def test_batched_tasks_hold_every_invariant(seed: int) -> None:
    assert not run(seed, Options(shape="batched")).error


# ── A worker with keyed state crashes too often: its slot is given up, its VM lives, and so does the state


@pytest.mark.parametrize(("shape", "number"), [("keyed", 3), ("keyed", 8), ("skewed", 5), ("keyed twice", 2)])
def test_nothing_of_it_is_lost_where_its_vm_has_no_other_worker(shape: str, number: int) -> None:
    world = SimWorld(number, Options(shape=shape, kinds=("wear_out",), faults=3)).run()
    assert world.met["answers for others"] > 0


# ── Operators drain VMs, start their agents again and let them be used again: no source reads a row twice
# for it

DIE = ("drain_vm", "drain_vm", "kill_controller", "kill_agent", "kill_worker", "fail_journal")


@pytest.mark.parametrize("seeds", [range(0, 8), range(8, 16)], ids=str)
def test_what_is_said_to_be_drained_is_empty_and_may_be_stopped(seeds: range) -> None:
    worlds = [SimWorld(seed, Options(kinds=("drain_vm",), faults=4)).run() for seed in seeds]
    assert sum(world.met["drained"] for world in worlds) >= 4
    assert sum(world.met["sources read again"] for world in worlds) == 0


@pytest.mark.parametrize("seed", range(4))
def test_also_when_controllers_agents_and_workers_die_meanwhile(seed: int) -> None:
    SimWorld(seed, Options(kinds=DIE, faults=6)).run()


# ── Other code takes the place of what runs: no row is read twice for it, and no worker hears of two codes

DIE_WHEN_REPLACED = (
    "replace_code",
    "replace_code",
    "drain_vm",
    "kill_controller",
    "kill_agent",
    "kill_worker",
    "cut_vm",
    "lose_vm",
)


@pytest.mark.parametrize("seeds", [range(0, 8), range(8, 16)], ids=str)
def test_without_a_fault_no_row_is_read_twice(seeds: range) -> None:
    worlds = [SimWorld(seed, Options(kinds=("replace_code",), faults=3)).run() for seed in seeds]
    assert sum(world.met["code replaced"] for world in worlds) >= 8
    assert sum(world.met["sources read again"] for world in worlds) == 0


@pytest.mark.parametrize("seed", [1068, 1071, 1072, 1073])
def test_also_when_everybody_dies_meanwhile(seed: int) -> None:
    """1068, 1071: a worker that was cut off was told nothing any more when nobody ran its code."""
    kinds = ("replace_code", *DIE_WHEN_REPLACED[2:], "fail_journal") if seed < 1072 else DIE_WHEN_REPLACED
    SimWorld(seed, Options(kinds=kinds, faults=4)).run()


# ── Worlds in which a source holds almost no rows that are kept elsewhere, and reads them again when they
# must be sent again: no tuple is unaccounted for.

SEEDS = range(6)
BYTES = 2_000  # some rows of a simulated source


@pytest.mark.parametrize("shape", ["long holds", "keyed"])
def test_rows_that_were_let_go_come_again(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    before = SourceTask.turn

    def turn(task: SourceTask, now_ns: int, wall_ns: int, read: Read) -> None:
        def counted(position: int, most: int) -> Sequence[Any]:
            if task.ledger is not None and position < task.ledger.position:
                again.append(position)
            return read(position, most)

        before(task, now_ns, wall_ns, counted)

    monkeypatch.setattr(source, "IN_FLIGHT_BYTES", BYTES)
    monkeypatch.setattr(SourceTask, "turn", turn)
    for seed in SEEDS:
        assert SimWorld(seed, Options(shape=shape)).run().account.read > 0, f"seed {seed}"
    assert len(again) > 5, "there were such"


# ── A controller that is started again while its disk is full begins its life once the disk takes records ───
# The simulation found one that knew nothing for ever after.


def test_a_controller_started_on_a_full_disk_begins_when_the_disk_heals() -> None:
    world = SimWorld(1, Options(shape="line", faults=0))
    world.begin()
    world.clock.run_until(4 * S)
    epoch = world.checks.durable.next_epoch
    world.disk.fails = True
    world.controller.kill("kill -9")
    world.clock.run_until(7 * S)
    reply = world.controller.ask("status")
    assert reply is not None and reply.error is not None and "not started" in reply.error[2]
    world.disk.fails = False
    world.clock.run_until(9 * S)
    durable = world.controller.loop.knowledge.durable
    assert (durable.boot, durable.next_epoch) == (2, epoch)
    assert durable.phase in ("probation", "committed")
    reply = world.controller.ask("status")
    assert reply is not None and reply.error is None


def test_told_to_end_before_it_could_begin_it_ends() -> None:
    world = SimWorld(1, Options(shape="line", faults=0))
    world.disk.fails = True
    world.controller.start()
    world.controller.do(t.Stopping("asked by a signal"))
    assert world.controller.finish is not None and world.controller.finish.error is not None
