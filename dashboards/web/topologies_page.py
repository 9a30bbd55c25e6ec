"""The page of a controller that several topologies share: a list of them, and a link to the page of each.

A topology's page is the one that any run has, a process of its own that is started when somebody first follows its
link. All have one token: a link takes along what stands behind the `#` of this page's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headgate.dashboards.web.page_access import NO_STORE, Gate, Guard, refused
from headgate.dashboards.web.page_api import Ask
from headgate.dashboards.web.page_server import Web
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.child_processes import Child, stop_all
from headgate.topology_runtime.platform.clock import monotonic_ns

ASK_S, BEGINS_S, LOOK_S = 5.0, 20.0, 0.1
COLUMNS = {
    "stage": "Stage", "priority": "Priority", "weight": "Weight", "quota": "Quota", "needs": "Needs", "gets": "Gets",
    "slots": "Slots", "planned_tps": "Planned rows/s", "usd_per_hour": "$/h", "text": "",
}  # fmt: skip

PAGE = """<!doctype html>
<html lang="en" data-theme="auto">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta http-equiv="refresh" content="3">
  <title>headgate: topologies</title>
  <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/page.css">
  <script type="module" src="/static/topologies.js"></script>
</head>
<body>
  <main>
    <h1>{title}</h1>
    <section class="card"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></section>
  </main>
</body>
</html>
"""


def listed(found: Mapping[str, Any]) -> str:
    """The list of `headgate/topologies/v1` as HTML; names and texts of others are escaped."""
    there = found["topologies"]
    running = sum(one["stage"] != "over" for one in there)
    title = f"{running} {'topology' if running == 1 else 'topologies'} on {found['slots']} slots"
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("Topology", *COLUMNS.values()))
    rows = "".join(f"<tr>{_name(one)}{''.join(map(_cell, _values(one)))}</tr>" for one in there)
    return PAGE.format(title=title, heads=heads, rows=rows)


def _name(one: Mapping[str, Any]) -> str:
    name = html.escape(one["topology"])
    if one["stage"] == "over":
        return f'<th scope="row">{name}</th>'
    return f'<th scope="row"><a data-page href="/topology/{name}">{name}</a></th>'


def _values(one: Mapping[str, Any]) -> list[Any]:
    return [len(one[name]) if name == "slots" else one[name] for name in COLUMNS]


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"<td>{html.escape(text)}</td>"


class Pages:
    """Pages of single topologies. command: its command line, by name."""

    def __init__(self, command: Callable[[str], Sequence[str]], ask: Ask) -> None:
        self._command, self._ask = command, ask
        self._logs = tempfile.TemporaryDirectory(prefix="headgate-pages-")
        self._pages: dict[tuple[str, str], Child] = {}

    async def index(self, request: Request) -> Response:
        try:
            found = await self._found()
        except HeadgateError as error:
            return HTMLResponse(PAGE.format(title=html.escape(error.what), heads="", rows=""), 503, NO_STORE)
        return HTMLResponse(listed(found), 200, NO_STORE)

    async def page(self, request: Request) -> Response:
        """To the page of the topology of this name, which is started if nobody looked before."""
        name = request.path_params["name"]
        try:
            runs = {
                one["topology"]: one["run"]
                for one in (await self._found())["topologies"]
                if one["stage"] != "over"
            }
        except HeadgateError as error:
            return refused(503, error.code, error.what)
        if name not in runs:
            return refused(404, "HG-INVALID", "there is no such topology here")
        key = name, runs[name]
        if key not in self._pages or not self._pages[key].running:
            log = Path(self._logs.name) / f"{runs[name]}.log"
            log.unlink(missing_ok=True)
            self._pages[key] = Child(f"the page of {name}", self._command(name), log)
            self._pages[key].start()
        until_ns = monotonic_ns() + int(BEGINS_S * 1e9)
        while monotonic_ns() < until_ns and self._pages[key].running:
            if at := next((line for line in self._pages[key].last_lines() if line.startswith("http")), ""):
                return RedirectResponse(at, 307, NO_STORE)
            await asyncio.sleep(LOOK_S)
        return refused(
            503, "HG-UNREACHABLE", "its page does not start", cause=" ".join(self._pages[key].last_lines())
        )

    async def _found(self) -> Any:
        found = await self._ask("status", {}, ASK_S)
        there = {(one["topology"], one["run"]) for one in found["topologies"] if one["stage"] != "over"}
        for key in self._pages.keys() - there:
            stop_all([self._pages.pop(key)], 0.0)
        return found

    def close(self) -> None:
        stop_all(self._pages.values(), 0.0)
        self._logs.cleanup()


def application(web: Web, command: Callable[[str], Sequence[str]]) -> Any:
    """The ASGI application."""
    assert web.ask is not None
    pages = Pages(command, web.ask)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            pages.close()

    routes = [
        Route("/", pages.index),
        Route("/topology/{name}", pages.page),
        Mount("/static", StaticFiles(directory=web.static, check_dir=False)),
    ]
    inside: ASGIApp = Starlette(routes=routes, lifespan=life)
    if web.closed:
        assert web.token is not None
        inside = Gate(inside, web.token, web.hosts[0].rpartition(":")[2], web.static)
    return Guard(inside, web.hosts, web.certificate is not None)
