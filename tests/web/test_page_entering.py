"""A page that other machines reach: nothing of the run without its token, whatever is asked and however."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feed_made import example, plain
from page_made import TOKEN, MadeFeed
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from headgate.dashboards.web.page_server import STATIC, Web, application, hosts_of
from headgate.topology_runtime.platform.certificates import own_certificate

HOST = "10.0.0.5:4711"
OURS = f"https://{HOST}"
COOKIE = "__Host-headgate-4711"
PATHS = (
    "/", "/api/snapshot", "/plotly.min.js", "/static/main.js", "/static/index.html", "/static/enter.html", "/nothing",
)  # fmt: skip


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[TestClient]:
    asked: list[Any] = []

    async def ask(command: str, arguments: dict[str, Any], seconds: float) -> Any:
        asked.append(command)
        return {"rows": [{}]}

    certificate = own_certificate(tmp_path, ("10.0.0.5",))
    web = Web(MadeFeed(plain(example())), ask, TOKEN, (HOST,), certificate=certificate, closed=True)
    with TestClient(application(web), base_url=OURS) as client:
        client.asked = asked  # type: ignore[attr-defined]
        yield client


def socket_refused(client: TestClient, **headers: str) -> bool:
    try:
        with client.websocket_connect(f"wss://{HOST}/api/stream", headers=headers) as stream:
            stream.receive_json()
    except (WebSocketDisconnect, WebSocketDenialResponse):
        return True
    return False


GIVEN: tuple[dict[str, str], ...] = (
    {}, {"x-headgate-token": "wrong"}, {"x-headgate-token": ""}, {"cookie": f"{COOKIE}={TOKEN}"},
    {"cookie": f"{COOKIE}="}, {"cookie": "a" * 5000}, {"cookie": f'{COOKIE}="\\'}, {"authorization": f"Bearer {TOKEN}"},
)  # fmt: skip


def test_without_the_token_there_is_nothing_but_a_form(shown: TestClient) -> None:
    for given in GIVEN:
        for path in PATHS:
            answer = shown.get(path, headers=given)
            assert answer.status_code == 401 and "example" not in answer.text and len(answer.content) < 2000
        assert "<form" in shown.get("/", headers=given).text
        for path in ("/api/whatif", "/api/rate", "/api/stop", "/api/approve", "/api/apply"):
            assert shown.post(path, json={"rates": [1.0]}, headers=given).status_code == 401
        assert socket_refused(shown, **given)
    assert shown.asked == []  # type: ignore[attr-defined]
    for path in PATHS[:4]:
        assert shown.get(path, headers={"x-headgate-token": TOKEN}).status_code == 200
    assert not socket_refused(shown, **{"x-headgate-token": TOKEN}) and shown.cookies == {}
    headers = shown.get("/").headers
    assert f"connect-src 'self' wss://{HOST};" in headers["content-security-policy"]
    assert "strict-transport-security" not in headers and headers["cache-control"] == "no-store"


def test_a_browser_gets_a_cookie_for_it_that_reads_and_does_not_write(shown: TestClient) -> None:
    assert shown.post("/api/enter", headers={"x-headgate-token": "wrong"}).status_code == 401
    assert shown.get("/api/enter", headers={"x-headgate-token": TOKEN}).status_code == 405
    answer = shown.post("/api/enter", headers={"x-headgate-token": TOKEN, "origin": OURS})
    said = answer.headers["set-cookie"]
    assert answer.status_code == 200 and TOKEN not in said
    assert said.startswith(f"{COOKIE}=") and {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(
        said.split("; ")
    )
    assert shown.get("/").status_code == 200 and "<form" not in shown.get("/").text
    assert shown.get("/api/snapshot").json()["schema"] == "headgate/snapshot/v1"
    assert not socket_refused(shown)
    assert shown.post("/api/stop", json={}).status_code == 401
    assert shown.asked == []  # type: ignore[attr-defined]
    assert shown.post("/api/stop", json={}, headers={"x-headgate-token": TOKEN}).status_code == 200


def test_a_foreign_page_cannot_enter_or_listen(shown: TestClient) -> None:
    entered = {"x-headgate-token": TOKEN}
    assert shown.post("/api/enter", headers=entered).status_code == 200
    for origin in ("https://evil.example", f"http://{HOST}", "null"):
        assert shown.post("/api/enter", headers={**entered, "origin": origin}).status_code == 403
        assert socket_refused(shown, origin=origin)
    assert not socket_refused(shown, origin=OURS)


def test_what_the_form_needs_is_there_for_all(shown: TestClient) -> None:
    form = shown.get("/").text
    asked = [part.split('"')[0] for part in form.split('="/')[1:]]
    assert sorted(asked) == ["static/enter.js", "static/icon.svg", "static/page.css"]
    for path in asked:
        assert shown.get(f"/{path}").content == (STATIC.parent / path).read_bytes()


@pytest.mark.parametrize(
    ("port", "secure", "hosts"),
    [(4711, True, ("[fd00::1]:4711", "page.example:4711")), (443, False, ("[fd00::1]:443", "page.example:443")),
     (443, True, ("[fd00::1]:443", "page.example:443", "[fd00::1]", "page.example"))],
)  # fmt: skip
def test_the_port_that_browsers_leave_out_may_be_left_out(
    port: int, secure: bool, hosts: tuple[str, ...]
) -> None:
    assert hosts_of(port, ("fd00::1", "page.example"), secure) == hosts
