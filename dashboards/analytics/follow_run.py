"""`headgate analyze --follow`: the analysis of one run, kept up to date while it goes on.

The folder of the run is looked at every second; when something came to it there is a turn: what is new is added up
(`kept_sums`), all questions are answered, results published as a whole. A turn that was cut off is done again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith
from headgate.dashboards.analytics.analysis_pipeline import (
    AnalysisSettings,
    AnalysisWork,
    Tell,
    analysed,
    curate,
    input_of,
    judged_runs,
    rows_of,
    write_analysis,
)
from headgate.dashboards.analytics.curation.trace_segments import JudgedFiles, Segment
from headgate.dashboards.analytics.curation.unchanged_inputs import mark_of, reused_analysis
from headgate.dashboards.analytics.kept_sums import KeptSums
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.output_folder import disk_told, drafted, held
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.dashboards.runs.connection import asked
from headgate.dashboards.tables.table_engines import EngineFailure, fill
from headgate.dashboards.tables.trace_files import RunFiles, damaged, without
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.traces.trace_tables import TABLES, VIEWS
from headgate.topology_runtime.wording import counted, utc_iso

# ── What following a run has taught, offered to its controller: refitted models, a season. Which of it is
# to be believed says the controller alone; nothing waits for the answer but whoever follows.

COMMAND = "offer"
NUMBERS = re.compile(r"[0-9.]+")


class Offers:
    """Of one run, to the controller at `contact`. Raises InvalidInput when the trace does not say which run it is."""

    def __init__(self, run: TraceRun, contact: Contact, tell: Any) -> None:
        if run.started_us is None:
            raise InvalidInput(
                f"{run.key} cannot be offered from: its run.json does not say when it began",
                hint="follow it without --offer",
            )
        self._of = {"run": run.name, "started": utc_iso(run.started_us * 1000)}
        self._contact, self._tell = contact, tell
        self._sent: dict[str, Any] = {}
        self._told: set[str] = set()

    def check(self) -> None:
        """Would it be heard? Raises what the controller says, or Unreachable."""
        asked(self._contact, COMMAND, self._of)

    def offer(self, to: DataPlace, until_us: int) -> None:
        """What was published there last, made of samples until then; once, until it is another."""
        found = found_in(to)
        if not any(found.values()) or found == self._sent:
            return
        try:
            answer = asked(self._contact, COMMAND, {**self._of, "until_us": until_us, **found})
        except HeadgateError as error:
            self._say("the offer was not heard", error.what, f" ({error.cause})" if error.cause else "")
            return
        self._sent = found
        for one in answer["taken"]:
            self._tell(f"offered and taken: {one['text']}")
        for one in answer["refused"]:
            self._say(f"offered and not taken: {one['what']}", one["why"])

    def _say(self, what: str, why: str, more: str = "") -> None:
        """Once, until something else is the matter."""
        line = f"{what}: {why}"
        if (kind := NUMBERS.sub("#", line)) not in self._told:
            self._told.add(kind)
            self._tell(line + more)


def found_in(to: DataPlace) -> dict[str, Any]:
    """The models and the season that an analysis has left."""
    models, seasons = (
        [json.loads(file.read()) for file, _ in (to / name).children() if file.name.endswith(".json")]
        for name in ("models", "seasons")
    )
    return {"models": models} | ({"season": seasons[0]} if seasons else {})


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = "headgate/follow/v1"
FOLDER, TRACE_FILE = "follow", "trace.json"
LOOK_S = 1.0  # between two looks at the folder
LATE_S = 60  # a segment that begins so long before what was analysed of its table has come late
SETTLE_S, QUIET_S = 3.0, 60.0  # without a change: of a run that says it is over, and of any other
TAIL_BYTES = 1 << 18  # of the views, which tell how the run ended
STAGE = re.compile(rb'"stage":"([^"]*)"')

Finish = Callable[[DataPlace], None]


def only_run(traces: Sequence[str]) -> TraceRun:
    """The run in these folders. Raises UsageError when there are several."""
    runs, _ = trace_runs.find(traces)
    if len(runs) != 1:
        raise UsageError(
            f"--follow follows one run, and {counted(len(runs), 'run')} can be read in {', '.join(traces)}",
            hint="name the folder of the run: traces/TOPOLOGY/RUN",
        )
    return runs[0]


def claim(to: DataPlace, run: TraceRun) -> None:
    """The checkpoint in this folder is of this run from now on. Raises Conflict when it is of another."""
    file = to / FOLDER / TRACE_FILE
    mine = {"schema": SCHEMA, "run": run.key, "trace": run.place.uri, "started_us": run.started_us}
    try:
        known = json.loads(file.read())
    except FileNotFoundError:
        file.write(json.dumps(mine).encode() + b"\n")
        return
    except ValueError:
        known = {}
    if known != mine:
        of = f"{known.get('run')} in {known.get('trace')}" if known.get("run") else "nothing that can be read"
        raise Conflict(
            f"{to.uri} does not follow {run.key}",
            cause=f"its checkpoint is of {of}"
            + (", started at another time" if known.get("run") == run.key else ""),
            hint=f"--output ANOTHER, or delete {file.parent.uri}",
        )


def is_over(run: TraceRun, now_s: float) -> bool:
    """Will nothing more come of it? It has said so, or nobody has written to it for long."""
    still_s = SETTLE_S if _says_over(run) else QUIET_S
    # its own folder first: a run that goes on writes there, and nobody looks at its thousands of segments
    folders = (run.place, *(run.place / table for table in TABLES))
    still = (now_s - ns / 1e9 >= still_s for folder in folders for _, _, ns in folder.sizes())
    return next(still, False) and all(still)


def _says_over(run: TraceRun) -> bool:
    file = run.place / VIEWS
    try:
        with file.files().open_input_file(file.path) as stream:
            size = stream.size()
            tail = bytes(stream.read_at(min(size, TAIL_BYTES), max(0, size - TAIL_BYTES)))
    except FileNotFoundError:
        return False
    stages = STAGE.findall(tail)
    return bool(stages) and stages[-1] == b"over"


class Follower:
    """Turns of one run: each brings everything up to date with the segments that are there."""

    def __init__(
        self,
        sums: KeptSums,
        run: TraceRun,
        to: DataPlace,
        tell: Tell,
        finish: Finish,
        before: ComparedWith,
        offers: Offers | None = None,
    ) -> None:
        self.analysis: dict[str, Any] | None = None
        self._offers = offers
        self._sums, self._run, self._to, self._tell, self._finish = sums, run, to, tell, finish
        self._before = before
        self._files = JudgedFiles()
        self._memory: dict[Any, Any] = {}
        self._damaged: dict[str, LeftOut] = {}
        self._seen: set[str] = set()
        self._reach_us: dict[str, int] = {}

    def turn(self, last: bool = False) -> None:
        """With curated tables when it is the last."""
        began_s = time.monotonic()
        try:
            found, left = judged_runs([self._run.place.uri], False, self._files)
        except InvalidInput:  # no sample yet
            self._tell("waiting for the first segment")
            return
        mark = mark_of(found, left, self._before.mark)
        try:
            self._publish(found, left, mark, began_s, last)
        except EngineFailure:
            bad = damaged(found)
            if set(self._damaged) >= {why.file for why in bad}:
                raise
            self._damaged |= {why.file: why for why in bad}
            self._publish(found, left, mark, began_s, last)
        self._say(found, left, time.monotonic() - began_s)
        if self._offers is not None:
            self._offers.offer(self._to, self._reach_us["samples"])

    def _publish(
        self, judged: list[RunFiles], left: list[LeftOut], mark: str, began_s: float, last: bool
    ) -> None:
        found, engine = without(judged, set(self._damaged)), self._sums.engine
        with drafted(self._to) as draft:
            work = AnalysisWork(
                self._to, draft, [*left, *self._damaged.values()], False, lambda step: None, self._before
            )
            self._sums.bring_up_to_date(found, work.left)
            asked_s = time.monotonic()
            analysis = analysed(input_of(engine, found, self._memory), work)
            if last:
                fill(engine, found, (), {"runs"})
                curate(engine, found, draft / "curated")
            seconds = {"start": 0.0, "curate": asked_s - began_s, "analyse": time.monotonic() - asked_s}
            self.analysis = write_analysis(draft, analysis, mark, seconds)
            self._finish(draft)

    def _say(self, found: Sequence[RunFiles], left: list[LeftOut], took_s: float) -> None:
        """What came late, and one line: how far it is, what is waiting."""
        segments: list[Segment] = [segment for one in found for segment in one.segments]
        for segment in segments if self._seen else []:
            late_us = self._reach_us.get(segment.table, 0) - segment.begin_us
            if segment.place.uri not in self._seen and late_us > LATE_S * 1_000_000:
                self._tell(f"{segment.table}/{segment.place.name} came {late_us / 1e6:.0f} s late: it is in")
        for why in left:
            if why.file not in self._seen and why.kind == "duplicate":
                self._tell(f"left out: {why.file}: {why.kind}: {why.reason}")
        self._seen = {segment.place.uri for segment in segments} | {why.file for why in left}
        for segment in segments:
            self._reach_us[segment.table] = max(self._reach_us.get(segment.table, 0), segment.end_us)
        behind_s = max(0.0, time.time() - max(self._reach_us.values()) / 1e6)
        waiting = counted(lag(self._run, self._seen), "segment")
        rows = rows_of(found)["samples"]
        self._tell(
            f"{rows} rows of samples in; lag {waiting}, {behind_s:.0f} s; the turn took {took_s:.1f} s"
        )


def lag(run: TraceRun, seen: set[str]) -> int:
    """Finished segments that were not seen yet, of the table that has most of them."""
    folders = [run.place / table for table in TABLES]
    return max(
        sum(name[0] not in "_." and (folder / name).uri not in seen for name, _, _ in folder.sizes())
        for folder in folders
    )


def looked_at(run: TraceRun) -> tuple[int, ...]:
    """Changes when a segment comes or goes: times of the folders, and nobody looks at what is in them."""
    folders = [Path(run.place.path, table) for table in TABLES]
    return tuple(folder.stat().st_mtime_ns if folder.is_dir() else 0 for folder in folders)


def follow(follower: Follower, run: TraceRun) -> dict[str, Any]:
    """Until the run is over and all of it is in the results; the analysis. Raises InvalidInput when nothing came."""
    seen: tuple[int, ...] = ()
    while True:
        if (now := looked_at(run)) != seen:
            seen = now
            follower.turn()
        elif is_over(run, time.time()):
            break
        time.sleep(LOOK_S)
    follower.turn(last=True)  # lines that came last
    if follower.analysis is None:
        raise InvalidInput(f"nothing came of {run.key} that can be analysed")
    return follower.analysis


def follow_traces(
    traces: Sequence[str],
    output: str,
    settings: AnalysisSettings,
    tell: Tell,
    finish: Finish,
    contact: Contact | None = None,
) -> dict[str, Any]:
    """Follow the only run in these traces, into `output`; what it teaches is offered to the controller there."""
    if settings.strict:
        raise UsageError(
            "--set strict and --follow exclude each other: a run that goes on has unfinished files"
        )
    if settings.master is not None:
        raise UsageError(
            "--follow works with DuckDB, in this process",
            cause="what it has added up is kept in a file of DuckDB's between turns",
            hint="leave out --master",
        )
    run, to = only_run(traces), place(output)
    if not (run.place.local and to.local):
        raise UsageError(
            "--follow works with folders on this machine", hint="follow it where its files are written"
        )
    offers = Offers(run, contact, tell) if contact is not None else None
    if offers is not None:
        offers.check()
    with disk_told(to), held(to):
        claim(to, run)
        found, left = judged_runs([run.place.uri], False) if is_over(run, time.time()) else ([], [])
        mark = mark_of(found, left, settings.before.mark)
        known = reused_analysis(to, mark, False) if found and not settings.again else None
        if known is not None:
            tell(f"{run.key} is over, and all of it was analysed")
            return known
        tell(f"following {run.key} (Ctrl-C ends it)")
        sums = KeptSums(Path(to.path) / FOLDER, settings.memory, settings.again)
        try:
            return follow(Follower(sums, run, to, tell, finish, settings.before, offers), run)
        finally:
            sums.close()
