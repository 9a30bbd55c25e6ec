"""A running topology in one document, `headgate/snapshot/v1`, and what changes it: `headgate/delta/v1`.

The controller makes both, whoever shows a run reads them; a recorded run gives the same ones.

1. What is not known is absent: there is no null in a document, so a reader shows N/A for what is missing.
2. A delta is a JSON merge patch (RFC 7386: null removes a key) for everything but the history, whose new
   rows are appended. That is why tasks, edges, slots, events and decisions are objects by name or number.
3. Delta n fits the document of number n − 1 and the same `boot`. After a gap: a new snapshot.

Rates are in rows/s, CPU and memory fractions of a slot, times UTC (ISO 8601), latencies in ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec

HISTORY_S = 600.0  # how far back the history reaches
EVENTS_SHOWN, DECISIONS_SHOWN = 100, 100


class SnapshotPart(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A part of a snapshot: whatever is None is left out."""


class MetricNow(SnapshotPart, frozen=True, kw_only=True):
    """A metric of a task's own, all its threads together. value: of a counter its sum, of a gauge as it is now, of a
    histogram the sum of what was observed, count times."""

    kind: str
    value: float
    count: int | None = None
    p50: float | None = None
    p99: float | None = None


class TaskEventTime(SnapshotPart, frozen=True, kw_only=True):
    """How far event time has come in a task. state: "none yet", "known", "ended" or "no timestamps": no source before
    it has any. watermark, of its slowest thread, in s since 1970, and lag_s, how far that is behind now, are there
    when it is known. held_by: the source partition that holds it back; missing: none, or a task before it. late_rows:
    rows that came from before it. rows_without_time: of each source with timestamps before it. open_keys: keys with
    windows or timers that are open, of a run that is to end. waiting: source partition → the one that it waits for, as
    it is `max_drift` ahead of it."""

    state: str = ""
    watermark: float | None = None
    lag_s: float | None = None
    held_by: str | None = None
    late_rows: int
    rows_without_time: dict[str, int] = {}
    open_keys: int | None = None
    waiting: dict[str, str] = {}


class TaskNow(SnapshotPart, frozen=True, kw_only=True):
    """A task, all its threads together. busy: share of their time in the task's logic (not of a source).
    load: how near to its limit by the models, in load_slot: the peak of its threads there, or the slot's CPU.
    queue: rows waiting; grows: they pile up. Latency: from arrival in the task's queue to completion.
    predicted_tps: its rate if every row that the sources emit arrives. static: its size is fixed.
    unmeasured: what its rows cost is not known yet. metrics: its own, by name. event_time: of one that has it."""

    kind: str
    static: bool
    threads: int
    rate_tps: float | None = None
    rate_out_tps: float | None = None
    predicted_tps: float | None = None
    busy: float | None = None
    load: float | None = None
    load_slot: str | None = None
    grows: bool = False
    unmeasured: bool = False
    queue: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    metrics: dict[str, MetricNow] = {}
    event_time: TaskEventTime | None = None


