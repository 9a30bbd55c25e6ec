"""What a run has counted, to the disk; and what sources with offsets may let go by it. Pure."""

from __future__ import annotations

from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import KeepTallies, Send
from headgate.topology_runtime.wire.messages import OffsetsKept


def keep_tallies(turn: Turn) -> None:
    """Agents hear once it is on the disk: their VM may be lost while no controller is there."""
    turn.do(KeepTallies(turn.knowledge.counts.tallies(turn.now.wall_ns), _offsets(turn.knowledge)))


def _offsets(k: Knowledge) -> tuple[Send, ...]:
    """For each VM with threads of sources with offsets, what their heirs go on from."""
    rollout, topology = k.durable.rollout, k.topology
    if rollout is None or topology is None:
        return ()
    told: dict[str, list[tuple[int, int]]] = {}
    for thread in rollout.threads:
        known = k.counts.sources.get((thread.task, thread.partition))
        if known is None or not topology.by_name[thread.task].offsets:
            continue
        offset, _ = known.go_on_from(known.acked)
        if offset:
            told.setdefault(thread.slot.vm, []).append((thread.thread, offset))
    positions = _positions(k)
    if positions:
        for thread in rollout.threads:
            if topology.by_name[thread.task].state == "keyed":
                told.setdefault(thread.slot.vm, [])
    return tuple(
        Send(vm, OffsetsKept(k.durable.boot, tuple(offsets), positions))
        for vm, offsets in sorted(told.items())
    )


def _positions(k: Knowledge) -> tuple[tuple[int, int, int], ...]:
    """Below which no row ever comes again, since all of them are done, and that is on the disk."""
    assert k.topology is not None
    if not k.settings.exactly_once:
        return ()
    numbers = {task.name: number for number, task in enumerate(k.topology.sources)}
    return tuple(
        (numbers[task], partition, known.acked)
        for (task, partition), known in sorted(k.counts.sources.items())
        if task in numbers and known.acked
    )
