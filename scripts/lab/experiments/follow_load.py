"""A run at its real pace, and `headgate analyze --follow` beside it: memory, lag and turns; a JSON line a minute.

The trace is made before, with segments as the recorder cuts them, and each is brought when the recorder would have
written it. Every half second it is looked at how many segments of `samples` are there and not in the results, how old
the oldest of these is, and what the follower, its Java process and its Python workers hold in memory. Three figures in
a list: the median, the 95th percentile, the highest; two, of turns: the median, the highest.

    .venv/bin/python -P -m headgate.lab.experiments.follow_load --threads 1000 --seconds 600

The last line tells of the whole run, and of its last two thirds what grows: slopes per hour of the run, each with its
95 % interval (Theil–Sen over the means of twelve pieces, long enough to say little of the next one). `turn_cpu_s` is
the CPU time of all its processes: it says what a turn costs on a machine that others use too.

With `--ahead S` the next S seconds of the run come as soon as all that is there is in: the memory of hours in less.
What is not known here goes to `headgate analyze`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

from headgate.controller.recording.trace_writer import ROTATE_BYTES, ROTATE_S, ROW_BYTES
from headgate.topology_runtime.stability.slopes import theil_sen
from headgate.topology_runtime.traces.trace_tables import TABLES
from made_traces.generate_trace import generate
from made_traces.made_runs import Wanted

THREADS_OF_SLOT = 25
ROTATE_ROWS = ROTATE_BYTES // (ROW_BYTES * len(TABLES["samples"]))
LOOK_S = 0.5
TOOK = re.compile(r"the turn took ([0-9.]+) s")
PIECES = 12  # of the last two thirds, whose means a slope is made of
ENDED_S = 600.0  # for a follower to catch up once nothing comes any more


@dataclass(frozen=True)
class Due:
    """A file of the made trace, where it shall appear, and when, in seconds from the run's begin."""

    source: Path
    name: str
    at_s: float
    rows: int


