"""A stream at its own pace, from a process of its own, is followed up and down: what the sender counts and measures
is what headgate says."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from controller.replay_cli import replay
from dashboards.terminal.connection import asked
from topology_runtime.utc import utc_iso

pytestmark = [pytest.mark.live, pytest.mark.alone]  # what is told is held against a sender's own clock

S = 1_000_000_000
HEADGATE = [sys.executable, "-P", "-m", "dashboards.cli"]
STEPS = ((20.0, 6.0), (100.0, 9.0), (50.0, 7.0))  # rows/s, for so many seconds
RUN_S = 26.0
START_S = 30.0  # a loaded machine; a quiet one needs two
LOOK_S = 2.5  # a present rate is the mean of at most so long
LATE_S = 1.0  # a look is told so much later at most
SOON_NS = S // 4
SEEN_MS = {
    "p50": 5.0,
    "p95": 15.0,
}  # on a loaded machine a row waits in the socket before its source is asked

FLOW = """
import socket, time
from topology_runtime.builder import topology
from topology_runtime.logic import LiveSource

class Udp(LiveSource):
    def __init__(self, port):
        self.port = port

    def open(self, context):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(("127.0.0.1", self.port))
        self.socket.setblocking(False)

    def poll(self, limit):
        rows = []
        while len(rows) < limit:
            try:
                rows.append(self.socket.recv(100).decode())
            except BlockingIOError:
                break
        return rows

    def close(self):
        self.socket.close()

def work(row):
    time.sleep(0.003)
    return row

class Store:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def __call__(self, row):
        self.file.write(f"{{row}} {{time.time_ns()}}\\n")

flow = topology("arrivals")
flow.source("in", Udp, port={port}) >> flow.task("work", work) >> flow.task("store", Store, path={path!r})
"""

SENDER = """
import json, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent, due = [], time.monotonic()
for rate, seconds in json.loads(sys.argv[2]):
    for _ in range(int(rate * seconds)):
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.time_ns()
        out.sendto(f"{len(sent)} {now}".encode(), ("127.0.0.1", int(sys.argv[1])))
        sent.append(now)
