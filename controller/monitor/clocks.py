"""Clocks of VMs as their agents measure them: what a step of one makes of the samples that came before. Pure."""

from __future__ import annotations

from controller.knowledge.turn import Turn
from topology_runtime import messages as m

NS = 1_000_000_000
STEP_NS = (
    NS // 20
)  # beyond both measurements' errors: a clock was set; latencies of before and after do not compare


def stepped(turn: Turn, before: m.Report | None, now: m.Report) -> bool:
    """Was this VM's clock, or the controller's, set since the report before? Both are told by every VM at once then."""
    if before is None or before.boot != now.boot or not before.clock[1] or not now.clock[1]:
        return False
    step_ns = now.clock[0] - before.clock[0]
    if abs(step_ns) <= STEP_NS + before.clock[1] + now.clock[1]:
        return False
    whose = f"the clock of {now.vm} was set by {-step_ns / NS:+.3f} s, or the controller's"
    turn.event("clock_step", f"{whose}: what was measured before is let go", level="warning", vm=now.vm)
    return True
