"""Which keys most rows have: what a thread tells, beside what a count of all rows finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.topology_runtime.key_counts import KEY_TEXT_MOST, KeysSeen
from headgate.topology_runtime.messages import Route
from headgate.topology_runtime.topology import KEY_RANGES, Edge
from headgate.topology_runtime.worker.key_watch import KEPT, TOLD_MOST, KeyWatch
from headgate.topology_runtime.worker.router import Router, range_of


def split(rows: Sequence[Any], frame: int) -> KeysSeen | None:
    """What a router tells after rows that are their own keys went through it in frames of this size."""
    route = Route(0, ((1, 0.5), (2, 0.5)), ((1, KEY_RANGES // 2), (2, KEY_RANGES // 2)))
    router = Router(
        Edge("a", "b", grouping="fields", key="k"), route, frozenset(), lambda x: x, lambda _: 256, 0
    )
    for at in range(0, len(rows), frame):
        taken = sum(len(places) for _, places in router.split(rows[at : at + frame]))
        assert taken + len(router.unroutable) == len(rows[at : at + frame])
    assert router.keys is not None
    return router.keys.told(7, 3, range_of, hidden=False)


def skewed(share: float, keys: int, rows: int, seed: int) -> list[str]:
    random_ = random.Random(seed)
    return ["hot" if random_.random() < share else f"cold {random_.randrange(keys)}" for _ in range(rows)]


@pytest.mark.parametrize("frame", [1, 32])
def test_of_small_frames_every_row_is_counted(frame: int) -> None:
    rows = skewed(0.8, 5, 2_000, 1)
    exact = Counter(rows)
    seen = split(rows, frame)
    assert seen is not None and (seen.edge, seen.thread) == (7, 3)
    assert seen.rows == seen.looked_at == 2_000
    assert [(top.key, top.rows) for top in seen.top] == [("'hot'", exact["hot"])]
    assert seen.top[0].key_range == range_of("hot")


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_of_large_frames_a_part_tells_the_share(share: float) -> None:
    rows = skewed(share, 100_000, 200_000, 2)
    exact = Counter(rows)["hot"] / len(rows)
    seen = split(rows, 256)
    assert seen is not None and seen.rows == len(rows)
    assert len(rows) / 16 < seen.looked_at < len(rows) / 6, "about every eighth frame"
    assert seen.top[0].key == "'hot'"
    assert seen.top[0].rows / seen.looked_at == pytest.approx(exact, abs=0.02)


def test_a_rhythm_of_the_rows_is_not_met() -> None:
    rows = [key for _ in range(500) for key in ["a"] * 256 + ["b"] * 256 * 7]
    seen = split(rows, 256)
    assert seen is not None
    told = {top.key: top.rows / seen.looked_at for top in seen.top}
    assert told["'b'"] == pytest.approx(7 / 8, abs=0.05)


def test_with_many_keys_a_count_is_short_by_a_hundredth_at_most() -> None:
    random_ = random.Random(3)
    rows = [int(random_.paretovariate(0.35)) for _ in range(60_000)]
    exact, watch = Counter(rows), KeyWatch()
    assert len(exact) > 20 * KEPT
    for at in range(0, len(rows), 30):
        watch.add(rows[at : at + 30])
    seen = watch.told(0, 0, range_of, hidden=False)
    assert seen is not None and seen.looked_at == len(rows) and len(seen.top) >= 2
    for top in seen.top:
        assert exact[int(top.key)] - len(rows) / KEPT <= top.rows <= exact[int(top.key)]


def test_only_what_is_left_since_is_told_and_few_keys() -> None:
    watch = KeyWatch()
    assert watch.told(0, 0, range_of, hidden=False) is None
    assert watch.wants(10)
    watch.add([*range(9), 0])
    seen = watch.told(0, 0, range_of, hidden=False)
    assert seen is not None and len(seen.top) == TOLD_MOST
    assert watch.told(0, 0, range_of, hidden=False) is None


def test_of_hidden_keys_only_the_range_is_told_and_of_long_ones_the_begin() -> None:
    watch = KeyWatch()
    for hidden in (True, False):
        watch.wants(1)
        watch.add(["someone@example.org, whose name is long"])
        seen = watch.told(0, 0, range_of, hidden)
        assert seen is not None
        assert seen.top[0].key == ("" if hidden else "'someone@example.org, whos")[:KEY_TEXT_MOST]
        assert seen.top[0].key_range == range_of("someone@example.org, whose name is long")


def test_keys_that_cannot_be_hashed_go_their_way_and_are_not_counted() -> None:
    assert split([["a"], ["b"]], 2) is None
