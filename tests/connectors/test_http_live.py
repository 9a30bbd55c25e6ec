"""Rows are posted to a real run while its workers are killed: all that were answered are there, each once."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live

ROWS, KILLS, MORE = 5, 3, 20  # rows of a request; requests between two kills
FLOW = """
from headgate import topology
from headgate.connectors import HttpSource, SqliteSink

flow = topology("posted")
flow.source("in", HttpSource, port={port}) >> flow.task("keep", SqliteSink, path={path!r}, table="t", key=["n"])
"""


class Client(threading.Thread):
    """Posts numbered rows, each request under its key until it is taken."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port, self.taken, self.tries = port, 0, 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            body = json.dumps([{"n": self.taken * ROWS + n} for n in range(ROWS)])
            while not self.post(body):
                time.sleep(0.02)
            self.taken += 1

    def post(self, body: str) -> bool:
        self.tries += 1
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            headers = {"Content-Type": "application/json", "Idempotency-Key": f"request {self.taken}"}
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/", body, headers)
                return connection.getresponse().status == 202
        return False


def workers(up: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(up.pid).children(recursive=True):
        with suppress(psutil.Error):
            found += [one] if "headgate.topology_runtime.worker" in " ".join(one.cmdline()) else []
    return found


def test_nothing_that_was_answered_is_missing_or_there_twice_though_workers_are_killed(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    store = tmp_path / "rows.sqlite"
    (tmp_path / "flow.py").write_text(FLOW.format(port=port, path=str(store)))
    words = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "up",
        "flow.py:flow",
        "--vms",
        "2",
        "--state-dir",
        "state",
    ]
    log = tmp_path / "up.log"
    with log.open("wb") as out:
        up = subprocess.Popen(words, cwd=tmp_path, stdout=out, stderr=out, process_group=0)
    client = Client(port)
    try:
        client.start()
        for _ in range(KILLS):
            wanted = client.taken + MORE
            until(lambda: client.taken >= wanted, log.read_text, up)  # noqa: B023
            for one in workers(up):
                one.kill()
        wanted = client.taken + MORE
        until(lambda: client.taken >= wanted, log.read_text, up)
        client.over.set()
        client.join()
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        client.over.set()
        if up.poll() is None:
            os.killpg(up.pid, signal.SIGKILL)
            up.wait()
        client.join(PATIENCE_S)
    with closing(sqlite3.connect(store)) as connection:
        count, least, most = connection.execute("select count(*), min(n), max(n) from t").fetchone()
        (names,) = connection.execute("select count(*) from headgate_rows").fetchone()
    assert (count, least, most) == (client.taken * ROWS, 0, client.taken * ROWS - 1)
    assert names - count <= KILLS * ROWS, "a kill may catch one request of a client between disk and answer"
