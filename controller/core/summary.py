"""The run in numbers: `headgate/run/v1` of the contract. Pure.

Definitions. offered: positions due by the schedule, over all sources. emitted, acked, dead_lettered:
distinct source positions, however often replayed; acked ones were processed whole. lost = emitted − acked −
dead_lettered after the final drain. duplicates: rows that reached sinks − distinct ones, "at least" so many
unless duplicates_exact: see duplicates_why, and sinks for each sink. Rates are means
from the first intended tuple to the end of intake. Of a plan: decided_s from the beginning of the turn that
decided to the journaled plan; enacted_s from there until every sender had switched; pause_ms from the
order to switch until then: an upper bound of the longest gap in the output of a moved thread (exact gaps
are shorter than the samples can show).
"""

from __future__ import annotations

from typing import Any

from controller.core.copies import BySink, copies_of
from controller.execute.ending import offered_of
from controller.knowledge.knowledge import Knowledge, RunCounts
from controller.knowledge.records import Rollout
from controller.monitor.keyed_state import lost_ranges
from topology_runtime.latency_buckets import BUCKETS, bucket_ns, percentile_ns

SCHEMA = "headgate/run/v1"
NS = 1e9
MS = 1e6


def summary(
    k: Knowledge, in_flight: int, by_sink: BySink, intake_ended_ns: int, wall_ns: int
) -> dict[str, Any]:
    """The run so far; `intake_ended_ns` is 0 while it goes on."""
    counts, d = k.counts, k.durable
    end_ns = intake_ended_ns or wall_ns
    seconds = max(0.0, (end_ns - d.started_ns) / NS) if d.started_ns else 0.0
    offered = offered_of(k, end_ns)
    dead = counts.letters.count
    return {
        "schema": SCHEMA,
        "topology": k.topology.name if k.topology else None,
        "run": k.settings.run,
        "seconds": round(seconds, 3),
        "trace": k.settings.trace,
        "tuples": {
            "offered": offered,
            "emitted": counts.emitted,
            "acked": counts.acked,
            "lost": max(0, counts.emitted - counts.acked - dead),
            "dead_lettered": dead,
            "in_flight": in_flight,
            "replayed": counts.replayed,
            **copies_of(k, by_sink),
        },
        "letters": {"replayed": counts.letters.replayed, "mended": max(0, counts.letters.mended)},
        "state": state_of(k),
        "plans": plans_of(k, wall_ns),
        "plans_dropped": sum(k.durable.rollouts_dropped.values()),
        "latency_ms": latency_ms(counts),
        "offered_tps": round(offered / seconds, 3) if seconds else 0.0,
        "achieved_tps": round(counts.acked / seconds, 3) if seconds else 0.0,
        "ended": k.ending_reason,
    }


def state_of(k: Knowledge) -> dict[str, Any]:
    """Of keyed tasks: key ranges that went on without (all of) their state, and rows that were counted and
    may have been before, at most (since this controller started)."""
    tasks = lost_ranges(k.durable.state_lost)
    again = sum(k.counts.applied_again.values())
    return {"lost_ranges": sum(tasks.values()), "tasks": tasks, "applied_again_at_most": again}


def plans_of(k: Knowledge, wall_ns: int) -> list[dict[str, Any]]:
    """The first plan and the newest (folding.REIGNS_KEPT) whose enactment began, in order; a plan given up before
    that is not among them."""
    started_ns = k.durable.started_ns or wall_ns
    rollouts = [rollout for rollout in k.durable.rollouts if not rollout.abandoned]
    ends = [rollout.decided_ns for rollout in rollouts[1:]] + [wall_ns]
    planning_s = k.counts.planning_s
    return [
        _plan(rollout, planning_s.get(rollout.epoch, 0.0), end, started_ns)
        for rollout, end in zip(rollouts, ends, strict=False)  # without plans there is no end either
    ]


def _plan(rollout: Rollout, planning_s: float, end_ns: int, started_ns: int) -> dict[str, Any]:
    force_ns = rollout.in_force_ns or end_ns
    pause_ns = force_ns - rollout.switched_ns if rollout.switched_ns else 0
    return {
        "epoch": rollout.epoch,
        "at_s": round(max(0.0, (rollout.decided_ns - started_ns) / NS), 3),
        "reason": rollout.reason,
        "rate_tps": round(rollout.rate_tps, 3),
        "slots": rollout.slots,
        "decided_s": round(planning_s, 4),
        "enacted_s": round((force_ns - rollout.decided_ns) / NS, 3),
        "pause_ms": round(pause_ns / MS, 1),
        "rolled_back": rollout.rolled_back,
        "in_force": bool(rollout.in_force_ns),
    }


def latency_ms(counts: RunCounts) -> dict[str, float | None]:
    """End-to-end latency over all sinks, from the intended emit time; None without tuples."""
    sums = [0] * BUCKETS
    for buckets in counts.latency.values():
        for bucket, count in enumerate(buckets):
            sums[bucket] += count
    if not any(sums):
        return {"p50": None, "p95": None, "p99": None, "max": None}
    highest = max(bucket for bucket, count in enumerate(sums) if count)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    found = {name: round(percentile_ns(sums, share) / MS, 3) for name, share in shares.items()}
    return {**found, "max": round(bucket_ns(highest) / MS, 3)}
