"""What seeds found in the cores and what is too rare to find again in two hundred of them."""

from __future__ import annotations

import pytest

from headgate.controller.simulation.clock import MS, S
from headgate.controller.simulation.world import Options, SimWorld


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


def test_a_run_is_not_over_before_a_vm_that_is_heard_again_is_taken_back() -> None:
    """The simulator's own: its events were still on that VM's disk. In a real run they are told as left there."""
    SimWorld(100309).run()


def test_a_paced_source_reads_all_that_it_accepted_before_the_run_ends() -> None:
    """It accepted events anew, was ahead of its schedule, and left them in its spool."""
    SimWorld(939, Options(shape="live")).run()


def test_events_that_nobody_could_read_are_told_though_their_vm_leaves_in_order() -> None:
    """The only slot of the VM was given up, and the run ended: what it had of them was forgotten with the goodbye."""
    SimWorld(500187, Options(shape="live")).run()


def test_a_worker_that_is_to_go_hears_nothing_of_what_takes_its_place() -> None:
    """Its threads had ended and its end was not known yet, when a plan came whose threads there were of other code."""
    SimWorld(148989243).run()
