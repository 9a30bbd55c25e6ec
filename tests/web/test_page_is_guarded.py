"""Who is not let in: foreign hosts and origins, wrong tokens, bodies that are too large or make no sense."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feed_made import example, plain
from page_made import HOST, TOKEN, MadeFeed, Page, page
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from headgate.dashboards.web.security import policy_of, same_token

POSTS = ("/api/whatif", "/api/rate", "/api/stop", "/api/approve", "/api/apply")
STREAM = f"ws://{HOST}/api/stream"
WRITES = POSTS[1:]
SENSELESS = (
    b"", b"{", b"[]", b"null", b'{"rates": "1"}', b'{"surprise": 1}', b"\xff", b"[" * 5000, b'{"rates": [NaN]}',
)  # fmt: skip


@pytest.fixture
def static(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><title>headgate</title>")
    (folder / "page.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("not to be served")
    return folder


@pytest.fixture
def shown(static: Path) -> Iterator[Page]:
    with page(MadeFeed(plain(example())), lambda command, arguments: {"rows": [{}]}, static=static) as one:
        one.until_shown()
        yield one


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:4711", "", "[::1]:4711"]
)
def test_a_foreign_host_is_refused(shown: Page, host: str) -> None:
    for path in ("/", "/api/snapshot", "/static/page.js", "/plotly.min.js"):
        assert shown.get(path, host=host).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:4711", "http://127.0.0.1"]
)
def test_a_foreign_origin_is_refused(shown: Page, origin: str) -> None:
    assert shown.get("/api/snapshot", origin=origin).status_code == 403
    for path in POSTS:
        assert shown.post(path, {}, origin=origin).status_code == 403
    with pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)):
        shown.client.websocket_connect(STREAM, headers={"origin": origin}).__enter__()
    assert shown.asked == []


def test_our_own_origin_is_let_in(shown: Page) -> None:
    ours = "http://127.0.0.1:4711"
    assert shown.get("/api/snapshot", origin=ours).status_code == 200
    with shown.client.websocket_connect(STREAM, headers={"origin": ours}) as socket:
        assert socket.receive_json()["schema"] == "headgate/snapshot/v1"


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ä"])
@pytest.mark.parametrize("path", WRITES)
def test_nobody_writes_without_the_token(shown: Page, path: str, token: str | None) -> None:
    sent = token if token is None or token.isascii() else token.encode().decode("latin-1")
    given: dict[str, Any] = {} if sent is None else {"x-headgate-token": sent.encode("latin-1")}
    answer = shown.client.post(path, json={}, headers=given)
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "HG-TOKEN"
    assert shown.asked == []


def test_without_a_token_there_is_none_that_fits() -> None:
    assert not same_token("", None) and not same_token(None, None)
    assert same_token("x", "x") and not same_token(None, "x")


@pytest.mark.parametrize("path", POSTS)
def test_a_body_above_64_kb_is_refused(shown: Page, path: str) -> None:
    assert shown.post(path, b'{"rates": [' + b" " * 70_000 + b"]}").status_code == 413


@pytest.mark.parametrize("body", SENSELESS)
@pytest.mark.parametrize("path", ["/api/whatif", "/api/rate", "/api/apply"])
def test_a_body_that_makes_no_sense_is_refused(shown: Page, path: str, body: bytes) -> None:
    answer = shown.post(path, body)
    assert answer.status_code == 400 and answer.json()["schema"] == "headgate/error/v1"


def test_only_json_is_taken(shown: Page) -> None:
    headers = {"content-type": "text/plain", "x-headgate-token": TOKEN}
    assert shown.client.post("/api/stop", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize(
    "path",
    ["/static/../secret.txt", "/static/%2e%2e/secret.txt", "/static/..%2fsecret.txt", "/static//etc/passwd",
     "/static/....//secret.txt", "/static/%00", "/static/", "/static", "/..%2f..%2fetc/passwd"],
)  # fmt: skip
def test_nothing_outside_the_folder_is_served(shown: Page, path: str) -> None:
    answer = shown.get(path)
    assert answer.status_code in (307, 400, 404) and "not to be served" not in answer.text


def test_every_answer_says_what_the_page_may_do(shown: Page) -> None:
    for path in ("/", "/static/page.js", "/api/snapshot", "/nothing"):
        headers = shown.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "script-src" in policy_of(()) and "unsafe" not in policy_of(()).split("style-src")[0]


def test_the_page_its_files_and_plotly_are_served(shown: Page) -> None:
    assert "<title>headgate" in shown.get("/").text
    assert "javascript" in shown.get("/static/page.js").headers["content-type"]
    answer = shown.get("/plotly.min.js")
    assert len(answer.content) > 1_000_000 and "javascript" in answer.headers["content-type"]


def test_methods_that_are_not_meant_are_refused(shown: Page) -> None:
    assert shown.client.get("/api/stop").status_code == 405
    assert shown.client.post("/api/snapshot").status_code == 405
    assert shown.client.delete("/").status_code == 405
