"""What a second of a VM amounts to, on the wire: a part of `messages`."""

from __future__ import annotations

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.latency.latency_buckets import COARSE


class FinishedRuns(msgspec.Struct, frozen=True, array_like=True):
    """Rows finished at a sink, from bytes `offset` on of the log of (task, thread, incarnation):
    `runs` is int64 × 5 per run: source number, partition, first position, count, variant."""

    task: str
    thread: int
    incarnation: int
    offset: int
    runs: bytes


class UserMetric(msgspec.Struct, frozen=True, array_like=True):
    """What is new of a metric that a task's thread keeps itself: of a counter what was added, of a gauge its value, of
    a histogram the sum and how many, `buckets` as (bucket, how many)."""

    slot: int
    thread: int
    task: str
    name: str
    kind: str
    value: float
    count: int = 0
    buckets: tuple[tuple[int, int], ...] = ()


class SampleBlock(msgspec.Struct, frozen=True, tag="samples"):
    """One second of a VM, columnar: name → little-endian int64; times in ns, counts since the last block.

    Threads: `SAMPLE_COLUMNS`, `tasks` names each row's task. `latency`: (sink, source, buckets of the meter),
    `task_latency`: `latency_buckets.LATENCY_COLUMNS`. Link latencies: means per frame.
    `finished`: how sinks' logs grew. `user`: metrics of tasks' own. `timers_ns`: CPU that timers took, by task.
    `calls`: by task how many, and the sums over them of µs² / rows, on the CPU and off it (`row_spread`).
    `per_doubling`: buckets of latencies, as `latency_buckets` counts them; COARSE: of an agent that does not say."""

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
    user: tuple[UserMetric, ...] = ()
    run: str = ""
    timers_ns: dict[str, int] = {}
    calls: dict[str, tuple[int, int, int]] = {}
    per_doubling: int = COARSE


SAMPLE_COLUMNS = (
    "thread", "slot", "epoch", "cpu_ns", "run_delay_ns", "memory_bytes", "tuples_in", "tuples_out",
    "queue", "latency_mean_ns", "latency_p50_ns", "latency_p99_ns", "busy_ns", "wait_ns",
    "bytes_in", "bytes_out",
)  # fmt: skip
SLOT_COLUMNS = ("slot", "cpu_ns", "throttled_ns", "memory_bytes", "oom_kills")
LINK_COLUMNS = (
    "from_thread", "to_thread", "tuples", "bytes", "frames", "buffer_latency_ns", "channel_latency_ns",
)  # fmt: skip


# ── What is said of profiles in free slots: parts of the wire messages (`messages`) ─────────────────────


class ProfileSpec(msgspec.Struct, frozen=True, array_like=True):
    """The free slot `slot` measures `task` for `budget_s` at most. Another `number` is another profile. samples: on
    rows that the tasks above it make on that VM, since nothing runs yet; else on copies of rows that workers of the VM
    take in."""

    task: str
    slot: Slot
    number: int
    budget_s: float
    samples: bool = False


class ProfileAt(msgspec.Struct, frozen=True, array_like=True):
    """How far profile `number` is: points measured, of about so many."""

    number: int
    done: int
    of: int


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """How profile `number` ended: its model as JSON, as far as it came (b"": nothing was measured), and
    why it failed; of_task: it is the task that failed, not the host. Said again while it is still desired."""

    vm: str
    number: int
    model: bytes = b""
    error: str = ""
    of_task: bool = False


# ── Which keys the rows of an edge have, as the threads that split them by key say it: a part of `messages`

KEY_TEXT_MOST = 24  # characters of a key that are told


class KeyCount(msgspec.Struct, frozen=True, array_like=True):
    """A key: the begin of its repr (empty where keys are not to be told), its key range, rows of it."""

    key: str
    key_range: int
    rows: int


class KeysSeen(msgspec.Struct, frozen=True, array_like=True):
    """What thread `thread` sent by edge `edge` in a second: `rows` of them, `looked_at` of which were counted by key.
    top: the keys that have most of these, a tenth at least; short by a hundredth of `looked_at` at most."""

    edge: int
    thread: int
    rows: int
    looked_at: int
    top: tuple[KeyCount, ...] = ()


# ── How much the states of a keyed task's thread take: a part of `messages`

PART_STEPS = 8  # of a factor 2
EVEN_BYTES = 1 << 20  # states of less are told as if they were spread evenly
UNEVEN = 2.0  # … and those of which no range has so many times the mean


STATE_BYTES = 200  # of a state in memory beside its values: its places in dicts and sets


class HeldState(msgspec.Struct, frozen=True, array_like=True):
    """About: `saved_bytes` as they are saved and moved, `memory_bytes` if all of them were in memory: `STATE_BYTES`
    a key more. Of large ones that are uneven: the thread's ranges as (first, how many), and a byte for each: n says
    2 ^ (n / 8), 0 nothing, and what they say together is `saved_bytes`."""

    saved_bytes: int
    memory_bytes: int
    ranges: tuple[tuple[int, int], ...] = ()
    parts: bytes = b""
