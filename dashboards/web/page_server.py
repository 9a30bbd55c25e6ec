"""The application and its server. Reading needs nothing on loopback; what each path does stands in its own module."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headgate.dashboards.web import page_api as api
from headgate.dashboards.web.feed_items import Feed
from headgate.dashboards.web.http_connections import Limits, door_of, protocol_of
from headgate.dashboards.web.page_access import BODY_MOST_BYTES, Gate, Guard
from headgate.dashboards.web.page_api import Ask
from headgate.dashboards.web.page_stream import CLIENTS_MOST, Hub, stream
from headgate.dashboards.web.proposals import Proposals
from headgate.topology_runtime.errors import InvalidInput, Unreachable
from headgate.topology_runtime.platform.addresses import LOOPBACK
from headgate.topology_runtime.platform.certificates import Certificate, server_context

STATIC = Path(__file__).parent / "static"
WEEK = "public, max-age=604800"
END_S = 1
CONNECTIONS_MOST = 1024  # and requests under way; those that say nothing are far fewer (http_connections.py)
THINKING_MOST = 2  # what-if questions at once
LOOKING_MOST = 8  # questions for a state at once; the controller takes twice as many


@dataclass(frozen=True)
class Web:
    """What is served: a feed, the controller to ask (None: over a trace), the token that writing needs
    (None: nobody writes), what the server may be called (host:port), its certificate (None: plain http).
    closed: reading needs the token too."""

    feed: Feed
    ask: Ask | None
    token: str | None
    hosts: tuple[str, ...]
    clients_most: int = CLIENTS_MOST
    static: Path = STATIC
    certificate: Certificate | None = None
    closed: bool = False

    @property
    def address(self) -> str:
        return f"{'http' if self.certificate is None else 'https'}://{self.hosts[0]}/"


def application(web: Web) -> Any:
    """The ASGI application. Raises InvalidInput when plotly is not installed."""
    posted = (api.whatif, api.rate, api.stop, api.approve, api.apply)
    routes = [
        Route("/", _file(web.static / "index.html", "no-cache")),
        Route("/plotly.min.js", _file(plotly_js(), WEEK)),
        Route("/api/snapshot", api.snapshot),
        Route("/api/state", api.state),
        *(Route(f"/api/{handler.__name__}", handler, methods=["POST"]) for handler in posted),
        WebSocketRoute("/api/stream", stream),
        Mount("/static", StaticFiles(directory=web.static, check_dir=False)),
    ]
    app = Starlette(routes=routes, lifespan=_life)
    app.state.hub = Hub(web.feed, web.clients_most)
    app.state.ask, app.state.token = web.ask, web.token
    app.state.proposals = Proposals()
    app.state.thinking = asyncio.Semaphore(THINKING_MOST)
    app.state.looking = asyncio.Semaphore(LOOKING_MOST)
    inside: ASGIApp = app
    if web.closed:
        if web.token is None:
            raise ValueError("a closed page without a token would be open to nobody")
        inside = Gate(app, web.token, web.hosts[0].rpartition(":")[2], web.static)
    return Guard(inside, web.hosts, web.certificate is not None)


@contextlib.asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    app.state.hub.start()
    try:
        yield
    finally:
        await app.state.hub.stop()


def _file(path: Path, cache: str) -> Any:
    """An endpoint that answers with this file."""

    async def answer(request: Request) -> Response:
        if not path.is_file():
            return PlainTextResponse("not found", 404)
        return FileResponse(path, headers={"cache-control": cache})

    return answer


def plotly_js() -> Path:
    """plotly.js as the installed wheel brings it; plotly itself is not imported (0.3 s)."""
    found = find_spec("plotly")
    for folder in found.submodule_search_locations or () if found else ():
        return Path(folder) / "package_data" / "plotly.min.js"
    raise InvalidInput("the page needs plotly", hint="pip install 'headgate[web]'")


def listening(port: int, host: str = LOOPBACK) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=1024)
    except OSError as error:
        hint = "another port (`dashboard run --port N`, `up --set dashboard-port=N`), or stop what uses it"
        if not isinstance(error, socket.gaierror) and error.errno == errno.EADDRNOTAVAIL:
            hint = f"--listen is an address of this machine: --listen 0.0.0.0 --set advertise={host}"
        raise Unreachable(f"cannot listen on {host}:{port}", cause=error.strerror, hint=hint) from error


def serve(web: Web, sock: socket.socket, what: ASGIApp | None = None) -> None:
    """Serve until SIGTERM or SIGINT. what: an application in place of a run's page."""
    config = uvicorn.Config(
        what or application(web),
        http=protocol(web),
        log_level="warning",
        access_log=False,
        ws="websockets-sansio",
        ws_max_size=BODY_MOST_BYTES,
        ws_per_message_deflate=False,  # it costs more than it saves
        timeout_graceful_shutdown=END_S,
        limit_concurrency=CONNECTIONS_MOST,
        server_header=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([sock])


def protocol(web: Web) -> type[asyncio.Protocol]:
    """What its connections speak. Raises InvalidInput for a certificate that cannot be used."""
    if web.certificate is None:
        return protocol_of(Limits())
    return door_of(Limits(), server_context(web.certificate), web.address)


def hosts_of(
    port: int, names: tuple[str, ...] = (LOOPBACK, "localhost"), secure: bool = False
) -> tuple[str, ...]:
    """What this server may be called in Host."""
    known = [f"[{name}]" if ":" in name else name for name in names]
    usual = known if port == (443 if secure else 80) else []  # browsers leave it out
    return (*(f"{name}:{port}" for name in known), *usual)
