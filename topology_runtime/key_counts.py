"""Which keys the rows of an edge have, as the threads that split them by key say it: a part of `messages`."""

from __future__ import annotations

import msgspec

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
