"""A controller while nobody whom it knows knocks at its ports: how late its answers are, what that costs in memory.

Rounds without and with a flood take turns in one run. The flood is a process of its own, in plain sockets and plain
ZeroMQ: a third of its connections sends nothing, a third the greeting and no more, a third proves an unknown key.
"""
# bench: handshakes – a controller's answers and memory under 10,000 handshakes a minute of nobody whom it knows

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import zmq

from headgate.dashboards.runs.connection import contact_of
from headgate.topology_runtime.platform.addresses import parted
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(15) + b"\x00" + bytes(31)
OPEN_S = 3.0  # a half-open connection is left so long, unless the controller cuts it before
ASKS_A_SECOND = 50
START_S = 30.0


def flood(endpoint: str, server: str, a_minute: float, seconds: float) -> dict[str, float]:
    """Knocks at one port; how often, and the CPU that it took."""
    host, port = parted(endpoint)
    context, held = zmq.Context(), deque[tuple[float, Any]]()
    public, secret = zmq.curve_keypair()
    began, count, cut = time.monotonic(), 0, 0
    while (now := time.monotonic()) - began < seconds:
        while held and held[0][0] < now:
            held.popleft()[1].close()
        if count >= (now - began) * a_minute / 60:
            time.sleep(0.002)
            continue
        count += 1
        if count % 3 == 2:
            stranger = context.socket(zmq.DEALER)
            stranger.linger, stranger.curve_serverkey = 0, server.encode()
            stranger.curve_publickey, stranger.curve_secretkey = public, secret
            stranger.connect(endpoint)
            stranger.send(b"let me in")
            held.append((now + 0.5, stranger))
            continue
        try:
            plain = socket.create_connection((host, port), timeout=1.0)
            if count % 3 == 1:
                plain.sendall(GREETING)
        except OSError:
            cut += 1
            continue
        held.append((now + OPEN_S, plain))
    for _, each in held:
        each.close()
    context.term()
    times = os.times()
    return {"handshakes": count, "refused": cut, "cpu_s": times.user + times.system}


def answers_ms(contact: Any, seconds: float) -> list[float]:
    """Of a client that asks over one link, each time from the moment at which it meant to ask."""
    client: Any = channels.ClientChannel(channels.replies, contact)
    found, due = [], time.monotonic()
    end = due + seconds
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        client.send(Request("ping"))
        while client.receive() is None:
            channels.Waiter([client]).wait(1.0)
        found.append(1000 * (time.monotonic() - due))
        due += 1 / ASKS_A_SECOND
    client.close(0)
    return found


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def bench(a_minute: float = 10_000.0, seconds: float = 15.0, rounds: int = 5) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        words = [
            sys.executable,
            "-P",
            "-m",
            "headgate",
            "controller",
            "run",
            "--state-dir",
            str(state),
        ]
        controller = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + START_S
            while not (state / "controller" / "endpoint").exists():
                if time.monotonic() > end or controller.poll() is not None:
                    raise SystemExit("the controller did not start")
                time.sleep(0.05)
            contact = contact_of(str(state))
            answers_ms(contact, 6.0)  # by then it has imported all that it ever will
            return measured(controller.pid, contact, a_minute, seconds, rounds)
        finally:
            controller.terminate()
            controller.wait()


def measured(pid: int, contact: Any, a_minute: float, seconds: float, rounds: int) -> dict[str, Any]:
    quiet: list[list[float]] = []
    loud: list[list[float]] = []
    memory, made = [memory_mb(pid)], list[dict[str, float]]()
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        quiet.append(answers_ms(contact, seconds))
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            knocking = other.submit(flood, contact.endpoint, contact.server, a_minute, seconds + 1.0)
            time.sleep(1.0)
            loud.append(answers_ms(contact, seconds))
            made.append(knocking.result(60))
        memory.append(memory_mb(pid))
    p99 = [[statistics.quantiles(one, n=100)[98] for one in each] for each in (quiet, loud)]
    return {
        "rounds": rounds,
        "handshakes_a_minute": statistics.median(one["handshakes"] for one in made) / (seconds + 1.0) * 60,
        "refused_connections": sum(one["refused"] for one in made),
        "flood_cpu_of_a_core": statistics.median(one["cpu_s"] for one in made) / (seconds + 1.0),
        "p50_ms": [
            round(statistics.median(statistics.median(one) for one in each), 2) for each in (quiet, loud)
        ],
        "p99_ms": [round(statistics.median(each), 2) for each in p99],
        "p99_ratio": round(statistics.median(b / a for a, b in zip(*p99, strict=True)), 2),
        "memory_mb": [round(one, 1) for one in memory],
        "load": os.getloadavg()[0],
    }


BENCHMARKS = {"handshakes": bench}
