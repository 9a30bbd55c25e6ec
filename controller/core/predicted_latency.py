"""What rows are predicted to take by the plan in force, at the rate that is offered; and the limit that plans are to
keep, beside what is measured. Pure.

A prediction takes tenths of a second, so the shell makes it beside the loop and gives it back as an event
(`LatencyPredicted`), which is recorded like every other. It is asked for when the plan or the rate is another one.
"""

from __future__ import annotations

from functools import partial

from headgate.controller.analyze.residuals import LEAST
from headgate.controller.core.alarms import SETTLED_S
from headgate.controller.knowledge.knowledge import Knowledge, Turn
from headgate.controller.knowledge.loop_events import LatencyPredicted, PredictLatency, Trace
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.models.plans import PlanLatency
from headgate.controller.plan.predict.latency import latency_of
from headgate.topology_runtime.wording import significant, utc_iso

NS = 1_000_000_000
NEAR = 0.1  # relative: at a rate that differs by so little rows take about as long
REST_NS = 30 * NS  # from one prediction to the next
LATE_S = 10  # above the limit for so long, or within it
OVER = "95 of 100 rows are done within the limit"


class LatencyLimits:
    """Asks for predictions, and watches the limit (`ControllerSettings.p95_ms`)."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] = ("", 0.0)
        self._asked_ns = self._number = self._late = 0

    def look(self, turn: Turn, window: MeasuredWindow) -> None:
        """Once a turn."""
        self._ask(turn, window)
        limit_ms = turn.knowledge.settings.p95_ms
        if limit_ms is not None:
            self._watch(turn, window, limit_ms)

    def _ask(self, turn: Turn, window: MeasuredWindow) -> None:
        k, now_ns = turn.knowledge, turn.now.mono_ns
        plan, topology, rate_tps = k.plan, k.topology, window.offered_tps
        if plan is None or topology is None or k.enacting or not window.is_complete or rate_tps <= LEAST:
            return
        of, at_tps = self._asked
        if of == plan.id and (abs(rate_tps / at_tps - 1) <= NEAR or now_ns - self._asked_ns < REST_NS):
            return
        self._number += 1
        self._asked, self._asked_ns = (plan.id, rate_tps), now_ns
        there = topology, k.models, plan.placement, plan.vms, plan.prediction
        turn.do(PredictLatency(self._number, plan.id, rate_tps, partial(latency_of, *there, rate_tps)))

    def _watch(self, turn: Turn, window: MeasuredWindow, limit_ms: float) -> None:
        k = turn.knowledge
        in_force_s = k.in_force_s(turn.now)
        if in_force_s is None or in_force_s < SETTLED_S or not window.latency.rows:
            return
        measured_ms = window.latency.p95_ms
        late = measured_ms > limit_ms
        self._late = max(self._late, 0) + 1 if late else min(self._late, 0) - 1
        if self._late >= LATE_S:
            text = (
                f"p95 is {significant(measured_ms, 3)} ms, and is to be within {significant(limit_ms, 3)} ms"
            )
            predicted = predicted_latency(k)
            text += (
                f"; {significant(predicted.rows.p95_ms, 3)} ms was predicted" if predicted is not None else ""
            )
            turn.alarm("p95", text)
        elif self._late <= -LATE_S:
            turn.alarm("p95", "", OVER)


def take(turn: Turn, found: LatencyPredicted) -> None:
    """Know what was predicted, and record it while its plan is in force. settled_in_s: from when on what the plan does
    is its own doing."""
    k = turn.knowledge
    k.latency = found
    in_force_s = k.in_force_s(turn.now)
    if k.plan is None or k.plan.id != found.plan or in_force_s is None:
        return
    told = found.latency
    line = {
        "time": utc_iso(turn.now.wall_ns),
        "epoch": k.epoch,
        "plan": found.plan,
        "settled_in_s": round(max(0.0, SETTLED_S - in_force_s), 3),
        "rate_tps": told.rate_tps if told is not None else None,
        "sinks": [{"sink": sink, **rows._asdict()} for sink, rows in told.sinks] if told is not None else [],
    }
    turn.do(Trace("latency", line))


def predicted_latency(k: Knowledge) -> PlanLatency | None:
    """Of the plan in force, at about the present rate; None where it is not known, or the plan does not carry that."""
    if k.latency is None or k.plan is None or k.latency.plan != k.plan.id:
        return None
    return k.latency.latency
