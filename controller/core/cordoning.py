"""Operators set VMs apart: `cordon`, `drain`, `uncordon`. Pure.

No plan is made with a cordoned VM; what runs there stays until the next plan. One that is drained is a reason for that
plan at once (`vm_drained`): its threads move as in any other enactment, with all their rows, events and state. It is
journaled, so a controller that was killed goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headgate.controller.core.decide import choose
from headgate.controller.core.deciding import question
from headgate.controller.core.held import refuse_held
from headgate.controller.core.thinking import planned_beside
from headgate.controller.execute.watching import cordon_of
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership, natural
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.records import Cordoned
from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime.errors import Conflict, Infeasible, InvalidInput

Arguments = dict[str, Any]


class CordonRun(Protocol):
    """What these commands ask of the loop."""

    knowledge: Knowledge
    members: Membership


def cordon(run: CordonRun, turn: Turn, arguments: Arguments) -> Any:
    """Make no plan with these VMs from now on."""
    vms = _named(run, arguments)
    cordoned = run.knowledge.durable.cordoned
    _set(turn, cordoned | {vm: cordoned.get(vm, False) for vm in vms})
    return _told(run, vms)


def drain(run: CordonRun, turn: Turn, arguments: Arguments) -> Any:
    """Cordon these VMs, and move away what runs there. force: also when the others carry less without them. check: only
    say whether it would be refused."""
    k, vms = run.knowledge, _named(run, arguments)
    if k.plan is not None and any(slot.vm in vms for slot in _slots(k)):
        refuse_held(k)
        if not arguments.get("force"):
            _fits_without(run, turn, k.plan, frozenset(vms))
    if not arguments.get("check"):
        _set(turn, k.durable.cordoned | dict.fromkeys(vms, True))
        k.next_turn_ns = 0
    return _told(run, vms)


def uncordon(run: CordonRun, turn: Turn, arguments: Arguments) -> Any:
    """Plan with these VMs again."""
    vms = _named(run, arguments)
    _set(turn, {vm: drains for vm, drains in run.knowledge.durable.cordoned.items() if vm not in vms})
    return _told(run, vms)


COMMANDS: dict[str, Callable[[Any, Turn, Arguments], Any]] = {
    "cordon": cordon,
    "drain": drain,
    "uncordon": uncordon,
}


def _named(run: CordonRun, arguments: Arguments) -> tuple[str, ...]:
    """The VMs asked for, each once, all of which must be known."""
    asked = arguments.get("vms")
    if not isinstance(asked, list) or not asked or not all(isinstance(vm, str) for vm in asked):
        raise InvalidInput("no VM is named", hint="`headgate status` shows them")
    known = run.members.members
    if unknown := sorted({vm for vm in asked if vm not in known}):
        raise InvalidInput(
            f"there is no VM {unknown[0][:64]!r}",
            hint=", ".join(sorted(known, key=natural)) or "none is there",
        )
    return tuple(dict.fromkeys(asked))


def _set(turn: Turn, cordoned: dict[str, bool]) -> None:
    before = turn.knowledge.durable.cordoned
    if cordoned == before:
        return
    turn.record(Cordoned(cordoned, turn.now.wall_ns))
    for vm in sorted({*cordoned, *before}, key=natural):
        was, now = before.get(vm), cordoned.get(vm)
        if was == now:
            continue
        words = {
            None: f"{vm} may be planned with again",
            False: f"{vm} is cordoned: no plan is made with it",
            True: f"{vm} is drained: what runs there moves to other VMs",
        }
        turn.event("cordon", f"{words[now]} (an operator)", vm=vm)


def _slots(k: Knowledge) -> tuple[Any, ...]:
    newest = k.durable.waiting or k.durable.rollout
    return tuple(newest.staying_slots) if newest is not None else ()


def _fits_without(run: CordonRun, turn: Turn, plan: Plan, vms: frozenset[str]) -> None:
    """Raises Conflict when without these VMs less can be carried than is planned for."""
    names = ", ".join(sorted(vms, key=natural))
    try:
        asked = question(run.knowledge, run.members, plan.rate_tps, "vm_drained", vms)
        choice = choose(asked, planned_beside(turn))
    except Infeasible as error:
        raise Conflict(f"nothing can run without {names}", cause=error.cause or error.what) from error
    if choice.plan is None:
        raise Conflict(f"{names} cannot be drained now", cause=choice.text)
    if choice.degraded and choice.plan.rate_tps < plan.rate_tps:
        raise Conflict(
            f"without {names} too little can be carried: {choice.degraded}",
            hint="--force drains all the same",
        )


def _told(run: CordonRun, vms: tuple[str, ...]) -> dict[str, Any]:
    k, members = run.knowledge, run.members
    return {"vms": [{"vm": vm, "cordon": cordon_of(k, members.members[vm])} for vm in vms]}
