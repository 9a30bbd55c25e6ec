"""Latency constraints in the loop: the workers that manage them are given time before a plan is made for one; what they
do is told as events, and an alarm says what they cannot do."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from headgate.controller.analyze.constraints import violations
from headgate.controller.analyze.paths import standings
from headgate.controller.core.alarms import clear_alarm, raise_alarm
from headgate.controller.knowledge.diagnoses import PathStanding, Violation
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.windows import Window

PATIENT_TURNS = 60  # of a second: so long buffers and chains may take
HELPLESS_TURNS = 10  # before there is an alarm


class PathWatch:
    """How long each constraint has stood as it does, in turns of a second."""

    def __init__(self) -> None:
        self.now: tuple[PathStanding, ...] = ()
        self._for: dict[int, int] = {}

    def look(
        self, turn: Turn, members: Membership, window_of: Callable[[float], Window]
    ) -> tuple[Violation, ...]:
        """Once a turn: the constraints that do not hold."""
        topology = turn.knowledge.topology
        if topology is None or not topology.latency_constraints:
            return ()
        before, self.now = self.now, standings(topology, members.workers.values())
        for number, path in enumerate(self.now):
            same = number < len(before) and before[number].standing == path.standing
            self._for[number] = self._for.get(number, 0) + 1 if same else 0
            if not same:
                self._tell(turn, path)
        self._alarm(turn)
        patient = {
            path.path: path
            for number, path in enumerate(self.now)
            if path.standing == "adapting" and self._for[number] < PATIENT_TURNS
        }
        return tuple(
            replace(one, waits_for=_doing(patient[one.path])) if one.path in patient else one
            for one in violations(topology, window_of)
        )

    def _tell(self, turn: Turn, path: PathStanding) -> None:
        if path.standing == "adapting":
            turn.event("latency", f"{_name(path)}: {_doing(path)}", path=list(path.path))
        elif path.standing == "held" and (path.shortened or path.chained):
            turn.event("latency", f"{_name(path)}: it holds, {_doing(path)}", path=list(path.path))

    def _alarm(self, turn: Turn) -> None:
        stuck = [
            path
            for number, path in enumerate(self.now)
            if path.standing == "helpless" and self._for[number] >= HELPLESS_TURNS
        ]
        if stuck:
            texts = [f"{_name(path)}: {path.text}; neither buffers nor chains can help" for path in stuck]
            raise_alarm(turn, "latency", "; ".join(texts))
        elif all(path.standing == "held" for path in self.now):
            clear_alarm(turn, "latency", "all latency constraints hold")


def _name(path: PathStanding) -> str:
    return f"{' → '.join(path.path)} within {path.limit_ms:g} ms"


def _doing(path: PathStanding) -> str:
    now = f"{path.most_ms:.0f} ms on the slowest way" if path.most_ms is not None else "not measured yet"
    done = [f"{path.shortened} of {path.channels} buffers leave earlier"] * bool(path.shortened)
    done += [f"{path.chained} threads are chained"] * bool(path.chained)
    return ", ".join([now, *done])
