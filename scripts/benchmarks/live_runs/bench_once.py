"""Numbered rows into tables and folders under kills: is one missing, is one there twice?

once  so many lines of a file go into a sink (sqlite, duckdb, folder, delta, postgres, redis, nats, kafka, mqtt, amqp),
      or rows of a broker (from-redis, …) into SQLite; workers, agents, the controller and the service, but no file, are
      killed in turn, evenly over the run. Another client counts them. source=folder: they come in files that are put
      into a folder meanwhile, newer ones with older names, some slowly in their place
"""
# bench: once – numbered rows into tables, folders and brokers, or out of these, under kills -9, of services too

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from real_services import Postgres
from watched_runs.brokers import BROKERS, Broker
from watched_runs.trials import ROLES, lives

MINUTES_MOST = 30.0
FLOW = """
import json, os
from headgate import topology
from headgate.connectors import {source}, {name}

def numbered(row):
    return {{"id": row["n"], "twice": row["n"] * 2}}

flow = topology("once")
flow.source("lines", {source}, **json.loads(os.environ["SOURCE"])) >> flow.task("numbered", numbered) >> flow.task(
    "store", {name}, **json.loads(os.environ["TARGET"])){way}
"""
COUNT = "select count(*), count(distinct id), coalesce(sum(twice - 2 * id), 0), coalesce(max(id), -1) from"


class Target:
    """What the sink is, how another client counts it, and what else may be killed."""

    source, name, way = "FilesSource", "", ""
    ends = True  # the run, by itself
    kills: tuple[str, ...] = ("worker", "agent", "worker", "controller")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.params: dict[str, Any] = {}
        self.source_params: dict[str, Any] = {"path": str(folder / "lines.jsonl")}

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
    name, way = "DuckdbSink", ".to_one()"

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


class Delta(Target):
    name = "DeltaSink"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.params = {"table": str(folder / "out"), "batch_rows": 2000, "batch_age_s": 1.0}

    def count(self) -> tuple[int, ...]:
        """DuckDB, of the files that the table has."""
        import duckdb
        from deltalake import DeltaTable

        files = DeltaTable(self.params["table"]).file_uris()
        found = duckdb.execute(f"{COUNT} read_parquet($files)", {"files": files}).fetchall()
        return tuple(map(int, found[0]))


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


WITH_SERVICE = ("worker", "service", "agent", "worker", "service", "controller")


class Into(Target):
    """A broker as the sink."""

    kills = WITH_SERVICE

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder)
        self.name, self.params, self.kill_service = broker.sink, broker.sink_params, broker.kill  # type: ignore[method-assign]
        self._broker = broker

    def count(self) -> tuple[int, ...]:
        found = [(int(row["id"]), int(row["twice"])) for row in self._broker.found()]
        wrong = sum(twice - 2 * number for number, twice in found)
        return len(found), len({number for number, _ in found}), wrong, max(found, default=(-1, -1))[0]


class From(Sqlite):
    """A broker as the source, which has all rows before the run begins."""

    kills, ends = WITH_SERVICE, False

    def __init__(self, folder: Path, broker: Broker) -> None:
        super().__init__(folder)
        self.source, self.source_params = broker.source, broker.source_params
        self.kill_service = broker.kill  # type: ignore[method-assign]
        with (folder / "lines.jsonl").open() as file:
            broker.put(map(json.loads, file))


@contextlib.contextmanager
def target_of(sink: str, folder: Path) -> Iterator[Target]:
    plain: dict[str, Callable[[Path], Target]] = {
        "sqlite": Sqlite, "duckdb": Duckdb, "folder": Folder, "delta": Delta,
    }  # fmt: skip
    if sink in plain:
        yield plain[sink](folder)
        return
    os.chmod(folder, 0o711)  # it runs as a user of its own
    if sink != "postgres":
        with BROKERS[sink.removeprefix("from-")](folder) as broker:
            yield From(folder, broker) if sink.startswith("from-") else Into(folder, broker)
        return
    with Postgres(folder / "service") as server:
        yield OfPostgres(folder, server)


