"""Faults done to a running `up`: kills and stops of its processes, chosen by a seed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

import psutil

from watched_runs.trials import Trial

STOPPED_S = {"worker": 4.0, "agent": 1.5, "controller": 3.0}  # stopped so long, then it goes on


class Faults:
    """`KIND ROLE`, as in `kill worker` or `stop controller`. `spare_first_agent`: the oldest one is stopped but
    never killed, so that there is an agent as old as the run."""

    def __init__(self, running: Trial, seed: int, spare_first_agent: bool = False) -> None:
        self._running, self._choose = running, random.Random(seed)
        self._spare_first_agent = spare_first_agent
        self._stopped: list[tuple[float, psutil.Process]] = []
        self.done: Counter[str] = Counter()

    def inflict(self, fault: str) -> int:
        """On a process of that role; its pid, 0 when there is none now."""
        kind, role = fault.split()
        pids = self._running.pids(role)
        if kind == "kill" and role == "agent" and self._spare_first_agent:
            pids = pids[1:]
        if not pids:
            return 0
        try:
            process = psutil.Process(self._choose.choice(pids))
            if kind == "kill":
                process.kill()
            else:
                process.suspend()
                self._stopped.append((time.monotonic() + STOPPED_S[role], process))
        except psutil.Error:
            return 0  # it ended meanwhile
        self.done[fault] += 1
        return process.pid

    def any_of(self, faults: Sequence[str]) -> str:
        return self._choose.choice(faults)

    def heal(self, at_s: float = float("inf")) -> None:
        """Processes that were stopped long enough by then go on."""
        due = [entry for entry in self._stopped if entry[0] <= at_s]
        self._stopped = [entry for entry in self._stopped if entry[0] > at_s]
        for _, process in due:
            try:
                process.resume()
            except psutil.Error:
                continue  # it was killed meanwhile
