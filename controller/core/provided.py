"""VMs of the machines provider: which may be asked for, and what it lists. Pure.

It is asked for what is journaled, under names of ours; a VM is given back when no thread is left on it and it has been
had for as long as it was to be (`execute/executor.py`).
"""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.core.alarms import clear_alarm, raise_alarm
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import MachinesSeen, ReleaseMachine, RequestMachine
from headgate.topology_runtime.cluster import Vm

ALARM = "machines"
CENT = 1e-9  # what sums of prices may be off by


def addable(k: Knowledge, members: Membership, here: tuple[Vm, ...]) -> tuple[Vm, ...]:
    """VMs that may be asked of the provider: as many as number and cost may be, by the lowest free names."""
    spare = k.settings.spare
    if spare is None:
        return ()
    taken = {m.vm.vm for m in members.members.values() if m.state != "left"}
    taken |= {*k.durable.held_dead, *k.machines_desired, *k.machines_running}
    taken |= {vm.vm for vm in (*k.settings.initial, *k.durable.machines)}
    had = {vm.vm: vm for vm in (*here, *k.durable.machines)}
    room = min(k.settings.max_vms - len(had), affordable(k, tuple(had.values())))
    names = (f"vm{n}" for n in range(1, k.settings.max_vms + len(taken) + 1))
    free = [name for name in names if name not in taken][: max(0, room)]
    return tuple(replace(spare, vm=name) for name in free)


def affordable(k: Knowledge, had: tuple[Vm, ...]) -> int:
    """How many VMs more may be had for the most that all of them may cost per hour."""
    cap, spare = k.settings.max_usd_per_hour, k.settings.spare
    if cap is None or spare is None or spare.usd_per_hour <= 0:
        return k.settings.max_vms
    left = cap - sum(vm.usd_per_hour for vm in had)
    return max(0, int((left + CENT) / spare.usd_per_hour))


def seen(turn: Turn, event: MachinesSeen) -> None:
    """Make the provider's list match what is journaled: nothing leaks, nothing is forgotten."""
    k = turn.knowledge
    k.machines_desired, k.machines_running = event.desired, event.running
    mine = {vm.vm for vm in k.durable.machines}
    for vm in k.durable.machines:
        if vm.vm not in event.desired:
            turn.do(RequestMachine(vm))
    for name in event.desired:
        if name in k.durable.released and name not in mine:
            turn.do(ReleaseMachine(name))
    if event.trouble:
        raise_alarm(turn, ALARM, event.trouble)
    else:
        clear_alarm(turn, ALARM, "machines are had and given back as they should be")
