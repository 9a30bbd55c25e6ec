"""What each plan cost: time to decide, to come into force, silence and dip of the output around it.

decisions.jsonl has the decision and, in later ones, what came of it; inputs.jsonl and its parts have how long planning
took; the samples around the decision have the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from headgate.dashboards.analytics.analyses.analysis_input import SECOND_US, AnalysisInput, Span, number
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut, Replan, RunNote, TuplesTold
from headgate.dashboards.analytics.storage.trace_runs import (
    COUNTED,
    PublishedEvent,
    PublishedView,
    PublishedViews,
    epochs_of,
    lines_of,
)
from headgate.topology_runtime.traces.trace_tables import DECISIONS
from headgate.topology_runtime.wording import counted

BEFORE_S, AFTER_S = 5, 10
MOST_REPLANS = 200  # re-plans whose surroundings are read
INPUTS = re.compile(r"^inputs(-\d+)?\.jsonl(\.gz)?$")
MEASURED = b'"kind":"measured"'
START = datetime(1970, 1, 1, tzinfo=UTC)

OF_PLANS = f"""
select p.run, p.plan_us, s.task, s.thread, s.tuples_out,
  cast(floor((unix_micros(s.time) - p.plan_us) / 1e6) as bigint) as second
from {{near}} s
join plan_seconds p on p.run = s.run and p.second = cast(floor(unix_micros(s.time) / 1e6) as bigint)
where unix_micros(s.time) between p.plan_us - {BEFORE_S * SECOND_US} and p.plan_us + {AFTER_S * SECOND_US}
"""
OUT_BY_SECOND = """
select run, plan_us, task, second, cast(sum(tuples_out) as bigint) as out
from samples_of_plans
where tuples_out is not null
group by run, plan_us, task, second
"""
OUT_OF_STAYERS = f"""
with threads as (
  select
    run,
    plan_us,
    task,
    thread,
    sum(case when second < 0 then tuples_out end) as before,
    sum(case when second between 0 and {BEFORE_S - 1} then tuples_out end) as after,
    max(second) as last
  from samples_of_plans
  group by run, plan_us, task, thread
)
select run, plan_us, cast(sum(before) as bigint) as before, cast(sum(after) as bigint) as after
from threads
where before is not null and after is not null and last >= {AFTER_S - 2}
group by run, plan_us
"""

Plan = tuple[str, int]  # run, time of the decision in µs
Forced = tuple[float | None, float | None]  # enacted_s, pause_ms
Around = dict[str, Any]


class _Plan(msgspec.Struct):
    rate_tps: float | None = None
    predicted_tps: float | None = None
    slots: int | None = None
    moves: int | None = None


class _Enacted(msgspec.Struct):
    epoch: int | None = None
    enacted_s: float | None = None
    pause_ms: float | None = None


class Decision(msgspec.Struct):
    """A line of decisions.jsonl, as far as it is asked for."""

    time: str
    epoch: int
    trigger: str | None = None
    action: str | None = None
    text: str | None = None
    plan: _Plan | None = None
    enacted: _Enacted | None = None

    @property
    def at_us(self) -> int:
        """µs since 1970."""
        at = datetime.fromisoformat(self.time)
        return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - START) // timedelta(microseconds=1)


class _Measured(msgspec.Struct):
    epoch: int
    seconds: float


class _Input(msgspec.Struct):
    """A line of inputs.jsonl: how long planning took."""

    event: _Measured


_line, _input = msgspec.json.Decoder(Decision), msgspec.json.Decoder(_Input)


def replans(asked: AnalysisInput) -> tuple[list[Replan], list[LeftOut]]:
    """(every plan in order, lines and files that could not be read)."""
    left: list[LeftOut] = []
    lines_of_runs: dict[str, list[Decision]] = {}
    for run in asked.runs.values():
        file = run.place / DECISIONS
        if not file.is_file():
            left.append(LeftOut(file.uri, "missing", "there is no such file: re-plans are unknown", None))
            continue
        lines, torn = read_decisions(file)
        if torn:
            left.append(LeftOut(file.uri, "truncated", f"no decisions: {counted(torn, 'line')}", torn))
        lines_of_runs[run.key] = lines
    plans_of = {run: _plans(lines) for run, lines in lines_of_runs.items()}
    around = _around(asked, [(run, p.at_us) for run, plans in plans_of.items() for p in plans[:MOST_REPLANS]])
    found = []
    for key, plans in plans_of.items():
        forced, decided = _enacted(lines_of_runs[key]), _decided(asked, asked.runs[key].place)
        for epoch, plan in zip(epochs_of([plan.epoch for plan in plans]), plans, strict=True):
            near = around.get((key, plan.at_us))
            found.append(_replan(asked, (key, epoch), plan, forced, decided.get(epoch), near))
    return found, left


def _plans(lines: Iterable[Decision]) -> list[Decision]:
    """In order of time."""
    plans = sorted((line for line in lines if line.action == "plan"), key=lambda line: line.time)
    return plans[: 10 * MOST_REPLANS]


def read_decisions(file: DataPlace) -> tuple[list[Decision], int]:
    """(decisions, how many lines are none)."""
    found, torn = [], 0
    for line in file.read().splitlines():
        if not line.strip():
            continue
        try:
            one = _line.decode(line)
            one.at_us  # noqa: B018 - a time that is none
        except ValueError:
            torn += 1
        else:
            found.append(one)
    return found, torn


def _enacted(lines: Iterable[Decision]) -> dict[int, Forced]:
    """Epoch → what later decisions say came of its plan."""
    return {
        line.enacted.epoch: (number(line.enacted.enacted_s), number(line.enacted.pause_ms))
        for line in lines
        if line.enacted is not None and line.enacted.epoch is not None
    }


def _decided(asked: AnalysisInput, run: DataPlace) -> dict[int, float]:
    """Epoch → seconds that planning took. A file that is as it was is not read again."""
    found: dict[int, float] = {}
    for name, size, changed_ns in run.sizes():
        if not INPUTS.match(name):
            continue
        key = ("decided", run.uri, name, size, changed_ns)
        if key not in asked.memory:
            asked.memory[key] = _measured((run / name).read().splitlines())
        found |= asked.memory[key]
    return found


def _measured(lines: Iterable[bytes]) -> dict[int, float]:
    found: dict[int, float] = {}
    for line in lines:
        if MEASURED in line:
            with suppress(msgspec.DecodeError):
                event = _input.decode(line).event
                found[event.epoch] = event.seconds
    return found


def _around(asked: AnalysisInput, plans: Sequence[Plan]) -> dict[Plan, Around]:
    """What happened around each plan; what is known of the same rows is not read again."""
    spans = {plan: (plan[0], plan[1] - BEFORE_S * SECOND_US, plan[1] + AFTER_S * SECOND_US) for plan in plans}
    keys = {plan: ("around", *plan, asked.made_of("samples", span)) for plan, span in spans.items()}
    fresh = {plan: span for plan, span in spans.items() if keys[plan] not in asked.memory}
    for plan, its in _read_around(asked, fresh).items():
        asked.memory[keys[plan]] = its
    return {plan: asked.memory[key] for plan, key in keys.items()}


def _read_around(asked: AnalysisInput, spans: Mapping[Plan, Span]) -> dict[Plan, Around]:
    """`seconds`: task → second from the decision on → rows out; `before`, `after`: rows out of the threads that were
    there before and after, in the 5 s before and from the decision on."""
    found: dict[Plan, Around] = {plan: {"seconds": {}, "before": None, "after": None} for plan in spans}
    if not spans:
        return found
    seconds = [
        (*plan, second)
        for plan, (_, begin, end) in spans.items()
        for second in range(begin // SECOND_US, end // SECOND_US + 1)
    ]
    asked.put("plan_seconds", seconds, {"run": pa.string(), "plan_us": pa.int64(), "second": pa.int64()})
    asked.engine.define("samples_of_plans", OF_PLANS.format(near=asked.near("samples", spans.values())))
    for row in asked.ask(OUT_BY_SECOND):
        found[row["run"], row["plan_us"]]["seconds"].setdefault(row["task"], {})[row["second"]] = row["out"]
    for row in asked.ask(OUT_OF_STAYERS):
        found[row["run"], row["plan_us"]] |= {name: row[name] for name in ("before", "after")}
    return found


def silent_s(seconds: Mapping[str, Mapping[int, int]]) -> float | None:
    """The longest stretch without output of a task that had some before; None when none had."""
    active = [of for of in seconds.values() if sum(n for second, n in of.items() if second < 0) > 0]
    if not active:
        return None
    longest = 0
    for of in active:
        stretch = 0
        for second in range(AFTER_S):
            stretch = stretch + 1 if of.get(second, 0) == 0 else 0
            longest = max(longest, stretch)
    return float(longest)


def _replan(
    asked: AnalysisInput,
    of: tuple[str, int],
    line: Decision,
    forced: Mapping[int, Forced],
    decided_s: float | None,
    near: Around | None,
) -> Replan:
    run, epoch = of
    plan, at_us = line.plan, line.at_us
    enacted_s, pause_ms = forced.get(epoch, (None, None))
    first = line.trigger == "start"
    return Replan(
        run=run,
        epoch=epoch,
        at_s=asked.at_s(run, at_us),
        reason=line.trigger or "unknown",
        rate_tps=number(plan.rate_tps) if plan else None,
        predicted_tps=number(plan.predicted_tps) if plan else None,
        slots=plan.slots if plan else None,
        moves=plan.moves if plan else None,
        decided_s=number(decided_s),
        enacted_s=enacted_s,
        pause_ms=pause_ms,
        silent_s=silent_s(near["seconds"]) if near and not first else None,
        dip=1 - near["after"] / near["before"] if near and not first and near["before"] else None,
        text=line.text or "",
    )


# ── What the controller itself told of a run: what became of the tuples, and what happened besides plans ───

STEPS_OF_PLANS = {"submitted", "plan", "prepared", "switched", "probation", "committed"}
MOST_NOTES = 500  # events of a run
OVER = "over"


def told(asked: AnalysisInput) -> tuple[list[TuplesTold], list[RunNote]]:
    """(one row per run, the events of all)."""
    counted: list[TuplesTold] = []
    notes: list[RunNote] = []
    for key, run in asked.runs.items():
        its, its_notes = read(key, asked.begin_us.get(key, 0), lines_of(run.place))
        counted.append(its)
        notes += its_notes
    return counted, notes


def read(run: str, begin_us: int, lines: Iterable[bytes]) -> tuple[TuplesTold, list[RunNote]]:
    """What the lines say, put together."""
    last: PublishedView | None = None
    events: set[PublishedEvent] = set()
    for last in PublishedViews(lines):
        events |= set(last.events)
    tuples = (last.tuples if last else None) or {}
    counts = {name: _whole(tuples.get(name)) for name in COUNTED}
    known = last if tuples else None
    found = [
        RunNote(run, at_s, event.epoch, event.kind, event.text)
        for event in events
        if event.kind not in STEPS_OF_PLANS and (at_s := _at_s(event.time, begin_us)) is not None
    ]
    its = TuplesTold(
        run, _at_s(known.now, begin_us) if known else None, known.stage == OVER if known else None, **counts
    )
    return its, sorted(found, key=lambda note: (note.at_s, note.kind, note.text))[:MOST_NOTES]


def _whole(value: int | float | None) -> int | None:
    return None if value is None else round(value)


def _at_s(text: str, begin_us: int) -> float | None:
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return round(at.timestamp() - begin_us / 1e6, 3)
