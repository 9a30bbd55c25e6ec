"""Who may ask this server what. It mostly listens on loopback, but every page in the user's browser can reach that.

1. Host must be ours: a foreign name that resolves to loopback (DNS rebinding) is refused.
2. Origin, when there is one, must be ours: foreign pages may neither post nor open a WebSocket.
3. The page runs no script but ours: no inline script, nothing from elsewhere, in no frame.
4. Writing needs the token; bodies are JSON and small.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_MOST_BYTES = 64 * 1024
TOKEN_HEADER = "x-headgate-token"
THE_TOKEN = "the token that was printed when this page was started"
NO_STORE = {"cache-control": "no-store"}


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

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], secure: bool = False) -> None:
        self._app, self._hosts = app, frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"{'https' if secure else 'http'}://{host}" for host in self._hosts)
        self._told = {
            "content-security-policy": policy_of(hosts, secure),
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), geolocation=(), microphone=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._ours(Headers(scope=scope)):
            await self._app(scope, receive, self._with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "foreign host or origin"})
        else:
            refusal = refused(403, "HG-FOREIGN", "this host or origin is not served")
            await refusal(scope, receive, self._with_headers(send))

    def _ours(self, headers: Headers) -> bool:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        return len(hosts) == 1 and hosts[0].lower() in self._hosts and self._origins.issuperset(origins)

    def _with_headers(self, send: Send) -> Send:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._told)
            await send(message)

        return told


def answered(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that nobody keeps."""
    kept = {**NO_STORE, **(headers or {})}
    return Response(msgspec.json.encode(data), status, kept, media_type="application/json")


def refused(status: int, code: str, what: str, **more: Any) -> Response:
    error = {"code": code, "what": what, **{name: value for name, value in more.items() if value}}
    return answered({"schema": "headgate/error/v1", "error": error}, status)


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

    def __init__(self, app: ASGIApp, token: str, port: str, static: Path) -> None:
        self._app, self._token, self._form = app, token, static / FORM
        self._cookie = f"__Host-headgate-{port}"
        self._worth = hmac.new(token.encode(), b"headgate page, reading", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == ENTER:
            await self._entered(scope)(scope, receive, send)
        elif (scope["type"] == "http" and scope["path"] in FOR_ALL) or self._may_look(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "the token is missing"})
        elif scope["path"] == "/":
            await FileResponse(self._form, 401, NO_STORE)(scope, receive, send)
        else:
            await refused(401, "HG-TOKEN", f"reading needs {THE_TOKEN}")(scope, receive, send)

    def _entered(self, scope: Scope) -> Response:
        if scope["method"] != "POST":
            return refused(405, "HG-TOKEN", "POST it")
        if not self._has_token(Headers(scope=scope)):
            return refused(401, "HG-TOKEN", f"this is not {THE_TOKEN}")
        said = f"{self._cookie}={self._worth}; Path=/; Secure; HttpOnly; SameSite=Lax"
        return answered({}, 200, {"set-cookie": said})

    def _may_look(self, headers: Headers) -> bool:
        cookies = (cookie_parser(text).get(self._cookie) for text in headers.getlist("cookie"))
        return self._has_token(headers) or any(same_token(cookie, self._worth) for cookie in cookies)

    def _has_token(self, headers: Headers) -> bool:
        return any(same_token(given, self._token) for given in headers.getlist(TOKEN_HEADER))
