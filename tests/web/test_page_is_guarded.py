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

from headgate.dashboards.web.page_access import policy_of, same_token

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


def test_a_foreign_host_is_refused(shown: Page) -> None:
    foreign = ("evil.example", "127.0.0.1", "127.0.0.1:80", "localhost.evil.example:4711", "", "[::1]:4711")
    for path in ("/", "/api/snapshot", "/static/page.js", "/plotly.min.js"):
        assert [shown.get(path, host=host).status_code for host in foreign] == [403] * len(foreign)


def test_a_foreign_origin_is_refused_and_ours_is_let_in(shown: Page) -> None:
    for origin in ("http://evil.example", "null", "https://127.0.0.1:4711", "http://127.0.0.1"):
        assert shown.get("/api/snapshot", origin=origin).status_code == 403
        for path in POSTS:
            assert shown.post(path, {}, origin=origin).status_code == 403
        with pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)):
            shown.client.websocket_connect(STREAM, headers={"origin": origin}).__enter__()
    assert shown.asked == []
    ours = "http://127.0.0.1:4711"
    assert shown.get("/api/snapshot", origin=ours).status_code == 200
    with shown.client.websocket_connect(STREAM, headers={"origin": ours}) as socket:
        assert socket.receive_json()["schema"] == "headgate/snapshot/v1"


@pytest.mark.parametrize("path", WRITES)
def test_nobody_writes_without_the_token(shown: Page, path: str) -> None:
    for token in (None, b"", b"wrong", f"{TOKEN}x".encode(), TOKEN[:-1].encode(), "ä".encode()):
        given: dict[str, Any] = {} if token is None else {"x-headgate-token": token}
        answer = shown.client.post(path, json={}, headers=given)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "HG-TOKEN"
    assert shown.asked == [] and not same_token("", None) and not same_token(None, None)


@pytest.mark.parametrize("path", POSTS)
def test_a_body_that_is_too_large_or_makes_no_sense_is_refused(shown: Page, path: str) -> None:
    assert shown.post(path, b'{"rates": [' + b" " * 70_000 + b"]}").status_code == 413
    for body in SENSELESS if path in ("/api/whatif", "/api/rate", "/api/apply") else ():
        answer = shown.post(path, body)
        assert answer.status_code == 400 and answer.json()["schema"] == "headgate/error/v1"
    headers = {"content-type": "text/plain", "x-headgate-token": TOKEN}
    assert shown.client.post(path, content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize(
    "path",
    ["/static/../secret.txt", "/static/%2e%2e/secret.txt", "/static/..%2fsecret.txt", "/static//etc/passwd",
     "/static/....//secret.txt", "/static/%00", "/static/", "/static", "/..%2f..%2fetc/passwd"],
)  # fmt: skip
def test_nothing_outside_the_folder_is_served(shown: Page, path: str) -> None:
    answer = shown.get(path)
    assert answer.status_code in (307, 400, 404) and "not to be served" not in answer.text


def test_what_is_served_says_what_the_page_may_do_and_other_methods_are_refused(shown: Page) -> None:
    for path in ("/", "/static/page.js", "/api/snapshot", "/nothing"):
        headers = shown.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "<title>headgate" in shown.get("/").text
    assert "javascript" in shown.get("/static/page.js").headers["content-type"]
    answer = shown.get("/plotly.min.js")
    assert len(answer.content) > 1_000_000 and "javascript" in answer.headers["content-type"]
    for method, path in (("GET", "/api/stop"), ("POST", "/api/snapshot"), ("DELETE", "/")):
        assert shown.client.request(method, path).status_code == 405
    assert "script-src" in policy_of(()) and "unsafe" not in policy_of(()).split("style-src")[0]


def test_a_state_is_read_without_the_token_and_asked_for_by_task_and_key_alone(shown: Page) -> None:
    answer = shown.get("/api/state?task=count&key=%5B%22a%22%2C1%5D")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    assert shown.asked == [("state", {"task": "count", "key": '["a",1]'})]
    for path in ("", "?task=count", "?key=a", "?task=count&key=a&more=1"):
        refused = shown.get(f"/api/state{path}")
        assert refused.status_code == 400 and refused.json()["error"]["code"] == "HG-INVALID"
    assert shown.client.post("/api/state?task=count&key=a").status_code == 405 and len(shown.asked) == 1
