"""What a picture tells of the past: events, decisions with what came of them, a row of history a second. Pure.

Events and decisions are kept as plain data, each made once: a document holds them by number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.knowledge.placed_threads import NOWHERE, PlacedThreads
from headgate.controller.knowledge.records import Rollout
from headgate.controller.knowledge.run_view import MS, NS, RunView
from headgate.controller.views.decisions import decision_now, is_new
from headgate.controller.views.figures import figure
from headgate.controller.views.sentences import diff_of
from headgate.topology_runtime.picturing.history import HistoryRing, Row
from headgate.topology_runtime.snapshot import DECISIONS_SHOWN, EVENTS_SHOWN, DecisionNow, EventNow

Document = dict[str, Any]
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
        self._threads: tuple[int, PlacedThreads, PlacedThreads] = (
            0,
            NOWHERE,
            NOWHERE,
        )  # epoch, now, before it

    def look(self, view: RunView) -> None:
        self._see_events(view)
        if self._threads[0] != view.epoch:
            self._threads = (view.epoch, view.placed, self._threads[1])
        changed = [self._begin(found, view) for found in self._new_decisions(view)]
        changed += [number for number in list(self._decided) if self._follow(number, view)]
        if changed:
            self._write(changed)
        now_s = round(view.wall_ns / NS, 2)
        if now_s >= self.history.last_s + 0.95:
            self.history.add(_row(view, now_s))

    def _see_events(self, view: RunView) -> None:
        if view.event_number == self._event:
            return
        fresh = [event for event in view.events if event["number"] > self._event]
        self._event = view.event_number
        kept = {**self.events, **{str(event["number"]): _event(event) for event in fresh}}
        self.events = dict(list(kept.items())[-EVENTS_SHOWN:])

    def _new_decisions(self, view: RunView) -> Iterator[dict[str, Any]]:
        """Actions since the last look, and the newest decision if it says something new."""
        fresh = []
        for action in reversed(view.actions):
            if action is self._action:
                break
            fresh.append(action)
        if view.actions:
            self._action = view.actions[-1]
        yield from reversed(fresh)
        last, before = view.decision, self._last
        self._last = last
        if last is None or last is before or last["action"] != "none":
            return
        if is_new(last, before["trigger"] if before else ""):
            yield last

    def _begin(self, found: dict[str, Any], view: RunView) -> int:
        self._number += 1
        self._found[self._number] = decision_now(found)
        if found["action"] == "plan":
            self._decided[self._number] = view.wall_ns
            self._lost[self._number] = view.tuples.lost
        return self._number

    def _follow(self, number: int, view: RunView) -> bool:
        """What came of a plan so far; True when there is more to tell."""
        known = self._found[number]
        rollout = _rollout_of(view, known)
        if (view.wall_ns - self._decided[number]) / NS > WATCHED_S or rollout is None:
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
        settled = _settled(view, rollout)
        if settled:
            after = replace(
                after,
                time_to_stable_s=round((view.wall_ns - rollout.decided_ns) / NS, 1),
                lost=max(0, view.tuples.lost - self._lost[number]),
            )
        if settled or rollout.epoch < view.epoch or rollout.rolled_back or rollout.abandoned:
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


def _rollout_of(view: RunView, decision: DecisionNow) -> Rollout | None:
    """The rollout that began with this decision: the newest of that plan's, by its time."""
    epochs = [planned.epoch for planned in (view.waiting, view.rollout)
              if planned is not None and planned.plan.id == decision.plan]  # fmt: skip
    epoch = epochs[0] if epochs else decision.epoch
    return next((rollout for rollout in reversed(view.rollouts) if rollout.epoch == epoch), None)


def _settled(view: RunView, rollout: Rollout) -> bool:
    """Is it stable under this plan?"""
    seen = view.result
    there = view.epoch == rollout.epoch and rollout.in_force_ns > 0
    return (
        there
        and seen is not None
        and seen.window.epoch == rollout.epoch
        and seen.stability.verdict == "stable"
    )


def _row(view: RunView, now_s: float) -> Row:
    latency = view.window.latency if view.window and view.window.latency.rows else None
    judged = view.result is not None and view.verdict != "unknown"
    return {
        "time": now_s,
        "offered_tps": figure(view.offered_tps),
        "emitted_tps": figure(view.emitted_tps),
        "acked_tps": figure(view.acked_tps),
        "planned_tps": figure(view.planned_tps),
        "predicted_tps": figure(view.predicted_tps),
        "p50_ms": figure(latency.p50_ms) if latency else None,
        "p95_ms": figure(latency.p95_ms) if latency else None,
        "p99_ms": figure(latency.p99_ms) if latency else None,
        "slope": figure(view.result.stability.slope, 2) if view.result and judged else None,
        "slots_used": view.slots_used if view.plan else None,
        "epoch": view.epoch or None,
    }
