"""What went wrong in other stream processors, by their public reports, tried here: see docs/explanation/faults.md."""

from __future__ import annotations

import os
import time

from enactment_world import World, vm
from patience import until

from headgate.controller.analyze.slot_troubles import UNBUILT_S
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Who
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m


def test_storm_8419_who_has_nothing_to_do_is_not_dead_after_a_restart_of_the_controller() -> None:
    world = World(rate_tps=0.0).start().until("committed")
    epoch, threads = world.durable.next_epoch, {t.thread: t.slot for t in world.rollout.threads}
    world.restart_controller()
    world.run(120)
    assert world.durable.next_epoch == epoch
    assert {t.thread: t.slot for t in world.rollout.threads} == threads and not world.alarms


def test_storm_7298_what_was_asked_before_a_restart_of_the_controller_is_done_after_it() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    world.hold_acks = True
    world.run(3)
    assert world.ask("stop").error is None
    world.run(1)
    assert world.ask("status").data["stage"] != "over", "it waits for rows that are not done"
    world.restart_controller()
    world.hold_acks = False
    world.run(30)
    assert world.ask("status").data["stage"] == "over"


def test_statefun_273_no_backlog_is_below_zero_after_restarts() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    for _ in range(3):
        world.run(5)
        world.restart_controller()
        slot = next(iter(world.slots_of("work")))
        world.vms[slot.vm].kill_worker(slot.number)
        for _ in range(10):
            world.run(0.5)
            said = world.ask("status").data
            found = [said["rates"]["lag_rows"], said["tuples"]["in_flight"]]
            verdict = said["verdict"]
            found += [verdict.get("backlog_rows"), verdict.get("backlog_s")]
            assert all(number is None or number >= 0 for number in found), found


def test_nats_6093_nothing_is_in_flight_once_a_worker_that_died_is_replaced() -> None:
    world = World(rate_tps=100.0).start().until("committed")
    world.hold_acks = True
    world.run(2)
    assert world.ask("status").data["tuples"]["in_flight"] > 0
    slot = next(iter(world.slots_of("work")))
    world.vms[slot.vm].kill_worker(slot.number)
    world.hold_acks = False
    world.run(10)
    world.ask("rate_set", rate_tps=0.0)
    world.run(5)
    assert world.ask("status").data["tuples"]["in_flight"] == 0


def test_faust_134_more_vms_than_there_is_work_for_hold_up_nothing() -> None:
    world = World(vms=[vm(f"vm{n}") for n in range(1, 9)], rate_tps=10.0).start().until("committed")
    assert len({t.slot.vm for t in world.rollout.threads}) < 8


def test_ray_26204_a_run_whose_code_does_not_run_is_not_called_stable() -> None:
    world = World(vms=(vm("vm1"),), rate_tps=100.0).start().until("committed")
    world.run(30)
    world.vms["vm1"].failing.add("work")
    world.hold_acks = True
    world.run(UNBUILT_S + 10)
    said = world.ask("status").data
    assert said["verdict"]["verdict"] != "stable" and any(
        "does not run" in alarm["text"] for alarm in said["alarms"]
    )


def test_dask_382_who_comes_and_goes_leaves_no_file_open() -> None:
    own, ann = new_pair(), new_pair()
    guard = KeyGuard(own, {ann.public: Who("viewer", "ann")}.get)
    server: c.ServerChannel[m.Reply, m.Request] = c.ServerChannel(c.requests, guard)

    def comes_and_goes() -> None:
        client: c.ClientChannel[m.Request, m.Reply] = c.ClientChannel(
            c.replies, Contact(server.endpoint, ann, own.public)
        )
        client.send(m.Request("ping"))
        assert c.Waiter([server]).wait(20.0) and server.receive() is not None
        client.close(0)

    comes_and_goes()
    before = open_files()
    for _ in range(40):
        comes_and_goes()
    until(lambda: server.receive() is None and open_files() <= before + 8, lambda: str(open_files()))
    until(lambda: len(server.links.links) <= 2, lambda: str(server.links.links))
    server.close(0)


def open_files() -> int:
    time.sleep(0.01)
    return len(os.listdir("/proc/self/fd"))
