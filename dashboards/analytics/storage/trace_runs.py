"""The runs that TRACE arguments name, and what their `run.json` says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import ANY_VERSION, RUN_FILE, SCHEMA, TABLES

MADE = "curated"
DEEPEST = 2  # traces/<topology>/<run>
NUMBERS = ("slots", "slot_cores", "slot_memory_bytes", "usd_per_hour")  # of a VM


@dataclass(frozen=True)
class TraceRun:
    """One run. `weights`: rows that a task takes in per row of a source; `cores`, `memory_bytes` by VM, of one slot;
    what is not known is absent."""

    place: DataPlace
    topology: str
    name: str
    pair: str | None
    started_us: int | None
    weights: dict[str, float]
    sources: tuple[str, ...]
    models: tuple[dict[str, Any], ...]
    cores: dict[str, float]
    memory_bytes: dict[str, float]
    spare: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.topology}/{self.name}"


def find(traces: Sequence[str]) -> tuple[list[TraceRun], list[LeftOut]]:
    """All runs in these folders, each once. Raises InvalidInput when a folder holds none."""
    runs: dict[tuple[str, str], TraceRun] = {}
    left: list[LeftOut] = []
    faults = []
    for text in traces:
        folders = list(_folders(place(text), DEEPEST))
        if not folders:
            faults.append(f"{text}: no run is in it (a folder with {RUN_FILE} or samples/)")
        for folder in folders:
            run, why = _read(folder)
            left += why
            if run is None:
                continue
            other = runs.setdefault((run.topology, run.name), run)
            if other.place != run.place:
                reason = f"run {run.key} is there twice; {other.place.uri} was used"
                left.append(LeftOut(run.place.uri, "duplicate", reason, None))
    if faults:
        raise InvalidInput(
            "there is nothing to analyse", faults=faults, hint="headgate analyze traces/TOPOLOGY/RUN"
        )
    return list(runs.values()), left


def _folders(at: DataPlace, deepest: int) -> Iterator[DataPlace]:
    if not at.is_folder():
        return
    inside = at.children()
    names = {child.name for child, _ in inside}
    if MADE in names and RUN_FILE not in names:  # what an analysis has left
        return
    if RUN_FILE in names or names & set(TABLES):
        yield at
    elif deepest:
        for child, is_folder in inside:
            if is_folder and child.name[0] not in "._":
                yield from _folders(child, deepest - 1)


def _read(folder: DataPlace) -> tuple[TraceRun | None, list[LeftOut]]:
    """The run, if it may be used, and what is wrong with its head."""
    file = folder / RUN_FILE
    try:
        head = json.loads(file.read())
    except FileNotFoundError:
        why = f"there is no {RUN_FILE}: topology, models and prices are unknown"
        return run_of(folder, {}), [LeftOut(file.uri, "models", why, None)]
    except (OSError, ValueError, RecursionError) as error:
        why = f"{RUN_FILE} cannot be read ({error}): topology, models and prices are unknown"
        return run_of(folder, {}), [LeftOut(file.uri, "unreadable", why, None)]
    schema = head.get("schema") if isinstance(head, dict) else None
    if schema != SCHEMA:
        kind = "future-version" if str(schema).startswith(ANY_VERSION) else "foreign"
        return None, [
            LeftOut(file.uri, kind, f"its schema is {schema!r}, not {SCHEMA!r}: run not read", None)
        ]
    try:
        run = run_of(folder, head)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        why = f"{RUN_FILE} is not as it should be ({type(error).__name__}: {error}): run not read"
        return None, [LeftOut(file.uri, "foreign", why, None)]
    if run.models:
        return run, []
    return run, [
        LeftOut(file.uri, "models", "the run has no models: nothing to hold refitted ones against", None)
    ]


def run_of(folder: DataPlace, head: dict[str, Any]) -> TraceRun:
    """What the head says; {} for a run without one. What cannot be a number is refused here, for all who read it."""
    topology, settings = head.get("topology") or {}, head.get("settings") or {}
    vms = {str(vm["vm"]): vm for vm in head.get("vms") or []}
    spare = dict(settings.get("spare") or {})
    pair = f"{settings['allocator']}+{settings['mapper']}" if "allocator" in settings else None
    sources, weights = weights_of(topology)

    def of(key: str) -> dict[str, float]:
        return {vm: float(data[key]) for vm, data in vms.items() if data.get(key) is not None}

    for name in NUMBERS:
        of(name)
        float(spare.get(name) or 0)
    for task in topology.get("tasks") or []:
        reserved_of(task)
    return TraceRun(
        place=folder,
        topology=str(topology.get("name") or folder.parent.name or "unknown"),
        name=str(head.get("run") or folder.name),
        pair=pair,
        started_us=_us(head.get("started")),
        weights=weights,
        sources=sources,
        models=tuple(model for model in head.get("models") or [] if isinstance(model, dict)),
        cores=of("slot_cores"),
        memory_bytes=of("slot_memory_bytes"),
        spare=spare,
    )


def reserved_of(task: dict[str, Any]) -> float | None:
    """What each thread of a task of fixed size reserves of a slot's CPU; None of others."""
    static = task.get("static")
    if not static or static.get("cpu_per_tps"):
        return None
    return float(static.get("cpu", 0.0)) / max(1, int(static.get("threads", 1)))


