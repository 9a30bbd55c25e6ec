"""The look-up service and its client, for real."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import PATIENCE_S, until, within

from headgate.topology_runtime.tasks.lookup_service import latency_of, weight_of
from headgate.topology_runtime.tasks.waiting import Lookup

LATENCY_MS, LIMIT = 20, 4
Service = subprocess.Popen[str]


def start(port: int = 0, *more: str) -> tuple[Service, int]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate.topology_runtime.tasks.lookup_service",
        "--port",
        str(port),
        *more,
    ]
    command += ["--latency-ms", str(LATENCY_MS), "--limit", str(LIMIT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline() or 0)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def end(process: Service) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def service() -> Iterator[tuple[Service, int]]:
    process, port = start(0, "--owner", str(os.getpid()))
    yield process, port
    end(process)


def test_latencies_are_spread_by_key() -> None:
    latencies = [latency_of(b"%d" % n, 0.025) for n in range(1000)]
    assert min(latencies) >= 0.020 and max(latencies) <= 0.030 and len(set(latencies)) > 900


def test_an_address_is_host_and_port() -> None:
    with pytest.raises(ValueError, match="host:port"):
        Lookup("localhost")


@pytest.mark.live
def test_answers_after_its_latency_with_so_many_at_once(service: tuple[Service, int]) -> None:
    clients = [Lookup(f"127.0.0.1:{service[1]}") for _ in range(8)]
    for client in clients:
        client.ask("connect")
    began_s = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda c: [c({"id": n, "subject": f"k {n}"}) for n in range(4)], clients))
    took_s = time.monotonic() - began_s
    assert all(row == [{"id": n, "weight": weight_of(b"k %d" % n)} for n in range(4)] for row in rows)
    assert took_s >= 0.9 * 32 * 0.8 * LATENCY_MS / 1000 / LIMIT
    for client in clients:
        client.close()


@pytest.mark.live
def test_a_client_finds_a_service_that_comes_back(service: tuple[Service, int]) -> None:
    process, port = service
    client = Lookup(f"127.0.0.1:{port}")
    client.ask("a")
    process.kill()
    process.wait()
    with pytest.raises(OSError):
        client.ask("a")  # the runtime tries the row again …
    again, _ = start(port)
    try:
        assert client.ask("a") == weight_of(b"a")  # … on a fresh connection
    finally:
        client.close()
        end(again)


@pytest.mark.live
def test_a_line_without_end_is_cut_off(service: tuple[Service, int]) -> None:
    with socket.create_connection(("127.0.0.1", service[1]), PATIENCE_S) as connection:
        connection.sendall(b"x" * 100_000)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(10) == b""
    client = Lookup(f"127.0.0.1:{service[1]}")
    assert client.ask("b") == weight_of(b"b")  # and others are served on
    client.close()


@pytest.mark.live
@within(1.0)
def test_ends_with_its_owner_and_when_told(within_s: float) -> None:
    code = (
        "import os, subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-P', '-m', 'headgate.topology_runtime.tasks.lookup_service',"
        " '--owner', str(os.getpid())], stdout=subprocess.PIPE, text=True)\n"
        "print(p.pid, p.stdout.readline().strip(), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    owner = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    pid, port = map(int, owner.stdout.split())
    assert owner.returncode == -signal.SIGKILL and port > 0
    killed_s = time.monotonic()
    until(lambda: not lives(pid), lambda: "an orphan is left")
    assert time.monotonic() - killed_s < within_s
    process, _ = start()
    try:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        end(process)


@pytest.mark.live
def test_a_busy_port_is_one_line(service: tuple[Service, int]) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate.topology_runtime.tasks.lookup_service",
        "--port",
        str(service[1]),
    ]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1 and str(service[1]) in second.stderr
