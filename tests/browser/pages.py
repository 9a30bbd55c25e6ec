"""The real server over a feed that a test pushes, and a browser that looks at it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import uvicorn
from feed_made import example, models, plain

from headgate.controller.core.plan_choice import PlanQuestion, rates_asked, side_by_side, whatif
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.plan_moves import threads_of
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.dashboards.web.feed_items import Change, Document, Item, Whole
from headgate.dashboards.web.page_server import Web, application, hosts_of, listening
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform.planning_time import clocked
from headgate.topology_runtime.wire.run_snapshot import APART, advanced, patch_between
from headgate.topology_runtime.wording import utc_iso

CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server",
)  # fmt: skip
TOKEN = "a-token-for-the-tests-of-the-page"
BEGIN_S = 30.0
SOON_MS = 180_000  # how long a page may take on a machine that many others share; only a hang takes so long


class MadeFeed:
    """A feed (`dashboards.feed.Feed`) that brings what a test pushes."""

    def __init__(self, document: Document) -> None:
        self.document: Document | None = document
        self._items: SimpleQueue[Item] = SimpleQueue()
        self._items.put(Whole(document))

    def next(self, timeout_s: float) -> Item | None:
        try:
            return self._items.get(timeout=timeout_s)
        except Empty:
            return None

    def close(self) -> None:
        self.document = None

    def tick(self, after: Document | None = None, **history: list[float | None]) -> None:
        """The change to `after` (without: one in which only the number and the time differ)."""
        before = self.document
        assert before is not None
        after = before if after is None else after
        patch = patch_between(_bare(before), _bare(after))
        number = before["number"] + 1
        delta = {"schema": "headgate/delta/v1", "number": number, "boot": before["boot"],
                 "now": utc_iso(time.time_ns()), "patch": patch}  # fmt: skip
        if history:
            delta["history"] = history
        self.document = advanced(before, delta)
        assert self.document is not None
        self._items.put(Change(delta, msgspec.json.encode(delta), self.document))

    def whole(self, document: Document) -> None:
        self.document = document
        self._items.put(Whole(document))


def _bare(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in APART}


class Asked:
    """What the page asks of a controller: what-if of the real planner; orders are written down."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, command: str, arguments: dict[str, Any], seconds: float) -> Any:
        if command == "whatif":
            if arguments.get("compare"):
                return await asyncio.to_thread(compared_beside, rates_asked(arguments))
            full = bool(arguments.get("full"))
            return await asyncio.to_thread(whatif, question(), rates_asked(arguments), full)
        self.orders.append((command, arguments))
        return {}


def compared_beside(rates: tuple[float, ...]) -> Any:
    """As a controller answers, with a clock, while the example's plan is in force."""
    present = in_force()
    threads = threads_of(present.placement)
    asked = PlanQuestion(question(), threads, present, False, frozenset(), len(threads))
    with clocked(time.monotonic, 600.0):  # however busy this machine is
        return side_by_side(asked, rates)


def in_force() -> Plan:
    return make_plan(question())


def question() -> PlanRequest:
    """What a controller of the example's run would plan with."""
    fixed = Static(1, 0.1, 0.15)
    tasks = (Task("source", kind="source", static=fixed), Task("parse"), Task("score"), Task("lookup"),
             Task("sink", static=fixed))  # fmt: skip
    edges = (Edge("source", "parse"), Edge("parse", "score"), Edge("parse", "lookup", 0.5),
             Edge("score", "sink"), Edge("lookup", "sink"))  # fmt: skip
    known = {
        name: Model(name, ModelSlot(), tuple(Point(*point) for point in model.points))
        for name, model in models().items()
    }
    vms = tuple(Vm(f"vm{n}", 4, usd_per_hour=0.1) for n in (1, 2))
    return PlanRequest(Topology("example", tasks, edges), known, 240.0, vms)


