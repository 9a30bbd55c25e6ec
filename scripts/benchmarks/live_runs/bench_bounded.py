"""A run whose input ends, under kills: does it end by itself, with every result there once and right?

bounded  so many lines of a file become sums of ten seconds and key; workers, agents and the controller are killed in
         turn, evenly over the run, also while it ends. What is in the sink at the end is compared with what DuckDB
         makes of the same file
"""
# bench: bounded – a file of a million lines under kills -9: ends by itself, every window's result once and right

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from watched_runs import bounded_windows
from watched_runs.trials import ROLES, lives

KEYS, LINES_A_SECOND = 200, 500
MINUTES_MOST = 30.0


def write_lines(path: Path, rows: int, seed: int) -> None:
    """`second,key,value`, seconds rising."""
    choose = random.Random(seed)
    with path.open("w") as file:
        for n in range(rows):
            file.write(f"{n // LINES_A_SECOND},k{choose.randrange(KEYS)},{choose.randrange(1000)}\n")


def expected(path: Path) -> set[tuple[str, int, int, int]]:
    import duckdb

    columns = "columns={'second': 'bigint', 'key': 'varchar', 'value': 'bigint'}"
    found = duckdb.sql(
        f"select key, second // {bounded_windows.WINDOW_S}, count(*), sum(value)::bigint "
        f"from read_csv('{path}', header=false, {columns}) group by all"
    )
    return set(found.fetchall())


def bounded(
    rows: float = 1e6, kills: int = 10, rate: float = 12000.0, slot_cores: float = 1.0, seed: int = 1
) -> dict[str, Any]:
    """The roles take turns, two workers to one agent and one controller."""
    with tempfile.TemporaryDirectory(prefix="headgate-bounded-") as name:
        folder = Path(name)
        write_lines(folder / "lines.csv", int(rows), seed)
        shutil.copy(str(bounded_windows.__file__), folder / "flow.py")
        words = ["up", "flow.py", "--rates", f"{rate:g}", "--slot-cores", f"{slot_cores:g}", "--vms", "3,3"]
        command = [sys.executable, "-P", "-m", "headgate", *words, "--state-dir", "state", "-o", "json"]
        env = os.environ | {"LINES": str(folder / "lines.csv"), "RESULTS": str(folder / "results.db")}
        began = time.monotonic()
        with (folder / "out.json").open("wb") as out, (folder / "log").open("wb") as log:
            up = subprocess.Popen(
                command, cwd=folder, env=env, stdout=out, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            done, everyone = _disturb(up, rows / rate, kills, random.Random(seed), folder)
            up.wait(MINUTES_MOST * 60)
        finally:
            up.kill()
        return _found(folder, up.returncode, time.monotonic() - began, done, everyone)


def _disturb(
    up: subprocess.Popen[bytes], seconds: float, kills: int, choose: random.Random, folder: Path
) -> tuple[list[str], set[int]]:
    """The last kill comes when all is read."""
    while "the first rows are through" not in (folder / "log").read_text() and up.poll() is None:
        time.sleep(0.1)
    began, done, everyone = time.monotonic(), [], set()
    while len(done) < kills and up.poll() is None:
        due_s = (len(done) + 1) * seconds / kills
        time.sleep(max(0.05, min(1.0, began + due_s - time.monotonic())))
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(up.pid).children(recursive=True)
            everyone |= {child.pid for child in children}
            role = ("worker", "agent", "worker", "controller")[len(done) % 4]
            mine = [child for child in children if ROLES[role] in " ".join(child.cmdline())]
            if time.monotonic() - began >= due_s and mine:
                choose.choice(mine).kill()
                done.append(role)
    return done, everyone


def _found(
    folder: Path, exit_code: int, seconds: float, done: list[str], everyone: set[int]
) -> dict[str, Any]:
    log = (folder / "log").read_text()
    if exit_code:
        return {"exit_code": exit_code, "kills": done, "whole": False, "log": log[-3000:]}
    summary = json.loads((folder / "out.json").read_bytes())
    with contextlib.closing(sqlite3.connect(folder / "results.db")) as database:
        there = database.execute("select key, time_window, rows, total from results").fetchall()
    want = expected(folder / "lines.csv")
    left = sorted(pid for pid in everyone if lives(pid))
    return {
        "exit_code": exit_code,
        "seconds": round(seconds, 1),
        "kills": done,
        "ended": summary["ended"],
        "tuples": {
            name: summary["tuples"][name] for name in ("emitted", "acked", "lost", "left", "replayed")
        },
        "copies_at_sink": summary["tuples"]["duplicates"],
        "results": len(there),
        "results_of_duckdb": len(want),
        "wrong_or_missing": len(want ^ set(there)),
        "processes_left": left,
        "whole": len(there) == len(want) and want == set(there) and not left,
    }


BENCHMARKS = {"bounded": bounded}
