"""Whatever happens in whatever order: after every event the invariants of `World.check` hold, tokens only
rise, and once faults stop, everything that is desired is there and nothing read is lost."""

from __future__ import annotations

from collections.abc import Callable

from enactment_world import World, vm
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.knowledge import turns as t
from headgate.topology_runtime import messages as m

RATES = (60.0, 300.0, 700.0, 1300.0)
NAMES = ("vm1", "vm2", "vm3")


def go_on(world: World, n: int) -> None:
    world.run(0.05 + 0.35 * (n % 12))


def set_rate(world: World, n: int) -> None:
    world.ask("rate_set", rate_tps=RATES[n % len(RATES)])


def kill_worker(world: World, n: int) -> None:
    one = world.vms.get(NAMES[n % 3])
    slots = [s for s, w in sorted(one.workers.items()) if w.state == "running"] if one else []
    if one is not None and slots and not one.down:
        one.kill_worker(slots[n % len(slots)].number)


def quarantine(world: World, n: int) -> None:
    one = world.vms.get(NAMES[n % 3])
    slots = [s for s, w in sorted(one.workers.items()) if w.state == "running"] if one else []
    if one is not None and slots and not one.down:
        one.quarantine(slots[n % len(slots)].number)


def lose_vm(world: World, n: int) -> None:
    if (one := world.vms.get(NAMES[n % 3])) is not None:
        one.down = True


def bring_back(world: World, n: int) -> None:
    for one in list(world.vms.values()):
        if one.down:
            one.restart()
            world.do(t.FromVm(one.hello()))
        one.cut = False


def cut(world: World, n: int) -> None:
    if (one := world.vms.get(NAMES[n % 3])) is not None:
        one.cut = True


def fail_journal(world: World, n: int) -> None:
    world.journal_fails = not world.journal_fails


def crash_controller(world: World, n: int) -> None:
    if not world.journal_fails:
        world.restart_controller()


def hold_acks(world: World, n: int) -> None:
    world.hold_acks = not world.hold_acks


def lose_machines(world: World, n: int) -> None:
    world.lost_requests = {"vm3", "vm4"} if n % 2 else set()


DEEDS: list[Callable[[World, int], None]] = [
    go_on, go_on, go_on, set_rate, kill_worker, quarantine, lose_vm, bring_back, cut, fail_journal,
    crash_controller, hold_acks, lose_machines,
]  # fmt: skip


def heal(world: World) -> None:
    """Faults stop: what is gone comes back, what was held flows."""
    world.journal_fails, world.hold_acks, world.lost_requests = False, False, set()
    bring_back(world, 0)
    world.ask("resume")
    world.ask("rate_set", rate_tps=200.0)


@examples(15)
@given(st.lists(st.tuples(st.integers(0, len(DEEDS) - 1), st.integers(0, 11)), max_size=25))
def test_any_order_of_events(deeds: list[tuple[int, int]]) -> None:
    world = World((vm("vm1"), vm("vm2")), rate_tps=200.0, max_vms=3, spare=vm("x")).start()
    for number, n in deeds:
        DEEDS[number](world, n)
        assert world.finish is None
    heal(world)
    world.run(75)
    check_tokens(world)
    check_at_rest(world)


def check_tokens(world: World) -> None:
    """Desired states are numbered upwards, and one number is one state."""
    tokens = world.tokens
    assert tokens == sorted(tokens)
    by_token: dict[m.Token, m.DesiredState] = {}
    for _, message in world.sent:
        if isinstance(message, m.DesiredState):
            assert by_token.setdefault(message.token, message) == message


def check_at_rest(world: World) -> None:
    """Wanted = present; nothing that was read is open; nothing is kept that is not needed."""
    k = world.loop.knowledge
    assert world.phase == "committed" and world.durable.waiting is None, (world.phase, k.alarms)
    assert not world.rollout.leaving
    desired = {t.thread for t in world.rollout.threads}
    present = {
        t
        for one in world.vms.values()
        for w in one.workers.values()
        if w.state == "running"
        for t in w.threads
    }
    assert desired == present
    assert k.counts.emitted - k.counts.done < 40, "everything read was done"
    due = world.durable.schedule.due(world.now.wall_ns) if world.durable.schedule else 0
    assert due - k.counts.emitted < 60, "the source reads on"
    used = {slot.vm for slot in world.rollout.slots}
    assert {machine.vm for machine in world.durable.machines} <= used
    assert set(world.asked) == {machine.vm for machine in world.durable.machines}
