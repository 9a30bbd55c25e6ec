"""What encryption of tuple links costs: W2 (bench_data_plane.py) with keys, as always, and without, by turns.

headgate has no way to run without. Here workers load a module before all else that leaves CURVE out of their tuple
links (PUSH and PULL sockets), and nothing but that; their words to their agent stay as they are.
"""
# bench: W2-keys – throughput of two workers with encrypted tuple links, beside the same without

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import spread
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


def keyed_and_plain(repeats: int = 5, seconds: float = 4.0) -> dict[str, Any]:
    ratios, rates = [], []
    for n in range(repeats):
        with plain_links():
            plain = ours(seconds, PLACES)
        rates.append(ours(seconds, PLACES))
        ratios.append(rates[-1] / plain)
        told = f"{n + 1}/{repeats}: {rates[-1]:,.0f}/s, {ratios[-1]:.2f} of {plain:,.0f}/s"
        print(told, file=sys.stderr)
    return {"ratio": spread(ratios), "tuples_per_s": spread(rates)}


BENCHMARKS = {"W2-keys": keyed_and_plain}
