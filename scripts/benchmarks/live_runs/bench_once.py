"""Numbered rows into tables and folders under kills: is one missing, is one there twice?

once  so many numbered lines of a file go into a sink (sqlite, duckdb, folder, postgres); workers, agents, the
      controller and (postgres) the database are killed in turn, evenly over the run. Another client counts them
"""
# bench: once – numbered rows into SQLite, DuckDB, a folder, PostgreSQL under kills -9, of the database too

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from real_services import Postgres
from watched_runs.trials import ROLES, lives

MINUTES_MOST = 30.0
FLOW = """
import json, os
from headgate import topology
from headgate.connectors import FilesSource, {name}

def numbered(row):
    return {{"id": row["n"], "twice": row["n"] * 2}}

flow = topology("once")
flow.source("lines", FilesSource, path=os.environ["LINES"]) >> flow.task("numbered", numbered) >> flow.task(
    "store", {name}, **json.loads(os.environ["TARGET"]))
"""
COUNT = "select count(*), count(distinct id), coalesce(sum(twice - 2 * id), 0), coalesce(max(id), -1) from"


class Target:
    """What the sink is, how another client counts it, and what else may be killed."""

    name = ""
    kills: tuple[str, ...] = ("worker", "agent", "worker", "controller")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.params: dict[str, Any] = {}

    def count(self) -> tuple[int, ...]:
        raise NotImplementedError

    def kill_service(self) -> None:
        """Kill it, and start it again a moment later."""


class Sqlite(Target):
    name = "SqliteSink"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.params = {"path": str(folder / "out.sqlite"), "table": "rows"}

    def count(self) -> tuple[int, ...]:
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.params["path"])) as database:
            return tuple(database.execute(f"{COUNT} rows").fetchone())


class Duckdb(Target):
    name = "DuckdbSink"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.params = {"path": str(folder / "out.duckdb"), "table": "rows"}

    def count(self) -> tuple[int, ...]:
        import duckdb

        with duckdb.connect(self.params["path"], read_only=True) as database:
            return tuple(map(int, database.execute(f"{COUNT} rows").fetchall()[0]))


class Folder(Target):
    name = "FolderSink"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.params = {
            "folder": str(folder / "out"),
            "format": "parquet",
            "batch_rows": 2000,
            "batch_age_s": 1.0,
        }

    def count(self) -> tuple[int, ...]:
        import duckdb

        return tuple(map(int, duckdb.sql(f"{COUNT} '{self.folder}/out/*.parquet'").fetchall()[0]))


class OfPostgres(Target):
    name = "PostgresSink"
    kills = ("worker", "service", "agent", "worker", "service", "controller")

    def __init__(self, folder: Path, server: Postgres) -> None:
        super().__init__(folder)
        assert server.login is not None
        self.server = server
        (folder / "password").write_text(server.login.password)
        secret = "${FILE:" + str(folder / "password") + "}"
        self.params = {"url": server.url, "password": secret, "table": "rows", "create": True}

    def count(self) -> tuple[int, ...]:
        import psycopg

        assert self.server.login is not None
        with psycopg.connect(self.server.url, password=self.server.login.password) as database:
            found = database.execute(f"{COUNT} rows").fetchone()  # type: ignore[arg-type]
        assert found is not None
        return tuple(map(int, found))

    def kill_service(self) -> None:
        self.server.kill()
        time.sleep(2.0)
        self.server.start_again()


@contextlib.contextmanager
def target_of(sink: str, folder: Path) -> Iterator[Target]:
    plain: dict[str, Callable[[Path], Target]] = {"sqlite": Sqlite, "duckdb": Duckdb, "folder": Folder}
    if sink in plain:
        yield plain[sink](folder)
        return
    os.chmod(folder, 0o711)  # it runs as a user of its own
    with Postgres(folder / "service") as server:
        yield OfPostgres(folder, server)


def once(
    sink: str = "sqlite", rows: float = 1e6, kills: int = 20, rate: float = 4000.0, seed: int = 1
) -> dict[str, Any]:
    """sink: sqlite, duckdb, folder or postgres."""
    with tempfile.TemporaryDirectory(prefix="headgate-once-") as name:
        folder = Path(name)
        with (folder / "lines.jsonl").open("w") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in range(int(rows)))
        with target_of(sink, folder) as target:
            (folder / "flow.py").write_text(FLOW.format(name=target.name))
            return _run(folder, target, int(rows), kills, rate, random.Random(seed))


def _run(
    folder: Path, target: Target, rows: int, kills: int, rate: float, choose: random.Random
) -> dict[str, Any]:
    words = ["up", "flow.py:flow", "--rates", f"{rate:g}", "--slot-cores", "1", "--vms", "3,3"]
    command = [sys.executable, "-P", "-m", "headgate", *words, "--state-dir", "state", "-o", "json"]
    env = os.environ | {"LINES": str(folder / "lines.jsonl"), "TARGET": json.dumps(target.params)}
    began = time.monotonic()
    with (folder / "out.json").open("wb") as out, (folder / "log").open("wb") as log:
        up = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        done, everyone = _disturb(up, target, rows / rate, kills, choose)
        up.wait(MINUTES_MOST * 60)
    finally:
        up.kill()
    there, different, wrong, last = target.count()
    tuples = json.loads((folder / "out.json").read_bytes())["tuples"] if not up.returncode else {}
    return {
        "exit_code": up.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "kills": {role: done.count(role) for role in sorted(set(done))},
        "rows": rows,
        "missing": rows - different,
        "twice": there - different,
        "wrong": wrong + max(0, last - rows + 1),
        "replayed": tuples.get("replayed"),
        "dead_lettered": tuples.get("dead_lettered"),
        "processes_left": sorted(pid for pid in everyone if lives(pid)),
        **({} if not up.returncode else {"log": (folder / "log").read_text()[-2000:]}),
    }


def _disturb(
    up: subprocess.Popen[bytes], target: Target, seconds: float, kills: int, choose: random.Random
) -> tuple[list[str], set[int]]:
    log = target.folder / "log"
    while "the first rows are through" not in log.read_text() and up.poll() is None:
        time.sleep(0.1)
    began, done, everyone = time.monotonic(), list[str](), set[int]()
    while len(done) < kills and up.poll() is None:
        time.sleep(max(0.05, min(1.0, began + (len(done) + 1) * seconds / kills - time.monotonic())))
        if time.monotonic() - began < (len(done) + 1) * seconds / kills:
            continue
        role = target.kills[len(done) % len(target.kills)]
        if role == "service":
            target.kill_service()
            done.append(role)
            continue
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(up.pid).children(recursive=True)
            everyone |= {child.pid for child in children}
            mine = [child for child in children if ROLES[role] in " ".join(child.cmdline())]
            if mine:
                choose.choice(mine).kill()
                done.append(role)
    return done, everyone


BENCHMARKS = {"once": once}
