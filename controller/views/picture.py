"""The picture of a run, and how it changes. Pure: a look in, a numbered delta out.

Documents are plain data. What changes seldom (models, events, decisions) is made when it changes and put in
as it is, so that finding what is new costs nothing for it. The loop looks at its windows once a second and
there are two ticks a second, so one of them tells of the topology and the other one of slots, VMs, latency and history;
both tell of everything when there is another plan, or another step of one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from controller.core.status import alarms_told, stage_of
from controller.knowledge.models import Model
from controller.views import places_now, run_now
from controller.views.layout import Layout, layout_of
from controller.views.parts import bottleneck_of
from controller.views.run_history import RunHistory
from controller.views.view_input import ViewInput
from controller.views.words import header_of
from topology_runtime.picturing.merge_patch import APART, patch_between
from topology_runtime.snapshot import Delta, History, ModelNow, Snapshot
from topology_runtime.utc import utc_iso

Document = dict[str, Any]
NS = 1e9
TASKS, PLACES = 0, 1
TURNS = (("topology",), ("slots", "vms", "latency_ms"))


class Picture:
    """What whoever watches knows (`number`), and the past that must be kept for whoever comes."""

    def __init__(self) -> None:
        self.number = 0
        self._chronicle = RunHistory()
        self._document: Document = {}
        self._now = ""
        self._boot = 0
        self._layout_of: tuple[object, object] = (None, None)
        self._layout = Layout()
        self._step: tuple[object, ...] = ()
        self._turn: int | None = None  # of `TURNS`; None: everything
        self._models_of: object = None
        self._models: Document = {}

    def look(self, sight: ViewInput) -> None:
        """Keep what would be missed: cheap, to be done twice a second whoever watches."""
        rollout, plan = sight.k.durable.rollout, sight.k.plan
        if rollout is not self._layout_of[0] or plan is not self._layout_of[1]:
            self._layout_of, self._layout = (rollout, plan), layout_of(rollout, plan)
        self._chronicle.look(sight, self._layout)

    def advance(self, sight: ViewInput, whole: bool = False) -> Delta:
        """The next document, and the delta that makes it of the last one. whole: whatever turn it is."""
        self.look(sight)
        document = self._made(sight, whole)
        patch = patch_between(self._document, document)
        rows = self._chronicle.history.take() if self._turn != TASKS else {}
        self._document, self._boot = document, sight.k.durable.boot
        self.number, self._now = self.number + 1, utc_iso(sight.now.wall_ns)
        return Delta(number=self.number, boot=self._boot, now=self._now, patch=patch, history=rows)

    def snapshot(self) -> Document:
        """The whole document of `number`, as the deltas up to it have made it."""
        history = self._chronicle.history.columns()
        apart = {"number": self.number, "boot": self._boot, "now": self._now, "history": history}
        return {**self._document, **apart}

    def _made(self, sight: ViewInput, whole: bool) -> Document:
        d, before = sight.k.durable, self._document
        step = (d.boot, d.rollout, d.phase, sight.stage, len(sight.members.members))
        self._turn = turn = self.number % 2 if before and step == self._step and not whole else None
        self._step = step
        document: Document = msgspec.to_builtins(snapshot_of(sight, self._layout, turn))
        for key in APART:
            document.pop(key, None)
        if turn is not None:
            document |= {part: before[part] for part in TURNS[1 - turn] if part in before}
        models = sight.k.durable.run.models if sight.k.durable.run else ()
        if models is not self._models_of:
            self._models_of = models
            self._models = {
                model.task: msgspec.to_builtins(_model(model)) for model in models if not model.unmeasured
            }
        document["models"] = self._models
        document["events"], document["decisions"] = self._chronicle.events, self._chronicle.decisions
        return document


def snapshot_of(sight: ViewInput, layout: Layout, turn: int | None = None) -> Snapshot:
    """Everything but what is kept apart: number, history, models, events, decisions. turn: of the parts in
    `TURNS` only those of this one; None: all."""
    k, now_ns = sight.k, sight.now.wall_ns
    stable, plan = run_now.stable_now(sight), run_now.plan_now(k)
    found = Snapshot(
        number=0,
        boot=k.durable.boot,
        now=utc_iso(now_ns),
        origin="controller",
        run=k.settings.run,
        header="",
        stage=stage_of(k, sight.stage),
        stable=stable,
        slots={} if turn == TASKS else places_now.slots_now(sight, layout),
        vms={} if turn == TASKS else places_now.vms_now(sight, layout),
        rates=run_now.rates_now(sight),
        latency_ms=run_now.latency_now(sight),
        tuples=run_now.tuples_now(sight),
        history=History(),
        seconds=round(max(0.0, (now_ns - k.durable.started_ns) / NS), 1) if k.durable.started_ns else 0.0,
        mode=k.mode,
        held=k.held or None,
        topology=None if turn == PLACES else places_now.topology_now(sight, layout),
        plan=plan,
        proposal=run_now.proposal_now(k, layout),
        enacting=run_now.enacting_now(sight),
        slope=stable.slope,
        next_bottleneck=bottleneck_of(plan),
        alarms=dict(sorted(k.alarms.items())),
        alarms_since={alarm["what"]: alarm["since"] for alarm in alarms_told(k, sight.now)},
    )
    return replace(found, header=header_of(found, run_now.slots_total(sight.members)))


def _model(model: Model) -> ModelNow:
    points = tuple(
        (p.threads, round(p.rate_tps, 4), round(p.cpu, 4), round(p.memory, 4)) for p in model.points
    )
    return ModelNow(points=points)
