"""Is a plan that came into force as good as it was predicted to be? Pure.

It is watched for three windows. Only strong evidence takes it back: the topology does not keep up, what gets
through is less than half of what was predicted, and the plan before was stable at this rate or more.
"""

from __future__ import annotations

from headgate.controller.execute.executor import roll_back
from headgate.controller.execute.steps import PROBATION_WINDOWS
from headgate.controller.knowledge.diagnoses import Stability
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.windows import Window

NS = 1_000_000_000
FAR_BELOW = 0.5  # of the predicted rate: no model is that far off where a plan works at all
BAD_WINDOWS = 2  # in a row, at the end: the first window still shows the transition


def judge(turn: Turn, members: Membership, stability: Stability, window: Window) -> None:
    """Note what the plan in force can do; at the end of each window of its probation judge it."""
    k = turn.knowledge
    d = k.durable
    if not k.in_force or d.rollout is None:
        return
    if stability.verdict == "stable":
        k.proven[d.rollout.epoch] = max(window.offered_tps, k.proven.get(d.rollout.epoch, 0.0))
    if d.phase != "probation" or d.waiting is not None:
        return
    windows = int((turn.now.mono_ns - k.phase_since_ns) / (k.settings.probation_window_s * NS))
    if windows <= k.windows_passed:
        return
    k.windows_passed = windows
    why = evidence_against(k, stability, window)
    k.windows_bad = k.windows_bad + 1 if why else 0
    if windows >= PROBATION_WINDOWS and k.windows_bad >= BAD_WINDOWS:
        roll_back(turn, members, why)


def evidence_against(k: Knowledge, stability: Stability, window: Window) -> str:
    """Why the plan should be taken back; empty without strong evidence."""
    rollout, before = k.durable.rollout, k.durable.before
    held = k.durable.held_plan
    if held is not None and rollout is not None and held.epoch == rollout.epoch:
        return ""  # an operator's word: what is wrong with it is said, and nothing undone
    if rollout is None or before is None or rollout.undoes or stability.verdict != "unstable":
        return ""
    predicted = rollout.plan.prediction.rate_tps
    proven = k.proven.get(before.epoch, 0.0)
    if window.acked_tps >= FAR_BELOW * predicted or proven < window.offered_tps:
        return ""
    return (
        f"does {window.acked_tps:,.1f} tuples/s of {predicted:,.1f} predicted, and plan {before.epoch} "
        f"was stable at {proven:,.1f}"
    )
