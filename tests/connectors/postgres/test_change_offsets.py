"""Offsets of changes are the same in every replay, wherever a slot was confirmed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.connectors.databases.change_offsets import ChangeOffsets, is_behind

Transaction = tuple[int, int, int]  # its record of commit, behind it, rows


@st.composite
def transactions(draw: st.DrawFn) -> list[Transaction]:
    found, lsn = [], 0x1000000
    for rows, before, size in draw(
        st.lists(
            st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(5, 20)), min_size=1, max_size=30
        )
    ):
        commit = lsn + 8 * before
        lsn = commit + 8 * size
        found.append((commit, lsn, rows))
    return found


def streamed(all_of: list[Transaction], begin: int, offsets: ChangeOffsets) -> list[tuple[int, int, int]]:
    """(commit, number in it, offset) of each row of those that a slot confirmed at `begin` sends."""
    found = []
    for commit, end, rows in all_of:
        if commit >= begin:
            found += [(commit, number, offsets.offset(commit)) for number in range(rows)]
            offsets.passed(end)
    return found


@given(transactions(), st.data())
def test_what_is_sent_again_has_the_offsets_that_it_had(
    all_of: list[Transaction], data: st.DataObject
) -> None:
    offsets = ChangeOffsets()
    rows = streamed(all_of, 0, offsets)
    known = [offset for _, _, offset in rows]
    assert known == sorted(set(known))
    done = data.draw(st.sampled_from(known)) + 1 if known else 0
    place = offsets.confirmed(done)
    assert streamed(all_of, place, ChangeOffsets()) == [row for row in rows if row[0] >= place]
    before = [offset for commit, _, offset in rows if commit < place]
    assert all(offset < done for offset in before)
    if before:
        assert is_behind(place, before[-1])


@given(transactions())
def test_a_log_that_goes_on_without_rows_is_confirmed(all_of: list[Transaction]) -> None:
    offsets = ChangeOffsets()
    rows = streamed(all_of, 0, offsets)
    far = max(all_of[-1][1], offsets.last) + 64
    offsets.passed(far)
    place = offsets.confirmed(offsets.last + 1)
    assert far - 32 < place <= far
    assert not rows or is_behind(place, offsets.last)


@given(transactions())
def test_a_place_at_a_record_is_behind_no_row(all_of: list[Transaction]) -> None:
    for commit, end, _ in all_of:
        assert not is_behind(end, commit)
