"""The port on which a process tells its metrics."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPSConnection

import pytest
from prometheus_client import Metric
from told import full, names, samples_of

from headgate.controller.views.metrics import families
from headgate.dashboards.cli import run
from headgate.topology_runtime.certificates import own_certificate
from headgate.topology_runtime.errors import Unreachable, UsageError
from headgate.topology_runtime.http_options import MetricsAt
from headgate.topology_runtime.metrics_port import CONNECTIONS_MOST, MetricsPort


@pytest.fixture
def port() -> Iterator[MetricsPort]:
    opened = MetricsPort(MetricsAt("127.0.0.1", 0), lambda: families(full()))
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


@pytest.fixture
def secure(tmp_path) -> Iterator[tuple[MetricsPort, ssl.SSLContext]]:
    made = own_certificate(tmp_path, ("127.0.0.1",))
    opened = MetricsPort(MetricsAt("127.0.0.1", 0, made), lambda: families(full()))
    yield opened, ssl.create_default_context(cafile=str(made.file))
    opened.close()


def test_metrics_are_told_by_https_to_whom_trusts_the_certificate(secure):
    port, context = secure
    with closing(HTTPSConnection(port.address, timeout=5, context=context)) as link:
        link.request("GET", "/metrics")
        assert {name for name, _ in samples_of(link.getresponse().read().decode())} < names()
    with (
        closing(HTTPSConnection(port.address, timeout=5)) as link,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        link.request("GET", "/metrics")


def test_who_speaks_plain_http_is_told_so_and_who_is_silent_holds_up_nobody(secure):
    port, context = secure
    assert got(port.address, "/metrics")[::2] == (400, "this port speaks https only\n")
    host, _, number = port.address.partition(":")
    with ExitStack() as hanging:
        for _ in range(CONNECTIONS_MOST * 2):
            hanging.enter_context(socket.create_connection((host, int(number)))).sendall(b"\x16\x03")
        link = hanging.enter_context(closing(HTTPSConnection(port.address, timeout=5, context=context)))
        link.request("GET", "/")
        assert link.getresponse().status == 404


PLACES = (
    ["controller", "run"],
    ["agent", "run", "--controller", "tcp://127.0.0.1:1", "--vm", "vm1", "--key", "none"],
)


@pytest.mark.parametrize("words", PLACES)
def test_off_loopback_they_are_told_by_https_or_by_a_flag(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for options, what in (
        (["--metrics-host", "10.0.0.5"], "unencrypted"),
        (["--metrics-host", "::"], "no address that others could connect to"),
        (["--metrics-host", "10.0.0.5", "--metrics-certificate", "x"], "go together"),
        (["--metrics-tls", "--metrics-plain"], "goes with no certificate"),
        (["--metrics-host", "no host"], "these addresses cannot be"),
    ):
        with pytest.raises(UsageError, match=what) as refused:
            run([*words, "--metrics-port", "0", *options])
        assert (
            refused.value.hint is None
            or "--metrics-" in refused.value.hint
            or "a name or" in refused.value.hint
        )
    assert list(tmp_path.iterdir()) == []


def test_it_listens_on_loopback_only(port):
    assert port.address.startswith("127.0.0.1:")


def test_a_port_that_is_taken_is_said(port):
    number = int(port.address.partition(":")[2])
    with pytest.raises(Unreachable, match=f"metrics cannot be told on 127.0.0.1:{number}"):
        MetricsPort(MetricsAt("127.0.0.1", number), list)


def test_an_address_that_is_none_is_said():
    with pytest.raises(Unreachable, match=r"metrics cannot be told on nowhere\.invalid"):
        MetricsPort(MetricsAt("nowhere.invalid", 0), list)


def test_each_scrape_asks_anew():
    asked = []

    def counted() -> Iterable[Metric]:
        asked.append(1)
        return families(full())

    port = MetricsPort(MetricsAt("127.0.0.1", 0), counted)
    assert asked == []
    got(port.address, "/metrics")
    got(port.address, "/metrics")
    port.close()
    assert len(asked) == 2
