"""An operator mends what made rows fail and has their dead letters sent again, now and then, while things go wrong.

1. A letter that is no more had its row at the sink: as soon as its source thread says so, and when the controller
   drops it.
2. A row that was sent again before the cause was mended is a letter again.
3. In the end no letter is left: none vanishes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headgate.controller.knowledge.letters import DiedAgain, Letter, LetterRecord, LetterReplayed
from headgate.controller.simulation.clock import S
from headgate.controller.simulation.logic import Row
from headgate.topology_runtime.letters import SendAgain, SentAgain
from headgate.topology_runtime.worker import rows as wire

if TYPE_CHECKING:
    from headgate.controller.simulation.world import SimWorld

MENDED_S, ASKED_S = (2.5, 6.0), (1.5, 6.5)  # from when to when it may be
ASKED_TIMES = 4


class Replays:
    """Of one world."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.random = random.Random(world.seed)  # of its own: other shapes stay as they are
        self.mended_ns = S + int(self.random.uniform(*MENDED_S) * S)
        self._rows: dict[tuple[int, int], tuple[int, Row]] = {}  # (boot, serial) → letter and its row
        self._kept: dict[int, Letter] = {}  # on the controller's disk

    def mended(self) -> bool:
        return self.world.now_ns >= self.mended_ns

    @property
    def _sunk(self) -> dict[int, Row]:
        return self.world.account.again_sunk

    def plan(self) -> None:
        if any(map(self.world.shape.fails, range(100))):
            for _ in range(ASKED_TIMES):
                at_ns = S + int(self.random.uniform(*ASKED_S) * S)
                self.world.clock.at(at_ns, "", self.ask)

    def ask(self) -> None:
        controller = self.world.controller
        reply = controller.ask("deadletter_replay", all=True) if controller.alive else None
        asked = len(reply.data["ids"]) if reply is not None and reply.error is None else reply and reply.error
        self.world.clock.say(f"letters asked for: {asked}")

    # ── what is seen ────────────────────────────────────────────────────────────────────────────

    def told(self, message: SendAgain) -> None:
        """A source thread hears what it is to send again."""
        for row in message.rows:
            (read,) = wire.read(row.data, row.shape)
            self._rows[message.boot, row.serial] = row.number, read[:3]

    def says(self, again: Iterable[SentAgain]) -> None:
        """Rule 1, of a source thread."""
        for place in ((now.boot, serial) for now in again for serial in now.done):
            number, row = self._rows[place]
            assert self._sunk.get(number) == row, f"letter {number} is done, its row reached no sink"

    def kept(self, records: Iterable[LetterRecord]) -> None:
        """Rule 1, of what the controller writes."""
        for record in records:
            if isinstance(record, Letter):
                before = self._kept.setdefault(record.number, record)
                assert before.key == record.key, f"two letters have the number {record.number}"
            elif isinstance(record, LetterReplayed):
                assert record.number in self._kept, f"letter {record.number} is dropped, it was never written"
                letter = self._kept[record.number]
                place = letter.source, letter.partition, letter.position
                reached = self._sunk.get(record.number)
                assert reached == place, f"letter {record.number} is dropped, its row reached no sink"
                self.world.met["letters replayed"] += 1
                del self._kept[record.number]
            elif isinstance(record, DiedAgain):
                assert record.number in self._kept, f"letter {record.number} died again, it was never written"
                self.world.met["letters died again"] += 1

    @property
    def left(self) -> str:
        """Rule 3; an operator asks until none is left."""
        controller = self.world.controller
        if not controller.alive:
            return "no controller"
        letters = controller.loop.knowledge.counts.letters
        if letters.kept.keys() - letters.asked.keys():
            self.ask()
        return f"dead letters {sorted(letters.kept)[:5]} are left" if letters.kept else ""

    def over(self) -> None:
        known = self.world.controller.loop.knowledge.counts.letters.kept  # of which it heard last
        vanished = sorted(self._kept.keys() - known.keys())
        assert not vanished, f"letters {vanished} have vanished"
