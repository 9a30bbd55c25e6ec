"""The end of the input, task by task in topology order: panes fire, keyed tasks `finish`. Pure.

A pane must fire whole, and what is lost is sent again. So the end is made of steps, each a state that is journaled,
numbered and sent like any other, and done once every source thread, and every thread of a task with event time (what
timers give is kept in ledgers there, too), has reported its number:

    hold    a source whose ledger is at rest (all that is open waits in panes) sends nothing more
    fire    the panes of one window task fire, and their rows stay kept: no root is done by half of its panes
    over    what came of them is done: their rows are let go. What comes to that task from now on is a copy
    finish  sources send again what is lost; one of them tells each key range of one keyed task that the input has
            ended, by rows with names of their own (worker/sources/source_task.py), which change a state once. Before
            that all timers of a task with event time fire
    again   a worker was replaced or rows were lost meanwhile, or nothing moves: all that is open is sent again, panes
            fill anew

Panes fire only in workers that were there when `hold` began (`EndOfInput.workers`), and while sources hold still: so
nobody fires a pane of which a part is on its way. A run that is stopped before its input ends fires the panes that have
an age limit, keeps the others' rows open, and calls no `finish`.
"""

from __future__ import annotations

from headgate.controller.knowledge.journal_records import Durable, EndStepped
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire.messages import EndOfInput, EndStep, ThreadSpec
from headgate.topology_runtime.wire.run_options import EVERY_SOURCE as EVERY_SOURCE

NS = 1_000_000_000
KEEPERS = ("hold", "keyed")  # kinds of tasks that keep rows or state
STUCK_NS = 20 * NS  # a step in which sources hold still, and no row reaches a sink


def every_source_ended(k: Knowledge) -> bool:
    """Has every source partition of the plan in force said that there is no more? One that was never begun has not."""
    if not k.in_force or k.topology is None:
        return False
    threads = source_threads(k)
    there = {(thread.task, thread.partition) for thread in threads}
    parts = sum(task.partitions for task in k.topology.sources)
    said = (k.members.sources.get(thread.thread) for thread in threads)
    return len(there) == parts and all(now is not None and now.exhausted for now in said)


def end_now(d: Durable) -> EndOfInput | None:
    """How far it is; before its first step sources know already that they are to read to their end."""
    return d.end or (EndOfInput(0, "again", whole=True) if d.draining == EVERY_SOURCE else None)


def source_threads(k: Knowledge) -> list[ThreadSpec]:
    """Those that stay."""
    assert k.durable.rollout is not None and k.topology is not None
    sources = {task.name for task in k.topology.sources}
    return [t for t in k.durable.rollout.threads if t.task in sources and not t.leaving]


def timed_threads(k: Knowledge) -> list[ThreadSpec]:
    """Those of tasks with event time: what their timers gave is in ledgers of their own."""
    assert k.durable.rollout is not None and k.topology is not None
    return [t for t in k.durable.rollout.threads if k.topology.by_name[t.task].timed and not t.leaving]


def go_on(turn: Turn, idle_ns: int) -> bool:
    """Begin the step that is due; True when there is none any more. idle_ns: for so long nothing has moved."""
    k = turn.knowledge
    d, end = k.durable, k.durable.end
    if d.rollout is None or k.topology is None:
        return True
    sources = {task.name for task in k.topology.sources}
    leaving = [thread for thread in d.rollout.threads if thread.leaving]
    if not k.in_force or k.enacting or any(thread.task not in sources for thread in leaving):
        if end is not None and end.step in ("hold", "fire", "over"):
            _begin(turn, "again")
        return False
    if end is None:
        _begin(turn, "hold")
        return False
    here = [(k.members.sources.get(t.thread), t.leaving) for t in [*source_threads(k), *leaving]]
    timed = [k.members.threads.get(t.thread) for t in timed_threads(k)]
    still = end.step in ("hold", "fire", "over")
    lost = end.workers != _workers(k) or any(
        now is not None and now.rests == -end.number for now in [*(one for one, _ in here), *timed]
    )
    stuck = end.step != "hold" and idle_ns >= STUCK_NS
    if still and (lost or stuck):
        k.ending.stuck += stuck and not lost
        _begin(turn, "again")
        return False
    for now, leaves in here:
        if now is None or not (now.rests == end.number or (leaves and now.stopped)):
            return False
    if any(now is None or now.rests != end.number for now in timed):
        return False
    return _next(turn, end, not timed and all(now is not None and now.stopped for now, _ in here))


def _next(turn: Turn, end: EndOfInput, empty: bool) -> bool:
    """The step after this one, which is done. empty: no row waits anywhere."""
    topology = turn.knowledge.topology
    assert topology is not None
    if end.step == "fire":
        _begin(turn, "over", end.task)
        return False
    if end.step == "again":
        _begin(turn, "hold")
        return False
    for task in in_order(topology):
        keyed = topology.by_name[task].state == "keyed"
        if keyed and end.whole and task not in end.finish:
            _begin(turn, "finish", task)
            return False
        if not keyed and task not in end.over and not empty:
            _begin(turn, "hold" if end.step == "finish" else "fire", "" if end.step == "finish" else task)
            return False
    return True


def _begin(turn: Turn, step: EndStep, task: str = "") -> None:
    k, before = turn.knowledge, turn.knowledge.durable.end
    end = before or EndOfInput(0, "hold", whole=k.durable.draining == EVERY_SOURCE)
    workers = _workers(k) if step == "hold" else end.workers
    finish = (*end.finish, task) if step == "finish" else end.finish
    over = (*end.over, task) if step == "over" else end.over
    if step in ("over", "finish"):
        k.ending.stuck = 0
    k.ending.replays = replayed(k) + k.counts.emitted - k.counts.done
    turn.record(EndStepped(EndOfInput(end.number + 1, step, task, end.whole, workers, finish, over)))


def replayed(k: Knowledge) -> int:
    return sum(now.replayed for now in k.members.sources.values())


def _workers(k: Knowledge) -> tuple[tuple[Slot, int], ...]:
    """The workers of all threads, each as it is now."""
    assert k.durable.rollout is not None
    slots = sorted({thread.slot for thread in k.durable.rollout.threads})
    there = ((slot, k.members.workers.get(slot)) for slot in slots)
    return tuple((slot, worker.incarnation) for slot, worker in there if worker is not None)


def unfinished(k: Knowledge) -> tuple[str, ...]:
    """Tasks that keep rows or state and that the end of the input has not come to: their panes and timers have not all
    fired, or `finish` was not called for every key."""
    end, topology = k.durable.end, k.topology
    done: set[str] = set() if end is None else {*end.over, *end.finish} - {end.task}
    if topology is None:
        return ()
    keeping = (name for name in in_order(topology) if topology.by_name[name].kind in KEEPERS)
    return tuple(name for name in keeping if name not in done)


def in_order(topology: Topology) -> list[str]:
    """The tasks that take in rows and may keep some, each behind all before it."""
    waits = {task.name: {edge.source for _, edge in topology.in_edges(task.name)} for task in topology.tasks}
    found: list[str] = []
    while waits:
        ready = [task for task in waits if not waits[task] & waits.keys()]
        found += [task for task in ready if waits[task]]
        for task in ready:
            del waits[task]
    return [task for task in found if topology.by_name[task].kind in ("map", "hold", "keyed")]
