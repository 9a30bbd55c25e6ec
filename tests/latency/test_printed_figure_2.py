"""Paper 4's Fig. 2: what the size of output buffers does to latency, and to how many frames rows take.

A sender makes rows of 128 bytes at a fixed rate and puts them into the buffers of threads as they are, in virtual time.
The figure's throughput in Mbit/s is of the authors' network: here are the frames that it follows from.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge
from headgate.topology_runtime.wire.messages import RootKey, RootPart, Route
from headgate.topology_runtime.wire.run_options import DataPlaneSettings
from headgate.topology_runtime.worker.calls.output_buffers import Outputs
from headgate.topology_runtime.worker.calls.router import Router

S = 1_000_000_000
ROW_BYTES = 128
SIZES = {kib: kib * 1024 // ROW_BYTES for kib in (8, 16, 32, 64)}  # KiB → rows
HOUR_NS = 3600 * S
NO_GAP = 0  # a frame as soon as there is a row: the paper's runs that flush


class Sent(NamedTuple):
    """Mean time of a row in the buffer, and frames a row."""

    latency_s: float
    frames: float


def sent(rate_tps: float, cap: int, gap_ns: int, rows: int) -> Sent:
    """Of so many rows, one after the other; each leaves when its frame does."""
    chance = random.Random(4)
    buffers = Outputs(9, Slot("vm", 0), 77, lambda: chance.getrandbits(64), gap_ns)
    buffers.cap_of = lambda _: cap
    route = Route(0, ((1, 1.0),), ())
    buffers.route_by([(0, Router(Edge("sender", "receiver"), route, frozenset(), None, lambda _: cap, 0))])
    buffers.flush(0)
    made_ns, waited_ns, frames = [], 0, 0
    for n in range(rows):
        now_ns = HOUR_NS + round(n * S / rate_tps)
        while (due_ns := buffers.next_flush_ns()) is not None and 0 < due_ns <= now_ns:
            waited_ns, frames = _left(buffers, due_ns, made_ns, waited_ns, frames)
        made_ns.append(now_ns)
        root = RootPart(RootKey(0, 1, n, 0), Slot("vm", 0), 0, 0, n, now_ns, 0, n + 1)
        buffers.put((b"x" * ROW_BYTES,), [(0, 0, 1, 0)], [root], now_ns)
        waited_ns, frames = _left(buffers, now_ns, made_ns, waited_ns, frames)
    done = rows - len(made_ns)
    return Sent(waited_ns / S / done, frames / done)


def _left(buffers: Outputs, now_ns: int, made_ns: list[int], waited_ns: int, frames: int) -> tuple[int, int]:
    for frame in buffers.flush(now_ns):
        frames += 1
        for _ in range(len(frame.rows)):
            waited_ns += now_ns - made_ns.pop(0)
    return waited_ns, frames


@pytest.mark.parametrize("rate_tps", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("kib", SIZES)
def test_2a_buffers_of_a_fixed_size_hold_rows_until_they_are_full(kib: int, rate_tps: float) -> None:
    found = sent(rate_tps, SIZES[kib], HOUR_NS * 1000, 2 * SIZES[kib])
    assert found.latency_s == pytest.approx((SIZES[kib] - 1) / 2 / rate_tps, rel=1e-6)
    if (kib, rate_tps) == (64, 1.0):
        assert found.latency_s > 222  # "it takes more than 222 seconds on an average"


@pytest.mark.parametrize("rate_tps", [1.0, 10.0, 1000.0, 100_000.0])
def test_2a_rows_that_are_flushed_take_as_long_at_any_rate(rate_tps: float) -> None:
    assert sent(rate_tps, SIZES[64], NO_GAP, 1000) == Sent(0.0, 1.0)


@pytest.mark.parametrize("rate_tps", [1.0, 10.0, 1000.0, 100_000.0])
def test_2a_with_our_gap_no_row_waits_longer_than_it(rate_tps: float) -> None:
    """The paper's question: neither seconds at few rows, nor a frame for each of many."""
    gap_s = DataPlaneSettings().gap_s
    found = sent(rate_tps, SIZES[64], round(gap_s * S), 5000)
    assert found.latency_s <= gap_s
    assert found.frames == pytest.approx(1 / max(1.0, gap_s * rate_tps), rel=0.1)


def test_2b_larger_buffers_take_fewer_frames_and_flushing_takes_one_a_row() -> None:
    """What a frame costs is paid so often: "the throughput that could be achieved grew with the size"."""
    frames = [sent(100_000.0, cap, HOUR_NS * 1000, 4 * cap).frames for cap in SIZES.values()]
    assert frames == [1 / cap for cap in SIZES.values()] == sorted(frames, reverse=True)
    assert sent(100_000.0, SIZES[64], NO_GAP, 1000).frames == 1.0
