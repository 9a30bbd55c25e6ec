"""What a second of a VM amounts to, on the wire: a part of `messages`."""

from __future__ import annotations

import msgspec


class FinishedRuns(msgspec.Struct, frozen=True, array_like=True):
    """Rows finished at a sink, from bytes `offset` on of the log of (task, thread, incarnation):
    `runs` is int64 × 5 per run: source number, partition, first position, count, variant."""

    task: str
    thread: int
    incarnation: int
    offset: int
    runs: bytes


class SampleBlock(msgspec.Struct, frozen=True, tag="samples"):
    """One second of a VM, columnar: name → little-endian int64; times in ns, counts since the last block.

    Threads: `SAMPLE_COLUMNS`, `tasks` names each row's task. `latency`: (sink, source, buckets of the meter),
    `task_latency`: `latency_buckets.LATENCY_COLUMNS`. Link latencies: means per frame.
    `finished`: how sinks' logs grew."""

    vm: str
    boot: int
    sequence: int
    wall_ns: int
    window_ns: int
    epoch: int
    tasks: tuple[str, ...]
    threads: dict[str, bytes]
    slots: dict[str, bytes]
    links: dict[str, bytes]
    latency: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    finished: tuple[FinishedRuns, ...] = ()
    cost_ns: int = 0
    task_latency: dict[str, bytes] = {}


SAMPLE_COLUMNS = (
    "thread", "slot", "epoch", "cpu_ns", "run_delay_ns", "memory_bytes", "tuples_in", "tuples_out",
    "queue", "latency_mean_ns", "latency_p50_ns", "latency_p99_ns", "busy_ns", "wait_ns",
    "bytes_in", "bytes_out",
)  # fmt: skip
SLOT_COLUMNS = ("slot", "cpu_ns", "throttled_ns", "memory_bytes", "oom_kills")
LINK_COLUMNS = (
    "from_thread", "to_thread", "tuples", "bytes", "frames", "buffer_latency_ns", "channel_latency_ns",
)  # fmt: skip
