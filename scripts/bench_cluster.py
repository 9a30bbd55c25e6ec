"""How long `headgate cluster` takes on five hosts: namespaces of this machine with an sshd each.

The wheelhouse of all dependencies is there already. `pip` is what the slowest host spent in pip and in making its
virtual environment; hosts share this machine's cores, so all of them wait for each other there.
"""
# bench: cluster – five bare hosts to registered agents, a second `up`, `down`

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from watched_runs.bed_cluster import Cluster
from watched_runs.host_bed import bed, missing
from watched_runs.wheelhouse import wheelhouse

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
        first, said = timed(cluster, "up", "--wheelhouse", str(wheels))
        assert "(5 of 5)" in said
        pip = re.search(r"the longest installation: ([0-9.]+) s", said)
        second, said = timed(cluster, "up", "--wheelhouse", str(wheels))
        assert said.startswith("no change")
        down, _ = timed(cluster, "down", "--traces")
    return {"up_s": first, "pip_s": float(pip[1]) if pip else 0.0, "second_up_s": second, "down_s": down}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    arguments = parser.parse_args()
    if (why := missing()) is not None:
        sys.exit(why)
    wheels = wheelhouse()
    rounds = [once(wheels) for _ in range(arguments.repeats)]
    found: dict[str, Any] = {name: spread([one[name] for one in rounds]) for name in rounds[0]}
    found["up_beyond_pip_s"] = spread([one["up_s"] - one["pip_s"] for one in rounds])
    if arguments.output == "json":
        print(json.dumps({"benchmark": "cluster", "hosts": len(VMS), **found}, indent=1))
        return
    for name, value in found.items():
        print(f"{name:16} median {value['median']} s, {value['min']} to {value['max']} (n = {value['n']})")


if __name__ == "__main__":
    main()