class EdgeNow(SnapshotPart, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """An edge. queue: rows in the senders' buffers, on the way, and (its part of) waiting at the target."""

    source: str
    target: str
    grouping: str
    selectivity: float
    rate_tps: float | None = None
    queue: float | None = None


class TopologyNow(SnapshotPart, frozen=True, kw_only=True):
    """order: names of the tasks, breadth first. edges: by `from>to`."""

    name: str
    order: tuple[str, ...]
    tasks: dict[str, TaskNow]
    edges: dict[str, EdgeNow]


class SlotsOfPlan(SnapshotPart, frozen=True, kw_only=True):
    """estimated: ρ. extra: added until the mapper fitted. total: acquired. used: with threads."""

    estimated: int
    extra: int
    total: int
    used: int


class PlanNow(SnapshotPart, frozen=True, kw_only=True):
    """The plan in force. limited_by: the task that saturates first, in limited_by_slot, at predicted_tps; None while
    that is not known."""

    id: str
    epoch: int
    phase: str
    reason: str
    text: str
    since: str
    rate_tps: float
    allocator: str
    mapper: str
    routing: str
    threads: int
    slots: SlotsOfPlan
    usd_per_hour: float
    predicted_tps: float | None = None
    limited_by: str | None = None
    limited_by_slot: str | None = None
    predicted_low_tps: float | None = None
    predicted_high_tps: float | None = None
    degraded: str | None = None


class ProposalNow(SnapshotPart, frozen=True, kw_only=True):
    """A plan that waits for approval. diff: lines that begin with `+`, `-` or `~`."""

    id: str
    reason: str
    text: str
    rate_tps: float
    slots: int
    base_epoch: int
    predicted_tps: float | None = None
    diff: tuple[str, ...] = ()


class Enacting(SnapshotPart, frozen=True, kw_only=True):
    """A plan on its way into force, and what it waits for."""

    epoch: int
    phase: str
    waits_for: str | None = None


class SlotNow(SnapshotPart, frozen=True, kw_only=True):
    """A slot, by `vm/slot`. state: that of its worker, `empty` or `profiling`. threads: by task. full: they
    fill it and nobody else gets in. shares: the part of a task's rows that its threads here get. The
    predictions are for the present rate. leaving: threads that end once they are empty."""

    vm: str
    slot: int
    state: str
    threads: dict[str, int]
    full: bool = False
    shares: dict[str, float] | None = None
    cpu: float | None = None
    memory: float | None = None
    predicted_cpu: float | None = None
    predicted_memory: float | None = None
    leaving: int | None = None
    crashes: int | None = None


class VmNow(SnapshotPart, frozen=True, kw_only=True):
    """A VM. slots_used: those with threads. cpu, memory: of all its slots together, as fractions of them.
    provided: asked of the provider, so it may be given back. cordon: "cordoned", "draining" or "drained". speed: that
    plans take it to have, where that is not 1; speed_by: what shows it, `rows`, `loop` or `stated`, speed_since when
    (UTC)."""

    state: str
    slots: int
    slots_used: int
    slot_cores: float
    slot_memory_bytes: int
    threads: int
    speed: float | None = None
    speed_by: str | None = None
    speed_since: str | None = None
    usd_per_hour: float | None = None
    provided: bool | None = None
    cordon: str | None = None
    cpu: float | None = None
    memory: float | None = None


class RatesNow(SnapshotPart, frozen=True, kw_only=True):
    """offered: by the schedule, now, or as rows come. headroom: predicted − offered. emitted, acked: of the last two
    seconds. source_kind: `arriving` or `mixed` where rows are taken as they come; lag: rows taken and not read yet
    of the source that is furthest behind, and for how long the oldest waits; cap: rows/s that are read at most."""

    offered_tps: float | None = None
    emitted_tps: float | None = None
    acked_tps: float | None = None
    planned_tps: float | None = None
    predicted_tps: float | None = None
    headroom_tps: float | None = None
    source_kind: str | None = None
    lag_rows: int | None = None
    lag_s: float | None = None
    cap_tps: float | None = None


class LatencyNow(SnapshotPart, frozen=True, kw_only=True):
    """Of the last seconds: from the intended emit time at the source to completion at the sink; and as predicted of
    the plan in force at about this rate."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    predicted_p50: float | None = None
    predicted_p95: float | None = None
    predicted_p99: float | None = None


class StableNow(SnapshotPart, frozen=True, kw_only=True):
    """Is it well? `verdict` (stable, catching_up, unstable, unknown) with its evidence; slopes in s/s. backlog: rows
    due or arrived and not done, and for how long the oldest waits. caught_up_s: until none waits, while it falls."""

    verdict: str
    backlog_rows: int | None = None
    backlog_s: float | None = None
    caught_up_s: float | None = None
    text: str | None = None
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    queue_growth: float | None = None
    out_in: float | None = None
    confidence: float | None = None


class Bottleneck(SnapshotPart, frozen=True, kw_only=True):
    """What saturates first, where, and at which input rate; load: the present rate as a part of that."""

    task: str
    slot: str
    at_tps: float
    load: float | None = None


class TuplesNow(SnapshotPart, frozen=True, kw_only=True):
    """Since the run began."""

    offered: int | None = None
    emitted: int | None = None
    acked: int | None = None
    in_flight: int | None = None
    lost: int | None = None
    dead_lettered: int | None = None
    replayed: int | None = None
    duplicates: int | None = None


class ModelNow(SnapshotPart, frozen=True, kw_only=True):
    """A task's model: [threads in one slot, peak rate, CPU, memory] by rising threads. The operating point of
    a slot with threads of the task: its number of threads, and its share × the task's rate."""

    points: tuple[tuple[int, float, float, float], ...]


class EventNow(SnapshotPart, frozen=True, kw_only=True):
    time: str
    kind: str
    text: str
    epoch: int | None = None


class DecisionNow(SnapshotPart, frozen=True, kw_only=True):
    """What a diagnosis led to, also when that was nothing (action `none`). trigger: the rule that applied;
    rule: the same in words; numbers: its evidence. alternatives: what was rejected, each with why.
    diff: lines by slot that begin with `+` or `-`. moves: threads that start or leave; state_bytes: of keyed
    state that move; expected_pause_s: until they have. pause_ms: until every sender had switched.
    time_to_stable_s: from the decision to the first stable verdict under its plan. lost: tuples lost until then.
    epoch: the plan's, or the one in force."""

    time: str
    epoch: int
    trigger: str
    rule: str
    action: str
    text: str
    numbers: dict[str, Any] = {}
    alternatives: tuple[str, ...] = ()
    plan: str | None = None
    rate_tps: float | None = None
    predicted_tps: float | None = None
    slots: int | None = None
    moves: int | None = None
    state_bytes: int | None = None
    expected_pause_s: float | None = None
    diff: tuple[str, ...] = ()
    pause_ms: float | None = None
    time_to_stable_s: float | None = None
    lost: int | None = None
    rolled_back: bool = False


class History(SnapshotPart, frozen=True, kw_only=True):
    """The last ten minutes in columns of one length, oldest first; a value that is not known is null (here
    only). Older rows are means over longer intervals. time: seconds since 1970."""

    time: tuple[float, ...] = ()
    offered_tps: tuple[float | None, ...] = ()
    emitted_tps: tuple[float | None, ...] = ()
    acked_tps: tuple[float | None, ...] = ()
    planned_tps: tuple[float | None, ...] = ()
    predicted_tps: tuple[float | None, ...] = ()
    p50_ms: tuple[float | None, ...] = ()
    p95_ms: tuple[float | None, ...] = ()
    p99_ms: tuple[float | None, ...] = ()
    backlog_rows: tuple[float | None, ...] = ()
    backlog_s: tuple[float | None, ...] = ()
    slope: tuple[float | None, ...] = ()
    slots_used: tuple[int | None, ...] = ()
    epoch: tuple[int | None, ...] = ()


class ReplayNow(SnapshotPart, frozen=True, kw_only=True):
    """Only over a trace: how far it is. Times in seconds since the trace began; speed: × real time. ended:
    there is nothing after it."""

    at_s: float
    length_s: float
    speed: float
    paused: bool = False
    ended: bool = False


class Snapshot(SnapshotPart, frozen=True, kw_only=True, tag_field="schema", tag="headgate/snapshot/v1"):
    """Everything that a page shows. number: of the last delta in it. boot: the controller's life.
    origin: `controller` or `trace`. stage: where the run is, in a word. seconds: since the first tuple was due."""

    number: int
    boot: int
    now: str
    origin: str
    run: str
    header: str
    stage: str
    stable: StableNow
    slots: dict[str, SlotNow]
    vms: dict[str, VmNow]
    rates: RatesNow
    latency_ms: LatencyNow
    tuples: TuplesNow
    history: History
    seconds: float = 0.0
    mode: str | None = None
    held: str | None = None
    topology: TopologyNow | None = None
    plan: PlanNow | None = None
    proposal: ProposalNow | None = None
    enacting: Enacting | None = None
    slope: float | None = None
    next_bottleneck: Bottleneck | None = None
    models: dict[str, ModelNow] = {}
    events: dict[str, EventNow] = {}
    decisions: dict[str, DecisionNow] = {}
    alarms: dict[str, str] = {}
    alarms_since: dict[str, str] = {}
    replay: ReplayNow | None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="headgate/delta/v1"):
    """From document `number` − 1 to `number`. patch: a merge patch. history: new rows, in columns."""

    number: int
    boot: int
    now: str
    patch: dict[str, Any]
    history: dict[str, list[float | None]] = {}


