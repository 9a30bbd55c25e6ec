"""Slots that plans are better without for a while, or with fewer threads: where threads cannot be built, and where the
memory is not enough. Pure.

None of them, nor any that was given up by its agent, is barred for good: where no plan can be made without, those are
used that were left out, or given up a while ago (`barred`).

A thread that cannot be built is tried again by its worker; after `UNBUILT_S` another VM is tried, where there is one
on which no thread of its task fails (but of keyed tasks, whose state is here, of spools, and of exclusive ones).

A worker that died twice for want of memory is a reason to put fewer threads into its slot: each thread of a task there
is planned with so much more that what was there does not fit any more, if there are slots for that.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.controller.knowledge.diagnoses import Demand, Diagnosis
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.models.task_models import Model, memory
from headgate.topology_runtime.api.cluster import SLOT_MEMORY_BYTES, Slot
from headgate.topology_runtime.wording import counted, larger_slots

NS = 1_000_000_000
UNBUILT_S = 10.0
LEFT_OUT_S = 120.0
RESTED_S = 60.0  # a slot that was given up may be tried again, as its agent does where its threads are in it
STARVED_TIMES, STARVED_WITHIN_S = 2, 300.0
WANTED_S = 60.0  # a plan for more memory is looked for so long
OVERFULL = 1.1  # of a slot: what its threads are planned with at least, after they ran out of memory
ROOMY = 0.8  # of the memory of all slots: more is not asked for
LARGER = 1.4  # times the slot: what is advised where memory ran out, and a tenth to spare
LEAST_MORE, THREAD_MOST = 0.02, 0.95  # of a slot, per thread; one thread alone always fits


# ── slots that no plan uses ─────────────────────────────────────────────────────────────────────


def look(k: Knowledge, now_ns: int) -> None:
    """Once a turn: which slots are barred no more, and which may be tried where no plan can be made without."""
    quarantined = k.members.quarantined
    k.left_out = {slot: until_ns for slot, until_ns in k.left_out.items() if now_ns < until_ns}
    k.given_up_since = {slot: k.given_up_since.get(slot, now_ns) for slot in quarantined}
    rested = {slot for slot, since_ns in k.given_up_since.items() if now_ns - since_ns >= RESTED_S * NS}
    k.reusable = frozenset(rested | (k.left_out.keys() - quarantined))


def barred(k: Knowledge) -> frozenset[Slot]:
    """Slots that a plan made now does not use."""
    out = frozenset(k.members.quarantined | k.left_out.keys())
    return (out - (k.reusable if k.nothing_else else frozenset())) | k.withheld


def not_ready(turn: Turn, need_tps: float = 0.0) -> Diagnosis | None:
    """A plan to be made without slots whose workers do not get ready, where there is no way back and there are others
    to try: once in a while."""
    k, rollout = turn.knowledge, turn.knowledge.durable.rollout
    if not k.dead_end or k.dead_end <= k.left_out.keys() or rollout is None:
        return None
    if turn.members.mass_loss or turn.now.mono_ns < k.journal_retry_ns:
        return None
    names = k.members.here - set(k.durable.held_dead) - k.durable.cordoned.keys()
    others = {slot for name in names for slot in k.members.members[name].vm.all_slots()}
    if not others - barred(k) - k.dead_end:
        return None
    until_ns = turn.now.mono_ns + int(LEFT_OUT_S * NS)
    k.left_out |= dict.fromkeys(k.dead_end, until_ns)
    slots = ", ".join(map(str, sorted(k.dead_end)))
    text = f"the worker in {slots} does not get ready, and there is no way back: other slots are tried"
    rate_tps = max(rollout.plan.rate_tps, need_tps)
    return Diagnosis("replan", "slot_quarantined", text, rate_tps, {"left_out": slots}, ())


# ── threads that cannot be built ────────────────────────────────────────────────────────────────


def unbuilt(turn: Turn, need_tps: float = 0.0) -> Diagnosis | None:
    """A plan to be made without a slot where a thread cannot be built."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    rollout, failed = k.durable.rollout, k.members.failed
    k.unbuilt_since = {thread: k.unbuilt_since.get(thread, now_ns) for thread in failed}
    if rollout is None:
        return None
    staying = {t.thread: t for t in rollout.threads if not t.leaving}
    for number, since_ns in sorted(k.unbuilt_since.items()):
        thread = staying.get(number)
        if thread is None or now_ns - since_ns < UNBUILT_S * NS or not _movable(k, thread.task):
            continue
        bad = {t.slot.vm for t in staying.values() if t.task == thread.task and t.thread in failed}
        if thread.slot not in k.left_out:
            if not _other_vms(k, bad):
                continue
            until_ns = now_ns + int(LEFT_OUT_S * NS)
            k.left_out |= dict.fromkeys({thread.slot, *_free(k, thread.slot.vm)}, until_ns)
        text = f"thread {number} of {thread.task} cannot be built in {thread.slot}, another VM is tried"
        rate_tps = k.plan.rate_tps if k.plan is not None else need_tps
        evidence = {"left_out": str(thread.slot), "failed": failed[number]}
        return Diagnosis("replan", "thread_failed", text, rate_tps, evidence, ())
    return None


