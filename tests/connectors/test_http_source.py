"""Rows that are posted: answered once they are on the disk, taken once for each key, refused with a reason."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from patience import PATIENCE_S, until

from headgate.connectors import HttpSource
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.http import http_server, http_source, posted_rows
from headgate.topology_runtime.connectors.http.checks import is_signed
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from real_services import Certificates

JSON, LINES = "application/json", "application/x-ndjson"
TOKEN, SECRET = "t0ken-of-clients", "s3cret-of-hooks"


class Said(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


class Port:
    """A source that listens, driven by hand, and its clients."""

    def __init__(self, folder: Path, **given: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.folder, self.given = folder, given
        self.clients = ThreadPoolExecutor(16)
        self.rows: list[Any] = []
        self.start()

    def start(self) -> None:
        self.source, self.polled = HttpSource(self.port, **self.given), 0
        self.source.open(Context("in", 1, 0, 1, str(self.folder)))
        assert self.source.poll(0) == []

    def turn(self, limit: int = 1024) -> None:
        """What the runtime does: take rows, and tell that they are on the disk."""
        self.take(limit)
        self.source.durable(self.polled)

    def take(self, limit: int = 1024) -> int:
        rows = self.source.poll(limit)
        self.rows += rows
        self.polled += len(rows)
        return len(rows)

    def ask(self, body: Any = b"", kind: str | None = JSON, method: str = "POST", path: str = "/",
            **headers: str) -> Future[Said]:  # fmt: skip
        """In a thread. Names of headers: with _ for -."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.clients.submit(
            self._ask, method, path, data, named | ({"Content-Type": kind} if kind else {})
        )

    def _ask(self, method: str, path: str, data: bytes, headers: dict[str, str]) -> Said:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return Said(answer.status, json.loads(answer.read() or b"null"), dict(answer.headers))
        finally:
            connection.close()

    def answer(self, *asked: Future[Said]) -> Said:
        """Of the first; the runtime turns until all are answered."""
        until(lambda: self.turn() or all(one.done() for one in asked))
        return asked[0].result()

    def post(self, *given: Any, **headers: Any) -> Said:
        return self.answer(self.ask(*given, **headers))

    def raw(self, data: bytes) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        client.sendall(data)
        return client

    def close(self) -> None:
        self.source.close()
        self.clients.shutdown()


@pytest.fixture
def port_of(tmp_path: Path) -> Iterator[Callable[..., Port]]:
    made: list[Port] = []

    def make(**given: Any) -> Port:
        made.append(Port(tmp_path, **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def port(port_of: Callable[..., Port]) -> Port:
    return port_of()


def request(*headers: bytes, body: bytes = b"") -> bytes:
    """As it is sent, of JSON."""
    lines = (b"POST / HTTP/1.1", b"Host: a", b"Content-Type: application/json", *headers)
    return b"\r\n".join((*lines, b"", body))


def read_all(client: socket.socket) -> bytes:
    """Until the server closes."""
    with client:
        return b"".join(iter(lambda: client.recv(65536), b""))


# ── What is taken ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body, kind, rows", [
    (b'{"n": 1}', JSON, [{"n": 1}]),
    (b' "text"', 'application/vnd.cloud+json; charset="UTF-8"; v=1', ["text"]),
    (b'[{"n": 1}, [2, 3], null]', JSON, [{"n": 1}, [2, 3], None]),
    (b'{"n": 1}\r\n\n{"n": 2}', LINES, [{"n": 1}, {"n": 2}]),
    (b"[1]\n[2]\n", "application/jsonl", [[1], [2]]),
    (b"[]", JSON, []),
    (b"", LINES, []),
])  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_value_an_array_and_lines_are_rows(
    port: Port, body: bytes, kind: str, rows: list[Any], packed: bool
) -> None:
    if packed:
        half = len(body) // 2
        body = gzip.compress(body[:half], mtime=0) + gzip.compress(body[half:], mtime=0)
    said = port.post(body, kind, **({"Content_Encoding": "gzip"} if packed else {}))
    assert (said.status, said.body, port.rows) == (202, {"rows": len(rows)}, rows)


