"""Sums of a run that goes on: of each stretch of time that is over they are worked out once and kept, of the last two
anew in each turn. So a turn costs what came since, and the windows that there are.

What a part of them is made of are the files that lie in its stretches (of rates also those of the minute before); until
another comes it counts. Parts are in a database of DuckDB, which a turn changes as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from headgate.dashboards.analytics.analyses.analysis_input import EXTREMES, SECOND_US
from headgate.dashboards.analytics.analysis_pipeline import ASKED
from headgate.dashboards.analytics.curation.trace_segments import Segment
from headgate.dashboards.analytics.curation.unchanged_inputs import code_mark
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.tables.duckdb_tables import DuckdbEngine, limited, of_files, text
from headgate.dashboards.tables.table_catalogue import needed, tables
from headgate.dashboards.tables.table_engines import EngineFailure, fill
from headgate.dashboards.tables.trace_files import RunFiles, StretchWidths, widths_of
from headgate.topology_runtime.traces.trace_tables import TABLES

FILE = "sums.duckdb"
STRETCH_US = 300 * SECOND_US  # that all windows divide
OPEN = 2  # stretches at the end, to which something may still come
LOOKS_BACK_US = {"rates": 60 * SECOND_US}  # of a row: what it is counted from
# Sums of windows, and the width that these are numbered by (of all, or a column); those of parts stand side by side
OF_WINDOWS = {
    "sum_bundles": "window_s", "sum_slot_windows": "window_s", "sum_rate_windows": "window_s",
    "sum_latency_windows": "width_s", "sum_recorded": "window_s",
}  # fmt: skip
ADDED_UP = {  # sums over time, and their keys: what parts say of one is added up
    "sum_members": ("run", "epoch", "thread"),
    "sum_threads": ("run", "epoch", "thread"),
    "sum_slot_uses": ("run", "epoch", "vm", "slot"),
    "sum_presence": ("run", "epoch", "vm"),
    "sum_latency_histogram": ("run", "epoch", "source", "sink", "bucket"),
    "sum_predicted_latency": ("run", "epoch", "number", "sink", "bucket"),
    "sum_links": ("run", "epoch", "from_task", "to_task"),
    "sum_link_seconds": ("run", "epoch"),
}
KEPT = (*OF_WINDOWS, *ADDED_UP)
READ = needed(" ".join(KEPT))  # what they are made of
WHOLE = "sum_members"  # of a part the others need it as it is of the whole run


class SumPart(NamedTuple):
    """Sums of stretches `begin` to before `end`, and the files that they are of (`of_file`)."""

    begin: int
    end: int
    files: frozenset[str]


class Planned(NamedTuple):
    """Parts that count, parts to be made, and the stretch with which what is still open begins."""

    kept: list[SumPart]
    fresh: list[SumPart]
    open_from: int


def of_file(segment: Segment) -> str:
    """Table, name and content."""
    return f"{segment.table}/{segment.place.name} {segment.digest}"


def planned(known: Iterable[SumPart], segments: Sequence[Segment], doubted: Collection[str] = ()) -> Planned:
    """What this turn keeps and makes. A part counts while no other file has come into its stretches, also when its own
    are gone; unless one of them is `doubted` now (TABLE/NAME). Pure."""
    inside: dict[int, set[str]] = {}
    for segment in segments:
        end_us = segment.end_us + LOOKS_BACK_US.get(segment.table, 0)
        for stretch in range(segment.begin_us // STRETCH_US, end_us // STRETCH_US + 1):
            inside.setdefault(stretch, set()).add(of_file(segment))
    last = max(segment.end_us for segment in segments) // STRETCH_US
    open_from = max(min(inside), last + 1 - OPEN)

    def there(begin: int, end: int) -> frozenset[str]:
        return frozenset(file for n in range(begin, end) for file in inside.get(n, ()))

    def counts(part: SumPart) -> bool:
        gone = part.files - (now := there(part.begin, part.end))
        return now <= part.files and not any(file.rpartition(" ")[0] in doubted for file in gone)

    kept = [part for part in known if part.end <= open_from and counts(part)]
    have = {stretch for part in kept for stretch in range(part.begin, part.end)}
    missing = [stretch for stretch in range(min(inside), open_from) if stretch not in have]
    return Planned(kept, [SumPart(*ends, there(*ends)) for ends in _neighbours(missing)], open_from)


def _neighbours(stretches: Iterable[int]) -> list[tuple[int, int]]:
    """As [begin, end) of those that follow each other."""
    found: list[tuple[int, int]] = []
    for stretch in stretches:
        if found and found[-1][1] == stretch:
            found[-1] = (found[-1][0], stretch + 1)
        else:
            found.append((stretch, stretch + 1))
    return found


def _delete(folder: Path) -> None:
    for each in folder.glob(f"{FILE}*"):
        each.unlink()


class KeptSums:
    """The sums of one run, in this folder. `again`: what is kept there is forgotten."""

    def __init__(self, folder: Path, memory: str, again: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if again:
                _delete(folder)
            self.engine = DuckdbEngine(str(folder / FILE))
        except EngineFailure:  # torn, or of another DuckDB: it is made again
            _delete(folder)
            self.engine = DuckdbEngine(str(folder / FILE))
        limited(self.engine, folder, memory)
        self.engine.run("create table if not exists parts (begin bigint, until bigint, files text, of text)")

    def close(self) -> None:
        self.engine.close()

    def bring_up_to_date(self, found: Sequence[RunFiles], left: Sequence[LeftOut] = ()) -> None:
        """The engine knows all sums of these files then; `left`: those that are not used."""
        widths, [one] = widths_of(found), found
        of = f"{code_mark()} {tuple(widths)} {one.run.key}"
        rows = self.engine.ask(f"select begin, until, files from parts where of = {text(of)}").to_pylist()
        known = [SumPart(r["begin"], r["until"], frozenset(r["files"].splitlines())) for r in rows]
        plan = planned(known, one.segments, {"/".join(why.file.rsplit("/", 2)[1:]) for why in left})
        if not known:  # what there is may be of other code, or of other windows
            self._change([*(f"drop table if exists kept_{name}" for name in KEPT), "delete from parts"])
        self._forget({part.begin for part in known} - {part.begin for part in plan.kept})
        fill(self.engine, found, (), {name for name in READ if tables()[name].sql is None} - {*TABLES})
        for part in plan.fresh:
            self._work_out(one, widths, part.begin, part.end)
            self._enter(part, of)
        self._work_out(one, widths, plan.open_from, None)
        for name in KEPT:
            self.engine.define(name, self._whole(name))
        fill(self.engine, found, (), ASKED - READ - {*TABLES})

    def _work_out(self, one: RunFiles, widths: StretchWidths, begin: int, end: int | None) -> None:
        """The sums of these stretches, as tables `fresh_…`."""
        for table in TABLES:
            from_us = begin * STRETCH_US - LOOKS_BACK_US.get(table, 0)
            to_us = None if end is None else end * STRETCH_US
            inside = f"epoch_us(time) >= {from_us}" + (f" and epoch_us(time) < {to_us}" if to_us else "")
            files = replace(
                one,
                segments=tuple(
                    s for s in one.segments if s.end_us >= from_us and (to_us is None or s.begin_us < to_us)
                ),
            )
            self.engine.define(table, f"select * from ({of_files(tables()[table], [files])}) where {inside}")
        for view in tables().values():
            if view.name in READ and view.sql is not None:
                self.engine.define(view.name, view.sql)
            if view.name in KEPT:
                width = OF_WINDOWS.get(view.name)
                own = (
                    f" where w * {getattr(widths, width, width)} >= {begin * STRETCH_US // SECOND_US}"
                    if width
                    else ""
                )
                self.engine.run(
                    f"create or replace temp table fresh_{view.name} as select * from {view.name}{own}"
                )
            if view.name == WHOLE:
                self.engine.define(WHOLE, self._whole(WHOLE))

    def _enter(self, part: SumPart, of: str) -> None:
        """They are a part from now on."""
        made = [
            f"create table if not exists kept_{name} as select {part.begin} as part, * from fresh_{name} limit 0; "
            f"insert into kept_{name} select {part.begin}, * from fresh_{name}"
            for name in KEPT
        ]
        files = text("\n".join(sorted(part.files)))
        self._change([*made, f"insert into parts values ({part.begin}, {part.end}, {files}, {text(of)})"])

    def _forget(self, parts: Iterable[int]) -> None:
        for begin in parts:
            gone = [f"delete from kept_{name} where part = {begin}" for name in KEPT]
            self._change([f"delete from parts where begin = {begin}", *gone])

    def _change(self, statements: Iterable[str]) -> None:
        """All of these or none."""
        try:
            self.engine.run("; ".join(["begin", *statements, "commit"]))
        except BaseException:
            self.engine.run("rollback")
            raise

    def _whole(self, name: str) -> str:
        """What is kept and what is open, as one."""
        columns = [column.name for column in tables()[name].columns]
        rows = f"select {', '.join(columns)} from fresh_{name}"
        if self.engine.ask(f"select 1 from duckdb_tables() where table_name = 'kept_{name}'").num_rows:
            rows += f" union all select {', '.join(columns)} from kept_{name}"
        if name in OF_WINDOWS:
            return rows
        keys = ", ".join(ADDED_UP[name])
        sums = ", ".join(
            f"cast({EXTREMES.get(of.name[:3], 'sum')}({of.name}) as {of.type}) as {of.name}"
            for of in tables()[name].columns
            if of.name not in ADDED_UP[name]
        )
        return f"select {keys}, {sums} from ({rows}) group by {keys}"
