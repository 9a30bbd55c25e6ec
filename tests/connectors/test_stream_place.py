"""How far a stream of Redis was read: ids as offsets, what is left, and what was removed unread."""

from __future__ import annotations

import pytest

from headgate.topology_runtime.connectors.queues.stream_place import (
    OFFSET_MOST,
    Id,
    StreamPlace,
    StreamState,
    id_at,
    id_of,
    offset_of,
)
from headgate.topology_runtime.errors import InvalidInput


class Stream:
    """Ids 1-0, 2-0, … as Redis counts them."""

    def __init__(self, added: int) -> None:
        self.ids: list[Id] = [(n + 1, 0) for n in range(added)]
        self.added, self.deleted, self.last = added, (0, 0), (added, 0)

    def trim(self, left: int) -> Stream:
        self.ids = self.ids[len(self.ids) - left :]
        return self

    def delete(self, number: int) -> Stream:
        self.ids.remove((number, 0))
        self.deleted = max(self.deleted, (number, 0))
        return self

    def state(self) -> StreamState:
        first = self.ids[0] if self.ids else (0, 0)
        return StreamState(len(self.ids), self.added, self.last, self.deleted, first)


def read(place: StreamPlace, stream: Stream, most: int) -> None:
    rows = [one for one in stream.ids if one > place.at][:most]
    place.read(rows[-1], [offset_of(one) for one in rows], stream.state())


def test_offsets_rise_with_ids_and_lead_back_to_them() -> None:
    ids = [(0, 1), (1, 0), (1, 7), (1_700_000_000_000, 0), ((1 << 43) - 1, (1 << 20) - 2)]
    offsets = [offset_of(one) for one in ids]
    assert offsets == sorted(set(offsets)) and offsets[-1] == OFFSET_MOST
    assert [id_at(offset) for offset in offsets] == ids


@pytest.mark.parametrize("at", [(1, 1 << 20), (1 << 43, 0), ((1 << 43) - 1, (1 << 20) - 1)])
def test_an_id_that_makes_no_offset_is_refused_by_its_name(at: Id) -> None:
    with pytest.raises(InvalidInput, match=f"{at[0]}-{at[1]}"):
        offset_of(at)


@pytest.mark.parametrize("text", ["", "-", "1-x", "1-2-3", "²-1", "-1-2"])
def test_what_is_no_id_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        id_of(text)


def test_what_is_left_is_known_from_the_start() -> None:
    stream, place = Stream(10), StreamPlace()
    assert place.missing(stream.state()) is not None  # nothing says that 1-0 was the first
    place.accept(stream.state())
    read(place, stream, 4)
    assert place.missing(stream.state()) is None and place.left(stream.state()) == 6
    assert place.left(stream.delete(8).state()) is None  # a hole ahead
    read(place, stream, 99)
    assert place.left(stream.state()) == 0


def test_in_the_midst_it_is_known_once_the_end_was_reached() -> None:
    stream, place = Stream(10), StreamPlace((4, 0))
    assert place.missing(stream.state()) is None and place.left(stream.state()) is None
    read(place, stream, 99)
    assert place.left(Stream(15).state()) == 5


def test_entries_that_were_removed_unread_are_counted() -> None:
    stream, place = Stream(10), StreamPlace()
    place.accept(stream.state())
    read(place, stream, 4)
    assert place.missing(stream.trim(6).state()) is None  # just what was read
    told = place.missing(stream.trim(3).state())
    assert told == "it begins at 8-0; 3 entries were removed unread"
    place.accept(stream.state())
    assert place.missing(stream.state()) is None and place.left(stream.state()) == 3
    assert place.missing(stream.trim(0).state()) == "it is empty; 3 entries were removed unread"


def test_after_a_start_anew_what_was_removed_cannot_be_told_from_what_was_read() -> None:
    told = StreamPlace((4, 0)).missing(Stream(10).trim(6).state())
    assert told is not None and "may have been removed" in told


def test_a_stream_that_was_made_again_is_told() -> None:
    place = StreamPlace((10, 0), 10)
    told = place.missing(Stream(3).state())
    assert told is not None and "made again" in told
    younger = StreamState(3, 3, (22, 0), (0, 0), (20, 0))
    assert "made again" in (place.missing(younger) or "")


def test_a_group_hears_how_many_were_done() -> None:
    stream, place = Stream(10), StreamPlace()
    place.accept(stream.state())
    read(place, stream, 7)
    assert place.done(offset_of((3, 0)) + 1) == 3
    assert place.done(offset_of((7, 0)) + 1) == 7
    assert place.done(offset_of((7, 0)) + 1) is None


@pytest.mark.parametrize(("begins", "lacks"), [((7, 0), False), ((7, 1), True)])
def test_where_no_id_lies_between_nothing_was_removed(begins: Id, lacks: bool) -> None:
    """Sought is the offset of the first row that is there, and nothing is known of what was before."""
    place, now = StreamPlace(id_at(offset_of((7, 0)) - 1)), StreamState(3, 5, (9, 0), (0, 0), begins)
    assert bool(place.missing(now)) == lacks
    assert place.left(now) == 3 or lacks