class Served:
    """The page's server in a thread of this process, on a port of its own."""

    def __init__(self, feed: Any, ask: Asked | None = None, port: int = 0) -> None:
        sock = listening(port)
        self.port = sock.getsockname()[1]
        hosts = hosts_of(self.port)
        self.feed, self.asked, self.host = feed, ask, hosts[0]
        web = Web(feed, ask, TOKEN if ask is not None else None, hosts)
        config = uvicorn.Config(application(web), log_level="error", ws="websockets-sansio",
                                timeout_graceful_shutdown=1)  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([sock],), daemon=True)
        self._thread.start()
        until = time.monotonic() + BEGIN_S
        while not self._server.started:
            assert time.monotonic() < until, "the server did not begin"
            time.sleep(0.01)

    @property
    def address(self) -> str:
        return f"http://{self.host}/"

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join(BEGIN_S)


@contextlib.contextmanager
def served(feed: Any, ask: Asked | None = None, port: int = 0) -> Iterator[Served]:
    server = Served(feed, ask, port)
    try:
        yield server
    finally:
        server.end()


@contextlib.contextmanager
def chromium(folder: Path, *flags: str, **options: Any) -> Iterator[Any]:
    """A browser with a fresh profile in `folder`, which uses no proxy."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(folder), executable_path=CHROMIUM, headless=True, args=[*FLAGS, *flags],
            viewport={"width": 1440, "height": 900}, timezone_id="UTC", locale="en-GB", **options,
        )  # fmt: skip
        context.set_default_timeout(SOON_MS)
        try:
            yield context
        finally:
            context.close()


def can_browse() -> bool:
    return os.access(CHROMIUM, os.X_OK)


def large(at: int = 0, tasks: int = 200, slots: int = 500) -> Document:
    """A run of so many tasks and slots; `at` moves every measured value a little."""
    found: Document = plain(example())
    layer = 10
    names = [f"task{n:03}" for n in range(tasks)]
    sway = [math.sin(at / 3 + n) for n in range(max(tasks, slots))]
    topology = found["topology"]
    topology["order"] = names
    topology["tasks"] = {
        name: {"kind": "source" if n < layer else "map", "static": n < layer, "threads": 4,
               "rate_tps": round(200 + 20 * sway[n], 1), "predicted_tps": 200.0, "queue": round(9 + 8 * sway[n]),
               "busy": round(0.55 + 0.42 * sway[n], 3), "load": round(0.55 + 0.42 * sway[n], 3),
               "p50_ms": 2.0, "p99_ms": round(20 + 9 * sway[n], 1)}
        for n, name in enumerate(names)
    }  # fmt: skip
    pairs = [(n - layer - (n + k) % 3, n) for n in range(layer + 3, tasks) for k in range(2)]
    topology["edges"] = {
        f"{names[a]}>{names[b]}": {"from": names[a], "to": names[b], "grouping": "shuffle", "selectivity": 1.0,
                                   "rate_tps": round(200 + 20 * sway[a], 1), "queue": 3.0}
        for a, b in pairs if a >= 0
    }  # fmt: skip
    found["slots"] = {
        f"vm{n // 4 + 1}/{n % 4}": {
            "vm": f"vm{n // 4 + 1}", "slot": n % 4, "state": "running", "threads": {names[n % tasks]: 2},
            "shares": {names[n % tasks]: 0.4}, "cpu": round(0.5 + 0.4 * sway[n], 3), "memory": 0.3,
            "predicted_cpu": 0.5, "predicted_memory": 0.3,
        }
        for n in range(slots)
    }  # fmt: skip
    vm = found["vms"]["vm1"]
    found["vms"] = {f"vm{n + 1}": {**vm, "slots_used": 4} for n in range(math.ceil(slots / 4))}
    points = found["models"]["parse"]["points"]
    found["models"] = {name: {"points": points} for name in names}
    found["next_bottleneck"] = {"task": names[42], "slot": "vm11/2", "at_tps": 243.0}
    return found
