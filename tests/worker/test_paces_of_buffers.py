"""A buffer leaves as it was asked to, until later routes come."""

from __future__ import annotations

from plane_tasks import MS, S
from test_sending import outputs, root, router

from headgate.topology_runtime.latency.words import Pace


def put(out, number: int, now_ns: int) -> int:  # type: ignore[no-untyped-def]
    """A row; how many rows leave then."""
    out.put([number], [(0, 0, 1, 0)], [root(number)], now_ns)
    return sum(len(frame.rows) for frame in out.flush(now_ns))


def test_a_gap_of_its_own() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=S)
    out.pace(Pace(1, 0, 0, 1, 5 * MS, 256))
    left = [put(out, ms, S + ms * MS) for ms in range(20)]
    assert [ms for ms, rows in enumerate(left) if rows] == [0, 5, 10, 15] and left[5] == 5


def test_a_size_of_its_own() -> None:
    out = outputs([router("global", {1: 1.0})], gap_ns=S)
    put(out, 0, S)
    out.pace(Pace(1, 0, 0, 1, S, 3))
    left = [put(out, n, S + n) for n in range(1, 10)]
    assert left == [0, 0, 3] * 3, "it leaves when it has three rows"


def test_later_routes_let_it_go_and_earlier_ones_do_not() -> None:
    out = outputs([router("global", {1: 1.0})], cap=256, gap_ns=S)
    out.pace(Pace(2, 0, 0, 1, 5 * MS, 256))
    out.route_by([(0, router("global", {1: 1.0}))], 2)
    assert [put(out, ms, S + ms * MS) for ms in range(6)] == [1, 0, 0, 0, 0, 5], (
        "it was asked for by these routes"
    )
    out.route_by([(0, router("global", {1: 1.0}))], 3)
    assert sum(put(out, ms, 2 * S + ms * MS) for ms in range(1, 50)) == 1
