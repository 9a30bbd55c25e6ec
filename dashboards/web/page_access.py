"""Who may ask this server what. It mostly listens on loopback, but every page in the user's browser can reach that.

1. Host must be ours: a foreign name that resolves to loopback (DNS rebinding) is refused.
2. Origin, when there is one, must be ours: foreign pages may neither post nor open a WebSocket.
3. The page runs no script but ours: no inline script, nothing from elsewhere, in no frame.
4. Writing needs the token; bodies are JSON and small.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import msgspec

BODY_MOST_BYTES = 64 * 1024
TOKEN_HEADER = "x-headgate-token"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def policy_of(hosts: tuple[str, ...], secure: bool = False) -> str:
    """The Content-Security-Policy. Styles may be inline: plotly.js sets them on what it draws."""
    sockets = " ".join(f"{'wss' if secure else 'ws'}://{host}" for host in hosts)
    parts = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self'",
        "connect-src": f"'self' {sockets}",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def same_token(given: str | None, token: str | None) -> bool:
    """Is it the token? Without a token nobody has it; takes as long whatever is given."""
    return token is not None and hmac.compare_digest((given or "").encode(), token.encode())


class Guard:
    """Around the application: refuses foreign hosts and origins with 403, adds the headers of every answer.

    No Strict-Transport-Security: it would be for every port of the host, also those of other servers."""

    def __init__(self, app: App, hosts: tuple[str, ...], secure: bool = False) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"{'https' if secure else 'http'}://{host}" for host in self._hosts)
        told = {
            "content-security-policy": policy_of(hosts, secure),
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), geolocation=(), microphone=()",
        }
        self._told = [(name.encode(), value.encode()) for name, value in told.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif not self._ours(scope["headers"]):
            await self._refuse(scope, send)
        else:
            await self._app(scope, receive, self._with_headers(send))

    def _ours(self, headers: list[tuple[bytes, bytes]]) -> bool:
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        return (
            len(hosts) == 1 and hosts[0].lower() in self._hosts and all(o in self._origins for o in origins)
        )

    async def _refuse(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "foreign host or origin"})
            return
        body = msgspec.json.encode(error_data("HG-FOREIGN", "this host or origin is not served"))
        headers = [*self._told, (b"content-type", b"application/json")]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _with_headers(self, send: Send) -> Send:
        async def told(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._told]
            await send(message)

        return told


def error_data(code: str, what: str, **more: Any) -> dict[str, Any]:
    """An error as JSON has it."""
    known = {name: value for name, value in more.items() if value}
    return {"schema": "headgate/error/v1", "error": {"code": code, "what": what, **known}}


# ── Who may look at a page that other machines reach: whoever has its token ───
#
# 1. Scripts send the token as a header. Browsers exchange it for a cookie, which reads and never writes:
# writing needs the token itself, and the cookie does not tell it.
# 2. Without either there is a form that asks for the token, its looks and its script, and nothing else.

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
