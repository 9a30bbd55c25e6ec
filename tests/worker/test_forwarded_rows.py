"""Rows that follow their pane to another thread keep their identity."""

from __future__ import annotations

from itertools import count

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.worker.acks import BufferedRow
from headgate.topology_runtime.worker.outputs import Outputs


def test_rows_of_several_roots_forwarded_in_one_frame_stay_apart() -> None:
    numbers = count(1)
    outputs = Outputs(7, Slot("vm1", 0), 1, lambda: next(numbers), 0)
    roots = [RootPart(RootKey(1, 1, n, 0), Slot("vm1", 0), 0, 0, 10 * n, 0, 0, 99) for n in range(3)]
    given = [outputs.forward(BufferedRow(f"row{n}", 2, roots[n], 4, 5, 0), 9, 0) for n in range(3)]
    (frame,) = outputs.flush(1)
    found = [
        (frame.roots[number].position + offset, row)
        for (number, offset, _, _), row in zip(frame.runs, frame.rows, strict=True)
    ]
    assert found == [(4, "row0"), (14, "row1"), (24, "row2")]
    assert [root.id for root in frame.roots] == [share for one in given for share in one.values()]
