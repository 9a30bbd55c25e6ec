"""A page over a feed whose items a test makes, and a controller that a test plays."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patience import until
from starlette.testclient import TestClient

from headgate.dashboards.web.feed_items import Change, Document, Item, Whole
from headgate.dashboards.web.page_server import Web, application

HOST = "127.0.0.1:4711"
TOKEN = "a-token-that-is-long-enough"

Answer = Callable[[str, dict[str, Any]], Any]


class MadeFeed:
    """A feed of what a test gives it."""

    def __init__(self, first: Document | None) -> None:
        self.document: Document | None = None
        self.closed = False
        self._items: deque[Item] = deque()
        if first is not None:
            self.give(Whole(first))

    def give(self, item: Item) -> None:
        self._items.append(item)

    def next(self, timeout_s: float) -> Item | None:
        if not self._items:
            time.sleep(min(timeout_s, 0.002))
            return None
        item = self._items.popleft()
        if isinstance(item, Whole | Change):
            self.document = item.document
        return item

    def close(self) -> None:
        self.closed = True


class Page:
    """A client of the page, its feed, and what the controller was asked."""

    def __init__(self, client: TestClient, feed: Any, asked: list[tuple[str, dict[str, Any]]]) -> None:
        self.client, self.feed, self.asked = client, feed, asked

    def get(self, path: str, **headers: str) -> Any:
        return self.client.get(path, headers=headers)

    def post(self, path: str, body: Any, token: str | None = TOKEN, **headers: str) -> Any:
        sent = dict(headers) if token is None else {"x-headgate-token": token, **headers}
        if isinstance(body, bytes):
            return self.client.post(path, content=body, headers={"content-type": "application/json", **sent})
        return self.client.post(path, json=body, headers=sent)

    def until_shown(self) -> None:
        until(lambda: self.get("/api/snapshot").status_code == 200, every_s=0.002)


@contextmanager
def page(
    feed: Any, answer: Answer | None = None, clients_most: int = 4, static: Path | None = None
) -> Iterator[Page]:
    asked: list[tuple[str, dict[str, Any]]] = []

    async def ask(command: str, arguments: dict[str, Any], seconds: float) -> Any:
        assert answer is not None
        asked.append((command, arguments))
        return answer(command, arguments)

    web = Web(feed, ask if answer else None, TOKEN if answer else None, (HOST,), clients_most)
    if static is not None:
        web = Web(feed, web.ask, web.token, web.hosts, clients_most, static)
    with TestClient(application(web), base_url=f"http://{HOST}") as client:
        yield Page(client, feed, asked)
