"""A run on four VMs while whoever has a good key sends as much as he can: rows done, and the controller's memory.

Per role rounds without and with a flood take turns. The flood is a process of its own, in plain ZeroMQ, over eight
links: messages that can be meant, of the size that hurts most, and nothing that is answered is read.
"""
# bench: floods – a run's rate and its controller's memory while an agent, an operator, a viewer or a listener floods

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import zmq

from headgate.dashboards.runs.connection import contact_of
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import Keyring, Role
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m

LINKS, WARM_S, SETTLE_S = 8, 12.0, 2.0
LETTER = m.DeadLetter("work", 1, "source", 0, 5, "r" * 1000, "error", "t" * 1000)
BODIES: dict[str, bytes] = {
    "agent": channels.encode(m.DeadLetters("vm4", (LETTER,) * 200)),
    "operator": channels.encode(m.from_here(m.Request("status"))),
    "viewer": channels.encode(m.from_here(m.Request("snapshot"))),
    "listener": bytes(100),
}


def flood(contact: tuple[str, str, str, str], body: bytes, seconds: float) -> int:
    """How many messages left."""
    context, sent, (endpoint, server, public, secret) = zmq.Context(), 0, contact
    links = [context.socket(zmq.DEALER) for _ in range(LINKS)]
    for link in links:
        link.linger, link.curve_serverkey = 0, server.encode()
        link.curve_publickey, link.curve_secretkey = public.encode(), secret.encode()
        link.reconnect_ivl = 20
        link.connect(endpoint)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = sent
        for link in links:
            try:
                link.send(body, zmq.DONTWAIT)
                sent += 1
            except zmq.Again:
                pass
        if sent == before:
            time.sleep(0.001)
    context.destroy(linger=0)
    return sent


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def acked(contact: Contact) -> int:
    found = channels.ask(contact, m.Request("status"), 20.0).data["tuples"]["acked"]
    return int(found)


def controller_of(up: int) -> int:
    children = Path(f"/proc/{up}/task/{up}/children").read_text().split()
    (found,) = [
        int(pid) for pid in children if b"\0controller\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return found


def watched(own: Contact, pid: int, seconds: float) -> tuple[float, float]:
    """(rows done a second, most memory)"""
    began, first, peak = time.monotonic(), acked(own), 0.0
    while time.monotonic() - began < seconds:
        peak = max(peak, memory_mb(pid))
        time.sleep(0.02)
    return (acked(own) - first) / (time.monotonic() - began), peak


def bench(seconds: float = 10.0, rounds: int = 3, rate: float = 100.0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            "-P",
            "-m",
            "headgate",
            "up",
            "--vms",
            "1,1,1,1",
            "--rates",
            str(rate),
            "--state-dir",
            "state",
        ]
        with (Path(folder) / "said").open("wb") as said:
            up = subprocess.Popen(words, cwd=folder, stdout=said, stderr=said)
        try:
            end = time.monotonic() + 60.0
            while not (found := list(Path(folder).rglob("controller/endpoint"))):
                if time.monotonic() > end or up.poll() is not None:
                    raise SystemExit("the run did not start")
                time.sleep(0.1)
            time.sleep(WARM_S)
            return measured(found[0].parent.parent, controller_of(up.pid), seconds, rounds)
        finally:
            up.terminate()
            up.wait()


def measured(state: Path, pid: int, seconds: float, rounds: int) -> dict[str, Any]:
    own, ring = contact_of(str(state)), Keyring(state / "keys")
    stream = channels.ask(own, m.Request("snapshot"), 20.0).data["stream"]
    control = json.loads((state / "controller" / "endpoint").read_text())["control"]
    roles: dict[str, tuple[Role, str, str]] = {
        "agent": ("agent", "vm4", control), "operator": ("operator", "eve", own.endpoint),
        "viewer": ("viewer", "ann", own.endpoint), "listener": ("viewer", "bob", stream),
    }  # fmt: skip
    result: dict[str, Any] = {}
    for name, (role, whose, endpoint) in roles.items():
        ring.ensure(role, whose)
        key = ring.key(role, whose)
        ratios, more = list[float](), list[float]()
        time.sleep(SETTLE_S)
        for number in range(rounds):
            print(f"{name}: round {number + 1} of {rounds}", file=sys.stderr)
            quiet, before = watched(own, pid, seconds)
            with ProcessPoolExecutor(1, get_context("spawn")) as other:
                contact = endpoint, key.controller, key.public, key.secret
                flooding = other.submit(flood, contact, BODIES[name], seconds + 1.0)
                time.sleep(1.0)
                loud, peak = watched(own, pid, seconds)
                flooding.result(60)
            ratios.append(loud / quiet)
            more.append(peak - before)
        result[name] = {
            "rate_ratio": round(statistics.median(ratios), 3), "rate_ratio_least": round(min(ratios), 3),
            "memory_mb_more": round(max(more), 1),
        }  # fmt: skip
    return result | {"rounds": rounds, "seconds": seconds, "load": os.getloadavg()[0]}


BENCHMARKS = {"floods": bench}
