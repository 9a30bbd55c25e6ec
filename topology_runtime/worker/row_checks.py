"""Which rows are looked at before they go on inside a worker. Pure.

Every row that goes to another process is looked at where it is written. One that stays was looked at just as closely,
which took a third of a frame's time: so of every fourth larger frame a part is looked at, every time another one, and
after a row that cannot travel all rows of the next frames. A function that returns what cannot travel does so again and
again: what is passed over reaches the next task as it is, and is found some frames later, or where it leaves the
worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker.columns import Columns

WHOLE_MOST = 32  # rows in a frame of which all are looked at
TURNS = 4  # of larger ones every fourth is looked at
ONE_IN, LOOKED_AT = 8, 32  # … one row in eight, or, where that is more, some 32
CAREFUL_FRAMES = 256  # are looked at as a whole after a row that cannot travel


class RowChecks:
    """Of what one thread gives on. every: all rows are looked at."""

    def __init__(self) -> None:
        self.every = False
        self._careful = self._begin = 0

    def pass_on(self, rows: Sequence[Any]) -> bool:
        """May these rows go on? Else one that was looked at cannot travel."""
        if type(rows) is Columns and rows.sound:
            return True
        if self.every or self._careful or len(rows) <= WHOLE_MOST:
            self._careful = max(0, self._careful - 1)
        elif self._begin % TURNS:
            self._begin += 1
            return True
        else:
            step = max(ONE_IN, len(rows) // LOOKED_AT)
            rows = rows[(1 + self._begin // TURNS) % step :: step]
            self._begin += 1
        try:
            wire.check(rows)
        except BadRow:
            self._careful = CAREFUL_FRAMES
            return False
        return True
