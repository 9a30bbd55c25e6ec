"""The page as a process over real sockets: beside `up`, and against clients that mean it no good."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, until, within
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.live

HEADGATE = [sys.executable, "-P", "-m", "headgate"]
AT = re.compile(r"http://127\.0\.0\.1:(\d+)/(?:#token=(\S+))?")


class Running:
    """A command whose output goes to a file."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / f"{words[0]}.log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [*HEADGATE, *words], stdout=log, stderr=log, cwd=folder, process_group=0
            )

    def says(self) -> str:
        return self.log.read_text()

    def address(self) -> tuple[int, str]:
        """(port, token) as they were printed."""
        found = until(lambda: AT.search(self.says()), self.says, self.popen)
        return int(found[1]), found[2] or ""

    def end(self, seconds: float = PATIENCE_S) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
            raise


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Running]:
    one = Running(folder, *words)
    try:
        yield one
    finally:
        one.end()


def ask(port: int, lines: str, body: bytes = b"") -> bytes:
    """A raw request on a connection of its own; everything that comes back."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(lines.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        sock.settimeout(PATIENCE_S)
        parts = []
        while part := sock.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def listening(port: int) -> None:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        except OSError:
            return False
        return True

    until(answers)


def get(port: int, path: str) -> tuple[int, Any]:
    answer = ask(port, f"GET {path} HTTP/1.1\nHost: 127.0.0.1:{port}\nConnection: close")
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[int]:
    """The port of a page over an idle controller."""
    with running(tmp_path, "controller", "run", "--state-dir", str(tmp_path / "state")):
        until((tmp_path / "state" / "controller" / "endpoint").exists)
        with running(tmp_path, "dashboard", "run", "--controller", str(tmp_path / "state")) as one:
            port, token = one.address()
            assert len(token) > 20
            listening(port)
            yield port


def told(viewer: ClientConnection) -> dict[str, Any]:
    """The next picture. On a busy machine a viewer is also told that there was none for a while."""
    while "number" not in (found := json.loads(viewer.recv(PATIENCE_S))):
        pass
    return dict(found)


def test_clients_that_mean_no_good_do_not_touch_the_others(page: int) -> None:
    with connect(f"ws://127.0.0.1:{page}/api/stream", max_size=None) as good:
        assert told(good)["schema"] == "headgate/snapshot/v1"
        forged = ask(page, "GET / HTTP/1.1\nHost: evil.example\nConnection: close")
        assert forged.startswith(b"HTTP/1.1 403")
        twice = ask(page, f"GET / HTTP/1.1\nHost: 127.0.0.1:{page}\nHost: evil.example\nConnection: close")
        assert twice.split()[1] in (b"400", b"403")
        climbing = f"GET /static/../../../cli.py HTTP/1.1\nHost: 127.0.0.1:{page}\nConnection: close"
        assert ask(page, climbing).split()[1] == b"404"
        wrong = f"POST /api/stop HTTP/1.1\nHost: 127.0.0.1:{page}\nX-Headgate-Token: no\nConnection: close"
        assert ask(page, wrong).split()[1] == b"401"
        assert ask(page, "\x00\x01nonsense").split()[1] == b"400"
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{page}/api/stream", origin="http://evil.example")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        for said, code in (("{", 1008), (b"\x00", 1003), ("[" * 70_000, 1009)):
            with connect(f"ws://127.0.0.1:{page}/api/stream", max_size=None) as bad:
                bad.recv(PATIENCE_S)
                bad.send(said)
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        bad.recv(PATIENCE_S)
                assert closed.value.rcvd is not None and closed.value.rcvd.code == code
        number = get(page, "/api/snapshot")[1]["number"]
        while told(good)["number"] < number + 1:
            pass


@within(5.0)
def test_a_client_that_reads_nothing_costs_the_others_nothing(page: int, within_s: float) -> None:
    with socket.create_connection(("127.0.0.1", page), PATIENCE_S) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = f"GET /api/stream HTTP/1.1\nHost: 127.0.0.1:{page}\nUpgrade: websocket\nConnection: Upgrade\n"
        lines += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\nSec-WebSocket-Version: 13\n\n"
        deaf.sendall(lines.replace("\n", "\r\n").encode())
        wish = b'{"want": "snapshot"}'
        frame = bytes((0x81, 0x80 | len(wish))) + bytes(4) + wish  # masked with zeros
        with connect(f"ws://127.0.0.1:{page}/api/stream", max_size=None) as good:
            number = told(good)["number"]
            for _ in range(200):
                deaf.sendall(frame * 10)
            begin = time.monotonic()
            for n in range(1, 5):
                assert told(good)["number"] == number + n
            assert time.monotonic() - begin < within_s


def test_up_shows_its_page_and_takes_it_with_it(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    points = [{"threads": n, "rate_tps": 400.0, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
    for task in ("double", "store"):
        model = {"schema": "headgate/model/v1", "task": task, "points": points}
        (models / f"{task}.json").write_text(json.dumps(model))
    (tmp_path / "flow.py").write_text(FLOW.format(path=str(tmp_path / "rows.jsonl")))
    words = [
        "up",
        "flow.py:flow",
        "--models",
        "models",
        "--slot-cores",
        "0.2",
        "--rates",
        "40",
        "--dashboard",
    ]
    with running(tmp_path, *words) as up:
        port, token = up.address()
        listening(port)
        with connect(f"ws://127.0.0.1:{port}/api/stream", max_size=None) as viewer:
            until(lambda: get(port, "/api/snapshot")[1].get("tuples", {}).get("acked", 0) >= 20, up.says)
            viewer.recv(PATIENCE_S)
        now = get(port, "/api/snapshot")[1]
        assert now["topology"]["order"] == ["numbers", "double", "store"] and now["plan"]["epoch"] == 1
        assert sum(sum(slot["threads"].values()) for slot in now["slots"].values()) == now["plan"]["threads"]
        row = write(port, token, "whatif", {"rates": [80.0], "full": True})[1]["rows"][0]
        assert row["slots"]["used"] >= 1 and row["baseline"]["pair"] == "lsa+rsm"
        status, proposed = write(port, token, "rate", {"rate_tps": 60})
        assert status == 200 and "+ 60 rows/s offered" in proposed["diff"]
        assert write(port, "no", "apply", {"id": proposed["id"]})[0] == 401
        assert write(port, token, "apply", {"id": proposed["id"]})[1]["done"]["rate_tps"] == 60
        file = next(tmp_path.glob(".headgate/*/page-token"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and file.read_text().strip() == token
        up.end()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def write(port: int, token: str, what: str, body: dict[str, Any]) -> tuple[int, Any]:
    data = json.dumps(body).encode()
    lines = f"POST /api/{what} HTTP/1.1\nHost: 127.0.0.1:{port}\nContent-Type: application/json\nConnection: close\n"
    answer = ask(port, lines + f"X-Headgate-Token: {token}\nContent-Length: {len(data)}", data)
    head, _, text = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(text)


FLOW = """
from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.row_sources import Counter
from headgate.topology_runtime.tasks.sinks import CollectToFile

def double(row):
    return row * 2

flow = topology("doubles")
numbers = flow.source("numbers", Counter)
numbers >> flow.task("double", double) >> flow.task("store", CollectToFile, path={path!r})
"""
