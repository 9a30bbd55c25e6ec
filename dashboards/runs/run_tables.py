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
Of = Callable[[Data, Data], Cell]


@dataclass(frozen=True)
class StatusReading:
    """What a controller answered: `headgate/status/v1`, the events so far, the decisions, newest last."""

    status: Data
    events: Sequence[Data] = ()
    decisions: Sequence[Data] = ()


@dataclass(frozen=True)
class Column:
    """`of`: the key of what stands in it, or what makes it of an item and the status; `show`: how a number is
    written."""

    title: str
    of: str | Of
    show: Callable[[float], str] | None = None

    def cell(self, item: Data, status: Data) -> Cell:
        found: Cell = item.get(self.of) if isinstance(self.of, str) else self.of(item, status)
        return found

    def text(self, cell: Cell) -> str:
        if cell is None:
            return "N/A"
        return self.show(float(cell)) if self.show and isinstance(cell, int | float) else str(cell)


@dataclass(frozen=True)
class TopView:
    """A table: its columns, and what its rows are of, as they come when nothing is said."""

    name: str
    columns: tuple[Column, ...]
    items: Callable[[StatusReading], Sequence[Data]]

    def rows(self, reading: StatusReading) -> list[Row]:
        return [
            tuple(column.cell(item, reading.status) for column in self.columns)
            for item in self.items(reading)
        ]


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


def _off_model(task: Data, status: Data) -> float | None:
    rates = {r["where"]: r["ratio"] - 1 for r in status.get("residuals") or () if r["what"] == "rate"}
    return rates.get(task["task"])


def _busy(task: Data, status: Data) -> float | None:
    """Of a source, which takes in nothing, it is not measured."""
    given = bool(task.get("rate_out_tps")) and not task.get("rate_in_tps")
    return None if given else task.get("busy_share")


def _slots(reading: StatusReading) -> list[Data]:
    return [{**slot, "vm": vm["vm"]} for vm in vms_of(reading.status) for slot in vm.get("slots") or ()]


def _threads(slot: Data, _: Data) -> str:
    return " ".join(f"{task}×{count}" for task, count in (slot.get("threads") or {}).items()) or "–"


def _of_slots(count: Callable[[Data], int]) -> Of:
    return lambda vm, _: sum(map(count, vm.get("slots") or ()))


def _decisions(reading: StatusReading) -> list[Data]:
    """Those that led to something, and the newest of all, which mostly led to nothing; newest first."""
    found = list(reading.decisions)
    last = reading.status.get("last_decision")
    if last and (not found or last != found[-1]):
        found.append(last)
    return found[::-1]


def _clock(event: Data, _: Data) -> str:
    return str(event.get("time", ""))[11:19]


VIEWS = (
    TopView(
        "tasks",
        (
            Column("task", "task"),
            Column("threads", "threads", rate),
            Column("in rows/s", "rate_in_tps", rate),
            Column("out rows/s", "rate_out_tps", rate),
            Column("off model", _off_model, signed),
            Column("queue", "queue", rate),
            Column("busy", _busy, share),
            Column("load", "load", share),
            Column("of slot", "load_slot"),
            Column("p50 ms", "latency_p50_ms", rate),
            Column("p99 ms", "latency_p99_ms", rate),
            Column("cores", "cpu_cores", lambda value: f"{value:.3f}"),
        ),
        lambda reading: reading.status.get("tasks") or (),
    ),
    TopView(
        "slots",
        (
            Column("slot", lambda slot, _: f"{slot['vm']}/{slot['slot']}"),
            Column("worker", "state"),
            Column("CPU", "cpu", share),
            Column("predicted", "predicted_cpu", share),
            Column("memory", "memory", share),
            Column("predicted", "predicted_memory", share),
            Column("crashes", "crashes", whole),
            Column("threads", _threads),
        ),
        _slots,
    ),
    TopView(
        "VMs",
        (
            Column("VM", "vm"),
            Column("state", lambda vm, _: vm.get("cordon") or vm.get("state")),
            Column("used", _of_slots(lambda slot: bool(slot.get("threads"))), whole),
            Column("slots", _of_slots(lambda slot: 1), whole),
            Column("threads", _of_slots(lambda slot: sum((slot.get("threads") or {}).values())), whole),
            Column("CPU", "cpu", share),
            Column("memory", "memory", share),
            Column("crashes", _of_slots(lambda slot: slot.get("crashes") or 0), whole),
            Column("provided", lambda vm, _: "yes" if vm.get("provided") else "no"),
            Column("bound by", "binding"),
        ),
        lambda reading: vms_of(reading.status),
    ),
    TopView(
        "decisions",
        (
            Column("time", _clock),
            Column("plan", "epoch", whole),
            Column("trigger", "trigger"),
            Column("action", "action"),
            Column("why", "text"),
        ),
        _decisions,
    ),
    TopView(
        "events",
        (
            Column("number", "number", whole),
            Column("time", _clock),
            Column("kind", "kind"),
            Column("what", "text"),
        ),
        lambda reading: reading.events[::-1],
    ),
)


def table(view: TopView, reading: StatusReading, order: SortOrder, words: str) -> list[tuple[str, ...]]:
    """The rows that hold all of `words`, in order, as text."""
    wanted = words.casefold().split()
    found = [(row, _texts(view, row)) for row in view.rows(reading)]
    rows = [row for row, texts in found if all(word in " ".join(texts).casefold() for word in wanted)]
    return [_texts(view, row) for row in ordered(rows, order)]


def ordered(rows: list[Row], order: SortOrder) -> list[Row]:
    """Numbers before words; what is not known comes last, whichever way."""
    column = order.column
    if column is None:
        return rows[::-1] if order.descending else rows
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]

    def key(row: Row) -> tuple[int, float, str]:
        cell = row[column]
        return (0, float(cell), "") if isinstance(cell, int | float) else (1, 0.0, str(cell))

    return sorted(known, key=key, reverse=order.descending) + unknown


def _texts(view: TopView, row: Row) -> tuple[str, ...]:
    return tuple(column.text(cell) for column, cell in zip(view.columns, row, strict=True))