class Writer(threading.Thread):
    """Puts files of rows into a folder, so many rows a second: most by a rename, each tenth in two parts."""

    def __init__(self, folder: Path, rows: int, rate: float, choose: random.Random) -> None:
        super().__init__(daemon=True)
        self._folder, self._rows, self._rate, self._choose = folder, rows, rate, choose
        self.files = 0
        self._ends = threading.Event()
        folder.mkdir()

    def end(self) -> None:
        """Also before all is written."""
        self._ends.set()
        self.join()

    def run(self) -> None:
        written, began = 0, time.monotonic()
        while written < self._rows and not self._ends.is_set():
            upto = min(self._rows, written + self._choose.randrange(1, int(self._rate / 2)))
            self._put("".join(f'{{"n": {n}}}\n' for n in range(written, upto)))
            written = upto
            self._ends.wait(max(0.0, began + written / self._rate - time.monotonic()))

    def _put(self, text: str) -> None:
        self.files += 1
        path = self._folder / f"{10_000 - self.files}.jsonl"
        half = len(text) // 2 if self.files % 10 == 0 else 0
        place = path if half else path.with_suffix(".tmp")
        with place.open("w") as file:
            file.write(text[:half])
            file.flush()
            time.sleep(0.5 if half else 0.0)
            file.write(text[half:])
        os.rename(place, path)


def once(
    sink: str = "sqlite", rows: float = 1e6, kills: int = 20, rate: float = 4000.0, seed: int = 1,
    source: str = "lines",
) -> dict[str, Any]:  # fmt: skip
    """sink: sqlite, duckdb, folder, delta, postgres, redis, nats, kafka, mqtt, amqp; from-redis and so on: into sqlite.
    source: lines (one file) or folder."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="headgate-once-") as name:
        folder = Path(name)
        writer = None
        if source == "folder":
            writer = Writer(folder / "in", int(rows), rate, choose)
        else:
            with (folder / "lines.jsonl").open("w") as file:
                file.writelines(f'{{"n": {n}}}\n' for n in range(int(rows)))
        with target_of(sink, folder) as target:
            if writer is not None:
                target.source, target.ends = "FolderSource", False
                target.source_params = {"folder": str(folder / "in")}
            (folder / "flow.py").write_text(
                FLOW.format(source=target.source, name=target.name, way=target.way)
            )
            return _run(folder, target, int(rows), kills, rate, choose, writer)


def _run(
    folder: Path,
    target: Target,
    rows: int,
    kills: int,
    rate: float,
    choose: random.Random,
    writer: Writer | None,
) -> dict[str, Any]:
    words = ["up", "flow.py:flow", "--rates", f"{rate:g}", "--slot-cores", "1", "--vms", "3,3"]
    command = [sys.executable, "-P", "-m", "headgate", *words, "--state-dir", "state", "-o", "json"]
    env = os.environ | {"SOURCE": json.dumps(target.source_params), "TARGET": json.dumps(target.params)}
    began = time.monotonic()
    with (folder / "out.json").open("wb") as out, (folder / "log").open("wb") as log:
        up = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        if writer is not None:
            writer.start()
        done, everyone = _disturb(up, target, rows / rate, kills, choose)
        if not target.ends:
            _end_when_there(up, target, rows)
        up.wait(MINUTES_MOST * 60)
    finally:
        up.kill()
        if writer is not None:
            writer.end()
    there, different, wrong, last = target.count()
    tuples = json.loads((folder / "out.json").read_bytes())["tuples"] if not up.returncode else {}
    return {
        "exit_code": up.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "kills": {role: done.count(role) for role in sorted(set(done))},
        "rows": rows,
        **({"files": writer.files} if writer is not None else {}),
        "missing": rows - different,
        "twice": there - different,
        "wrong": wrong + max(0, last - rows + 1),
        "replayed": tuples.get("replayed"),
        "dead_lettered": tuples.get("dead_lettered"),
        "processes_left": sorted(pid for pid in everyone if lives(pid)),
        **({} if not up.returncode else {"log": (folder / "log").read_text()[-2000:]}),
    }


def _end_when_there(up: subprocess.Popen[bytes], target: Target, rows: int) -> None:
    """Some sources have no end: the run is stopped when all rows are through, or none has come for two minutes."""
    seen, since = -1, time.monotonic()
    while up.poll() is None and seen < rows and time.monotonic() - since < 120:
        time.sleep(1.0)
        there = target.count()[1]
        if there != seen:
            seen, since = there, time.monotonic()
    up.send_signal(signal.SIGINT)


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
