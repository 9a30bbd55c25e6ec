"""The tables that can be asked: raw ones, and the views of `views/*.sql`, each with its columns, units and meaning.

A view's file begins with comments: sentences about it, an empty one, and a line `name | type | unit | meaning` for each
column. `headgate sql TRACE --tables` is `listing()`, docs/reference/tables.md has the names; tests hold the lines to
what the engines say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# ── What the views stand on: the tables of a trace as they were recorded, and its JSON files as rows ───
#
# In each text: a sentence about the table, an empty line, and `name | type | unit | meaning` for every
# column.

RUN = "run | string |  | topology/run"
BLOCK = f"""{RUN}
time | timestamp |  | end of the window (UTC)
window_s | double | s | length of the window
epoch | bigint |  | number of the plan that was in force"""

RAW = {
    "samples": f"""One thread of a task in one window, mostly of a second, as its agent has measured it.

{BLOCK}
vm | string |  | VM
slot | bigint |  | number of the slot on its VM
task | string |  | task
thread | bigint |  | number of the thread, its own in the whole run
cpu_s | double | s | CPU time of the thread
run_delay_s | double | s | time in which it could have run and no core was free
memory_bytes | bigint | bytes | memory of its worker
tuples_in | bigint | rows | rows that it took in and finished
tuples_out | bigint | rows | rows that it sent on
queue | bigint | rows | rows that waited for it at the end of the window
latency_mean_s | double | s | mean time from a row's arrival in its queue to completion
latency_p50_s | double | s | median of it
latency_p99_s | double | s | 99th percentile of it
busy_s | double | s | time in the task's logic
wait_s | double | s | of busy_s, off the CPU
bytes_in | bigint | bytes | content of the rows taken in that came over a channel
bytes_out | bigint | bytes | content of the rows sent on over a channel""",
    "slots": f"""One slot with a worker in one window; predictions are those for the rate of that time.

{BLOCK}
vm | string |  | VM
slot | bigint |  | number of the slot on its VM
cpu | double | slots | CPU used, as a fraction of the slot
memory | double | slots | memory used, as a fraction of the slot
predicted_cpu | double | slots | what the plan foresaw for CPU
predicted_memory | double | slots | what the plan foresaw for memory""",
    "rates": f"""One source in one turn of the controller, mostly a second; counts are of the time since the row before.

{BLOCK}
source | string |  | source
offered_tps | double | rows/s | offered, mean over window_s
emitted_tps | double | rows/s | emitted, mean over window_s
acked_tps | double | rows/s | processed whole, mean over window_s
planned_tps | double | rows/s | rate that the plan is for
predicted_tps | double | rows/s | rate that the plan was predicted to carry
source_kind | string |  | paced: by a schedule, arriving: rows come by themselves
lag_rows | bigint | rows | rows that came and were not read yet (arriving sources)
lag_s | double | s | for how long the oldest of these has waited
offered | bigint | rows | offered since the row before
emitted | bigint | rows | emitted since the row before
acked | bigint | rows | done: processed whole, or a dead letter, since the row before
backlog_rows | bigint | rows | due or arrived and not done
backlog_s | double | s | for how long the oldest row of the run has waited that is not done""",
    "latency": f"""An even sample of the rows that reached a sink; each stands for `tuples` of them.

{RUN}
time | timestamp |  | end of the window (UTC)
epoch | bigint |  | number of the plan that was in force
source | string |  | where the rows came from
sink | string |  | where they arrived
latency_s | double | s | from the intended emit time at the source to completion at the sink
error_s | double | s | half the width of the histogram's bucket that it comes from
tuples | double | rows | rows that this one stands for""",
    "links": f"""What went from one thread to another in one window.

