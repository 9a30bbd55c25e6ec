"""What a trace holds: its tables, with their columns and kinds, and the names in its folder.

The recorder writes by it and whoever analyses reads by it. Units are in the names: `_s` seconds, `_bytes`,
`_tps` tuples a second; `cpu` and `memory` of a slot are fractions of it; what has no unit is a count or a number.
"""

from __future__ import annotations

SCHEMA = "headgate/trace/v1"
ANY_VERSION = SCHEMA.removesuffix("v1")
RUN_FILE, DECISIONS, INPUTS = "run.json", "decisions.jsonl", "inputs.jsonl"
DEAD_LETTERS = "dead_letters.jsonl"
PLANS = "plans.jsonl"  # each plan that was decided about, whole, when it was first: {"time": …, "plan": {plan/v1}}
PREDICTED_LATENCY = "predicted_latency.jsonl"  # of plans in force: a line for each plan and rate
CORRECTED = "corrected"  # folder of the models that a run corrected
LEDGER = "ledger.jsonl"  # the prediction ledger, beside the runs of its topology
VIEWS = "views.jsonl"  # what was published of the run: snapshots, and deltas between them

OUTPUT = "output.jsonl"  # what tasks printed and logged, a line each

TIME, TEXT, COUNT, NUMBER = "time", "text", "count", "number"  # timestamp[us, UTC], string, int64, float64

TABLES: dict[str, dict[str, str]] = {
    "samples": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "vm": TEXT, "slot": COUNT, "task": TEXT,
        "thread": COUNT, "cpu_s": NUMBER, "run_delay_s": NUMBER, "memory_bytes": COUNT,
        "tuples_in": COUNT, "tuples_out": COUNT, "queue": COUNT, "latency_mean_s": NUMBER,
        "latency_p50_s": NUMBER, "latency_p99_s": NUMBER, "busy_s": NUMBER, "wait_s": NUMBER,
        "bytes_in": COUNT, "bytes_out": COUNT,
    },
    "slots": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "vm": TEXT, "slot": COUNT, "cpu": NUMBER,
        "memory": NUMBER, "predicted_cpu": NUMBER, "predicted_memory": NUMBER,
    },
    "rates": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "source": TEXT, "offered_tps": NUMBER,
        "emitted_tps": NUMBER, "acked_tps": NUMBER, "planned_tps": NUMBER, "predicted_tps": NUMBER,
        "source_kind": TEXT, "lag_rows": COUNT, "lag_s": NUMBER, "offered": COUNT, "emitted": COUNT, "acked": COUNT,
        "backlog_rows": COUNT, "backlog_s": NUMBER,
    },
    "latency": {
        "time": TIME, "epoch": COUNT, "source": TEXT, "sink": TEXT, "latency_s": NUMBER,
        "error_s": NUMBER, "tuples": NUMBER,
    },
    "links": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "from_task": TEXT, "from_thread": COUNT,
        "to_task": TEXT, "to_thread": COUNT, "tuples": COUNT, "bytes": COUNT, "frames": COUNT,
        "buffer_latency_s": NUMBER, "channel_latency_s": NUMBER,
    },
    "user_metrics": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "vm": TEXT, "slot": COUNT, "task": TEXT, "thread": COUNT,
        "name": TEXT, "kind": TEXT, "value": NUMBER, "count": COUNT, "p50": NUMBER, "p99": NUMBER,
    },
}  # fmt: skip
