"""Clocks of VMs as their agents measure them: what a step of one makes of the samples that came before. Pure."""

from __future__ import annotations

from headgate.controller.knowledge.turn import Turn
from headgate.topology_runtime import messages as m

NS = 1_000_000_000
STEP_NS = NS // 20  # beyond both measurements' errors: latencies of before and after do not compare
APART_NS = 30 * NS  # between two that are believed: who lies cannot keep the controller from ever judging


def stepped(turn: Turn, before: m.Report | None, now: m.Report) -> bool:
    """Was this VM's clock set since the report before?

    Where it was the controller's own, every VM tells so: the first is believed, and no other for APART_NS.
    """
    if before is None or before.boot != now.boot or not before.clock[1] or not now.clock[1]:
        return False
    step_ns = now.clock[0] - before.clock[0]
    if abs(step_ns) <= STEP_NS + before.clock[1] + now.clock[1]:
        return False
    k, now_ns = turn.knowledge, turn.now.mono_ns
    if k.clock_stepped_ns and now_ns - k.clock_stepped_ns < APART_NS:
        return False
    k.clock_stepped_ns = now_ns
    whose = f"the clock of {now.vm} was set by {-step_ns / NS:+.3f} s, or the controller's"
    turn.event("clock_step", f"{whose}: what was measured before is let go", level="warning", vm=now.vm)
    return True
