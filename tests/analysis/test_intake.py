"""Samples in, windows out."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from analysis_made import START_NS, VM1, VM2, block, line_topology
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.monitor.sample_intake import Intake
from headgate.controller.monitor.sample_windows import window_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import BadMessage
from headgate.topology_runtime.latency.latency_buckets import BUCKETS, COARSE, bucket_of
from headgate.topology_runtime.rates.schedule import NS
from headgate.topology_runtime.wire.messages import SampleBlock


def intake(*vms: Vm) -> Intake:
    made = Intake(line_topology())
    made.expect(vms or (VM1,))
    return made


def scored(vm: str, sequence: int, wall_ns: int, rows: int = 100, **more: Any) -> SampleBlock:
    """A second in which `score` took `rows` rows in and 2 × rows out, 5 were waiting."""
    score = {
        "thread": 1, "tuples_in": rows, "tuples_out": 2 * rows, "cpu_ns": NS // 10, "busy_ns": NS // 2,
        "wait_ns": NS // 4, "queue": 5, "latency_mean_ns": 4_000_000, "latency_p50_ns": 3_000_000,
        "latency_p99_ns": 9_000_000, "bytes_in": 10 * rows, "bytes_out": 20 * rows,
    }  # fmt: skip
    slot = {"slot": 2, "cpu_ns": NS // 10, "throttled_ns": NS // 20, "memory_bytes": 250_000_000}
    return block(vm, sequence, wall_ns, [("score", score), ("sink", {"thread": 2})], [slot], **more)


def numbers(value: Any) -> list[float]:
    """All numbers in a plain or frozen value."""
    if isinstance(value, bool | int | float):
        return [float(value)]
    if isinstance(value, dict):
        return [n for part in value.values() for n in numbers(part)]
    if isinstance(value, list | tuple):
        return [n for part in value for n in numbers(part)]
    return numbers(msgspec.structs.asdict(value)) if isinstance(value, msgspec.Struct) else []


def finite(window: MeasuredWindow) -> bool:
    return all(math.isfinite(number) for number in numbers(window))


@pytest.mark.parametrize("phase_ms", [0, 1, 400, 999])
def test_rates_do_not_depend_on_when_in_the_second_agents_sample(phase_ms: int) -> None:
    made = intake()
    for k in range(12):
        end = START_NS + k * NS + phase_ms * 1_000_000
        assert made.add_block(scored("vm1", k, end), end + 3_000_000, 1)
    window = window_of(made, START_NS + 12 * NS, 5.0)
    score, slot = window.tasks["score"], window.slots[Slot("vm1", 2)]
    assert window.complete == pytest.approx(1.0, abs=0.01)
    assert window.seconds == 5.0
    assert score.rate_in_tps == pytest.approx(100, rel=0.01)
    assert score.rate_out_tps == pytest.approx(200, rel=0.01)
    assert (score.queue, score.threads, score.cpu_cores) == pytest.approx((5, 1, 0.1), rel=0.01)
    assert (score.busy_share, score.wait_share) == pytest.approx((0.5, 0.25), rel=0.01)
    assert score.latency_mean_ms == pytest.approx(4, rel=0.01)
    assert (slot.cpu, slot.memory, slot.throttled_share) == pytest.approx((0.5, 0.25, 0.05), rel=0.01)
    assert set(window.slots) == {Slot("vm1", 2)}


def test_what_timers_took_is_shared_out_among_all_rows_so_far() -> None:
    made = intake()
    for k in range(100):
        end = START_NS + k * NS
        one = scored("vm1", k, end, rows=1000 if k < 90 else 10)
        bursts = msgspec.structs.replace(one, timers_ns={"score": NS // 20 if k >= 90 else 0})
        assert made.add_block(bursts, end + 3_000_000, 1)
    score = window_of(made, START_NS + 100 * NS, 5.0).tasks["score"]
    assert (score.cpu_cores, score.timer_cores) == pytest.approx((0.1, 0.05), rel=0.01)
    assert score.timer_s_of_row == pytest.approx(0.5 / 90_100)
    assert score.row_cores == pytest.approx(0.05 + 10 * 0.5 / 90_100, rel=0.01)


@pytest.mark.parametrize("timers_ns", [{"nothing": 1}, {"score": -1}, {"score": 1 << 62}])
def test_timers_that_make_no_sense_are_refused(timers_ns: dict[str, int]) -> None:
    made = intake()
    one = msgspec.structs.replace(scored("vm1", 0, START_NS), timers_ns=timers_ns)
    with pytest.raises(BadMessage):
        made.add_block(one, START_NS, 1)
    assert not made.ever.any()


def test_calls_of_all_threads_add_up() -> None:
    made = intake()
    for k in range(12):
        end = START_NS + k * NS
        one = msgspec.structs.replace(scored("vm1", k, end), calls={"score": (40, 900, 70_000)})
        assert made.add_block(one, end + 3_000_000, 1)
    score = window_of(made, START_NS + 12 * NS, 5.0).tasks["score"]
    counted = score.calls_per_s, score.ran_us2_per_s, score.waited_us2_per_s
    assert counted == pytest.approx((40, 900, 70_000), rel=0.01)


@pytest.mark.parametrize("counts", [(-1, 0, 0), (1, -1, 0), (1, 0, -1), (1 << 50, 0, 0), (1, 1 << 63, 0)])
def test_calls_that_make_no_sense_are_refused(counts: tuple[int, int, int]) -> None:
    made = intake()
    for name, told in (("score", counts), ("nothing", (1, 1, 1))):
        with pytest.raises(BadMessage):
            made.add_block(
                msgspec.structs.replace(scored("vm1", 0, START_NS), calls={name: told}), START_NS, 1
            )
    assert not made.ever.any()


def test_uneven_sampling_is_split_between_the_seconds_it_covers() -> None:
    made, at = intake(), START_NS
    for k, window_ns in enumerate([NS, 1_300_000_000, 700_000_000, 900_000_000, 1_100_000_000] * 3):
        at += window_ns
        made.add_block(scored("vm1", k, at, rows=window_ns // 10_000_000, window_ns=window_ns), at, 1)
    window = window_of(made, at + NS, 8.0)
    assert window.tasks["score"].rate_in_tps == pytest.approx(100, rel=0.01)
    assert window.complete > 0.99


def test_tasks_add_up_over_vms_and_a_lost_block_lowers_completeness_not_the_rate() -> None:
    made = intake(VM1, VM2)
    for k in range(20):
        end = START_NS + k * NS
        made.add_block(scored("vm1", k, end), end, 1)
        if k not in (13, 14):
            made.add_block(scored("vm2", k, end), end, 1)
    window = window_of(made, START_NS + 20 * NS, 10.0)
    assert window.complete == pytest.approx(0.9)
    assert not window.is_complete
    assert made.lost == 2
    assert window.tasks["score"].rate_in_tps == pytest.approx(200, rel=0.01)
    assert window_of(made, START_NS + 20 * NS, 4.0).is_complete


def test_a_vm_that_falls_silent_makes_the_window_incomplete_until_it_is_expected_no_more() -> None:
    made = intake(VM1, VM2)
    for k in range(20):
        end = START_NS + k * NS
        made.add_block(scored("vm1", k, end), end, 1)
        if k < 12:
            made.add_block(scored("vm2", k, end), end, 1)
    assert window_of(made, START_NS + 19 * NS, 10.0).complete < 0.75
    made.expect([VM1])
    window = window_of(made, START_NS + 19 * NS, 10.0)
    assert window.is_complete
    assert {slot.vm for slot in window.slots} == {"vm1"}
    assert not made.add_block(scored("vm2", 12, START_NS + 19 * NS), START_NS + 19 * NS, 1)
    assert made.refused == 1


def test_silence_is_not_filled_with_what_was_two_minutes_ago() -> None:
    made = intake()
    for k in range(30):
        made.add_block(scored("vm1", k, START_NS + k * NS), START_NS + k * NS, 1)
    window = window_of(made, START_NS + (128 + 20) * NS, 10.0)
    assert window.complete == 0.0
    assert window.tasks["score"].rate_in_tps == 0.0
    assert finite(window)


def test_a_new_vm_counts_from_its_first_whole_second() -> None:
    made = intake(VM1, VM2)
    for k in range(15):
        end = START_NS + k * NS + 600_000_000
        made.add_block(scored("vm1", k, end), end, 1)
        if k >= 11:
            made.add_block(scored("vm2", k - 11, end), end, 1)
    assert window_of(made, START_NS + 15 * NS, 10.0).is_complete


def test_nothing_known_yet() -> None:
    window = window_of(intake(), START_NS, 10.0)
    assert (window.complete, window.seconds, window.backlog) == (0.0, 0.0, 0.0)
    assert finite(window)
    assert finite(window_of(Intake(line_topology()), START_NS, 10.0))


def test_a_restarted_agent_counts_anew() -> None:
    made = intake()
    for k in range(5):
        made.add_block(scored("vm1", 100 + k, START_NS + k * NS), START_NS + k * NS, 1)
    assert made.add_block(scored("vm1", 0, START_NS + 5 * NS, boot=2), START_NS + 5 * NS, 1)
    assert not made.add_block(scored("vm1", 105, START_NS + 6 * NS, boot=1), START_NS + 6 * NS, 1)
    assert (made.lost, made.duplicates) == (0, 1)


def test_only_the_distance_between_blocks_is_taken_from_a_vms_clock() -> None:
    made, ahead_ns = intake(), 3600 * NS
    for k in range(12):
        end = START_NS + k * NS
        made.add_block(scored("vm1", k, end + ahead_ns), end + 2_000_000, 1)
    window = window_of(made, START_NS + 12 * NS, 8.0)
    assert window.is_complete
    assert window.tasks["score"].rate_in_tps == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("step_s", [-40, 40])
def test_a_clock_that_steps_makes_the_window_unusable_for_a_while(step_s: int) -> None:
    made = intake()
    verdicts = []
    for k in range(60):
        end = START_NS + k * NS
        made.add_block(scored("vm1", k, end + (step_s * NS if k >= 20 else 0)), end, 1)
        verdicts.append(window_of(made, end, 8.0).is_complete)
    assert all(verdicts[12:20])
    assert not all(verdicts[20:30])
    assert all(verdicts[40:])


def test_a_stalled_controller_still_puts_blocks_where_they_belong() -> None:
    made = intake()
    for k in range(20):
        end = START_NS + k * NS
        made.add_block(scored("vm1", k, end), max(end, START_NS + 14 * NS if k > 9 else end), 1)
    window = window_of(made, START_NS + 20 * NS, 12.0)
    assert window.is_complete
    assert window.tasks["score"].rate_in_tps == pytest.approx(100, rel=0.01)


def coarse(ns: int) -> int:
    """Its bucket in blocks of agents of wire version 3 and before: four per doubling, of 1,024 ns."""
    us = ns >> 10
    bits = us.bit_length()
    return (bits - 2) * 4 + ((us >> (bits - 3)) & 3)


@pytest.mark.parametrize(("told", "error"), [({}, 0.016), ({"per_doubling": COARSE}, 0.15)])
def test_edges_and_latency(told: dict[str, int], error: float) -> None:
    made = intake()
    link = {
        "from_thread": 1, "to_thread": 2, "tuples": 200, "bytes": 4000, "frames": 10,
        "buffer_latency_ns": 1_000_000, "channel_latency_ns": 3_000_000,
    }  # fmt: skip
    empty = {"from_thread": 1, "to_thread": 2, "tuples": 0, "frames": 0, "buffer_latency_ns": 77_000_000}
    unknown = {"from_thread": 1, "to_thread": 77, "tuples": 5}
    counts = [0] * BUCKETS
    at = coarse if told else bucket_of
    counts[at(50_000_000)], counts[at(400_000_000)] = 90, 10
    counts = counts[:160] if told else counts
    for k in range(10):
        end = START_NS + k * NS
        sent = scored(
            "vm1", k, end, links=[link, empty, unknown], latency=(("sink", "source", tuple(counts)),)
        )
        made.add_block(structs.replace(sent, **told), end, 1)
    window = window_of(made, START_NS + 10 * NS, 5.0)
    edge = window.edges["score", "sink"]
    assert (edge.rate_tps, edge.bytes_per_s) == pytest.approx((200, 4000))
    assert (edge.buffer_latency_ms, edge.channel_latency_ms) == pytest.approx((1, 3))
    assert window.latency.rows == pytest.approx(500)
    assert window.latency.p50_ms == pytest.approx(50, rel=error)
    assert window.latency.p99_ms == pytest.approx(400, rel=error)
    assert window.latencies["source", "sink"].mean_ms == pytest.approx(85, rel=error)
    assert window.latency_series.p50_s == pytest.approx([0.05] * 5, rel=error)
    assert window.latency_series.at_s == pytest.approx([-5.5, -4.5, -3.5, -2.5, -1.5])


def test_progress() -> None:
    made = intake()
    for tenths in range(0, 400):
        at_s = tenths / 10
        made.add_progress(START_NS + int(at_s * NS), 50 * at_s, int(50 * at_s), int(40 * at_s))
    window = window_of(made, START_NS + int(39.9 * NS), 10.0)
    rates = window.offered_tps, window.emitted_tps, window.acked_tps
    assert rates == pytest.approx((50, 50, 40), rel=0.02)
    assert window.backlog == pytest.approx(0.2 * 50 * 39.9, rel=0.02)
    assert window.backlog_growth_tps == pytest.approx(10, rel=0.02)
    assert window.offered_slope_tps_per_s == pytest.approx(0, abs=1e-6)
    assert (len(window.progress.at_s), window.progress.at_s[-1]) == (80, 0.0)


def test_progress_reaches_back_two_minutes_however_often_it_is_told() -> None:
    made = intake()
    for k in range(200 * 50):
        made.add_progress(START_NS + k * NS // 50, k * 2.0, 0, 0)
    window = window_of(made, START_NS + 200 * NS, 10.0)
    assert window.progress.at_s[0] == -120.0
    assert window.offered_tps == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize(
    "bad",
    [
        lambda b: msgspec.structs.replace(b, tasks=("score",)),
        lambda b: msgspec.structs.replace(b, tasks=("score", "nosuch")),
        lambda b: msgspec.structs.replace(b, threads=b.threads | {"queue": b"1234567"}),
        lambda b: msgspec.structs.replace(b, threads={"thread": bytes(16)}),
        lambda b: msgspec.structs.replace(b, threads=b.threads | {"thread": b"\xff" * 16}),
        lambda b: msgspec.structs.replace(b, slots=b.slots | {"slot": b"\x09" + bytes(7)}),
        lambda b: msgspec.structs.replace(b, window_ns=0),
        lambda b: msgspec.structs.replace(b, window_ns=-(10**9)),
        lambda b: msgspec.structs.replace(b, latency=(("nosuch", "source", (1,)),)),
        lambda b: msgspec.structs.replace(b, latency=(("sink", "source", (1,) * (BUCKETS + 1)),)),
        lambda b: msgspec.structs.replace(b, latency=(("sink", "source", (1 << 70,)),)),
    ],
)
def test_a_block_that_makes_no_sense_is_refused_whole(bad: Any) -> None:
    made = intake()
    with pytest.raises(BadMessage):
        made.add_block(bad(scored("vm1", 0, START_NS)), START_NS, 1)
    assert made.add_block(scored("vm1", 0, START_NS), START_NS, 1), "the good block of that number counts"


@examples(60)
@given(seed=st.integers(0, 10**6), lost=st.sets(st.integers(1, 28), max_size=6))
def test_every_block_counts_once_in_whatever_order_it_comes(seed: int, lost: set[int]) -> None:
    chance, made = random.Random(seed), intake()
    sent = [k for k in range(30) if k not in lost]
    order = sorted(sent + chance.choices(sent, k=20), key=lambda k: k + chance.uniform(-3, 3))
    order.insert(0, 0)
    taken = [
        k for k in order if made.add_block(scored("vm1", k, START_NS + k * NS, rows=k), START_NS + k * NS, 1)
    ]
    assert len(taken) == len(set(taken))
    assert set(taken) == set(sent), f"seed {seed}"
    assert made.duplicates == len(order) - len(sent)
    assert made.lost == len([k for k in lost if k < 29])
    assert float(made.tasks.sums[:, 1, 0].sum()) == pytest.approx(sum(sent))


def test_an_agent_may_wait_long_for_its_first_topology() -> None:
    made = intake()
    assert made.add_block(scored("vm1", 1, START_NS, window_ns=3600 * NS), START_NS, 1)
    for k in range(1, 10):
        made.add_block(scored("vm1", k + 1, START_NS + k * NS), START_NS + k * NS, 1)
    window = window_of(made, START_NS + 10 * NS, 5.0)
    assert window.is_complete
    assert window.tasks["score"].rate_in_tps == pytest.approx(100, rel=0.01)
