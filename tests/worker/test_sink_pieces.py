"""A sink logs as it goes: a worker that is killed at it leaves little that nobody counted."""

from __future__ import annotations

from test_task_logic import flow, frame, open_after, root

from headgate.topology_runtime.worker.pieces import MOST_ROWS, PIECE_NS, Finished, Pieces


class Desk:
    """A sink whose rows take so long each, and what is seen of it from outside."""

    def __init__(self, row_ns: int, kind: str = "map") -> None:
        self.row_ns, self.now_ns, self.unlogged = row_ns, 0, 0
        self.done: list[int] = []
        self.logged = 0
        self.unlogged_most = 0  # rows done in no log, at a moment at which the meter said so
        self.task = flow(self.work, kind, sink=True)
        self.task.results.pieces = Pieces(lambda: self.now_ns, self)

    def begun(self, rows: int) -> None:
        self.unlogged = rows

    def log(self, finished: list[Finished]) -> None:
        self.logged += sum(count for _, _, count, _ in finished)

    def work(self, row: int) -> bool:
        self.now_ns += self.row_ns
        self.done.append(row)
        assert len(self.done) - self.logged <= self.unlogged, "the meter knows of every row that is in no log"
        self.unlogged_most = max(self.unlogged_most, len(self.done) - self.logged)
        return True


def test_a_slow_sink_logs_row_by_row() -> None:
    desk = Desk(2 * PIECE_NS)
    parts = [root(0, 100), root(1, 200)]
    acks = desk.task.take(frame(list(range(40)), *parts), 0)
    assert (len(desk.done), desk.logged, desk.unlogged_most, desk.unlogged) == (40, 40, 1, 0)
    assert set(open_after(acks, *parts).values()) == {0}
    assert desk.task.code.watch.moved >= 40, "forty calls are not one that never returns"


def test_a_fast_sink_logs_a_millisecond_of_rows_at_once() -> None:
    desk = Desk(PIECE_NS // 100)
    desk.task.take(frame(list(range(1000))), 0)
    assert desk.logged == 1000 and 25 <= desk.unlogged_most <= 100
    endless = Desk(0)
    endless.task.take(frame(list(range(10 * MOST_ROWS))), 0)
    assert endless.unlogged_most == MOST_ROWS


def test_a_sink_that_filters_logs_every_row_that_it_saw() -> None:
    desk = Desk(PIECE_NS, "filter")
    desk.task.take(frame(list(range(10))), 0)
    assert (desk.logged, desk.task.results.tuples_out) == (10, 10)