# ── The history of a run: a row a second, thinned with age, as columns. Pure ────────────────────────────

COLUMNS = History.__struct_fields__
LAST = frozenset({"epoch", "slots_used"})  # of these a longer interval keeps the last value, not the mean
FINE_S = 120.0  # rows younger than this are kept as they are …
COARSE_S = 4.0  # … older ones are means over so long

Row = dict[str, float | None]
Columns = dict[str, list[float | None]]


class HistoryRing:
    """The rows of the last ten minutes."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._fresh: list[Row] = []

    def add(self, row: Row) -> None:
        """A row with a value per column; its `time` is later than that of the one before."""
        time = row["time"]
        assert time is not None
        self._rows.append(row)
        self._fresh.append(row)
        while (self._rows[0]["time"] or 0.0) <= time - HISTORY_S:
            self._rows.popleft()
        if len(self._fresh) > len(self._rows):
            self._fresh = list(self._rows)

    @property
    def last_s(self) -> float:
        """When the newest row is from; 0 without one."""
        return (self._rows[-1]["time"] or 0.0) if self._rows else 0.0

    def take(self) -> Columns:
        """The rows that were not taken yet; nothing without any."""
        fresh, self._fresh = self._fresh, []
        return columns_of(fresh) if fresh else {}

    def columns(self) -> Columns:
        """All that were taken, the older ones thinned."""
        taken = list(self._rows)[: len(self._rows) - len(self._fresh)]
        return columns_of(thinned(taken))


def columns_of(rows: Iterable[Row]) -> Columns:
    kept = list(rows)
    return {name: [row.get(name) for row in kept] for name in COLUMNS}


def thinned(rows: list[Row]) -> Iterator[Row]:
    """Rows by rising time → fewer of the old ones."""
    if not rows:
        return
    fine_from = (rows[-1]["time"] or 0.0) - FINE_S
    coarse = [row for row in rows if (row["time"] or 0.0) < fine_from]
    for _, together in groupby(coarse, key=lambda row: (row["time"] or 0.0) // COARSE_S):
        yield _mean(list(together))
    yield from rows[len(coarse) :]


def _mean(rows: list[Row]) -> Row:
    return {name: _one(name, [row.get(name) for row in rows]) for name in COLUMNS}


def _one(name: str, values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    last: float = known[-1]
    return last if name in LAST else round(sum(known) / len(known), 4)


# ── JSON merge patches (RFC 7386) between snapshots, and their history, which is appended. Pure ───
#
# A few lines of our own: documents are shared with whoever reads them, so a patch makes a new one in which
# what it leaves alone is the same object; json-merge-patch, the library for it, changes the document in
# place.

Document = dict[str, Any]

APART = frozenset({"number", "boot", "now", "history"})  # what a delta says beside its patch


def patch_between(before: Document, after: Document) -> Document:
    """The merge patch that makes `after` of `before`. Neither holds a null."""
    patch: Document = {}
    for key, value in after.items():
        old = before.get(key)
        if value is old or value == old:
            continue
        patch[key] = patch_between(old, value) if isinstance(value, dict) and isinstance(old, dict) else value
    patch.update(dict.fromkeys(before.keys() - after.keys()))
    return patch


def patched(document: Document, patch: Document) -> Document:
    """The document with the patch; neither is changed."""
    after = dict(document)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            old = after.get(key)
            after[key] = patched(old if isinstance(old, dict) else {}, value)
        else:
            after[key] = value
    return after


def advanced(document: Document, delta: Document) -> Document | None:
    """The snapshot after the delta; None when it does not follow: something is missing in between."""
    if (delta["boot"], delta["number"]) != (document["boot"], document["number"] + 1):
        return None
    after = patched(document, delta["patch"])
    for key in ("number", "boot", "now"):
        after[key] = delta[key]
    if delta.get("history"):
        after["history"] = appended(document["history"], delta["history"])
    return after


def appended(history: Document, rows: Document) -> Document:
    """The history with new rows at its end, and without those that are older than it reaches."""
    if not rows.get("time"):
        return history
    since = rows["time"][-1] - HISTORY_S
    before = history.get("time", [])
    cut = next((n for n, time in enumerate(before) if time > since), len(before))
    return {name: [*history.get(name, [])[cut:], *values] for name, values in rows.items()}