def seconds_of_segment(threads: int) -> int:
    """As the recorder cuts `samples`; here all tables."""
    return max(1, min(int(ROTATE_S), -(-ROTATE_ROWS // threads)))


def made(folder: Path, threads: int, seconds: int) -> tuple[Path, list[Due]]:
    """(the run's folder, its files in order of time)."""
    step, slots = seconds_of_segment(threads), max(4, threads // THREADS_OF_SLOT)
    wanted = Wanted(threads * seconds, threads=threads, slots=slots, epochs=1, segment_rows=step * threads)
    if not (folder / "truth.json").exists():
        generate(folder, wanted)
    run = folder / "made" / "run-1"
    due = []
    for path in sorted(run.glob("*/*.parquet")):
        at_s = min(int(path.stem.rpartition("-")[2]) + step, wanted.windows)
        due.append(Due(path, f"{path.parent.name}/{path.name}", at_s, pq.read_metadata(path).num_rows))
    return run, sorted(due, key=lambda each: (each.at_s, each.name))


@dataclass
class Watch:
    """What is seen of a follower. turns: when in the run, seconds by the clock, CPU seconds since the one before."""

    moments: list[dict[str, float]] = field(default_factory=list)
    turns: list[tuple[float, float, float]] = field(default_factory=list)
    spent_s: float = 0.0

    def hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            if found := TOOK.search(line):
                spent_s = cpu_s(psutil.Process(process.pid))
                at_s = self.moments[-1]["at_s"] if self.moments else 0.0
                self.turns.append((at_s, float(found[1]), spent_s - self.spent_s))
                self.spent_s = spent_s

    def look(self, process: psutil.Process, at_s: float, behind: int, behind_s: float) -> None:
        java = python = 0
        for one in (process, *process.children(recursive=True)):
            try:
                held = one.memory_full_info().pss  # of pages that several have, each its share
                if Path(one.exe()).name != "java":
                    python += held
                elif (of := one.parent()) is not None and Path(of.exe()).name != "java":
                    java += held  # its child before exec has the same memory, once more
            except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
                continue
        self.moments.append(
            {"at_s": at_s, "behind": behind, "behind_s": behind_s, "java": java / 2**20, "python": python / 2**20}
        )  # fmt: skip

    def took(self) -> dict[str, list[float]]:
        """[median, most] of a turn, but for the first."""
        rest = self.turns[1:] or self.turns
        if not rest:
            return {}
        names = (("turn_s", 1), ("turn_cpu_s", 2))
        return {
            name: [round(f([t[at] for t in rest]), 2) for f in (statistics.median, max)] for name, at in names
        }

    def grows(self) -> dict[str, Any]:
        """Per hour of the run, in its last two thirds: [slope, from, to], of 95 %."""
        from_s = self.moments[-1]["at_s"] / 3
        late = [moment for moment in self.moments if moment["at_s"] >= from_s]
        at_s = [moment["at_s"] for moment in late]
        found = {
            "java_mb": slope_h(at_s, [moment["java"] for moment in late]),
            "python_mb": slope_h(at_s, [moment["python"] for moment in late]),
            "all_mb": slope_h(at_s, [moment["java"] + moment["python"] for moment in late]),
        }
        turns = [turn for turn in self.turns if turn[0] >= from_s]
        return {
            "from_s": from_s,
            **found,
            "turn_cpu_s": slope_h([t[0] for t in turns], [t[2] for t in turns]),
        }

    def told(self, from_s: float, to_s: float) -> dict[str, Any]:
        """Of a stretch of the run."""
        mine = [moment for moment in self.moments if from_s <= moment["at_s"] < to_s]
        if not mine:
            return {}

        def spread(name: str) -> list[float]:
            values = sorted(moment[name] for moment in mine)
            return [
                round(x, 1) for x in (statistics.median(values), values[int(0.95 * len(values))], values[-1])
            ]

        return {
            "from_s": from_s,
            "lag_segments": spread("behind"),
            "lag_s": spread("behind_s"),
            "java_mb": round(max(moment["java"] for moment in mine)),
            "python_mb": round(max(moment["python"] for moment in mine)),
            "all_mb": round(max(moment["java"] + moment["python"] for moment in mine)),
        }  # fmt: skip


def cpu_s(process: psutil.Process) -> float:
    """Of it and all below it, those that have ended too."""
    spent = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            spent += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return spent


def slope_h(at_s: list[float], values: list[float]) -> list[float]:
    """Per hour, with its interval; of the means of pieces that follow each other."""
    when, place = np.unique(
        np.array(at_s), return_inverse=True
    )  # with --ahead many moments are one of the run
    means = np.bincount(place, np.array(values)) / np.bincount(place)
    pieces = np.array_split(np.arange(len(when)), min(PIECES, len(when)))
    x, y = (np.array([of[piece].mean() for piece in pieces]) for of in (when / 3600, means))
    found = theil_sen(x, y)
    return [round(value, 2) for value in (found.value, found.low, found.high)]


def bring(to: Path, due: Due) -> None:
    """A name that begins with `_` first, as the recorder does; the time of its last change is now."""
    path = to / due.name
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(due.source, path.with_name(f"_{path.name}"))
    path.with_name(f"_{path.name}").rename(path)


def rows_in(out: Path) -> int:
    """Of `samples`, in the results that are published."""
    try:
        return int(json.loads((out / "analysis.json").read_bytes())["rows_by_table"]["samples"])
    except (FileNotFoundError, ValueError):
        return 0


def behind_of(brought: list[tuple[int, float]], rows: int, now_s: float) -> tuple[int, float]:
    """(segments of `samples` that are there and not in, age of the oldest); brought: (rows so far, when)."""
    at = bisect_right(brought, (rows, float("inf")))
    return len(brought) - at, now_s - brought[at][1] if at < len(brought) else 0.0


@dataclass(frozen=True)
class Follower:
    """`live`: the run's folder, as it grows."""

    process: subprocess.Popen[str]
    live: Path
    out: Path


@dataclass
class Pace:
    """How much of the run shall be there: as time goes, or `ahead_s` more whenever all of it is in the results."""

    ahead_s: float
    limit_s: float
    began_s: float = field(default_factory=time.monotonic)
    reached_s: float = 0.0

    def reach_s(self, now_s: float, caught_up: bool) -> float:
        if not self.ahead_s:
            return now_s - self.began_s
        if caught_up or not self.reached_s:
            self.reached_s += self.ahead_s
        return self.reached_s


def watched(
    run: Path, due: list[Due], here: Path, pace: Pace, options: list[str]
) -> Iterator[dict[str, Any]]:
    live, out, watch = here / "live" / "made" / "run-1", here / "out", Watch()
    shutil.rmtree(here / "live", ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    live.mkdir(parents=True)
    for name in ("run.json", "decisions.jsonl"):
        shutil.copy(run / name, live / name)
    words = [
        "-P",
        "-m",
        "headgate",
        "analyze",
        "--follow",
        str(live),
        "--output",
        str(out),
        "-o",
        "json",
    ]
    process = subprocess.Popen(
        [sys.executable, *words, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    threading.Thread(target=watch.hear, args=(process,), daemon=True).start()
    try:
        yield from _played(watch, Follower(process, live, out), due, pace)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _played(watch: Watch, follower: Follower, due: list[Due], pace: Pace) -> Iterator[dict[str, Any]]:
    seen, minute, at, known, rows = psutil.Process(follower.process.pid), 0, 0, 0.0, 0
    brought: list[tuple[int, float]] = []
    views, analysis = follower.live / "views.jsonl", follower.out / "analysis.json"
    while follower.process.poll() is None:
        now_s = time.monotonic()
        behind, behind_s = behind_of(brought, rows, now_s)
        reach_s = pace.reach_s(now_s, bool(brought) and not behind)
        while at < len(due) and due[at].at_s <= reach_s:
            bring(follower.live, due[at])
            if due[at].name.startswith("samples/"):
                brought.append(((brought[-1][0] if brought else 0) + due[at].rows, now_s))
            at += 1
        if not views.exists() or b"over" not in views.read_bytes():  # somebody writes until it is over
            views.write_text(f'{{"patch":{{"stage":"{"over" if at == len(due) else "running"}"}}}}\n')
        changed = analysis.stat().st_mtime if analysis.exists() else known
        if changed != known:
            known, rows = changed, rows_in(follower.out) or rows
        watch.look(seen, reach_s, behind, behind_s)
        if reach_s >= 60 * (minute + 1):
            yield watch.told(60 * minute, 60 * (minute + 1)) | {"turns": len(watch.turns)}
            minute += 1
        if now_s - pace.began_s > pace.limit_s:
            raise SystemExit("the follower did not catch up")
        time.sleep(LOOK_S)
    told = watch.told(60.0, float("inf")) | {"whole": True, "exit": follower.process.returncode}
    yield told | {"turns": len(watch.turns), **watch.took(), "per_hour": watch.grows()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--ahead", type=float, default=0.0, metavar="S")
    parser.add_argument("--folder", type=Path, help="holds the made trace, for a next time [a temporary one]")
    chosen, options = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="headgate-follow-") as name:
        kept = chosen.folder or Path(name)
        run, due = made(kept / f"{chosen.threads}-{chosen.seconds}", chosen.threads, chosen.seconds)
        pace = Pace(chosen.ahead, ENDED_S + chosen.seconds * (60 if chosen.ahead else 1))
        for row in watched(run, due, Path(name), pace, options):
            print(json.dumps({"threads": chosen.threads, **row}), flush=True)


if __name__ == "__main__":
    main()
