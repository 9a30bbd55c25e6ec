"""Hundreds of connections that say nothing, or too slowly, do not keep a visitor waiting."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn

from headgate.dashboards.web.connections import Limits, protocol_of
from headgate.dashboards.web.server import CONNECTIONS_MOST
from headgate.topology_runtime.http_options import MetricsAt
from headgate.topology_runtime.metric_families import gauge
from headgate.topology_runtime.metrics_port import MetricsPort

pytestmark = [pytest.mark.live, pytest.mark.alone]
MANY, REQUEST_S, ANSWER_S = 400, 1.0, 2.0
VISIT_S = 2.0  # a machine with nothing else to do needs a tenth of it
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


stalled, go_on = threading.Event(), threading.Event()


async def application(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """Takes the body, answers with what the path asks for: little, or more than a socket holds."""
    assert scope["type"] == "http"
    if scope["path"] == "/stall":
        stalled.set()
        go_on.wait(10)
    while (await receive()).get("more_body"):
        pass
    size = 64 << 20 if scope["path"] == "/large" else 5
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": b"x" * size})


@contextmanager
def page() -> Iterator[int]:
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    protocol = protocol_of(Limits(REQUEST_S, ANSWER_S))
    config = uvicorn.Config(
        application, http=protocol, lifespan="off", log_level="warning", limit_concurrency=CONNECTIONS_MOST
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=[[sock]], daemon=True)
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        sock.close()


@contextmanager
def metrics() -> Iterator[int]:
    port = MetricsPort(MetricsAt("127.0.0.1", 0), lambda: gauge("headgate_one", "one", 1.0))
    try:
        yield int(port.address.rpartition(":")[2])
    finally:
        port.close()


def visit_s(port: int, path: bytes = b"/metrics") -> float:
    """How long a new visitor waits for an answer."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in sock.recv(4096).split(b"\r\n")[0]
    return time.monotonic() - began


@contextmanager
def hanging(port: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Many connections that have said so much, and nothing more."""
    socks: list[socket.socket] = []
    try:
        for _ in range(MANY):
            socks.append(socket.create_connection(("127.0.0.1", port), 10))
            if first:
                socks[-1].sendall(first)
        yield socks
    finally:
        for sock in socks:
            sock.close()


def test_a_request_that_came_while_the_page_was_slow_is_read_before_its_sender_makes_room() -> None:
    with page() as port, socket.create_connection(("127.0.0.1", port), 10) as slow:
        slow.sendall(b"GET /stall HTTP/1.1\r\nHost: x\r\n\r\n")
        assert stalled.wait(10)
        with socket.create_connection(("127.0.0.1", port), 10) as visitor:
            visitor.sendall(GET + b"\r\n")
            with hanging(port, b""):
                go_on.set()
                assert b" 200 " in visitor.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize("served", [page, metrics])
@pytest.mark.parametrize(
    "first",
    [b"", GET, GET + b"\r\n", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"],
    ids=["nothing", "half a head", "a request, then nothing", "half a body"],
)
def test_a_visitor_is_served_while_hundreds_hang(served, first: bytes) -> None:  # type: ignore[no-untyped-def]
    with served() as port, hanging(port, first):
        assert max(visit_s(port) for _ in range(5)) < VISIT_S


def test_bytes_that_drip_prolong_nothing() -> None:
    with page() as port, socket.create_connection(("127.0.0.1", port), 10) as sock:
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 5 * REQUEST_S:
                sock.sendall(b"G")
                time.sleep(0.1)
        assert time.monotonic() - began < 3 * REQUEST_S


def test_whoever_does_not_take_an_answer_is_cut() -> None:
    with page() as port, socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(ANSWER_S + 1.0)
        taken = 0
        with pytest.raises(ConnectionError):
            while part := sock.recv(1 << 20):
                taken += len(part)
            raise ConnectionResetError("cut short")
        assert taken < 64 << 20
        assert visit_s(port) < VISIT_S


def test_a_visitor_who_stays_is_served_again_and_again() -> None:
    with page() as port, socket.create_connection(("127.0.0.1", port), 10) as sock:
        for _ in range(4):
            sock.sendall(GET + b"\r\n")
            answer = b""
            while not answer.endswith(b"xxxxx"):
                answer += sock.recv(4096)
            assert b" 200 " in answer
            time.sleep(0.7 * REQUEST_S)
