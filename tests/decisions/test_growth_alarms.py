"""A task whose memory grows without end has an alarm with its name, its pace and when its slot is full."""

from __future__ import annotations

from collections.abc import Callable

from enactment_world import World, replace, vm

from headgate.controller.analyze.growing_memory import GrowthWatch
from headgate.controller.knowledge.knowledge import Turn
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.report_messages import STATE_BYTES, HeldState

NS = 1_000_000_000
Memory = Callable[[Slot, int], float]


def looked_at(
    world: World, memory: Memory, seconds: range, watch: GrowthWatch, keeps_up: bool = True
) -> None:
    """Turns of a watch in which each slot holds so much of its memory after so many seconds."""
    window = world.loop.view(world.now).window
    assert window is not None
    used = next(iter(window.slots.values()))
    for t in seconds:
        now = replace(world.now, mono_ns=world.now.mono_ns + t * NS)
        slots = {slot: replace(used, memory=memory(slot, t), cpu_cores=0.5) for slot in world.rollout.slots}
        watch.look(Turn(world.loop.knowledge, now, world.loop), replace(window, slots=slots), keeps_up)


def running() -> tuple[World, Slot, set[str]]:
    """(a run, one of its slots, the tasks in it)."""
    world = World((vm("vm1", 2), vm("vm2", 2)), rate_tps=380.0)
    world.start().until("committed").run(5)
    slot = max(
        world.rollout.slots, key=lambda one: len({t.task for t in world.rollout.threads if t.slot == one})
    )
    return world, slot, {t.task for t in world.rollout.threads if t.slot == slot}


def growth(world: World) -> dict[str, str]:
    return {what: text for what, text in world.loop.knowledge.alarms.items() if what.startswith("growth ")}


def test_the_slot_that_grows_is_named_with_its_tasks_pace_and_time_and_that_it_is_over() -> None:
    world, grows, tasks = running()
    watch = GrowthWatch()
    looked_at(world, lambda slot, t: 0.2 + (1e-4 * t if slot == grows else 0.0), range(600), watch)
    (text,) = growth(world).values()
    size = next(one.slot_memory_bytes for one in world.loop.knowledge.plan.vms if one.vm == grows.vm)
    assert set(growth(world)) == {f"growth {grows}"}
    assert f"grows by {1e-4 * size * 3600 / 1e6:,.0f} MB an hour" in text and "is full in 2.1 h" in text
    elsewhere = {t.task for t in world.rollout.threads if t.slot != grows}
    named = text.removeprefix("memory of ").split(f" in {grows}")[0].split(" or ")
    assert set(named) == (tasks - elsewhere or tasks)
    looked_at(world, lambda slot, t: 0.26, range(600, 1500), watch)
    assert not growth(world)


def test_turns_that_do_not_keep_up_never_alarm() -> None:
    world, _, _ = running()
    looked_at(world, lambda slot, t: 0.2 + 1e-3 * t, range(600), GrowthWatch(), keeps_up=False)
    assert not growth(world)


def test_states_that_grow_are_an_event_with_their_keys_and_no_alarm() -> None:
    world, grows, _ = running()
    k, watch = world.loop.knowledge, GrowthWatch()
    thread = next(t for t in world.rollout.threads if t.slot == grows)
    size = next(one.slot_memory_bytes for one in k.plan.vms if one.vm == grows.vm)
    for t in range(450):
        keys = t * round(1e-4 * size) // 1200
        k.states_held[thread.thread] = HeldState(keys * 1000, keys * (1000 + STATE_BYTES))
        looked_at(world, lambda slot, t: 0.2 + (1e-4 * t if slot == grows else 0.0), range(t, t + 1), watch)
    assert not growth(world)
    told = [event["text"] for event in world.loop.knowledge.events if event["kind"] == "states_grow"]
    assert (
        len(told) == 1
        and told[0].startswith(f"states of {thread.task} in {grows} grew by")
        and " keys" in told[0]
    )
