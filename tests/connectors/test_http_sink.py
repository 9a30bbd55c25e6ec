"""Rows that are posted: under the same key when they come again; who is to blame when they are not taken."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from http_target import Target

from headgate.connectors import HttpSink
from headgate.topology_runtime.api.logic import RowId
from headgate.topology_runtime.connectors.http import http_sink, post_address
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from real_services import Certificates

TOKEN = "t0ken-of-ours"
PHRASES = {401: " (Unauthorized)", 403: " (Forbidden)", 404: " (Not Found)", 408: " (Request Timeout)",
           425: " (Too Early)", 429: " (Too Many Requests)", 500: " (Internal Server Error)",
           503: " (Service Unavailable)", 301: " (Moved Permanently)", 307: " (Temporary Redirect)"}  # fmt: skip


@pytest.fixture
def sink_of(target: Target) -> Iterator[Callable[..., HttpSink]]:
    made: list[HttpSink] = []

    def make(url: str = "", **given: Any) -> HttpSink:
        made.append(HttpSink(url or target.url, **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ids(*positions: int) -> list[RowId]:
    return [RowId("run", "in", 0, n, 0) for n in positions]


def refuses(*bad: int, status: int = 422) -> Callable[[Any, bytes], tuple[int, dict[str, str], bytes]]:
    """Bodies in which one of these rows is."""
    return lambda _, body: (
        (status, {}, b"no") if set(bad) & set(json.loads(f"[{body.decode()}]")) else (204, {}, b"")
    )


def test_the_rows_of_a_call_go_together_under_a_key_that_stays(
    target: Target, sink_of: Callable[..., HttpSink]
) -> None:
    rows = [{"n": 1, "text": "ä"}, {"n": 2}]
    for send, body in (("array", '[{"n":1,"text":"ä"},{"n":2}]'), ("lines", '{"n":1,"text":"ä"}\n{"n":2}\n')):
        target.came.clear()
        sink = sink_of(send=send, token=TOKEN, headers={"X-From": "a b"})
        sink.write(rows, ids(1, 2))
        sink_of(send=send).write(rows, ids(1, 2))  # as after a kill
        sink.write(rows[:1], ids(1))
        (headers, first), *_ = target.came
        assert first.decode() == body and headers["authorization"] == f"Bearer {TOKEN}"
        assert headers["x-from"] == "a b" and headers["content-type"] == http_sink.KINDS[send]
        assert target.keys[0] == target.keys[1] != target.keys[2]
        assert target.keys[2] == hashlib.sha256(b"run/in/0/1/0").hexdigest()


def test_a_connection_is_kept_and_made_anew_when_the_other_side_closed_it(
    target: Target, sink_of: Callable[..., HttpSink]
) -> None:
    sink = sink_of()
    for n in range(5):
        sink.write([n], ids(n))
    assert target.connections == 1

    def closes(handler: Any, _: bytes) -> tuple[int, dict[str, str], bytes]:
        handler.close_connection = True
        return 200, {}, b""

    target.answers = closes
    for n in range(5, 8):
        sink.write([n], ids(n))
    assert target.rows == [[n] for n in range(8)]


def test_rows_go_one_by_one_so_many_at_once_each_under_its_name(
    target: Target, sink_of: Callable[..., HttpSink]
) -> None:
    together = threading.Barrier(4)

    def meets(*_: Any) -> tuple[int, dict[str, str], bytes]:
        together.wait(60)
        return 200, {}, b""

    target.answers = meets
    sink_of(send="row", concurrency=4).write(list(range(12)), ids(*range(12)))
    assert target.most == 4 and sorted(target.rows) == list(range(12))
    assert {k: r for k, r in zip(target.keys, target.rows, strict=True)} == {
        str(ids(n)[0]): n for n in range(12)
    }


def test_a_row_that_is_refused_is_to_blame_and_those_that_were_done_are_not_sent_again(
    target: Target, sink_of: Callable[..., HttpSink]
) -> None:
    target.answers = refuses(3)
    sink = sink_of(send="row", concurrency=1)
    with pytest.raises(BadRow, match="does not take this") as refused:
        sink.write(list(range(6)), ids(*range(6)))
    assert "422 (Unprocessable Entity) no" in (refused.value.cause or "")
    sink.write([0, 1, 2], ids(0, 1, 2))  # the halves
    with pytest.raises(BadRow):
        sink.write([3], ids(3))
    sink.write([4, 5], ids(4, 5))
    assert sorted(target.rows) == [0, 1, 2, 3, 3, 4, 5]
    sink.write([0], ids(0))
    assert target.rows.count(0) == 2, "it came again after all was done: the target knows its name"


@pytest.mark.parametrize("status", [400, 413, 422, 409])
def test_what_is_the_rows_fault_is_no_fault_of_the_service(
    target: Target, sink_of: Callable[..., HttpSink], status: int
) -> None:
    target.answers = lambda *_: (status, {}, b"")
    with pytest.raises(BadRow, match="does not take this"):
        sink_of().write([1], ids(1))


@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 408, 425, 429, 500, 503, 599])
def test_what_is_no_rows_fault_is_waited_for_and_no_redirect_followed(
    target: Target, sink_of: Callable[..., HttpSink], status: int
) -> None:
    target.answers = lambda *_: (status, {"Location": target.url}, b"<b>not\nnow</b>")
    for send in ("array", "row"):
        with pytest.raises(ServiceAway, match="does not take rows") as away:
            sink_of(send=send).write([1], ids(1))
        assert away.value.cause == f"it answers {status}{PHRASES.get(status, '')} <b>not\\nnow</b>"
    assert len(target.came) == 2


@pytest.mark.parametrize("asked, pause_s", [("1", 1.0), ("3600", 2.0), ("9" * 99, 2.0), (formatdate(2**33), 2.0),
                                            (formatdate(0), 0.0), ("soon", 0.0), ("-1", 0.0),
                                            ("²", 0.0), ("", 0.0)])  # fmt: skip
def test_it_waits_as_long_as_it_is_asked_to_within_two_seconds(
    target: Target,
    sink_of: Callable[..., HttpSink],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    pause_s: float,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(post_address.time, "sleep", slept.append)
    target.answers = lambda *_: (503, {"Retry-After": asked.encode("utf-8").decode("latin-1")}, b"")
    with pytest.raises(ServiceAway):
        sink_of().write([1], ids(1))
    assert slept[-1] == pause_s


def test_nobody_there_silence_and_no_http_are_waited_for(
    sink_of: Callable[..., HttpSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_address, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for send in ("array", "row"):
            with pytest.raises(ServiceAway, match="no answer of http"):
                sink_of(url, send=send).write([1, 2], ids(1, 2))
    with pytest.raises(ServiceAway) as away:
        sink_of(url).write([1], ids(1))
    assert "ConnectionRefusedError" in (away.value.cause or "")


def test_a_slow_service_gets_the_rest_of_the_rows_in_the_next_call(
    target: Target, sink_of: Callable[..., HttpSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sink, "CALL_S", 0.05)
    slow = threading.Event()
    target.answers = lambda *_: (200 if slow.wait(0.1) else 201, {}, b"")
    sink = sink_of(send="row", concurrency=1)
    with pytest.raises(ServiceAway, match="is slow"):
        sink.write(list(range(50)), ids(*range(50)))
    monkeypatch.setattr(http_sink, "CALL_S", 60.0)
    slow.set()
    sink.write(list(range(50)), ids(*range(50)))
    assert target.rows == list(range(50))


def test_a_long_answer_is_not_read_whole(target: Target, sink_of: Callable[..., HttpSink]) -> None:
    target.answers = lambda *_: (400, {}, b"a" * (8 << 20))
    with pytest.raises(BadRow) as refused:
        sink_of().write([1], ids(1))
    assert len(refused.value.cause or "") < 300
    target.answers = lambda *_: (200, {}, gzip.compress(b"a"))
    sink_of().write([1], ids(1))


def test_the_token_is_that_of_now_and_no_error_shows_it(
    target: Target, sink_of: Callable[..., HttpSink], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    sink = sink_of(token=SecretText(f"${{FILE:{file}}}"))
    target.answers = lambda handler, _: (401, {}, handler.headers["Authorization"].encode())
    for token in (TOKEN, "an0ther-token"):
        file.write_text(token)
        with pytest.raises(ServiceAway) as away:
            sink.write([1], ids(1))
        assert target.came[-1][0]["authorization"] == f"Bearer {token}"
        assert token not in str(away.value.lines()) and "401 (Unauthorized) Bearer ***" in str(
            away.value.lines()
        )


def test_rows_that_json_has_not_are_to_blame(target: Target, sink_of: Callable[..., HttpSink]) -> None:
    with pytest.raises(BadRow, match="expected"):
        sink_of().write([{"a": b"bytes"}], ids(1))
    assert target.came == []


def test_over_tls_with_a_certificate_of_our_own(
    target: Target, sink_of: Callable[..., HttpSink], tmp_path: Path
) -> None:
    import ssl

    made = Certificates(tmp_path / "made")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.authority))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(made.server, made.server_key)
    target.server.socket = context.wrap_socket(target.server.socket, server_side=True)
    url = target.url.replace("http:", "https:")
    tls = {"ca": str(made.authority), "certificate": str(made.client), "key": str(made.client_key)}
    sink_of(url, tls=tls).write([1], ids(1))
    assert target.rows == [[1]]
    with pytest.raises(ServiceAway, match="no TLS with") as away:
        sink_of(url).write([1], ids(1))
    assert "no certificate in" in (away.value.cause or "")


@pytest.mark.parametrize("given, said", [
    ({"url": "ftp://a/"}, "no address"),
    ({"url": "http:///a"}, "no address"),
    ({"url": "http://a/b c"}, "no address"),
    ({"url": "http://a/\r\nX: y"}, "no address"),
    ({"url": "http://u:s3cret@a/"}, "login"),
    ({"send": "form"}, "array, lines, row"),
    ({"concurrency": 0}, "1 to 100"),
    ({"headers": {"X": "a\r\nb"}}, "cannot be sent"),
    ({"headers": {"Idempotency-Key": "a"}}, "cannot be sent"),
    ({"tls": True}, "https"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        HttpSink(**{"url": "http://127.0.0.1/", **given})
    assert said in str(refused.value.lines()) and "s3cret" not in str(refused.value.lines())
