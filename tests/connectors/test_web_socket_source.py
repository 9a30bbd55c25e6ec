"""Messages of a WebSocket as rows, over connections that end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import PATIENCE_S, until
from websockets.sync.server import ServerConnection, serve

from headgate.connectors import WebSocketSource
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

TOKEN = "t0ken-of-ours"


class Server:
    """Sends each connection what `messages` says then, in order, and ends it (or keeps it until `over`)."""

    def __init__(self) -> None:
        self.messages: list[list[str | bytes]] = []
        self.came: list[tuple[str | None, str | bytes]] = []
        self.over = threading.Event()
        self.server = serve(self._serve, "127.0.0.1", 0)
        self.url = f"ws://127.0.0.1:{self.server.socket.getsockname()[1]}/a?key=hidden"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.came.append((connection.request.headers.get("Authorization"), connection.recv(PATIENCE_S)))
        for one in self.messages.pop(0):
            connection.send(one)
        if not self.messages:
            self.over.wait(PATIENCE_S)

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def source_of(server: Server) -> Iterator[Callable[..., WebSocketSource]]:
    made: list[WebSocketSource] = []

    def make(**given: Any) -> WebSocketSource:
        source = WebSocketSource(server.url, send=["all"], **given)
        source.open(Context("in", 1, 0, 1, ""))
        made.append(source)
        return source

    yield make
    for one in made:
        one.close()


def rows_of(source: WebSocketSource, count: int, limit: int = 1024) -> tuple[list[Any], list[str]]:
    """So many rows, and why there were none in between."""
    rows: list[Any] = []
    away: list[str] = []

    def there() -> bool:
        try:
            found = source.poll(limit)
            assert len(found) <= limit
            rows.extend(one.what if isinstance(one, BadRow) else one for one in found)
        except ServiceAway as error:
            away.append(error.what)
        return len(rows) >= count

    until(there)
    return rows, away


def test_messages_are_rows_and_what_is_none_is_said(
    server: Server, source_of: Callable[..., WebSocketSource]
) -> None:
    server.messages = [['{"n": 1}', b"[2]", "no JSON", *map(str, range(50))]]
    rows, _ = rows_of(source_of(token=TOKEN), 53, limit=7)
    assert rows[:2] == [{"n": 1}, [2]] and rows[2].startswith("$: no JSON") and rows[3:] == list(range(50))
    assert server.came == [(f"Bearer {TOKEN}", "all")]


def test_a_connection_that_ends_is_made_again(
    server: Server, source_of: Callable[..., WebSocketSource]
) -> None:
    server.messages = [["1", "2"], ["x" * (MOST_BYTES + 1)], ["3"]]
    rows, away = rows_of(source_of(), 3)
    assert rows == [1, 2, 3] and len(server.came) == 3
    assert away and set(away) == {f"{server.url.partition('?')[0]} ended the connection"}


def test_while_nobody_is_there_it_says_so_without_secrets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    source = WebSocketSource(f"ws://127.0.0.1:{port}/?key=hidden", token=TOKEN)
    with pytest.raises(ServiceAway, match="no WebSocket at") as away:
        source.poll(1)
    assert "hidden" not in str(away.value.lines()) and TOKEN not in str(away.value.lines())
    source.close()


@pytest.mark.parametrize("url, given", [
    ("http://a/", {}), ("ws://", {}), ("ws://u:p@a/", {}), ("ws://a:b/", {}), ("ws://a/", {"send": "all"}),
    ("ws://a/", {"tls": True}), ("ws://a/", {"format": "xml"}), (7, {}),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_at_once(url: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        WebSocketSource(url, **given)


def test_several_threads_would_read_everything_more_than_once() -> None:
    source = WebSocketSource("ws://127.0.0.1/")
    with pytest.raises(InvalidInput, match="2 threads"):
        source.open(Context("in", 1, 0, 2, ""))
    source.close()


def test_no_more_is_taken_at_once_than_a_worker_has_room_for(
    server: Server, source_of: Callable[..., WebSocketSource]
) -> None:
    server.messages = [['"' + "x" * 700_000 + '"'] * 60]
    source, rows = source_of(), list[Any]()

    def come() -> bool:
        found = source.poll(1024)
        assert len(found) <= 7
        rows.extend(found)
        return len(rows) == 60

    until(come)