def test_it_is_answered_when_all_its_rows_are_on_the_disk(port: Port) -> None:
    asked = port.ask([1, 2, 3])
    until(lambda: port.take(2))
    port.source.durable(port.polled)
    until(lambda: port.take(2))
    assert not asked.done()
    port.source.durable(2)
    other = port.ask(path="/health", method="GET", kind=None)  # the server's thread has had its turn
    assert other.result().status == 200 and not asked.done()
    port.source.durable(3)
    assert asked.result().body == {"rows": 3}


def test_a_connection_serves_many_requests_and_asks_for_bodies_that_wait_for_that(port: Port) -> None:
    client = port.raw(b"")
    reader = client.makefile("rb")
    for _ in range(3):
        client.sendall(request(b"Expect: 100-continue", b"Content-Length: 1"))
        assert reader.readline().startswith(b"HTTP/1.1 100 ") and reader.readline() == b"\r\n"
        client.sendall(b"7")
        until(port.take)
        port.source.durable(port.polled)
        head = list(iter(reader.readline, b"\r\n"))
        assert head[0] == b"HTTP/1.1 202 Accepted\r\n" and reader.readline() == b'{"rows": 1}\n'
    reader.close()
    client.close()


@pytest.mark.parametrize("version, header", [(b"1.0", b"X: y"), (b"1.1", b"Connection: close")])
def test_a_client_that_wants_one_answer_gets_it_and_the_end(
    port: Port, version: bytes, header: bytes
) -> None:
    sent = request(header, b"Content-Length: 1", body=b"7").replace(b"HTTP/1.1", b"HTTP/" + version)
    said = port.clients.submit(read_all, port.raw(sent))
    until(lambda: port.turn() or said.done())
    assert said.result().startswith(b"HTTP/1.1 202 ") and port.rows == [7]


# ── Each key once ───────────────────────────────────────────────────────────────────────────────


def test_a_repeated_request_is_answered_alike_and_not_taken_again(port: Port) -> None:
    for _ in range(3):
        assert port.post([1, 2], Idempotency_Key="a").body == {"rows": 2}
    assert port.post([3], Idempotency_Key="b").status == 202
    assert port.rows == [1, 2, 3]


def test_two_at_once_with_one_key_are_taken_once(port: Port) -> None:
    asked = [port.ask([1, 2], Idempotency_Key="a") for _ in range(8)]
    port.answer(*asked)
    assert {(one.result().status, one.result().body["rows"]) for one in asked} == {(202, 2)}
    assert port.rows == [1, 2]


def test_a_client_that_went_before_the_answer_may_ask_again(port: Port) -> None:
    port.raw(request(b"Idempotency-Key: a", b"Content-Length: 1", body=b"7")).close()
    until(lambda: port.take())
    assert port.post(7, Idempotency_Key="a").status == 202
    assert port.rows == [7]


def test_keys_are_known_after_a_restart_on_the_same_disk(port: Port) -> None:
    assert port.post([1, 2], Idempotency_Key="a ä").status == 202
    port.source.close()
    with next(port.folder.glob("answered-*")).open("ab") as file:
        file.write(bytes(9) + b"\na b c\nhalf a li")  # a lost power, and killed as it wrote
    port.start()
    assert port.post([1, 2], Idempotency_Key="a ä").body == {"rows": 2}
    assert port.post([3], Idempotency_Key="li").status == 202
    assert port.rows == [1, 2, 3]