print(json.dumps(sent))
"""


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def model(task: str, rate_tps: float) -> str:
    points = [{"threads": 1, "rate_tps": rate_tps, "cpu": 0.3, "memory": 0.1}]
    return json.dumps({"schema": "headgate/model/v1", "task": task, "points": points})


@dataclass
class Followed:
    """What both sides say. sent: UTC ns by row; stored: (row, sent, stored) as the sink has them; looks: status
    with the time of asking."""

    sent: list[int]
    stored: list[tuple[int, int, int]]
    looks: list[tuple[int, dict[str, Any]]]
    summary: dict[str, Any]
    said: str
    trace: Path

    @property
    def steps_ns(self) -> list[int]:
        """When each rate began, and the end."""
        begins, at = [], 0
        for rate, seconds in STEPS:
            begins.append(self.sent[at])
            at += int(rate * seconds)
        return [*begins, self.sent[-1]]

    def decisions(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.trace / "decisions.jsonl").read_text().splitlines()]

    def came(self, begin_ns: int, end_ns: int) -> int:
        return sum(begin_ns < at <= end_ns for at in self.sent)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder, port = tmp_path_factory.mktemp("arrivals"), free_port()
    (folder / "flow.py").write_text(FLOW.format(port=port, path=str(folder / "stored.txt")))
    (folder / "models").mkdir()
    for task, tps in (("work", 60.0), ("store", 1000.0)):
        (folder / "models" / f"{task}.json").write_text(model(task, tps))
    words = [*HEADGATE, "up", "flow.py:flow", "--models", "models", "--vms", "4", "--seconds", f"{RUN_S:g}"]
    words += ["--state-dir", "state", "--trace-dir", "traces", "-o", "json"]
    with open(folder / "out.json", "wb") as out, open(folder / "log.txt", "wb") as log:
        up = subprocess.Popen(words, cwd=folder, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield watched(folder, port, up)
    finally:
        if up.poll() is None:
            up.terminate()
            up.wait(30)


def watched(folder: Path, port: int, up: subprocess.Popen[bytes]) -> Followed:
    log = folder / "log.txt"
    end = time.monotonic() + START_S
    while "plan 1 is in force" not in log.read_text():
        assert time.monotonic() < end and up.poll() is None, log.read_text()
        time.sleep(0.1)
    words = [sys.executable, "-c", SENDER, str(port), json.dumps(STEPS)]
    sender = subprocess.Popen(words, stdout=subprocess.PIPE)
    looks = []
    while sender.poll() is None:
        time.sleep(0.4)
        asked_ns = time.time_ns()
        found = asked(str(folder / "state"), "status")
        if time.time_ns() - asked_ns < SOON_NS:  # else it is not known of when it is
            looks.append((asked_ns, found))
    sent = json.loads(sender.communicate()[0])
    assert up.wait(60) == 0, log.read_text()
    rows = [tuple(map(int, line.split())) for line in (folder / "stored.txt").read_text().splitlines()]
    summary = json.loads((folder / "out.json").read_text())
    trace = folder / "traces" / "arrivals" / summary["run"]
    return Followed(sent, rows, looks, summary, log.read_text(), trace)  # type: ignore[arg-type]


def test_what_comes_is_what_is_offered(followed: Followed) -> None:
    """In windows of two seconds, wherever the sender kept its rate."""
    judged = 0
    for asked_ns, status in followed.looks:
        begin_ns = asked_ns - int((LOOK_S + LATE_S) * S)
        if not any(begin_ns > begin and asked_ns < end for begin, end in pairwise(followed.steps_ns)):
            continue
        ends = [asked_ns - int(n * LATE_S / 20 * S) for n in range(21)]  # of a look that was told since
        came = [followed.came(end_ns - 2 * S, end_ns) for end_ns in ends]
        offered = 2 * status["rates"]["offered_now_tps"]
        print(f"offered {offered:.1f} in 2 s, {min(came)} to {max(came)} sent")
        assert min(came) - max(0.03 * min(came), 2) <= offered <= max(came) + max(0.03 * max(came), 2)
        judged += 1
    assert judged >= 3, [look["rates"] for _, look in followed.looks]
    tuples = followed.summary["tuples"]
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] == len(followed.sent)


def test_no_row_is_lost(followed: Followed) -> None:
    assert {row for row, _, _ in followed.stored} == set(range(len(followed.sent)))
    assert followed.summary["tuples"]["lost"] == 0


def test_a_step_is_planned_for_within_five_seconds(followed: Followed) -> None:
    _, up_ns, down_ns, _ = followed.steps_ns
    plans = [d for d in followed.decisions() if d["action"] in ("plan", "adopt")]
    first = min(d["time"] for d in plans if d["time"] > utc_iso(up_ns))
    assert first < utc_iso(up_ns + 5 * S), [(d["time"], d["text"]) for d in plans]
    highest = max(d["plan"]["rate_tps"] for d in plans if d["time"] < utc_iso(down_ns))
    print([(d["time"], d["text"]) for d in plans], utc_iso(up_ns))
    assert 100 <= highest <= 180, "for what comes, with headroom, and for what waits"
    assert any("come" in d["text"] for d in plans)


def test_latency_counts_from_the_arrival(followed: Followed) -> None:
    """As from the sender's clock to the sink's, one machine's."""
    waits_ms = sorted((stored - sent) / 1e6 for _, sent, stored in followed.stored)
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        measured = waits_ms[int(share * (len(waits_ms) - 1))]
        reported = followed.summary["latency_ms"][name]
        print(f"latency {name}: reported {reported:.1f} ms, measured {measured:.1f} ms")
        assert abs(reported - measured) <= max(0.05 * measured, SEEN_MS[name]), (name, reported, measured)
    assert statistics.median(waits_ms) < 1000


def test_what_is_shown_says_that_rows_are_taken_as_they_come(followed: Followed) -> None:
    assert "rows of in are taken as they come: the first plan is for 20 tuples/s" in followed.said
    kinds = {status["rates"]["source_kind"] for _, status in followed.looks}
    assert kinds == {"arriving"}
    assert all(status["rates"]["lag_s"] is not None for _, status in followed.looks)


def test_every_decision_can_be_made_again(followed: Followed) -> None:
    result = CliRunner().invoke(replay, [str(followed.trace), "-o", "json"])
    assert result.exception is None, result.output
    answer = json.loads(result.stdout)
    assert answer["equal"] and answer["decisions"] >= RUN_S / 2, answer["first_difference"]
    refused = CliRunner().invoke(replay, [str(followed.trace), "--policy", "static"])
    assert refused.exception is not None and "taken as they came" in str(refused.exception.cause)  # type: ignore[union-attr]


def test_nothing_is_left(followed: Followed) -> None:
    assert not list(followed.trace.parents[3].rglob("*.sock")) and os.path.exists(followed.trace)
