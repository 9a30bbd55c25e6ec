"""The tables of `headgate status` and `headgate top`: what a controller answered → a table per view. Functions only.

A cell is a plain value: what is sorted and what is drawn come from the same one; None is N/A.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.dashboards.runs.live_view import vms_of

Data = Mapping[str, Any]
Cell = str | int | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class StatusReading:
    """What a controller answered: `headgate/status/v1`, the events so far, the decisions, newest last."""

    status: Data
    events: Sequence[Data] = ()
    decisions: Sequence[Data] = ()


@dataclass(frozen=True)
class Column:
    """`show`: how a cell is written; without it as text."""

    title: str
    show: Callable[[float], str] | None = None

    def text(self, cell: Cell) -> str:
        if cell is None:
            return "N/A"
        return self.show(float(cell)) if self.show and isinstance(cell, int | float) else str(cell)


@dataclass(frozen=True)
class TopView:
    """A table: its columns, its rows as they come, and which ones they are when nothing is said."""

    name: str
    columns: tuple[Column, ...]
    rows: Callable[[StatusReading], list[Row]]


@dataclass(frozen=True)
class SortOrder:
    """By which column (its number; None: as the rows come), and whether the largest comes first."""

    column: int | None = None
    descending: bool = False


def rate(value: float) -> str:
    return f"{value:,.1f}"


def share(value: float) -> str:
    return f"{value:.0%}"


def signed(value: float) -> str:
    return f"{value:+.0%}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def tasks(reading: StatusReading) -> list[Row]:
    off = {r["where"]: r["ratio"] - 1 for r in reading.status.get("residuals") or () if r["what"] == "rate"}
    return [
        (
            task["task"],
            task.get("threads"),
            task.get("rate_in_tps"),
            task.get("rate_out_tps"),
            off.get(task["task"]),
            task.get("queue"),
            _busy(task),
            task.get("load"),
            task.get("load_slot"),
            task.get("latency_p50_ms"),
            task.get("latency_p99_ms"),
            task.get("cpu_cores"),
        )
        for task in reading.status.get("tasks") or ()
    ]


def _busy(task: Data) -> float | None:
    """Of a source, which takes in nothing, it is not measured."""
    given = bool(task.get("rate_out_tps")) and not task.get("rate_in_tps")
    return None if given else task.get("busy_share")


def slots(reading: StatusReading) -> list[Row]:
    return [
        (
            f"{vm['vm']}/{slot['slot']}",
            slot.get("state"),
            slot.get("cpu"),
            slot.get("predicted_cpu"),
            slot.get("memory"),
            slot.get("predicted_memory"),
            slot.get("crashes"),
            " ".join(f"{task}×{count}" for task, count in (slot.get("threads") or {}).items()) or "–",
        )
        for vm in vms_of(reading.status)
        for slot in vm.get("slots") or ()
    ]


def vms(reading: StatusReading) -> list[Row]:
    return [_vm(vm) for vm in vms_of(reading.status)]


def _vm(vm: Data) -> Row:
    there = vm.get("slots") or ()
    return (
        vm["vm"],
        vm.get("cordon") or vm.get("state"),
        sum(bool(slot.get("threads")) for slot in there),
        len(there),
        sum(sum((slot.get("threads") or {}).values()) for slot in there),
        vm.get("cpu"),
        vm.get("memory"),
        sum(slot.get("crashes") or 0 for slot in there),
        "yes" if vm.get("provided") else "no",
        vm.get("binding"),
    )


def decisions(reading: StatusReading) -> list[Row]:
    """Those that led to something, and the newest of all, which mostly led to nothing; newest first."""
    found = list(reading.decisions)
    last = reading.status.get("last_decision")
    if last and (not found or last != found[-1]):
        found.append(last)
    return [
        (d.get("time", "")[11:19], d.get("epoch"), d.get("trigger"), d.get("action"), d.get("text"))
        for d in reversed(found)
    ]


def events(reading: StatusReading) -> list[Row]:
    """Newest first."""
    return [
        (event["number"], event["time"][11:19], event["kind"], event["text"])
        for event in reversed(reading.events)
    ]


VIEWS = (
    TopView(
        "tasks",
        (
            Column("task"),
            Column("threads", rate),
            Column("in rows/s", rate),
            Column("out rows/s", rate),
            Column("off model", signed),
            Column("queue", rate),
            Column("busy", share),
            Column("load", share),
            Column("of slot"),
            Column("p50 ms", rate),
            Column("p99 ms", rate),
            Column("cores", lambda value: f"{value:.3f}"),
        ),
        tasks,
    ),
    TopView(
        "slots",
        (
            Column("slot"),
            Column("worker"),
            Column("CPU", share),
            Column("predicted", share),
            Column("memory", share),
            Column("predicted", share),
            Column("crashes", whole),
            Column("threads"),
        ),
        slots,
    ),
    TopView(
        "VMs",
        (
            Column("VM"),
            Column("state"),
            Column("used", whole),
            Column("slots", whole),
            Column("threads", whole),
            Column("CPU", share),
            Column("memory", share),
            Column("crashes", whole),
            Column("provided"),
            Column("bound by"),
        ),
        vms,
    ),
    TopView(
        "decisions",
        (Column("time"), Column("plan", whole), Column("trigger"), Column("action"), Column("why")),
        decisions,
    ),
    TopView("events", (Column("number", whole), Column("time"), Column("kind"), Column("what")), events),
)


def table(view: TopView, reading: StatusReading, order: SortOrder, words: str) -> list[tuple[str, ...]]:
    """The rows that hold all of `words`, in order, as text."""
    return [_texts(view, row) for row in ordered(_matching(view, view.rows(reading), words), order)]


def ordered(rows: list[Row], order: SortOrder) -> list[Row]:
    """Numbers before words; what is not known comes last, whichever way."""
    column = order.column
    if column is None:
        return rows[::-1] if order.descending else rows
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    return sorted(known, key=lambda row: _key(row[column]), reverse=order.descending) + unknown


def _key(cell: Cell) -> tuple[int, float, str]:
    return (0, float(cell), "") if isinstance(cell, int | float) else (1, 0.0, str(cell))


def _matching(view: TopView, rows: list[Row], words: str) -> list[Row]:
    desired = words.casefold().split()
    return [row for row in rows if all(word in " ".join(_texts(view, row)).casefold() for word in desired)]


def _texts(view: TopView, row: Row) -> tuple[str, ...]:
    return tuple(column.text(cell) for column, cell in zip(view.columns, row, strict=True))
