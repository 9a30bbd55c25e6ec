"""Words of the end of the input, for the threads of keyed tasks: one for each key range, each a root of its own with a
name of its own (dead_letter_messages.py), so that it is sent again until it is done and counts once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.worker.sources.source_ledger import Ledger, Root

END_SEQUENCES = 1 << 62  # their roots are numbered from here on


@dataclass(slots=True)
class EndWords:
    """Of one source thread."""

    ledger: Ledger = field(default_factory=lambda: Ledger(window_rows=4 * KEY_RANGES, first=END_SEQUENCES))
    _told: dict[str, None] = field(default_factory=dict)  # keyed tasks
    _places: dict[int, tuple[str, int]] = field(default_factory=dict)  # sequence → task, key range

    def clear(self) -> None:
        """Another thread says them."""
        self.ledger = Ledger(window_rows=4 * KEY_RANGES, first=self.ledger.sequence)
        self._told.clear()
        self._places.clear()

    def due(self, tasks: Iterable[str], now_ns: int) -> Iterator[tuple[Root, str, int]]:
        """What is to be sent now: (root, task, key range)."""
        for task in tasks:
            if task not in self._told:
                self._told[task] = None
                for key_range in range(KEY_RANGES):
                    root = self.ledger.begin([key_range], now_ns, now_ns)
                    self._places[root.sequence] = task, key_range
                    yield root, task, key_range
        while (again := self.ledger.next_replay(now_ns)) is not None:
            yield again, *self._places[again.sequence]

    def told(self, tasks: Iterable[str]) -> bool:
        return all(task in self._told for task in tasks)
