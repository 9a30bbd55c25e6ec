"""What a peer says of times is added up in 64 bits: whatever it says, the sum stays a number that fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.worker.frames import SPENT_MOST_NS, spent_ns

TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


@given(TIMES, TIMES)
def test_no_time_is_negative_or_longer_than_an_hour(begin_ns: int, end_ns: int) -> None:
    spent = spent_ns(begin_ns, end_ns)
    assert 0 <= spent <= SPENT_MOST_NS
    assert spent == end_ns - begin_ns or not 0 <= end_ns - begin_ns <= SPENT_MOST_NS


def test_two_million_lies_fit_into_a_word() -> None:
    assert 2_000_000 * SPENT_MOST_NS < 1 << 63
