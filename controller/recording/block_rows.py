"""A sample block's rows of the tables of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headgate.controller.monitor.blocks import Arrays
from headgate.controller.monitor.histograms import EDGES_NS, percentiles_ns
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.messages import LINK_COLUMNS, SAMPLE_COLUMNS, SLOT_COLUMNS, SampleBlock
from headgate.topology_runtime.trace_tables import TABLES

Columns = dict[str, Any]  # name → array or list, all of one length

LATENCY_SAMPLES = (
    20  # rows of `latency` at most per block, sink and source; `tuples` says for how many each stands
)

_SECONDS = {
    "cpu_s": "cpu_ns", "run_delay_s": "run_delay_ns", "latency_mean_s": "latency_mean_ns",
    "latency_p50_s": "latency_p50_ns", "latency_p99_s": "latency_p99_ns", "busy_s": "busy_ns",
    "wait_s": "wait_ns",
}  # fmt: skip
_SAMPLE = {name: row for row, name in enumerate(SAMPLE_COLUMNS)}
_SLOT = {name: row for row, name in enumerate(SLOT_COLUMNS)}
_LINK = {name: row for row, name in enumerate(LINK_COLUMNS)}

TaskOf = Callable[[NDArray[np.int64]], list[str]]
Predicted = Mapping[Slot, tuple[float, float]]


def _same(block: SampleBlock, rows: int) -> Columns:
    """Columns that are the same in all rows."""
    return {
        "time": np.full(rows, block.wall_ns // 1000),
        "window_s": np.full(rows, block.window_ns / 1e9),
        "epoch": np.full(rows, block.epoch),
    }


def samples(block: SampleBlock, arrays: Arrays) -> Columns:
    """One row per thread; the epoch is the thread's own."""
    columns = _same(block, len(block.tasks))
    columns |= {"vm": [block.vm] * len(block.tasks), "task": list(block.tasks)}
    for name in TABLES["samples"]:
        if name in _SECONDS:
            columns[name] = arrays.threads[_SAMPLE[_SECONDS[name]]] / 1e9
        elif name in _SAMPLE:
            columns[name] = arrays.threads[_SAMPLE[name]]
    return columns


def slots(block: SampleBlock, arrays: Arrays, vm: Vm, predicted: Predicted) -> Columns:
    """One row per slot; predictions are null where there is none."""
    numbers = arrays.slots[_SLOT["slot"]]
    expected = [predicted.get(Slot(block.vm, number)) for number in numbers.tolist()]
    window_s = block.window_ns / 1e9
    return _same(block, len(numbers)) | {
        "vm": [block.vm] * len(numbers),
        "slot": numbers,
        "cpu": arrays.slots[_SLOT["cpu_ns"]] / 1e9 / window_s / vm.slot_cores,
        "memory": arrays.slots[_SLOT["memory_bytes"]] / vm.slot_memory_bytes,
        "predicted_cpu": [None if use is None else use[0] for use in expected],
        "predicted_memory": [None if use is None else use[1] for use in expected],
    }


def links(block: SampleBlock, arrays: Arrays, task_of: TaskOf) -> Columns:
    """One row per pair of threads; latencies are means over its frames."""
    senders, receivers = arrays.links[_LINK["from_thread"]], arrays.links[_LINK["to_thread"]]
    return _same(block, len(senders)) | {
        "from_task": task_of(senders),
        "from_thread": senders,
        "to_task": task_of(receivers),
        "to_thread": receivers,
        "tuples": arrays.links[_LINK["tuples"]],
        "bytes": arrays.links[_LINK["bytes"]],
        "frames": arrays.links[_LINK["frames"]],
        "buffer_latency_s": arrays.links[_LINK["buffer_latency_ns"]] / 1e9,
        "channel_latency_s": arrays.links[_LINK["channel_latency_ns"]] / 1e9,
    }


def latency(block: SampleBlock, arrays: Arrays) -> Columns:
    """An even sample of the rows that reached a sink: its quantiles, each for as many rows as `tuples` says.

    `error_s`: half the width of the bucket it comes from."""
    parts = [
        _sampled(block, sink, source, counts) for sink, source, counts in arrays.latency if counts.sum() > 0
    ]
    return {name: [value for part in parts for value in part[name]] for name in TABLES["latency"]}


def _sampled(block: SampleBlock, sink: str, source: str, counts: NDArray[np.int64]) -> Columns:
    rows = int(counts.sum())
    n = min(rows, LATENCY_SAMPLES)
    shares = tuple(((np.arange(n) + 0.5) / n).tolist())
    at_ns = percentiles_ns(counts[None].astype(np.float64), shares)[0]
    bucket = np.clip(np.searchsorted(EDGES_NS, at_ns, side="left") - 1, 0, None)
    return {
        "time": [block.wall_ns // 1000] * n,
        "epoch": [block.epoch] * n,
        "source": [source] * n,
        "sink": [sink] * n,
        "latency_s": (at_ns / 1e9).tolist(),
        "error_s": ((EDGES_NS[bucket + 1] - EDGES_NS[bucket]) / 2e9).tolist(),
        "tuples": [rows / n] * n,
    }