def weights_of(topology: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, float]]:
    """(sources, rows that each task takes in per row of each source), by the edges' selectivities."""
    tasks = [str(task["name"]) for task in topology.get("tasks") or []]
    edges = [(e["from"], e["to"], float(e.get("selectivity", 1.0))) for e in topology.get("edges") or []]
    sources = tuple(task for task in tasks if all(to != task for _, to, _ in edges))
    weights = {task: float(task in sources) for task in tasks}
    for _ in tasks:  # as often as the longest path may have edges
        for task in tasks:
            if task not in sources:
                weights[task] = sum(weights.get(a, 0.0) * s for a, to, s in edges if to == task)
    return sources, weights


def _us(text: Any) -> int | None:
    if text is None:
        return None
    return round(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1e6)


# ── What the controller published of a run, line by line, from `views.jsonl` and its older parts: one
# reader for the analysis and for the tables. A snapshot says everything, a delta what has changed.

VIEW_PARTS = re.compile(r"^views(-\d+)?\.jsonl(\.gz)?$")
COUNTED = ("offered", "emitted", "acked", "in_flight", "lost", "dead_lettered", "replayed", "duplicates")

Counts = dict[str, Any]  # by the names in COUNTED


class PublishedEvent(msgspec.Struct, frozen=True):
    time: str
    kind: str
    text: str
    epoch: int | None = None


class PublishedView(msgspec.Struct, frozen=True):
    """What is known by a line: the stage, and what became of the tuples (None: nothing was said of them). counts: it
    says something of tuples. events: that it tells."""

    now: str
    stage: str | None
    tuples: Counts | None
    counts: bool
    events: tuple[PublishedEvent, ...]


class _PublishedPart(msgspec.Struct):
    stage: str | None = None
    tuples: dict[str, Any] | None = None
    events: dict[str, PublishedEvent | None] | None = None


class _PublishedLine(_PublishedPart):
    """A snapshot, or a delta with what has changed in `patch`."""

    now: str = ""
    patch: _PublishedPart | None = None


_line = msgspec.json.Decoder(_PublishedLine)


class PublishedViews:
    """The views of these lines. torn: lines that cannot be read and were passed over; the next snapshot says it all."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines, self.torn = lines, 0

    def __iter__(self) -> Iterator[PublishedView]:
        stage: str | None = None
        tuples: Counts | None = None
        for raw in self._lines:
            try:
                line = _line.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.torn += 1
                continue
            said = line.patch or line
            if line.patch is None:
                tuples = said.tuples
            elif said.tuples:
                tuples = (tuples or {}) | said.tuples
            stage = said.stage or stage
            told = tuple(event for event in (said.events or {}).values() if event is not None)
            yield PublishedView(line.now, stage, tuples, line.patch is None or bool(said.tuples), told)


def epochs_of(written: Sequence[int]) -> list[int]:
    """The epoch that each plan got. A plan that has to wait for VMs is written with the epoch before its own."""
    return [epoch + 1 if epoch in written[:n] else epoch for n, epoch in enumerate(written)]


def view_parts(run: DataPlace) -> list[DataPlace]:
    """Oldest first; of a part that is there twice (a kill while it was compressed) one."""
    names = sorted(
        name for child, folder in run.children() if not folder and VIEW_PARTS.match(name := child.name)
    )
    once = {name.removesuffix(".gz"): name for name in names}
    ordered = sorted(once.items(), key=lambda part: (part[0] == "views.jsonl", part[0]))
    return [run / name for _, name in ordered]


def lines_of(run: DataPlace) -> Iterator[bytes]:
    """Of all parts; one that is gone by now, or torn, ends where it does: what the others say stands."""
    for part in view_parts(run):
        try:
            yield from part.read().splitlines()
        except OSError:
            continue
