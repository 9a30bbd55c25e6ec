"""W1 to W4 beside other stream processors (scripts/peers), each in its environment (`scripts/setup bench-peers`).

Each does the same work: the functions are those of scripts/peers/work.py, and what comes out is compared with what
has to, in every run; a run whose output is wrong has no figure. Rates count from the first row that a source makes to
the last at the sink, latencies from when a row was due to when it was at the sink: no start of a process. headgate
(a thread per task, and chained) and the peers by turns, each turn beginning with another; told are ratios within
turns, beside the goals (scripts/peers/peers_table.py). Where a peer is not installed or fails, the table says so.
"""
# bench: peers – W1 to W4 beside bytewax, pathway, PyFlink, PySpark streaming, ray

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import SCRIPTS
from peers import peers_table as runs_of

ROOT = SCRIPTS.parent
LATENCY_ROWS = 1_600  # 8 s
ROWS = {  # of W1, W2, W4: some seconds each
    "headgate": (4_000_000, 3_000_000, 800_000), "headgate-chained": (4_000_000, 3_000_000, 800_000),
    "bytewax": (4_000_000, 3_000_000, 400_000), "bytewax-items": (150_000, 100_000, 150_000),
    "ray": (600_000, 1_500_000, 400_000), "pathway": (200_000, 150_000, 200_000),
    "flink": (60_000, 60_000, 40_000), "flink-quick": (0, 0, 0), "pyspark": (200_000, 200_000, 200_000),
}  # fmt: skip
PEERS = tuple(name for name in ROWS if name not in (runs_of.OURS, runs_of.CHAINED))
NO_LATENCY = ("bytewax",)  # lists of rows that come one by one would be waiting
MOST_S = 120.0


def rows_of(system: str, work: str) -> int:
    """How many, or 0 where this system is not asked for this work."""
    if work == "W3":
        return 0 if system in NO_LATENCY else LATENCY_ROWS
    return ROWS[system][("W1", "W2", "W4").index(work)]


def run(system: str, work: str) -> dict[str, Any]:
    """What a run of it tells, or why there is none."""
    package, _, mode = system.partition("-")
    python = ROOT / ".headgate/peers" / package / "bin/python"
    path = str(SCRIPTS)
    if package == runs_of.OURS:
        python, path = Path(sys.executable), f"{ROOT}{os.pathsep}{SCRIPTS}"
    if not python.exists():
        return {"why": "not installed: scripts/setup bench-peers"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = [str(python), "-P", str(SCRIPTS / "peers" / f"{package}_peer.py")]
        command += [work, str(rows_of(system, work)), mode]
        env = {**os.environ, "PYTHONPATH": path, "HOME": home, "RAY_TMPDIR": home}
        process = subprocess.Popen(
            command, env=env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, said = process.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"why": f"not done after {MOST_S:g} s"}
    return told(process.returncode, out, said)


def told(code: int, out: str, said: str) -> dict[str, Any]:
    """The line of JSON that `work.tell` prints, among whatever else a system says."""
    found = [line for line in out.splitlines() if line.startswith(('{"per_s"', '{"p50_ms"'))]
    if code or not found:
        errors = [line for line in said.splitlines() if "error" in line.lower()] or said.strip().splitlines()
        return {"why": (errors or ["it told nothing"])[-1].strip()[:160]}
    return dict(json.loads(found[-1]))


def turns(works: Sequence[str], systems: Sequence[str], repeats: int, to: Path | None) -> list[runs_of.Run]:
    runs: list[runs_of.Run] = []
    failed = set()
    for turn in range(repeats):
        for work in works:
            asked = [name for name in systems if rows_of(name, work) and (name, work) not in failed]
            first = turn % len(asked)
            for system in asked[first:] + asked[:first]:
                load = os.getloadavg()[0]
                runs.append(runs_of.Run(turn, work, system, load=load, **run(system, work)))
                if runs[-1].why:
                    failed.add((system, work))
                print(runs_of.written(runs[-1:]).splitlines()[1], file=sys.stderr, flush=True)
                if to:
                    to.write_text(runs_of.written(runs))
    return runs


def draw(path: Path, found: list[runs_of.Line]) -> None:
    """headgate's figures by the peers', with the least and the most of the turns, and the goals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, rates in zip(panels, (True, False), strict=True):
        shown = [line for line in found if line.n and runs_of.is_rate(line.measure) == rates]
        for form, marker, label in (("ours", "o", "a thread per task"), ("chained", "s", "chained")):
            for at, line in enumerate(shown):
                if (s := getattr(line, form)) is not None:
                    error = ([s.median - s.least], [s.most - s.median])
                    color = "C0" if form == "ours" else "C1"
                    axes.errorbar(
                        s.median, at, xerr=error, fmt=marker, color=color, capsize=3, label=label if not at else None
                    )  # fmt: skip
        goals = [(line.goal, at) for at, line in enumerate(shown) if line.goal]
        axes.plot([g for g, _ in goals], [at for _, at in goals], "k|", markersize=14, label="goal")
        names = [f"{line.work} {line.peer} {'' if rates else line.measure[:3]}" for line in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.axvline(1.0, color="gray", linewidth=1)
        axes.set_xlabel(
            "rows/s by the peer's: more is better" if rates else "latency by the peer's: less is better"
        )
        axes.legend()
    figure.savefig(path)


def peers(
    works: str = "W1,W2,W3,W4",
    peers: str = ",".join(PEERS),
    repeats: int = 5,
    to: Path | None = None,
    kept: Path | None = None,
    plot: Path | None = None,
) -> dict[str, Any]:
    """to: keep all runs in this CSV; kept: run nothing, what this CSV says; plot: draw the ratios (SVG)."""
    if kept:
        runs = runs_of.read(kept.read_text("utf-8"))
    else:
        systems = [runs_of.OURS, runs_of.CHAINED, *filter(None, peers.split(","))]
        runs = turns(works.split(","), systems, repeats, to)
    if plot:
        draw(plot, runs_of.lines(runs))
    lines = [
        {key: v._asdict() if isinstance(v, runs_of.Spread) else v for key, v in line._asdict().items()}
        for line in runs_of.lines(runs)
    ]
    return {"lines": lines, "markdown": runs_of.markdown(runs)}


def table(found: dict[str, Any]) -> str:
    return str(found["markdown"]).rstrip("\n")


BENCHMARKS = {"peers": peers}
