"""Segments whose times do not fit to the rest of their run."""

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from headgate.dashboards.analytics.clocks import SKEW_S, backwards, outside

S = 1_000_000
DAY = 86_400 * S


def spans(*begins, each=10):
    return [(begin * S, (begin + each) * S) for begin in begins]


def test_segments_that_follow_each_other_all_fit():
    assert outside(spans(*range(0, 1000, 10)), 0) == {}


def test_a_run_of_a_month_in_a_few_segments_fits():
    month = [(n * 3 * DAY, (n + 1) * 3 * DAY) for n in range(10)]
    assert outside(month, 0) == {}


def test_one_years_away_is_out_and_its_distance_is_said():
    found = outside([*spans(0, 10, 20), (400 * DAY, 400 * DAY + S)], 0)
    assert list(found) == [3]
    assert "400 days after" in found[3]


def test_one_whose_clock_jumped_while_it_was_open_is_out():
    assert list(outside([*spans(0, 10, 20), (30 * S, 30 * S + 300 * DAY)], 0)) == [3]


def test_of_two_stretches_the_one_at_the_start_of_the_run_counts():
    late = [(9 * DAY + n * S, 9 * DAY + (n + 1) * S) for n in range(5)]
    assert list(outside(spans(0, 10) + late, 0)) == [2, 3, 4, 5, 6]


def test_one_that_begins_before_the_run_is_out():
    assert list(outside(spans(-600, 0, 10, 20), 0)) == [0]


def test_when_the_most_begin_before_the_run_its_own_clock_is_wrong():
    assert outside(spans(-600, -590, -580), 0) == {}


def test_a_clock_that_went_back_is_seen_in_the_order_of_writing():
    names = [f"5-{n:06d}.parquet" for n in range(5)]
    assert list(backwards(names, spans(0, 1000, 2000, 500, 3000))) == [3]


def test_a_forward_jump_does_not_cost_what_follows():
    names = [f"5-{n:06d}.parquet" for n in range(5)]
    assert list(backwards(names, spans(0, 1000, 9000, 2000, 3000))) == [2]


def test_names_without_a_number_have_no_order():
    assert backwards(["b.parquet", "a.parquet"], spans(1000, 0)) == {}


@examples(100)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40))
def test_what_is_kept_never_goes_back_by_more_than_clocks_differ(begins):
    names = [f"5-{n:06d}.parquet" for n in range(len(begins))]
    out = backwards(names, spans(*begins))
    kept = [begin for n, begin in enumerate(begins) if n not in out]
    assert kept
    assert all(later >= earlier - SKEW_S for earlier, later in zip(kept, kept[1:], strict=False))
