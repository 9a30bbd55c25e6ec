"""The snapshot of a run, and how it changes. Pure: a view in, a numbered delta out.

Documents are plain data. What changes seldom (models, events, decisions) is made when it changes and put in
as it is, so that finding what is new costs nothing for it. The loop looks at its windows once a second and
there are two ticks a second, so one of them tells of the topology and the other one of slots, VMs, latency and history;
both tell of everything when there is another plan, or another step of one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views import places_now, run_now
from headgate.controller.views.run_history import RunHistory
from headgate.controller.views.sentences import header_of
from headgate.topology_runtime.picturing.merge_patch import APART, patch_between
from headgate.topology_runtime.snapshot import Delta, History, ModelNow, Snapshot
from headgate.topology_runtime.utc import utc_iso

Document = dict[str, Any]
TASKS, PLACES = 0, 1
TURNS = (("topology",), ("slots", "vms", "latency_ms"))


class SnapshotMaker:
    """What whoever watches knows (`number`), and the past that must be kept for whoever comes."""

    def __init__(self) -> None:
        self.number = 0
        self._history = RunHistory()
        self._document: Document = {}
        self._now = ""
        self._boot = 0
        self._step: tuple[object, ...] = ()
        self._turn: int | None = None  # of `TURNS`; None: everything
        self._models_of: object = None
        self._models: Document = {}

    def look(self, view: RunView) -> None:
        """Keep what would be missed: cheap, to be done twice a second whoever watches."""
        self._history.look(view)

    def advance(self, view: RunView, whole: bool = False) -> Delta:
        """The next document, and the delta that makes it of the last one. whole: whatever turn it is."""
        self.look(view)
        document = self._made(view, whole)
        patch = patch_between(self._document, document)
        rows = self._history.history.take() if self._turn != TASKS else {}
        self._document, self._boot = document, view.boot
        self.number, self._now = self.number + 1, utc_iso(view.wall_ns)
        return Delta(number=self.number, boot=self._boot, now=self._now, patch=patch, history=rows)

    def snapshot(self) -> Document:
        """The whole document of `number`, as the deltas up to it have made it."""
        history = self._history.history.columns()
        apart = {"number": self.number, "boot": self._boot, "now": self._now, "history": history}
        return {**self._document, **apart}

    def _made(self, view: RunView, whole: bool) -> Document:
        before = self._document
        step = (view.boot, view.rollout, view.phase, view.stage, len(view.vms))
        self._turn = turn = self.number % 2 if before and step == self._step and not whole else None
        self._step = step
        document: Document = msgspec.to_builtins(snapshot_of(view, turn))
        for key in APART:
            document.pop(key, None)
        if turn is not None:
            document |= {part: before[part] for part in TURNS[1 - turn] if part in before}
        if view.models is not self._models_of:
            self._models_of = view.models
            self._models = {
                model.task: msgspec.to_builtins(_model(model))
                for model in view.models
                if not model.unmeasured
            }
        document["models"] = self._models
        document["events"], document["decisions"] = self._history.events, self._history.decisions
        return document


def snapshot_of(view: RunView, turn: int | None = None) -> Snapshot:
    """Everything but what is kept apart: number, history, models, events, decisions. turn: of the parts in
    `TURNS` only those of this one; None: all."""
    stable, plan = run_now.stable_now(view), run_now.plan_now(view)
    found = Snapshot(
        number=0,
        boot=view.boot,
        now=utc_iso(view.wall_ns),
        origin="controller",
        run=view.run,
        header="",
        stage=view.stage,
        stable=stable,
        slots={} if turn == TASKS else places_now.slots_now(view),
        vms={} if turn == TASKS else places_now.vms_now(view),
        rates=run_now.rates_now(view),
        latency_ms=run_now.latency_now(view),
        tuples=run_now.tuples_now(view),
        history=History(),
        seconds=round(view.seconds, 1),
        mode=view.mode,
        held=view.held or None,
        topology=None if turn == PLACES else places_now.topology_now(view),
        plan=plan,
        proposal=run_now.proposal_now(view),
        enacting=run_now.enacting_now(view),
        slope=stable.slope,
        next_bottleneck=run_now.bottleneck_now(plan),
        alarms={alarm.what: alarm.text for alarm in view.alarms},
        alarms_since={alarm.what: utc_iso(alarm.since_ns) for alarm in view.alarms},
    )
    return replace(found, header=header_of(found, view.slots_total, view.measuring))


def _model(model: Model) -> ModelNow:
    points = tuple(
        (p.threads, round(p.rate_tps, 4), round(p.cpu, 4), round(p.memory, 4)) for p in model.points
    )
    return ModelNow(points=points)
