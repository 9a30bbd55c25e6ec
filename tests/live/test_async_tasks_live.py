"""Async tasks in real workers: every row once, in its order or not; what fails, hangs, blocks or is killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from line_rigs import emitted, killed, line, rig_of, started, stored
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter as mt

pytestmark = pytest.mark.live


def awaiting(*names: str, max_call_s: float = 10.0, exclusive: bool = False) -> Topology:
    made = line(*names, module="async_tasks")
    tasks = [
        replace(task, max_call_s=max_call_s, exclusive=exclusive) if task.name in names else task
        for task in made.tasks
    ]
    return replace(made, tasks=tuple(tasks))


def test_every_row_arrives_once_and_an_object_lives_in_one_thread_and_loop(tmp_path: Path) -> None:
    names = ("waits", "Opened", "twice", "even")
    places = {"source": [0], "waits": [1], "Opened": [0, 1], "twice": [0], "even": [1], "store": [0]}
    rig = rig_of(awaiting(*names), places, tmp_path)
    rows = emitted(rig, 1000.0, 1.0)
    assert rows > 500 and stored(tmp_path) == Counter({n: 2 for n in range(0, rows, 2)})
    assert not rig.letters()
    assert (tmp_path / "closed").read_text() == "closed\n"


class Service(BaseHTTPRequestHandler):
    """Says each id after 20 ms; every fifth only when it is asked again, 9 never. Counts how many ask at once."""

    protocol_version, wbufsize = "HTTP/1.1", -1
    lock, asked, now, most = threading.Lock(), Counter[str](), 0, 0

    def do_GET(self) -> None:
        with self.lock:
            Service.now += 1
            Service.most = max(Service.now, Service.most)
            self.asked[self.path] += 1
        time.sleep(0.02)
        number = int(self.path[1:])
        bad = number == 9 or (number % 5 == 0 and self.asked[self.path] == 1)
        with self.lock:
            Service.now -= 1
        answer = f'{{"id": {number}}}'.encode()
        self.send_response(503 if bad else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128


def test_a_web_service_is_asked_for_many_rows_at_once_and_again_where_it_fails(tmp_path: Path) -> None:
    with Server(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        topology = awaiting("Customers")
        url = {"url": f"http://127.0.0.1:{server.server_port}"}
        tasks = tuple(replace(t, params=url) if t.name == "Customers" else t for t in topology.tasks)
        places = {"source": [0], "Customers": [1], "store": [0]}
        rig = rig_of(replace(topology, tasks=tasks), places, tmp_path)
        rows = emitted(rig, 300.0, 1.0)
        server.shutdown()
    assert rows > 100 and stored(tmp_path) == Counter(set(range(rows)) - {9})
    (letter,) = rig.letters()
    assert letter.position == 9 and "503" in letter.error and "async_tasks.py" in letter.traceback
    assert Service.asked["/9"] == 3 and 1 < Service.most <= 40
    assert all(Service.asked[f"/{n}"] >= 2 for n in range(0, rows, 5))


def test_an_exclusive_one_takes_a_frame_at_a_time(tmp_path: Path) -> None:
    rig = rig_of(awaiting("waits", exclusive=True), {"source": [0], "waits": [1], "store": [0]}, tmp_path)
    rows = emitted(rig, 1000.0, 1.0)
    assert rows > 500 and stored(tmp_path) == Counter(range(rows))


def test_one_thread_does_what_many_waiting_ones_would(tmp_path: Path) -> None:
    """200 calls of 20 ms at once: 10,000 rows/s at most; busy as far as its calls are under way."""
    settings = m.DataPlaneSettings()
    rig = rig_of(awaiting("waits"), {"source": [0], "waits": [1], "store": [0]}, tmp_path, settings)
    with started(rig):
        rows = rig.emit(1000.0, 2.0)
        busy_s, wait_s = (rig.count("waits", field) / 1e9 for field in (mt.BUSY_NS, mt.WAIT_NS))
        assert rig.count("waits") == rig.count("waits", mt.TUPLES_OUT) == rows
    assert rows * 0.02 / 200 / 2 < busy_s < rows * 0.02 / 200 * 10 and wait_s < busy_s
    assert stored(tmp_path) == Counter(range(rows))


def test_a_row_that_fails_or_hangs_is_a_dead_letter_with_its_line(tmp_path: Path) -> None:
    topology = awaiting("fails_at_seven", "hangs_at_five", max_call_s=0.3)
    places = {"source": [0], "fails_at_seven": [1], "hangs_at_five": [1], "store": [0]}
    rig = rig_of(topology, places, tmp_path)
    rows = emitted(rig, 200.0, 1.0)
    assert stored(tmp_path) == Counter(set(range(rows)) - {5, 7})
    letters = {letter.task: letter for letter in rig.letters()}
    assert letters["fails_at_seven"].position == 7 and "async_tasks.py" in letters["fails_at_seven"].traceback
    assert letters["hangs_at_five"].position == 5
    assert letters["hangs_at_five"].error.startswith("TimeoutError: the call took longer than max_call_s=0.3")
    assert "await asyncio.sleep(60" in letters["hangs_at_five"].traceback


def test_nothing_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    rig = rig_of(
        awaiting("waits", "Opened"), {"source": [0], "waits": [1], "Opened": [1], "store": [2]}, tmp_path
    )
    rows = killed(rig, 500.0, (1, 2, 0))
    found = stored(tmp_path)
    assert rows > 500 and sorted(found) == list(range(rows))
    assert found.total() < 3 * rows and not rig.letters()
