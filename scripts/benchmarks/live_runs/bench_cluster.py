"""How long `headgate cluster` takes on five hosts, namespaces of this machine, and what an upgrade costs what runs.

The wheelhouse of all dependencies is there already. `pip` is what the slowest host spent in pip and in making its
virtual environment; hosts share this machine's cores, so all of them wait for each other there.
"""
# bench: cluster cluster-upgrade – five bare hosts to registered agents, a second `up`, `down`; an upgrade under load

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
from watched_runs.host_bed import Cluster, arrived, bed, missing, wheelhouse

BEFORE_S, WINDOW_S = 16.0, 5.0
VMS = ("vm1", "vm2", "vm3", "vm4", "vm5")


def timed(cluster: Cluster, command: str, *words: str) -> tuple[float, str]:
    began = time.monotonic()
    said = cluster.cluster(command, *words)
    return time.monotonic() - began, said


def once(wheels: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, bed(Path(folder)) as made:
        for name in VMS:  # the first is the controller's host too
            made.add(name)
        cluster = Cluster(made, wheels)
        cluster.write(*VMS, slots=1)
        first, said = timed(cluster, "up", "--set", f"wheelhouse={wheels}")
        assert "(5 of 5)" in said
        pip = re.search(r"the longest installation: ([0-9.]+) s", said)
        second, said = timed(cluster, "up", "--set", f"wheelhouse={wheels}")
        assert said.startswith("no change")
        down, _ = timed(cluster, "down", "--with-traces")
    pip_s = float(pip[1]) if pip else 0.0
    return {
        "up_s": first,
        "pip_s": pip_s,
        "up_beyond_pip_s": first - pip_s,
        "second_up_s": second,
        "down_s": down,
    }


class Arrivals(threading.Thread):
    """Looks ten times a second how many rows have arrived."""

    def __init__(self, rows: Path) -> None:
        super().__init__()
        self.rows, self.seen, self.ended = rows, [(time.monotonic(), arrived(rows))], threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.1):
            self.seen.append((time.monotonic(), arrived(self.rows)))

    def rates(self, begin: float, end: float) -> list[float]:
        """Of every window of `WINDOW_S` that begins and ends in this time."""
        inside = [(at, rows) for at, rows in self.seen if begin <= at <= end]
        found = []
        for at, rows in inside:
            later = next(((x, n) for x, n in inside if x >= at + WINDOW_S), None)
            if later is not None:
                found.append((later[1] - rows) / (later[0] - at))
        return found


def upgrade(wheels: Path) -> dict[str, float]:
    """Another build, host after host, while 100 rows a second flow."""
    with tempfile.TemporaryDirectory() as folder, bed(Path(folder)) as made:
        for name in VMS:
            made.add(name)
        cluster = Cluster(made, wheels)
        cluster.write(*VMS)
        cluster.up()
        watched = Arrivals(cluster.submit("load"))
        watched.start()
        time.sleep(BEFORE_S)
        begin = time.monotonic()
        took, _ = timed(
            cluster, "upgrade", "--set", f"wheelhouse={wheels}", "--set", f"wheel={cluster.other_build()}"
        )
        time.sleep(WINDOW_S)
        watched.ended.set()
        watched.join()
        before = statistics.median(watched.rates(begin - BEFORE_S / 2, begin))
        during = watched.rates(begin, time.monotonic())
        found = cluster.stopped(watched.rows)
        cluster.cluster("down", "--with-traces")
    return {
        "upgrade_s": took,
        "dip": 1 - statistics.median(during) / before,
        "worst_dip": 1 - min(during) / before,
        "lost": float(max(found) // 2 + 1 - len(found)),
        "again": float(sum(found.values()) - len(found)),
    }


def repeated(once: Callable[[Path], dict[str, float]], repeats: int = 5) -> dict[str, Any]:
    if (why := missing()) is not None:
        sys.exit(why)
    wheels = wheelhouse()
    rounds = [once(wheels) for _ in range(repeats)]
    return {"hosts": len(VMS), **{name: spread([one[name] for one in rounds]) for name in rounds[0]}}


BENCHMARKS = {"cluster": partial(repeated, once), "cluster-upgrade": partial(repeated, upgrade)}
