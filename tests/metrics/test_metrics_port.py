"""The port on which a process tells its metrics."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import Metric
from told import full, names, samples_of

from controller.views.metrics import families
from topology_runtime.errors import Unreachable
from topology_runtime.metrics_port import MetricsPort


@pytest.fixture
def port() -> Iterator[MetricsPort]:
    opened = MetricsPort("127.0.0.1", 0, lambda: families(full()))
    yield opened
    opened.close()


def got(address: str, path: str, **headers: str) -> tuple[int, str, str]:
    connection = HTTPConnection(address, timeout=5)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], body


def test_metrics_are_told_in_prometheus_text(port):
    status, kind, body = got(port.address, "/metrics")
    assert status == 200 and kind.startswith("text/plain; version=")
    assert {name for name, _ in samples_of(body)} < names()


def test_open_metrics_is_spoken_to_whom_asks_for_it(port):
    _, kind, body = got(port.address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text") and body.endswith("# EOF\n")


def test_other_paths_say_where_to_look(port):
    assert got(port.address, "/")[::2] == (404, "see /metrics\n")


def test_whoever_connects_and_says_nothing_keeps_nobody_waiting(port):
    host, _, number = port.address.partition(":")
    with socket.create_connection((host, int(number))), socket.create_connection((host, int(number))) as loud:
        loud.sendall(b"\x00\xff nonsense\r\n\r\n")
        assert got(port.address, "/metrics")[0] == 200


def test_it_listens_on_loopback_only(port):
    assert port.address.startswith("127.0.0.1:")


def test_a_port_that_is_taken_is_said(port):
    number = int(port.address.partition(":")[2])
    with pytest.raises(Unreachable, match=f"metrics cannot be told on 127.0.0.1:{number}"):
        MetricsPort("127.0.0.1", number, list)


def test_an_address_that_is_none_is_said():
    with pytest.raises(Unreachable, match=r"metrics cannot be told on nowhere\.invalid"):
        MetricsPort("nowhere.invalid", 0, list)


def test_each_scrape_asks_anew():
    asked = []

    def counted() -> Iterable[Metric]:
        asked.append(1)
        return families(full())

    port = MetricsPort("127.0.0.1", 0, counted)
    assert asked == []
    got(port.address, "/metrics")
    got(port.address, "/metrics")
    port.close()
    assert len(asked) == 2
