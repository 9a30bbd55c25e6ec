"""What a Prometheus server is asked, and what is believed of its answer: a real one and a made one by one contract;
answers that no server should give by the made one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_made import MadeServer, free_port, made_server, real_server

from headgate.lab.rate_policies.prometheus_rates import PrometheusServer
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, Unreachable, UsageError

T0 = 1_790_000_000.0 // 60 * 60
SERIES = {
    "steady": [[(T0 + n, f"{10 + n}") for n in range(60)]],
    "several": [[(T0 + n, "1") for n in range(60)], [(T0 + n, "2") for n in range(60)]],
    "odd": [[(T0, "1"), (T0 + 1, "NaN"), (T0 + 2, "-5"), (T0 + 3, "+Inf"), (T0 + 4, "1e300"), (T0 + 5, "7")]],
}
REAL = pytest.param(
    "real",
    marks=[
        pytest.mark.live,
        pytest.mark.skipif(
            not (shutil.which("prometheus") and shutil.which("promtool")),
            reason="Debian's package prometheus has it",
        ),
    ],
)


@pytest.fixture(scope="module", params=["made", REAL])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "made":
        with made_server(SERIES) as made:
            yield made.url
    else:
        folder: Path = tmp_path_factory.mktemp("prometheus")
        with real_server(SERIES, folder) as address:
            yield address


# ── the contract of both ────────────────────────────────────────────────────────────────────────


def test_values_come_as_rates_with_their_times(url: str) -> None:
    found = PrometheusServer(url).rates("steady", T0 + 10, T0 + 12, 1.0)
    assert found.points == [(T0 + 10, 20.0), (T0 + 11, 21.0), (T0 + 12, 22.0)] and found.left_out == ""
    assert PrometheusServer(f"{url}/").rates("steady", T0, T0, 1.0).points == [(T0, 10.0)]


def test_several_series_are_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PrometheusServer(url).rates("several", T0, T0 + 5, 1.0)
    assert "2 series" in caught.value.what and "job=j1" in str(caught.value.cause)
    assert caught.value.hint == "'sum(several)'"


def test_no_series_is_no_value(url: str) -> None:
    assert PrometheusServer(url).rates("nothing", T0, T0 + 5, 1.0) == ([], "")


def test_a_query_that_is_none_is_told_with_the_servers_words(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PrometheusServer(url).rates("sum(", T0, T0 + 5, 1.0)
    assert "bad_data" in caught.value.what and "parse error" in str(caught.value.cause)


def test_values_that_are_no_rates_are_left_out_and_counted(url: str) -> None:
    found = PrometheusServer(url).rates("odd", T0, T0 + 5, 1.0)
    assert found.points == [(T0, 1.0), (T0 + 5, 7.0)]
    assert found.left_out.startswith("4 values left out")
    for why in ("1 NaN", "1 negative", "1 infinite", "1 too large"):
        assert why in found.left_out


# ── what no server should say ───────────────────────────────────────────────────────────────────


@pytest.fixture
def made() -> Iterator[MadeServer]:
    with made_server(SERIES) as server:
        yield server


def asked(made: MadeServer, **limits: float) -> Any:
    return PrometheusServer(made.url, **limits).rates("steady", T0, T0 + 5, 1.0)


def said(body: bytes, status: int = 200, **headers: str) -> Any:
    return lambda handler: MadeServer.write(handler, status, body, **headers)


def matrix(values: str, kind: str = "matrix") -> bytes:
    return f'{{"status":"success","data":{{"resultType":"{kind}","result":{values}}}}}'.encode()


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (said(b"<html>hello"), InvalidInput, "gives no answer of a Prometheus server (status 200)"),
        (said(b""), InvalidInput, "no answer of a Prometheus"),
        (said(b"\xff\xfe", 502), Unreachable, "status 502"),
        (said(b'{"status":"error","errorType":"timeout","error":"busy"}', 503), Unreachable, "timeout"),
        (said(b"", 307, Location="http://127.0.0.1:1/"), InvalidInput, "sends elsewhere (status 307)"),
        (said(b"no", 401), InvalidInput, "refuses: status 401"),
        (said(matrix('[{"metric":{},"value":[1,"2"]}]', "vector")), InvalidInput, "'vector'"),
        (said(matrix("7")), InvalidInput, "no answer of a Prometheus server"),
        (said(matrix('[{"values":[["a","1"]]}]')), InvalidInput, "no answer of a Prometheus server"),
        (said(b"[" * 100_000), InvalidInput, "no answer of a Prometheus server"),
        (said(b"x" * (9 * 1024**2)), InvalidInput, "more than 8 MiB"),
        (lambda handler: handler.connection.close(), Unreachable, "does not answer"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_named(
    made: MadeServer, answer: Any, kind: type[HeadgateError], words: str
) -> None:
    made.answer = answer
    with pytest.raises(kind) as caught:
        asked(made)
    assert words in caught.value.what


def test_a_value_of_another_time_or_twice_or_of_text_is_left_out(made: MadeServer) -> None:
    made.answer = said(matrix(f'[{{"values":[[{T0},"1"],[{T0},"2"],[{T0 + 99},"3"],[{T0 + 1},"lots"]]}}]'))
    found = asked(made)
    assert found.points == [(T0, 1.0)]
    assert found.left_out.startswith("3 values left out") and "1 no number" in found.left_out


def test_a_server_that_says_nothing_or_drips_is_not_waited_for(made: MadeServer) -> None:
    def silent(handler: Any) -> None:
        handler.rfile.read(1)

    def drips(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.01)

    def drips_its_head(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(200):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.01)

    made.answer = silent
    with pytest.raises(Unreachable, match="says nothing"):
        asked(made, silent_s=0.2)
    for answer in (drips, drips_its_head):
        made.answer = answer
        with pytest.raises(Unreachable, match="did not end its answer"):
            asked(made, silent_s=1.0, whole_s=1.2)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        PrometheusServer(f"http://127.0.0.1:{free_port()}").rates("steady", T0, T0, 1.0)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:9090",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://host/?a=1",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="prometheus"):
        PrometheusServer(url)


def test_a_password_goes_to_the_server_and_nowhere_else(made: MadeServer) -> None:
    server = PrometheusServer(f"http://me:se%20cret@127.0.0.1:{made.port}/")
    server.rates("steady", T0, T0, 1.0)
    assert made.asked[-1]["authorization"] == ["Basic bWU6c2UgY3JldA=="]
    assert "cret" not in server.url
    made.answer = said(b"no", 403)
    with pytest.raises(InvalidInput) as caught:
        server.rates("steady", T0, T0, 1.0)
    assert "cret" not in "".join(caught.value.lines())
