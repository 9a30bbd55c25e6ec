"""How long `headgate cluster` takes on five hosts, namespaces of this machine, and what an upgrade costs what runs.

The wheelhouse of all dependencies is there already. `pip` is what the slowest host spent in pip and in making its
virtual environment; hosts share this machine's cores, so all of them wait for each other there.
"""
# bench: cluster cluster-upgrade – five bare hosts to registered agents, a second `up`, `down`; an upgrade under load

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from watched_runs.host_bed import Cluster, arrived, bed, missing, wheelhouse

BEFORE_S, WINDOW_S = 16.0, 5.0
VMS = ("vm1", "vm2", "vm3", "vm4", "vm5")


def spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {"n": len(values), **{name: round(value, 2) for name, value in found.items()}}


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


BENCHMARKS = {"cluster": once, "cluster-upgrade": upgrade}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    arguments = parser.parse_args()
    if (why := missing()) is not None:
        sys.exit(why)
    wheels = wheelhouse()
    for benchmark in arguments.names or BENCHMARKS:
        rounds = [BENCHMARKS[benchmark](wheels) for _ in range(arguments.repeats)]
        found: dict[str, Any] = {name: spread([one[name] for one in rounds]) for name in rounds[0]}
        if arguments.output == "json":
            print(json.dumps({"benchmark": benchmark, "hosts": len(VMS), **found}, indent=1))
            continue
        for name, value in found.items():
            print(f"{name:16} median {value['median']}, {value['min']} to {value['max']} (n = {value['n']})")


if __name__ == "__main__":
    main()
