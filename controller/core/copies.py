"""Rows that a sink got more than once, sink by sink: how many, and why there may be more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.controller.knowledge.knowledge import Knowledge, RunCounts
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.topology import Topology

BySink = Mapping[str, tuple[int, int]]  # sink → (rows, distinct)


def copies_of(k: Knowledge, by_sink: BySink) -> dict[str, Any]:
    """Of all sinks and of each. What is not exact is at least so many; `duplicates_why` says why."""
    rebuilt = rebuilt_sinks(k.topology) if k.topology is not None and k.counts.sent_again else {}
    unlogged = _unlogged(k)
    why = [*unlogged, *(f"{sink}: {reason}" for sink, reason in rebuilt.items())]
    return {
        "duplicates": sum(rows - distinct for rows, distinct in by_sink.values()),
        "duplicates_exact": not why,
        "duplicates_why": why,
        "finished_dropped": k.counts.finished_dropped,
        "sinks": {
            sink: {
                "rows": rows,
                "duplicates": rows - distinct,
                "duplicates_exact": not unlogged and sink not in rebuilt,
            }
            for sink, (rows, distinct) in sorted(by_sink.items())
        },
    }


def _unlogged(k: Knowledge) -> list[str]:
    """Why a row that reached a sink may be in no log that was read, or there under another name."""
    found = []
    if rows := k.counts.finished_dropped:
        found.append(f"{counted(rows, 'row')} that may have reached a sink, in no log")
    found += [f"{vm}: its agent was killed, and its sinks with it" for vm in _agents_killed(k.counts)]
    found += [f"{vm}: lost, and its logs with it" for vm in sorted(k.durable.held_dead)]
    found += [f"{source}: events that were accepted anew" for source in sorted(k.counts.anew)]
    return found


def _agents_killed(counts: RunCounts) -> list[str]:
    """VMs that were reported of by more than one life of an agent, but for those that ended as they should."""
    return sorted({vm for vm, _ in counts.unlogged if len(counts.lives(vm)) > 1})


def rebuilt_sinks(topology: Topology) -> dict[str, str]:
    """Sinks below a task that keeps rows in buckets: what comes of rows that were sent again is named after the
    rows that it met there this time, and so is no copy of anything."""
    found: dict[str, str] = {}
    keepers = [task.name for task in topology.tasks if task.kind == "hold"]
    for keeper in keepers:
        below, todo = set[str](), [keeper]
        while todo:
            for _, edge in topology.out_edges(todo.pop()):
                if edge.target not in below:
                    below.add(edge.target)
                    todo.append(edge.target)
        for sink in topology.sinks:
            if sink.name in below:
                found.setdefault(sink.name, f"rows sent again may meet others in the buckets of {keeper}")
    return found
