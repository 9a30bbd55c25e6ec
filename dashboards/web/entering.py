"""Who may look at a page that other machines reach: whoever has its token.

1. Scripts send the token as a header. Browsers exchange it for a cookie, which reads and never writes: writing needs
   the token itself, and the cookie does not tell it.
2. Without either there is a form that asks for the token, its looks and its script, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

import msgspec

from headgate.dashboards.web.security import TOKEN_HEADER, App, Receive, Scope, Send, error_data, same_token

ENTER = "/api/enter"
FORM = "enter.html"
FOR_ALL = ("/static/enter.js", "/static/page.css", "/static/icon.svg")


class Gate:
    """Around the application. port: in the cookie's name, for cookies are of a host, not of a port."""

    def __init__(self, app: App, token: str, port: str, static: Path) -> None:
        self._app, self._token, self._form = app, token, static / FORM
        self._cookie = f"__Host-headgate-{port}"
        self._worth = hmac.new(token.encode(), b"headgate page, reading", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == ENTER:
            await self._enter(scope, send)
        elif (scope["type"] == "http" and scope["path"] in FOR_ALL) or self._may_look(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "the token is missing"})
        elif scope["path"] == "/":
            await _answer(send, 401, self._form.read_bytes(), "text/html; charset=utf-8")
        else:
            await _refuse(send, 401, "reading needs the token that was printed when this page was started")

    async def _enter(self, scope: Scope, send: Send) -> None:
        if scope["method"] != "POST":
            await _refuse(send, 405, "POST it")
        elif not self._has_token(scope):
            await _refuse(send, 401, "this is not the token that was printed when this page was started")
        else:
            said = f"{self._cookie}={self._worth}; Path=/; Secure; HttpOnly; SameSite=Lax"
            await _answer(send, 200, b"{}", "application/json", (b"set-cookie", said.encode()))

    def _may_look(self, scope: Scope) -> bool:
        return self._has_token(scope) or any(
            same_token(_value(text, self._cookie), self._worth) for text in _headers(scope, "cookie")
        )

    def _has_token(self, scope: Scope) -> bool:
        return any(same_token(given, self._token) for given in _headers(scope, TOKEN_HEADER))


def _headers(scope: Scope, name: str) -> list[str]:
    return [value.decode("latin-1") for known, value in scope["headers"] if known == name.encode()]


def _value(text: str, name: str) -> str | None:
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return None
    return found.value if found is not None else None


async def _refuse(send: Send, status: int, what: str) -> None:
    await _answer(send, status, msgspec.json.encode(error_data("HG-TOKEN", what)), "application/json")


async def _answer(send: Send, status: int, body: bytes, kind: str, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"cache-control", b"no-store")],
        }
    )
    await send({"type": "http.response.body", "body": body})
