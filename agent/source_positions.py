"""How far the source threads of a VM have read, as its workers tell it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from headgate.topology_runtime.messages import SourceStatus


class SourcePositions:
    """The newest of each source thread, and up to where an earlier worker had it all acked."""

    def __init__(self) -> None:
        self._here: AbstractSet[int] = frozenset()
        self._known: dict[int, tuple[int, SourceStatus, int]] = {}

    def want(self, here: AbstractSet[int], listed: Collection[int]) -> None:
        """Threads that are desired on this VM, and anywhere."""
        self._here = here
        self._known = {thread: known for thread, known in self._known.items() if thread in listed}

    def note(self, incarnation: int, sources: tuple[SourceStatus, ...]) -> None:
        """A worker's word, or its meter's."""
        for now in sources:
            before = self._known.get(now.thread)
            floor = 0
            if before is not None:
                known, last, floor = before
                if incarnation < known or (incarnation == known and now.emitted < last.emitted):
                    continue  # an older word that came later
                if incarnation > known:
                    floor = max(floor, last.acked)
            self._known[now.thread] = (incarnation, now, floor)

    def now(self) -> tuple[SourceStatus, ...]:
        """The source threads that are desired here, lowest thread first.

        One that was started again has nothing emitted until it is told from where: until then it has
        acked what its dead predecessor had."""
        return tuple(
            replace(now, acked=max(now.acked, floor)) if now.emitted == 0 else now
            for thread, (_, now, floor) in sorted(self._known.items())
            if thread in self._here
        )
