"""The ledger of a source: what is in flight, what is sent again and when, what is done."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.wire.messages import Ack, RootKey
from headgate.topology_runtime.worker.sources import source_ledger as l
from headgate.topology_runtime.worker.sources.source_ledger import Ledger, Root

S, MS, MIB = 1_000_000_000, 1_000_000, 1 << 20
ID = 0xABCDEF


def key(root: Root, attempt: int | None = None) -> RootKey:
    return RootKey(1, 1, root.sequence, root.attempt if attempt is None else attempt)


def send(ledger: Ledger, rows: int, now_ns: int, value: int = ID) -> Root:
    root = ledger.begin(list(range(rows)), now_ns, now_ns)
    ledger.sent(root, value, now_ns)
    return root


def replay(ledger: Ledger, now_ns: int, value: int = ID) -> Root | None:
    root = ledger.next_replay(now_ns)
    if root is not None:
        ledger.sent(root, value, now_ns)
    return root


def measured(latency_ns: int, roots: int = 200) -> Ledger:
    """A ledger that has learned this latency; it is 1,000 s."""
    ledger = Ledger(0, 1000)
    for _ in range(roots):
        root = send(ledger, 1, 1000 * S - latency_ns)
        ledger.ack(Ack(key(root), ID), 1000 * S)
    return ledger


def first(times: range, true: Callable[[int], bool]) -> int | None:
    return next((now_ns for now_ns in times if true(now_ns)), None)


# ── done ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_root_is_done_when_all_ids_are_acked() -> None:
    ledger = Ledger()
    root = send(ledger, 3, S, value=5 ^ 9)
    assert not ledger.ack(Ack(key(root), 5 ^ 77), 2 * S)
    assert not ledger.ack(Ack(key(root), 9), 2 * S)
    assert ledger.ack(Ack(key(root), 77), 2 * S)
    assert ledger.empty and ledger.acked == 3 and ledger.in_flight == 0


def test_a_root_without_rows_anywhere_is_done_at_once() -> None:
    ledger = Ledger()
    root = ledger.begin([1, 2], S, S)
    assert ledger.sent(root, 0, S) and ledger.empty


def test_acks_of_roots_long_done_or_attempts_never_made_change_nothing() -> None:
    ledger = Ledger()
    done, root = send(ledger, 1, S), send(ledger, 1, S)
    ledger.ack(Ack(key(done), ID), S)
    assert not ledger.ack(Ack(key(done), ID), S)
    assert not ledger.ack(Ack(key(root, attempt=3), 0), S)
    assert not ledger.ack(Ack(key(root, attempt=-1), 0), S)
    assert not ledger.ack(Ack(RootKey(1, 1, 99, 0), 0), S)
    assert ledger.in_flight == 1


def test_any_attempt_may_win() -> None:
    ledger = Ledger()
    root = send(ledger, 2, S)
    ledger.fault()
    assert replay(ledger, 2 * S, value=3) is root and root.attempt == 1
    assert not ledger.ack(Ack(key(root, 1), 1), 3 * S)
    assert ledger.ack(Ack(key(root, 0), ID), 3 * S)
    assert ledger.empty and not ledger.ack(Ack(key(root, 1), 2), 3 * S)


@searching(150)
@given(st.integers(0, 2**32))
def test_acked_only_moves_forward_and_names_what_is_done(seed: int) -> None:
    """B5: roots done in any order, replays between them."""
    choose = random.Random(seed)
    ledger, open_roots, done = Ledger(7, 1000), [], set(range(7))
    last, now_ns = 7, S
    for _ in range(60):
        now_ns += choose.randrange(S)
        if open_roots and choose.random() < 0.5:
            root = open_roots.pop(choose.randrange(len(open_roots)))
            ledger.ack(Ack(key(root, choose.randrange(root.attempt + 1)), ID), now_ns)
            done.update(range(root.position, root.position + len(root.rows)))
        elif choose.random() < 0.1:
            ledger.fault()
        elif (again := replay(ledger, now_ns)) is None:
            open_roots.append(send(ledger, choose.randint(1, 5), now_ns))
        else:
            assert again in open_roots
        assert ledger.acked >= last
        last = ledger.acked
        assert set(range(last)) <= done and last not in done
        assert ledger.acked_above == len([p for p in done if p > last])
        assert ledger.in_flight == ledger.position - len(done)
        assert ledger.floor == min((r.sequence for r in open_roots), default=ledger.sequence)


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────────


def test_before_anything_is_measured_a_root_has_thirty_seconds() -> None:
    ledger = Ledger()
    send(ledger, 1, 0)
    ledger.expire(30 * S - 1 + l.STANDS_NS)
    assert replay(ledger, S) is None
    ledger.expire(30 * S + l.STANDS_NS)
    assert replay(ledger, S) is not None


@pytest.mark.parametrize(
    ("latency_ms", "deadline_s"), [(1, 30.0), (500, 30.0), (20_000, 80.0), (200_000, 600.0)]
)
def test_deadlines_follow_what_was_measured(latency_ms: int, deadline_s: float) -> None:
    ledger = measured(latency_ms * MS)
    root = ledger.begin([1], 0, 2000 * S)
    assert root.deadline_ns - 2000 * S == pytest.approx(deadline_s * S, rel=0.01)


def test_a_lost_root_is_sent_again_once_later_ones_are_done() -> None:
    ledger = measured(10 * MS)
    lost = send(ledger, 1, 1000 * S)
    ledger.expire(1031 * S)
    assert replay(ledger, 1031 * S) is None, "nothing shows that it is lost: all may be late"
    ledger.ack(Ack(key(send(ledger, 1, 1001 * S)), ID), 1031 * S)
    ledger.expire(1031 * S)
    assert replay(ledger, 1031 * S) is lost


@pytest.mark.parametrize("slower_s", [2, 25])
def test_a_slot_that_is_seconds_slower_than_another_makes_no_replays(slower_s: int) -> None:
    """No fault, only load: every second row takes the long way, through queues that were not there before."""
    ledger = measured(10 * MS)
    ledger.window_rows = 100_000
    now_ns, waiting = 1000 * S, []
    for n in range(2500):
        now_ns += 20 * MS
        waiting.append((now_ns + (slower_s * S if n % 2 else 10 * MS), key(send(ledger, 1, now_ns))))
        waiting.sort(key=lambda one: one[0])
        while waiting and waiting[0][0] <= now_ns:
            ledger.ack(Ack(waiting.pop(0)[1], ID), now_ns)
        ledger.expire(now_ns)
        assert replay(ledger, now_ns) is None


def test_each_expiry_doubles_a_roots_deadline_a_fault_does_not() -> None:
    ledger = measured(10 * MS)
    root = send(ledger, 1, 1000 * S)
    now_ns, waits = 1000 * S, []
    for _ in range(8):
        started_ns = now_ns
        while True:
            now_ns += 100 * MS
            ledger.expire(now_ns)
            if replay(ledger, now_ns) is root:
                break
        waits.append(round((now_ns - started_ns - (l.STANDS_NS << len(waits))) / S))
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]
    expiries = root.expiries
    ledger.fault()
    assert replay(ledger, now_ns) is root and root.expiries == expiries


def test_b3_a_queue_longer_than_the_deadline_makes_no_storm_of_replays() -> None:
    """Everything takes 20 s, from one moment to the next: late acks count, the deadline learns."""
    ledger = measured(10 * MS)
    ledger.window_rows = 100_000
    now_ns, waiting = 1000 * S, []
    for _ in range(1500):
        now_ns += 100 * MS
        waiting.append((now_ns + 20 * S, key(send(ledger, 1, now_ns))))
        while waiting and waiting[0][0] <= now_ns:
            ledger.ack(Ack(waiting.pop(0)[1], ID), now_ns)
        ledger.expire(now_ns)
        assert replay(ledger, now_ns) is None
    assert ledger.deadline_ns == 80 * S, "4 × 20 s"


def test_a_queue_that_grows_for_minutes_makes_no_replays() -> None:
    """Overload alone: a window of rows that takes three minutes, in order."""
    ledger = Ledger(7, 10_000)
    now_ns = 1000 * S
    for root in [send(ledger, 1, now_ns) for _ in range(2_000)]:
        now_ns += 90 * MS
        ledger.ack(Ack(key(root), ID), now_ns)
        ledger.expire(now_ns)
        assert replay(ledger, now_ns) is None


def standing() -> tuple[Ledger, list[Root]]:
    """A hundred roots that were sent before the sink stood still, at 1,000 s."""
    ledger = measured(10 * MS)
    ledger.window_rows = 100_000
    roots = [send(ledger, 1, 1000 * S + n * MS) for n in range(101)]
    ledger.ack(Ack(key(roots.pop(0)), ID), 1001 * S)
    return ledger, roots


def sent_again(ledger: Ledger, seconds: range) -> list[tuple[int, int]]:
    """(sequence, time) of what is sent again."""
    again: list[tuple[int, int]] = []
    for second in seconds:
        ledger.expire(second * S)
        while (root := replay(ledger, second * S)) is not None:
            again.append((root.sequence, second))
    return again


def test_while_nothing_is_done_one_root_is_sent_again_more_and_more_rarely() -> None:
    """A sink stands still for a day: what waits there already is not made more and more."""
    ledger, roots = standing()
    again = sent_again(ledger, range(1001, 1001 + 86_400))
    assert {sequence for sequence, _ in again} == {roots[0].sequence}
    assert again[0][1] >= 1030 and 3 <= len(again) <= 30
    assert ledger.room() > 0, "what is not full is filled"


def test_after_a_standstill_what_was_there_is_done_and_nothing_is_sent_again() -> None:
    ledger, roots = standing()
    sent_again(ledger, range(1001, 1600))
    for root in roots:
        ledger.ack(Ack(key(root, 0), ID), 1600 * S)
        assert not sent_again(ledger, range(1600, 1601))
    assert ledger.empty


def test_after_a_standstill_what_was_lost_is_sent_again_at_once() -> None:
    """The root that was sent again is done, and what was sent before it is not."""
    ledger, roots = standing()
    sent_again(ledger, range(1001, 1600))
    ledger.ack(Ack(key(roots[0]), ID), 1600 * S)
    again = sent_again(ledger, range(1600, 1601))
    assert [sequence for sequence, _ in again] == [root.sequence for root in roots[1:]]


def test_a_batch_that_waits_for_rows_which_were_lost_gets_them() -> None:
    """It keeps each that is sent again, and none is done before all are there."""
    ledger, roots = standing()
    kept: set[int] = set()
    for second in range(1001, 1300):
        for sequence, _ in sent_again(ledger, range(second, second + 1)):
            ledger.ack(Ack(key(ledger.open_root(sequence)), ID ^ 1, 1), second * S)
            kept.add(sequence)
    assert kept == {root.sequence for root in roots}


def test_b3_a_late_winner_is_measured_from_its_first_emission() -> None:
    ledger = Ledger(0, 1000)
    for _ in range(100):
        root = send(ledger, 1, 0)
        ledger.fault()
        replay(ledger, 9 * S)
        ledger.ack(Ack(key(root, 1), ID), 10 * S)
    assert ledger.deadline_ns == 40 * S


# ── the window ──────────────────────────────────────────────────────────────────────────────────────


def test_the_window_bounds_rows_in_flight() -> None:
    ledger = Ledger(0, 10)
    send(ledger, 6, 0)
    assert ledger.room() == 4
    send(ledger, 6, 0)
    assert ledger.room() == 0
    ledger.ack(Ack(RootKey(1, 1, 0, 0), ID), 0)
    assert ledger.room() == 4


def test_kept_rows_are_not_in_the_window_and_have_no_short_deadline() -> None:
    ledger = measured(10 * MS)
    root = send(ledger, 990, 1000 * S)
    assert ledger.room() == 10
    ledger.ack(Ack(key(root), ID ^ 3, 5), 1000 * S)
    assert ledger.room() == 1000
    ledger.expire(1100 * S)
    assert replay(ledger, 1100 * S) is None
    ledger.ack(Ack(key(root), 0, -5), 1100 * S)
    assert ledger.room() == 10
    ledger.expire(1151 * S)
    assert replay(ledger, 1151 * S) is root, "kept no more, not done: its deadline runs again"


def test_too_many_kept_rows_stop_the_source() -> None:
    ledger = Ledger(0, 10)
    root = send(ledger, l.KEPT_ROWS_MOST, 0)
    ledger.ack(Ack(key(root), ID ^ 3, 1), 0)
    assert ledger.room() == 0


def test_kept_in_an_older_attempt_does_not_count() -> None:
    ledger = Ledger(0, 10)
    root = send(ledger, 5, 0)
    ledger.fault()
    replay(ledger, S)
    ledger.ack(Ack(key(root, 0), 1, 5), S)
    assert ledger.room() == 5


def test_replays_take_a_quarter_of_the_window_at_a_time() -> None:
    ledger = Ledger(0, 100)
    roots = [send(ledger, 10, 0) for _ in range(10)]
    ledger.fault()
    again = [replay(ledger, S), replay(ledger, S)]
    assert again == roots[:2] and replay(ledger, S) is None and ledger.room() == 0
    assert ledger.replayed == 20
    ledger.ack(Ack(key(roots[0]), ID), S)
    assert replay(ledger, S) is roots[2]
    for root in roots:
        ledger.ack(Ack(key(root, 0), ID), S)
        while replay(ledger, S) is not None:
            continue
    assert ledger.empty and ledger.room() == 100


def test_replays_take_a_quarter_of_the_bytes_of_the_window_at_a_time() -> None:
    """What was sent before may wait at a receiver still, and there is room for so much more."""
    ledger = Ledger(0, 1_000_000)
    ledger.window_bytes = 100 * MIB
    roots = []
    for _ in range(10):
        roots.append(ledger.begin([b""] * 10, 0, 0, 10 * MIB))
        ledger.sent(roots[-1], ID, 0)
    ledger.fault()
    assert [replay(ledger, S), replay(ledger, S)] == roots[:2] and replay(ledger, S) is None
    ledger.ack(Ack(key(roots[0]), ID), S)
    assert replay(ledger, S) is roots[2] and replay(ledger, S) is None


def test_nothing_new_is_read_before_replays_have_gone() -> None:
    ledger = Ledger(0, 1000)
    send(ledger, 10, 0)
    ledger.fault()
    assert ledger.room() == 0
    replay(ledger, S)
    assert ledger.room() == 990


def test_replays_that_are_kept_make_room_for_the_rest() -> None:
    """A batch that waits for 50 rows gets them though all must be sent again and a quarter is 25."""
    ledger = Ledger(0, 100)
    for _ in range(50):
        send(ledger, 1, 0)
    ledger.fault()
    sent = 0
    for _ in range(200):
        root = replay(ledger, S)
        if root is not None:
            sent += 1
            ledger.ack(Ack(key(root), ID ^ 1, 1), S)  # the batch keeps it
    assert sent == 50


def test_a_root_done_while_it_waits_is_not_sent_again() -> None:
    ledger = Ledger(0, 100)
    roots = [send(ledger, 20, 0) for _ in range(3)]
    ledger.fault()
    ledger.fault()
    ledger.ack(Ack(key(roots[1]), ID), 0)
    replay(ledger, S)
    ledger.ack(Ack(key(roots[0]), ID), S)
    assert replay(ledger, S) is roots[2] and replay(ledger, S) is None
    assert ledger.replayed == 40