{BLOCK}
from_task | string |  | task that sent
from_thread | bigint |  | its thread
to_task | string |  | task that received
to_thread | bigint |  | its thread
tuples | bigint | rows | rows
bytes | bigint | bytes | content of the rows, where they went over a channel
frames | bigint | frames | frames in which they went
buffer_latency_s | double | s | mean time of a frame in the sender's buffer
channel_latency_s | double | s | mean time of a frame from there into the receiver's queue""",
    "user_metrics": f"""A metric of a task's own, of one thread in one window (`context.metrics`).

{BLOCK}
vm | string |  | VM
slot | bigint |  | number of the slot on its VM
task | string |  | task
thread | bigint |  | number of the thread, its own in the whole run
name | string |  | name of the metric
kind | string |  | counter, gauge or histogram
value | double |  | counter: added in the window; gauge: its value; histogram: sum of what was observed
count | bigint |  | histogram: how many were observed
p50 | double |  | histogram: half of them are not above this, to a factor of 1.4
p99 | double |  | histogram: 99 % of them are not above this""",
    "runs": f"""One run, by the head of its trace (run.json).

{RUN}
topology | string |  | topology
name | string |  | the run alone
allocator | string |  | how threads and slots were counted
mapper | string |  | how threads were put into slots
routing | string |  | how rows were shared out among the threads of a task
mode | string |  | auto, approve or advise
headgate | string |  | version that recorded it
started | timestamp |  | when the run began, by its head
begun | timestamp |  | `started`, or without a head the first time that was recorded: `at_s` counts from here
ended | timestamp |  | end of the last one
spare_slots | bigint | slots | of a VM that it may ask for
spare_slot_cores | double | cores | cores of a slot of such a VM
spare_slot_memory_bytes | bigint | bytes | memory of one
spare_usd_per_hour | double | USD/h | what such a VM costs""",
    "vms": f"""VMs by the head of the trace and by its plans; one that only samples name is in `dim_vm`.

{RUN}
vm | string |  | VM
slots | bigint | slots | how many it has
slot_cores | double | cores | cores of each
slot_memory_bytes | bigint | bytes | memory of each
usd_per_hour | double | USD/h | what it costs""",
    "tasks": f"""Tasks of the topology.

{RUN}
task | string |  | task
kind | string |  | source, map, hold, …; sink where nothing follows and nothing else is said
code | string |  | what runs
static | boolean |  | its size is fixed
static_cpu | double | slots | CPU that each thread of such a task reserves; null where it takes more by rows too
weight | double | rows/row | rows that it takes in per row of each source, by the selectivities of the edges
is_source | boolean |  | nothing leads to it
is_sink | boolean |  | nothing follows it""",
    "edges": f"""Edges of the topology.

{RUN}
from_task | string |  | sender
to_task | string |  | receiver
grouping | string |  | how rows are shared out
selectivity | double | rows/row | rows per row that the sender takes in""",
    "models": f"""Points of the models that the run began with.

{RUN}
task | string |  | task
threads | bigint | threads | of the task, alone in a slot
rate_tps | double | rows/s | most that they carry together
cpu | double | slots | CPU at that rate, as a fraction of the slot
memory | double | slots | memory at that rate, as a fraction of the slot""",
    "decisions": f"""Every decision, those that led to nothing too (decisions.jsonl).

{RUN}
number | bigint |  | from 1 in the order of the file
time | timestamp |  | when it was taken (UTC)
epoch | bigint |  | number of the plan, as it is written: of one that waits for VMs, of the plan before it
plan_epoch | bigint |  | number under which its plan came into force; null: there is no plan in it
trigger | string |  | the rule that applied
action | string |  | plan: there is a new one; none: nothing to do
text | string |  | in a sentence
evidence | string |  | the numbers it stands on, as JSON
plan | string |  | id of its plan
rate_tps | double | rows/s | rate that the plan is for
predicted_tps | double | rows/s | rate that it is predicted to carry
limited_by | string |  | task that saturates first
limited_by_slot | string |  | where
slots | bigint | slots | slots with threads in it
moves | bigint | threads | threads that start or leave
enacted_epoch | bigint |  | epoch of the plan in force then, of which the next two tell
enacted_s | double | s | from its decision until it was in force
pause_ms | double | ms | from the order to switch until every sender had: an upper bound of a thread's silence""",
    "plan_slots": f"""Threads of a task in a slot of a plan, as it was decided (plans.jsonl).

{RUN}
plan | string |  | id of the plan
vm | string |  | VM
slot | bigint |  | number of the slot on its VM
task | string |  | task
threads | bigint | threads | of the task in this slot
share | double |  | of the task's rows that they are to get together; null: the plan does not say""",
    "predicted_latency": f"""What rows were predicted to take by the plan in force (predicted_latency.jsonl).

{RUN}
number | bigint |  | of the prediction, from 1 in the order of the file
time | timestamp |  | when it was made (UTC)
epoch | bigint |  | number of the plan
plan | string |  | id of the plan
settled_in_s | double | s | from then until the plan had been in force for 20 s
rate_tps | double | rows/s | rate that it is for; null: the plan does not carry what was offered
sink | string |  | where the rows arrive; null: the plan does not carry what was offered
p50_s | double | s | median, from the intended emit time at the source
p95_s | double | s | 95th percentile
p99_s | double | s | 99th percentile""",
    "counts": f"""Rows since the run began, whenever the controller said so (views.jsonl).

{RUN}
number | bigint |  | from 1 in the order of the file
time | timestamp |  | when (UTC)
offered | bigint | rows | due by the schedule, or arrived
emitted | bigint | rows | distinct source positions that were emitted
acked | bigint | rows | of these processed whole
in_flight | bigint | rows | on their way
lost | bigint | rows | neither processed nor on their way
dead_lettered | bigint | rows | that a task failed on three times
replayed | bigint | rows | sent once more
duplicates | bigint | rows | rows at sinks more than once, at least""",
    "widths": f"""How long the stretches are that rows are summed over: by the longest run that is asked about.

{RUN}
window_s | bigint | s | of samples, slots and rates: 5 s in runs of ten minutes, 10 s of a day, 60 s
bin_s | bigint | s | of latency: a second in runs of three hours, 15 s
judged_s | bigint | s | in which latency must not grow""",
    "left_out": f"""Files or parts of them that no table has a row of; columns whose NaN and infinities are null.

{RUN}
file | string |  | file
column_name | string |  | column in which values are no numbers; null: it is the file that is left out
kind | string |  | unfinished, truncated, schema, clock, duplicate, not-finite, …
reason | string |  | why
rows | bigint | rows | how many are missing, or are null in answers, where that is known""",
}


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

