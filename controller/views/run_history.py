"""What a picture tells of the past: events, decisions with what came of them, a row of history a second. Pure.

Events and decisions are kept as plain data, each made once: a document holds them by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.core.status import lost_now
from controller.knowledge.arrivals import offered_now
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.records import Rollout
from controller.views.decisions import decision_now, is_new
from controller.views.figures import figure
from controller.views.layout import Layout
from controller.views.run_now import lately
from controller.views.view_input import ViewInput
from controller.views.words import diff_of
from topology_runtime.picturing.history import HistoryRing, Row
from topology_runtime.snapshot import DECISIONS_SHOWN, EVENTS_SHOWN, DecisionNow, EventNow

Document = dict[str, Any]
NS, MS = 1e9, 1e6
WATCHED_S = 120.0  # so long it is looked for what came of a decision


class RunHistory:
    """`look` as often as there is something to see; `events`, `decisions`: new objects when they changed."""

    def __init__(self) -> None:
        self.events: Document = {}
        self.decisions: Document = {}
        self.history = HistoryRing()
        self._found: dict[int, DecisionNow] = {}
        self._decided: dict[int, int] = {}  # decision whose outcome is open → wall ns
        self._lost: dict[int, int] = {}  # … → tuples lost before
        self._number = self._event = 0
        self._last: dict[str, Any] | None = None
        self._action: dict[str, Any] | None = None
        self._threads: tuple[int, Layout, Layout] = (
            0,
            Layout(),
            Layout(),
        )  # epoch, its layout, the one before

    def look(self, sight: ViewInput, layout: Layout) -> None:
        self._see_events(sight.k)
        if self._threads[0] != sight.k.epoch:
            self._threads = (sight.k.epoch, layout, self._threads[1])
        changed = [self._begin(found, sight) for found in self._new_decisions(sight.k)]
        changed += [number for number in list(self._decided) if self._follow(number, sight)]
        if changed:
            self._write(changed)
        now_s = round(sight.now.wall_ns / NS, 2)
        if now_s >= self.history.last_s + 0.95:
            self.history.add(_row(sight, now_s))

    def _see_events(self, k: Knowledge) -> None:
        if k.event_number == self._event:
            return
        fresh = [event for event in k.events if event["number"] > self._event]
        self._event = k.event_number
        kept = {**self.events, **{str(event["number"]): _event(event) for event in fresh}}
        self.events = dict(list(kept.items())[-EVENTS_SHOWN:])

    def _new_decisions(self, k: Knowledge) -> Iterator[dict[str, Any]]:
        """Actions since the last look, and the newest decision if it says something new."""
        fresh = []
        for action in reversed(k.actions):
            if action is self._action:
                break
            fresh.append(action)
        if k.actions:
            self._action = k.actions[-1]
        yield from reversed(fresh)
        last, before = k.last_decision, self._last
        self._last = last
        if last is None or last is before or last["action"] != "none":
            return
        if is_new(last, before["trigger"] if before else ""):
            yield last

    def _begin(self, found: dict[str, Any], sight: ViewInput) -> int:
        self._number += 1
        self._found[self._number] = decision_now(found)
        if found["action"] == "plan":
            self._decided[self._number] = sight.now.wall_ns
            self._lost[self._number] = lost_now(sight.k, sight.members)
        return self._number

    def _follow(self, number: int, sight: ViewInput) -> bool:
        """What came of a plan so far; True when there is more to tell."""
        k, known = sight.k, self._found[number]
        rollout = _rollout_of(k, known)
        if (sight.now.wall_ns - self._decided[number]) / NS > WATCHED_S or rollout is None:
            del self._decided[number]
            return False
        after = replace(
            known,
            epoch=rollout.epoch,
            diff=self._diff(rollout.epoch, known),
            rolled_back=rollout.rolled_back,
            pause_ms=round((rollout.in_force_ns - rollout.switched_ns) / MS, 1)
            if rollout.in_force_ns and rollout.switched_ns
            else None,
        )
        settled = _settled(sight, rollout)
        if settled:
            after = replace(
                after,
                time_to_stable_s=round((sight.now.wall_ns - rollout.decided_ns) / NS, 1),
                lost=max(0, lost_now(k, sight.members) - self._lost[number]),
            )
        if settled or rollout.epoch < k.epoch or rollout.rolled_back or rollout.abandoned:
            del self._decided[number]
        self._found[number] = after
        return after != known

    def _diff(self, epoch: int, known: DecisionNow) -> tuple[str, ...]:
        now, layout, before = self._threads
        return diff_of(before.threads, layout.threads) if epoch == now else known.diff

    def _write(self, numbers: list[int]) -> None:
        fresh = {str(number): msgspec.to_builtins(self._found[number]) for number in numbers}
        kept = list({**self.decisions, **fresh}.items())
        for name, _ in kept[:-DECISIONS_SHOWN]:
            self._found.pop(int(name), None)
            self._decided.pop(int(name), None)
        self.decisions = dict(kept[-DECISIONS_SHOWN:])


def _event(event: dict[str, Any]) -> Document:
    epoch = event["epoch"] or None
    found = EventNow(time=event["time"], kind=event["kind"], text=event["text"], epoch=epoch)
    plain: Document = msgspec.to_builtins(found)
    return plain


def _rollout_of(k: Knowledge, decision: DecisionNow) -> Rollout | None:
    """The rollout that began with this decision: the newest of that plan's, by its time."""
    epochs = [planned.epoch for planned in (k.durable.waiting, k.durable.rollout)
              if planned is not None and planned.plan.id == decision.plan]  # fmt: skip
    epoch = epochs[0] if epochs else decision.epoch
    return next((rollout for rollout in reversed(k.durable.rollouts) if rollout.epoch == epoch), None)


def _settled(sight: ViewInput, rollout: Rollout) -> bool:
    """Is it stable under this plan?"""
    seen = sight.seen
    there = sight.k.epoch == rollout.epoch and rollout.in_force_ns > 0
    return (
        there
        and seen is not None
        and seen.window.epoch == rollout.epoch
        and seen.stability.verdict == "stable"
    )


def _row(sight: ViewInput, now_s: float) -> Row:
    k, window = sight.k, sight.seen.window if sight.seen else None
    plan = k.plan
    latency = window.latency if window and window.latency.rows else None
    judged = sight.seen is not None and sight.seen.stability.verdict != "unknown"
    return {
        "time": now_s,
        "offered_tps": figure(offered_now(k, sight.now.wall_ns)),
        "emitted_tps": figure(lately(window.progress, "emitted")) if window else None,
        "acked_tps": figure(lately(window.progress, "acked")) if window else None,
        "planned_tps": figure(plan.rate_tps) if plan else None,
        "predicted_tps": figure(plan.prediction.rate_tps) if plan else None,
        "p50_ms": figure(latency.p50_ms) if latency else None,
        "p95_ms": figure(latency.p95_ms) if latency else None,
        "p99_ms": figure(latency.p99_ms) if latency else None,
        "slope": figure(sight.seen.stability.slope, 2) if sight.seen and judged else None,
        "slots_used": plan.slots.used if plan else None,
        "epoch": k.epoch or None,
    }