def test_so_many_keys_are_remembered_and_the_oldest_forgotten(
    port_of: Callable[..., Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (posted_rows, http_source.AnsweredRequests.add.__globals__):
        target = module if isinstance(module, dict) else vars(module)
        monkeypatch.setitem(target, "KEYS_MOST", 3)
    port = port_of()
    for n in range(20):
        port.post(n, Idempotency_Key=f"k{n}")
    assert len(next(port.folder.glob("answered-*")).read_bytes().splitlines()) < 6
    port.source.close()
    port.start()
    for n in (17, 18, 19, 0):
        port.post(n, Idempotency_Key=f"k{n}")
    assert port.rows == [*range(20), 0]


def test_a_key_that_comes_with_another_body_is_refused(port: Port) -> None:
    port.post([1], Idempotency_Key="a")
    assert port.post([2], Idempotency_Key="a").status == 422
    assert port.post([2], Idempotency_Key="x" * 257).status == 400
    assert port.rows == [1]


# ── What is refused, whole ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body, kind, status, why", [
    (b'[{"n": 1}, {"n": tru}]', JSON, 400, "$"),
    (b'[1, 18446744073709551616000]', JSON, 400, "$[1]: "),
    (b'[1, {"a": "\xff"}]', JSON, 400, "UTF-8"),
    (b"[1, " + b"[" * 5000 + b"]" * 5000 + b"]", JSON, 400, "$"),
    (b"", JSON, 400, "$: no JSON"),
    (b"1", "text/csv", 415, "application/json"),
    (b"1", "application/x-www-form-urlencoded", 415, "application/json"),
    (b"1", None, 415, "application/json"),
    (b"1", "application/json; charset=latin-1", 415, "UTF-8"),
    (b"1\n" * 10_001, LINES, 413, "10,001 rows"),
    (b'"' + b"a" * (4 << 20) + b'"', JSON, 413, "4,194,304 bytes"),
])  # fmt: skip
def test_of_a_body_that_cannot_be_read_nothing_is_taken(
    port: Port, body: bytes, kind: str | None, status: int, why: str
) -> None:
    said = port.post(body, kind)
    assert said.status == status and why in said.body["error"]
    assert port.post([9]).status == 202 and port.rows == [9]


def test_a_field_that_is_not_of_the_type_is_named(port_of: Callable[..., Port]) -> None:
    port = port_of(type="http_rows:Order")
    said = port.post([{"id": 1, "price": 2.0}, {"id": 2, "price": "dear"}])
    assert (said.status, said.body["error"]) == (400, "$[1].price: expected float, got str")
    assert port.post([{"id": 1, "price": 2.0}]).status == 202 and port.rows == [{"id": 1, "price": 2.0}]


@pytest.mark.parametrize("body, encoding, status", [
    (gzip.compress(b"[1]", mtime=0)[:-9], "gzip", 400),
    (b"no gzip", "gzip", 400),
    (gzip.compress(b'"' + bytes(5 << 20), mtime=0), "gzip", 413),
    (b"[1]", "br", 415),
])  # fmt: skip
def test_compressed_bodies_are_bounded_and_whole(port: Port, body: bytes, encoding: str, status: int) -> None:
    assert port.post(body, Content_Encoding=encoding).status == status
    assert port.rows == []


def test_a_hundred_megabytes_are_refused_before_they_came(port: Port) -> None:
    client = port.raw(request(b"Content-Length: 104857600"))
    piece = bytes(1 << 20)
    for _ in range(100):
        client.sendall(piece)
    assert read_all(client).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("sent", [
    b"nothing of the kind\r\n\r\n",
    request(b"Transfer-Encoding: chunked", body=b"zz\r\n1\r\n0\r\n\r\n"),
    request(b"Content-Length: 1", b"Content-Length: 2", body=b"1"),
    request(b"Content-Type: text/csv", b"Content-Length: 1", body=b"1"),
    request(b"X: " + b"a" * 40_000)[:-4],
])  # fmt: skip
def test_what_is_no_request_is_refused(port: Port, sent: bytes) -> None:
    assert read_all(port.raw(sent))[:10] == b"HTTP/1.1 4"
    port.turn()
    assert port.post([1]).status == 202 and port.rows == [1]


def test_half_a_request_is_no_row(port: Port) -> None:
    for sent in (b"PO", request(b"Content-Length: 9", body=b"[1, 2]")):
        port.raw(sent).close()
    assert port.post([1]).status == 202 and port.rows == [1]


