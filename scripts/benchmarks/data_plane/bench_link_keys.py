"""What encryption of tuple links costs: W2 (bench_data_plane.py) with keys, as always, and without, by turns.

headgate has no way to run without. Here workers load a module before all else that leaves CURVE out of their tuple
links (PUSH and PULL sockets), and nothing but that; their words to their agent stay as they are.
"""
# bench: W2-keys – throughput of two workers with encrypted tuple links, beside the same without

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.data_plane.bench_data_plane import NAMES, ours

PLACES = {name: [0 if name in ("source", "f1") else 1] for name in NAMES}
WITHOUT = """
import zmq
from headgate.topology_runtime.keys import curve

def but_for_tuples(function):
    def called(socket, *arguments):
        if socket.type not in (zmq.PUSH, zmq.PULL):
            function(socket, *arguments)
    return called

curve.guard_server, curve.prove = but_for_tuples(curve.guard_server), but_for_tuples(curve.prove)
"""


@contextmanager
def plain_links() -> Iterator[None]:
    """Workers that start in here have no encryption on their tuple links."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(WITHOUT)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", "--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("-o", "--output", choices=["json", "table"], default="table")
    options = parser.parse_args()
    ratios, rates = [], []
    for n in range(options.repeats):
        with plain_links():
            plain = ours(options.seconds, PLACES)
        rates.append(ours(options.seconds, PLACES))
        ratios.append(rates[-1] / plain)
        print(
            f"{n + 1}/{options.repeats}: {rates[-1]:,.0f}/s, {ratios[-1]:.2f} of {plain:,.0f}/s",
            file=sys.stderr,
        )
    found = {
        "n": options.repeats,
        "ratio": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
        "tuples_per_s": round(statistics.median(rates)),
    }
    print(json.dumps(found) if options.output == "json" else "  ".join(f"{k} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()