def _movable(k: Knowledge, task: str) -> bool:
    return k.topology is not None and k.topology.by_name[task].movable


def _other_vms(k: Knowledge, bad: set[str]) -> bool:
    """Is there a VM to try that is not one of these?"""
    out = barred(k)
    names = k.members.here - bad - set(k.durable.held_dead) - k.durable.cordoned.keys()
    return any(set(k.members.members[name].vm.all_slots()) - out for name in names)


def _free(k: Knowledge, vm: str) -> set[Slot]:
    """The slots of a VM without threads of the plan."""
    rollout = k.durable.rollout
    used = {t.slot for t in rollout.threads} if rollout is not None else set[Slot]()
    return set(k.members.members[vm].vm.all_slots()) - used if vm in k.members.here else set()


# ── memory ──────────────────────────────────────────────────────────────────────────────────────


def starved(turn: Turn, need: Demand) -> Diagnosis | None:
    """A plan to be made with fewer threads in a slot whose worker died for want of memory again and again."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    for slot, times in sorted(k.starved.items()):
        if len(times) < STARVED_TIMES or times[-1] - times[0] > STARVED_WITHIN_S * NS or k.plan is None:
            continue
        del k.starved[slot]
        threads = {b.task: b.threads for b in k.plan.placement.bundles if b.slot == slot}
        held = ", ".join(f"{counted(many, 'thread')} of {task}" for task, many in sorted(threads.items()))
        within_s = (times[-1] - times[0]) / NS
        text = f"slot {slot} ran out of memory {STARVED_TIMES} times in {within_s:.0f} s, "
        text += f"with {held}" if held else "with threads that are leaving"
        fits = _give_more(k, threads)
        then = (
            "a plan with fewer there is looked for; if it goes on"
            if fits
            else "no slots are left for fewer there"
        )
        member = k.members.members.get(slot.vm)
        size = member.vm.slot_memory_bytes if member is not None else SLOT_MEMORY_BYTES
        turn.alarm(f"memory {slot}", f"{text}: {then}; {larger_slots(LARGER * size)}")
        if fits:
            more = {task: round(part, 4) for task, part in k.memory_more.items()}
            evidence = {"slot": str(slot), "memory_more": more}
            rate_tps = max(k.plan.rate_tps, need.target_tps)
            found = Diagnosis("replan", "out_of_memory", text, rate_tps, evidence, ())
            k.memory_wanted = k.plan, now_ns + int(WANTED_S * NS), found
    if k.memory_wanted is None:
        _over(turn)
        return None
    plan, until_ns, found = k.memory_wanted
    if plan is not k.plan or now_ns >= until_ns:
        k.memory_wanted = None
        return None
    return found


def _over(turn: Turn) -> None:
    """Alarms about memory are over when nothing died of it for a while."""
    k = turn.knowledge
    for what in [what for what in k.alarms if what.startswith("memory ")]:
        since_ns = k.alarm_since_ns.get(what, turn.now.wall_ns)
        lately = any(str(slot) == what.removeprefix("memory ") for slot in k.starved)
        if not lately and turn.now.wall_ns - since_ns >= STARVED_WITHIN_S * NS:
            turn.alarm(what, "", "its worker has lived since")


def _give_more(k: Knowledge, threads: Mapping[str, int]) -> bool:
    """Plan these threads with so much more memory that they do not fit one slot; False when one alone does not."""
    if k.topology is None or sum(threads.values()) < 2:
        return False
    named = {task: k.models.get(k.topology.by_name[task].model_name) for task in threads}
    models = {task: model for task, model in named.items() if model is not None and model.points}
    if not models:
        return False
    used = sum(memory(roomier(m, k.memory_more.get(task, 0.0)), threads[task]) for task, m in models.items())
    fixed = {task: k.topology.by_name[task].static for task in threads.keys() - models.keys()}
    used += sum(static.memory * threads[task] for task, static in fixed.items() if static is not None)
    more = max(LEAST_MORE, (OVERFULL - used) / sum(threads[task] for task in models))
    if used + more * sum(threads.values()) > ROOMY * _usable(k):
        return False
    for task, model in models.items():
        most = max(0.0, THREAD_MOST - memory(model, 1))
        k.memory_more[task] = min(most, k.memory_more.get(task, 0.0) + more)
    return True


def _usable(k: Knowledge) -> int:
    """Slots that a plan may use."""
    slots = {slot for name in k.members.here for slot in k.members.members[name].vm.all_slots()}
    return len(slots - barred(k))


def roomier(model: Model, more: float) -> Model:
    """The model with so much more memory for each thread."""
    if not more:
        return model
    points = tuple(replace(p, memory=p.memory + more * p.threads) for p in model.points)
    return replace(model, points=points)


def planned_with(k: Knowledge) -> dict[str, Model]:
    """The models in force, with what memory ran out for."""
    if not k.memory_more or k.topology is None:
        return k.models
    more = {
        k.topology.by_name[t].model_name: part for t, part in k.memory_more.items() if t in k.topology.by_name
    }
    return {name: roomier(model, more.get(name, 0.0)) for name, model in k.models.items()}
