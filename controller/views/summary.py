"""The run in numbers: `headgate/run/v1` of the contract. Pure.

Definitions. offered: positions due by the schedule, or arrived, over all sources. emitted, acked, dead_lettered:
distinct source positions, however often replayed; acked ones were processed whole. lost = emitted − acked −
dead_lettered after the final drain. duplicates: rows that reached sinks − distinct ones, "at least" so many
unless duplicates_exact: see duplicates_why, and sinks for each sink. source_kind: `paced`, `arriving` or `mixed`;
lag: of the arriving source that is furthest behind, rows taken and not read and seconds since the oldest of them
came (0 of paced ones). Rates are means
from the first intended tuple to the end of intake. Of a plan: decided_s from the beginning of the turn that
decided to the journaled plan; enacted_s from there until every sender had switched; pause_ms from the
order to switch until then: an upper bound of the longest gap in the output of a moved thread (exact gaps
are shorter than the samples can show).
"""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.controller.knowledge.records import Rollout
from headgate.controller.knowledge.run_view import MS, NS, RunView
from headgate.controller.views.status import state_of

SCHEMA = "headgate/run/v1"


def summary(view: RunView) -> dict[str, Any]:
    """The run so far."""
    seconds, tuples, lag = view.intake_s, view.tuples, view.lag
    undone = tuples.emitted - tuples.acked - tuples.dead_lettered
    return {
        "schema": SCHEMA,
        "topology": view.topology.name if view.topology else None,
        "run": view.run,
        "seconds": round(seconds, 3),
        "trace": view.trace,
        "source_kind": view.source_kind,
        "lag": {"rows": lag.rows if lag else 0, "seconds": lag.seconds if lag else 0.0},
        "tuples": {**msgspec.to_builtins(tuples), "lost": max(0, undone)},
        "letters": {"replayed": view.letters.replayed, "mended": view.letters.mended},
        "state": state_of(view),
        "plans": plans_of(view),
        "plans_dropped": sum(view.rollouts_dropped.values()),
        "latency_ms": view.latency_ms,
        "offered_tps": round(tuples.offered / seconds, 3) if seconds else 0.0,
        "achieved_tps": round(tuples.acked / seconds, 3) if seconds else 0.0,
        "ended": view.ended,
    }


def plans_of(view: RunView) -> list[dict[str, Any]]:
    """The first plan and the newest (folding.REIGNS_KEPT) whose enactment began, in order; a plan given up before
    that is not among them."""
    started_ns = view.started_ns or view.wall_ns
    rollouts = [rollout for rollout in view.rollouts if not rollout.abandoned]
    ends = [rollout.decided_ns for rollout in rollouts[1:]] + [view.wall_ns]
    return [
        _plan(rollout, view.planning_s.get(rollout.epoch, 0.0), end, started_ns)
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