VIEWS = Path(__file__).parent / "views"
TYPES = ("timestamp", "string", "bigint", "double", "boolean")
WORD = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True)
class TableColumn:
    """unit: "" for what has none: a name, a number, yes or no."""

    name: str
    type: str
    unit: str
    about: str


@dataclass(frozen=True)
class TraceTable:
    """sql: of a view; None: a raw table."""

    name: str
    about: str
    columns: tuple[TableColumn, ...]
    sql: str | None = None


@cache
def tables() -> dict[str, TraceTable]:
    """All of them by name: raw ones first, each view after those that it reads."""
    raw = {name: _parsed(name, text, None) for name, text in RAW.items()}
    views = {file.stem: _of_file(file) for file in sorted(VIEWS.rglob("*.sql"), key=lambda file: file.stem)}
    found = dict(raw)
    while left := [view for view in views.values() if view.name not in found]:
        ready = [view for view in left if not _reads(view, views) - found.keys()]
        if not ready:
            raise ValueError(f"these views read each other: {', '.join(view.name for view in left)}")
        found |= {view.name: view for view in ready}
    return found


def needed(query: str) -> set[str]:
    """The tables that a query may read, by the words in it, and those that these read."""
    every = tables()
    words = set(WORD.findall(query.lower()))
    if words & {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}:
        return set(every)
    found, waiting = set(), words & every.keys()
    while waiting:
        found |= waiting
        waiting = {name for one in waiting for name in _reads(every[one], every)} - found
    return found


def shared(names: Collection[str]) -> set[str]:
    """The views among these that others of them read more than once: an engine that works a view out wherever it is
    named keeps the rows of these."""
    every = tables()
    often = Counter[str]()
    for name in names:
        code = re.sub(r"--.*", "", every[name].sql or "")
        often.update(word for word in WORD.findall(code) if word in names and word != name)
    return {name for name, times in often.items() if times > 1 and every[name].sql is not None}


def _reads(view: TraceTable, known: Mapping[str, object]) -> set[str]:
    code = re.sub(r"--.*", "", view.sql or "")
    return (set(WORD.findall(code)) & known.keys()) - {view.name}


def _of_file(file: Path) -> TraceTable:
    text = file.read_text("utf-8")
    lines = text.splitlines()
    code_at = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    comment = "\n".join(line.removeprefix("--").strip() for line in lines[:code_at])
    return _parsed(file.stem, comment, "\n".join(lines[code_at:]).strip())


def _parsed(name: str, text: str, sql: str | None) -> TraceTable:
    about, _, rows = text.strip().partition("\n\n")
    columns = []
    for line in rows.splitlines():
        parts = [part.strip() for part in line.split("|", 3)]
        if len(parts) != 4 or parts[1] not in TYPES:
            raise ValueError(f"{name}: {line!r} is not `name | type | unit | meaning`")
        columns.append(TableColumn(*parts))
    return TraceTable(name, " ".join(about.split()), tuple(columns), sql)


def listing() -> list[dict[str, str]]:
    """A row per column."""
    return [
        {"table": table.name, "column": of.name, "type": of.type, "unit": of.unit, "meaning": of.about}
        for table in tables().values()
        for of in table.columns
    ]
