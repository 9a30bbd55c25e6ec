"""The beginning of a controller's life: what an earlier one left in the journal is known again. Pure.

What runs is adopted: after a restart nothing is said to agents until they have told what is there (4 s at
most), then they get the desired state of before under the new boot, and an enactment under way goes on.
"""

from __future__ import annotations

from headgate.controller.execute.ending import Ending
from headgate.controller.knowledge.folding import fold_all
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.records import Booted, Durable
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Finish, Started
from headgate.topology_runtime.errors import Conflict

NS = 1_000_000_000
ADOPT_NS = 4 * NS  # as long as a VM may be silent
CRASHES_IN_A_ROW, WITHIN_NS = 3, 60 * NS
SHORT_LIFE_NS = 15 * NS  # a controller that lived longer did not die of what it was doing


def begin_life(turn: Turn, members: Membership, ending: Ending, started: Started) -> bool:
    """Know what is journaled and journal the new boot; False when there is nothing left to do here."""
    k, now = turn.knowledge, turn.now
    k.durable = fold_all(started.records)
    k.pid, k.started_ns = started.pid, now.mono_ns
    d = k.durable
    if d.lives and d.lives[-1][1]:
        turn.do(Finish(None, Conflict("the run in this state directory has ended", hint="start a new one")))
        return False
    crashes = crashes_in_a_row(d, now.wall_ns)
    turn.record(Booted(d.boot + 1, now.wall_ns))
    if started.tallies is not None:
        k.counts.recall(started.tallies)
    k.counts.letters.recall(started.letters)
    k.counts.recall_apart(d.apart)
    if not d.boot:
        return True
    turn.event(
        "recovered", f"controller boot {d.boot + 1}: epoch {k.epoch} ({d.phase}) is adopted", level="warning"
    )
    members.presume(tuple(vm for vm in d.joined if vm.vm not in d.held_dead), now)
    members.expect(d.joined)
    k.phase_since_ns = now.mono_ns
    k.rested = rested(d)
    for rollout in d.rollouts:
        k.switched_ns = now.mono_ns - max(0, now.wall_ns - rollout.switched_ns)
        k.in_force_ns = now.mono_ns - max(0, now.wall_ns - rollout.in_force_ns)
    if d.rollout is not None:
        k.adopting_until_ns = now.mono_ns + ADOPT_NS
    if crashes >= CRASHES_IN_A_ROW and d.cleared_ns < now.wall_ns - WITHIN_NS:
        k.held = f"the controller died {crashes} times in a row: the last good plan is held"
        turn.event("held", k.held, level="error")
    if d.draining:
        ending.resume(turn)
    return True


def rested(d: Durable) -> set[int]:
    """Holders of exclusive tasks that are desired no more and whose VM is not held dead: it was journaled that they
    are gone when they had said so. (Who was lost with its VM works until its lease is over.)"""
    there = d.rollout.by_number if d.rollout is not None else {}
    return {h.thread for h in d.holders if h.thread not in there and h.slot.vm not in d.held_dead}


def crashes_in_a_row(d: Durable, now_wall_ns: int) -> int:
    """How many lives before this one ended soon and badly, one after the other, just now."""
    end = now_wall_ns
    crashes = 0
    for began, ended_well in reversed(d.lives):
        if ended_well or end - began > SHORT_LIFE_NS or now_wall_ns - end > WITHIN_NS:
            break
        crashes, end = crashes + 1, began
    return crashes


def adopted(turn: Turn, members: Membership) -> None:
    """Stop waiting once every VM of the plan has said what is there, or its time is over."""
    k = turn.knowledge
    if not k.adopting_until_ns or k.durable.rollout is None:
        return
    vms = {thread.slot.vm for thread in k.durable.rollout.threads} - set(k.durable.held_dead)
    there = {m.vm.vm for m in members.up() if m.report is not None}
    if vms <= there or turn.now.mono_ns >= k.adopting_until_ns:
        k.adopting_until_ns = 0
        k.phase_since_ns = turn.now.mono_ns
        missing = sorted(vms - there)
        text = f"not heard: {', '.join(missing)}" if missing else "all VMs are there"
        turn.event("adopted", f"adopted what runs; {text}")