@pytest.mark.parametrize("sent", [b"", b"POST / HT", request(b"Content-Length: 9", body=b"[")])
def test_slow_clients_are_cut_off(port: Port, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    for name in ("REQUEST_S", "IDLE_S"):
        monkeypatch.setattr(http_server, name, 0.01)
    assert read_all(port.raw(sent))[:12] in (b"", b"HTTP/1.1 408")
    assert port.source.poll(1) == []


def test_other_methods_are_told_what_there_is(port: Port) -> None:
    assert port.post(method="GET", path="/health", kind=None).body == {"status": "ok"}
    assert port.post(method="HEAD", path="/health", kind=None).status == 200
    assert port.post(method="DELETE").headers["Allow"] == "POST"


# ── Who may post ────────────────────────────────────────────────────────────────────────────────


def test_without_the_token_nothing_is_taken(port_of: Callable[..., Port]) -> None:
    port = port_of(token=TOKEN)
    for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"},
                  {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer é"}):  # fmt: skip
        said = port.post([1], **given)
        assert said.status == 401 and TOKEN not in str(said)
    assert port.post([2], Authorization=f"bearer {TOKEN}").status == 202 and port.rows == [2]


def signed(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_github_signs_the_body_and_names_its_deliveries(port_of: Callable[..., Port]) -> None:
    port, body = port_of(signature="github", secret=SECRET), b'{"action": "opened"}'
    for given in ({}, {"X_Hub_Signature_256": "sha256=" + signed(body + b" ")},
                  {"X_Hub_Signature_256": signed(body)}, {"X_Hub_Signature_256": "é"}):  # fmt: skip
        assert port.post(body, **given).status == 401
    for _ in range(2):
        right = {"X_Hub_Signature_256": "sha256=" + signed(body), "X_GitHub_Delivery": "72d3162e"}
        assert port.post(body, **right).status == 202
    assert port.rows == [{"action": "opened"}]


def test_the_example_of_githubs_manual_is_signed_right() -> None:
    right = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    given = b"Hello, World!", "It's a Secret to Everybody", 0.0
    assert is_signed("github", {"x-hub-signature-256": right}, *given)
    assert not is_signed("github", {"x-hub-signature-256": right.upper()}, *given)


def test_stripe_signs_the_time_and_the_body(port_of: Callable[..., Port]) -> None:
    port, body, now = port_of(signature="stripe", secret=SECRET), b'{"id": "evt_1"}', int(time.time())

    def header(at: int | str, of: bytes = body) -> dict[str, str]:
        return {
            "Stripe_Signature": f"t={at},v1={signed(b'old', 'old')},v1={signed(f'{at}.'.encode() + of)},v0=a"
        }

    for given in ({}, header(now - 900), header(now + 900), header(now, b"{}"), header("x"), header("²"),
                  {"Stripe_Signature": f"t={now}"}, {"Stripe_Signature": ",=,"}):  # fmt: skip
        assert port.post(body, **given).status == 401
    assert port.post(body, **header(now)).status == 202 and port.rows == [{"id": "evt_1"}]


def test_secrets_are_those_of_now_and_no_trouble_shows_them(
    port_of: Callable[..., Port], tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    port = port_of(token=SecretText(f"${{FILE:{file}}}"))
    assert port.post([1], Authorization=f"Bearer {TOKEN}").status == 202
    file.write_text("another-t0ken")
    assert port.post([2], Authorization=f"Bearer {TOKEN}").status == 401
    assert port.post([2], Authorization="Bearer another-t0ken").status == 202
    file.unlink()
    assert port.ask([3], Authorization=f"Bearer {TOKEN}").result().status == 503
    with pytest.raises(InvalidInput, match="cannot read") as told:
        port.source.poll(1)
    assert "t0ken" not in str(told.value.lines()) and port.rows == [1, 2]


@pytest.mark.parametrize("given, said", [
    ({"port": 0}, "1 to 65535"),
    ({"signature": "gitlab", "secret": SECRET}, "github, stripe"),
    ({"signature": "github"}, "go together"),
    ({"secret": SECRET}, "go together"),
    ({"host": "0.0.0.0"}, "anybody"),
    ({"tls": True}, "tls.certificate"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        HttpSource(**{"port": 8080, **given})
    assert said in str(refused.value.faults) and SECRET not in str(refused.value.lines())


# ── Full, away, closed ──────────────────────────────────────────────────────────────────────────


def test_while_rows_are_not_taken_more_are_told_to_come_later(port: Port) -> None:
    first = port.ask(b"1\n" * 10_000, LINES, Idempotency_Key="a")
    until(lambda: port.source.waiting.rows == 10_000)
    for given in ({}, {"Idempotency_Key": "b"}):
        said = port.ask([2], **given).result()
        assert said.status == 429 and int(said.headers["Retry-After"]) > 0
    again = port.ask(b"1\n" * 10_000, LINES, Idempotency_Key="a")
    port.answer(first, again)
    assert again.result().status == 202 and len(port.rows) == 10_000
    assert port.post([2], Idempotency_Key="b").status == 202


def test_bodies_that_wait_are_bounded_in_bytes(port: Port) -> None:
    body = json.dumps(["x" * 500_000] * 8).encode()
    asked = [port.ask(body) for _ in range(4)]
    until(lambda: port.source.waiting.rows == 32)
    assert port.ask(body).result().status == 429
    assert port.answer(*asked).status == 202


def test_rows_that_nobody_takes_in_time_are_taken_back(port: Port) -> None:
    port.source.answer_s = 0.01
    said = port.ask([1], Idempotency_Key="a").result()
    assert said.status == 503 and "none of these was" in said.body["error"]
    port.turn()
    assert port.rows == []
    port.source.answer_s = PATIENCE_S
    assert port.post([1], Idempotency_Key="a").status == 202 and port.rows == [1]


def test_rows_that_the_disk_has_not_taken_in_time_are_not_promised(port: Port) -> None:
    port.source.answer_s = 0.2
    asked = port.ask([1, 2], Idempotency_Key="a")
    until(lambda: port.take(1))
    assert "it may" in asked.result().body["error"]
    port.source.answer_s = PATIENCE_S
    assert port.post([1, 2], Idempotency_Key="a").status == 202
    assert port.rows == [1, 2]


def test_a_port_that_another_has_is_waited_for(port: Port) -> None:
    other = HttpSource(port.port)
    other.open(Context("in", 2, 0, 1, str(port.folder)))
    with pytest.raises(ServiceAway, match=f"127.0.0.1:{port.port}"):
        other.poll(1)
    port.source.close()
    assert other.poll(1) == []
    asked = port.ask([1])
    until(lambda: other.poll(1))
    other.durable(1)
    assert asked.result().status == 202
    other.close()


def test_each_partition_has_a_port(tmp_path: Path) -> None:
    source = HttpSource(65535)
    with pytest.raises(InvalidInput, match="65536"):
        source.open(Context("in", 1, 1, 2, str(tmp_path)))


def test_who_has_no_request_makes_room_for_who_has_one(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MOST", 4)
    idle = [port.raw(b"") for _ in range(12)]
    assert port.post([1]).status == 202
    for one in idle:
        one.close()


def test_over_tls_with_certificates_that_are_renewed(port_of: Callable[..., Port], tmp_path: Path) -> None:
    made = Certificates(tmp_path / "made")
    tls = {"certificate": str(made.server), "key": str(made.server_key), "ca": str(made.authority)}
    port = port_of(tls=tls)

    def shown() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port.port), PATIENCE_S) as plain,
            made.client_context().wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
            found = client.getpeercert(True)
            assert found is not None
            return found

    first = shown()
    made.issue("server", "localhost")
    assert shown() != first
    anybody = ssl.create_default_context(cafile=str(made.authority))
    answered = b""
    with (
        suppress(OSError),
        anybody.wrap_socket(port.raw(b""), server_hostname="localhost") as client,
    ):
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        answered = client.recv(1)
    assert answered == b"", "without a certificate of its own"
