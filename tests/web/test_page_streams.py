"""`/api/stream`: the whole first, then what changes; whoever is slow, senseless or late disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from feed_made import example, plain
from page_made import HOST, MadeFeed, Page, page
from patience import PATIENCE_S
from starlette.websockets import WebSocketDisconnect

from headgate.dashboards.web.feed_items import Change, Stale, Whole
from headgate.dashboards.web.page_stream import QUEUE_MOST, Client, Hub
from headgate.dashboards.web.trace_feed import TraceFeed
from headgate.topology_runtime.wire.run_snapshot import advanced

STREAM = f"ws://{HOST}/api/stream"
SENSELESS = (
    "", "{", "[]", "nonsense", "null", '{"want": "everything"}', '{"want": 1}', '{"other": 1}', '{"seek_s": 3}',
)  # fmt: skip


def change_of(document: dict[str, Any], text: str = "changed") -> Change:
    """The next document, with another header."""
    patch = {"header": f"{text} {document['number'] + 1}"}
    delta = {"schema": "headgate/delta/v1", "number": document["number"] + 1, "boot": 1, "now": "later",
             "patch": patch, "history": {}}  # fmt: skip
    after = advanced(document, delta)
    assert after is not None
    return Change(delta, json.dumps(delta).encode(), after)


@pytest.fixture
def shown() -> Iterator[Page]:
    with page(MadeFeed(plain(example()))) as one:
        one.until_shown()
        yield one


def test_first_the_whole_then_each_change(shown: Page) -> None:
    with shown.client.websocket_connect(STREAM) as socket:
        known = socket.receive_json()
        assert known == plain(example()) == shown.get("/api/snapshot").json()
        for _ in range(3):
            item = change_of(known)
            shown.feed.give(item)
            known = advanced(known, socket.receive_json())
            assert known == item.document
        socket.send_json({"want": "snapshot"})  # as who missed something
        assert socket.receive_json()["schema"] == "headgate/snapshot/v1"
    assert shown.get("/api/snapshot").json() == known


def test_silence_is_told_and_so_is_its_end(shown: Page) -> None:
    with shown.client.websocket_connect(STREAM) as socket:
        known = socket.receive_json()
        shown.feed.give(Stale(2.1, "the controller does not answer"))
        assert socket.receive_json() == {
            "schema": "headgate/stale/v1", "silent_s": 2.1, "why": "the controller does not answer",
        }  # fmt: skip
        with shown.client.websocket_connect(STREAM) as late:
            assert [late.receive_json()["schema"] for _ in range(2)] == [
                "headgate/snapshot/v1",
                "headgate/stale/v1",
            ]
        shown.feed.give(Whole({**known, "boot": 2, "number": 1}))
        assert socket.receive_json()["boot"] == 2


def test_a_message_that_makes_no_sense_closes_its_own_socket_only(shown: Page) -> None:
    with shown.client.websocket_connect(STREAM) as other:
        known = other.receive_json()
        for text in (*SENSELESS, b"\x00\x01"):
            with shown.client.websocket_connect(STREAM) as socket:
                socket.receive_json()
                socket.send_text(text) if isinstance(text, str) else socket.send_bytes(text)
                with pytest.raises(WebSocketDisconnect) as closed:
                    socket.receive_json()
                assert closed.value.code == (1008 if isinstance(text, str) else 1003)
        shown.feed.give(change_of(known))
        assert other.receive_json()["number"] == known["number"] + 1


def test_one_viewer_too_many_is_told_to_come_back() -> None:
    with page(MadeFeed(plain(example())), clients_most=1) as one:
        one.until_shown()
        with one.client.websocket_connect(STREAM) as first:
            first.receive_json()
            with one.client.websocket_connect(STREAM) as second, pytest.raises(WebSocketDisconnect) as closed:
                second.receive_json()
            assert closed.value.code == 1013
        deadline = time.monotonic() + PATIENCE_S
        while True:  # the place is free again a moment after the first has gone
            with one.client.websocket_connect(STREAM) as third:
                try:
                    assert third.receive_json()["schema"] == "headgate/snapshot/v1"
                    break
                except WebSocketDisconnect:
                    assert time.monotonic() < deadline


def test_before_there_is_a_picture_nothing_is_pretended() -> None:
    with page(MadeFeed(None)) as one:
        assert one.get("/api/snapshot").status_code == 503
        one.feed.give(Stale(2.0, "the controller does not answer"))
        with one.client.websocket_connect(STREAM) as socket:
            assert socket.receive_json()["schema"] == "headgate/stale/v1"
            one.feed.give(Whole(plain(example())))
            assert socket.receive_json()["schema"] == "headgate/snapshot/v1"


def test_a_feed_that_fails_is_shown_as_stale_and_closed() -> None:
    class Broken(MadeFeed):
        def next(self, timeout_s: float) -> Any:
            raise OSError("no")

    with page(Broken(None)) as one, one.client.websocket_connect(STREAM) as socket:
        assert socket.receive_json()["why"] == "the feed ended: no"
    assert one.feed.closed  # a moment after that was told, in the feed's own thread: the page waits for it


def test_a_slow_client_gets_the_whole_again_and_keeps_little() -> None:
    async def story() -> None:
        hub = Hub(MadeFeed(None))
        document = plain(example())
        hub.spread(Whole(document))
        slow, quick = hub.join(), hub.join()
        assert isinstance(slow, Client) and isinstance(quick, Client)
        assert json.loads(await slow.take()) == json.loads(await quick.take()) == document
        for _ in range(5 * QUEUE_MOST):
            item = change_of(document)
            document = item.document
            hub.spread(item)
            assert await quick.take() == item.data
            assert len(slow.queue) <= QUEUE_MOST
        assert json.loads(await slow.take()) == document
        hub.spread(change_of(document))
        assert json.loads(await slow.take())["number"] == document["number"] + 1

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


def test_a_trace_can_be_sought_and_paused(tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "feed"))
    from trace_made import recorded

    recorded(tmp_path)
    with page(TraceFeed(tmp_path)) as one, one.client.websocket_connect(STREAM) as socket:
        socket.receive_json()
        socket.send_json({"seek_s": 50, "paused": True})
        while (now := socket.receive_json())["schema"] != "headgate/snapshot/v1":
            pass
        assert now["replay"]["at_s"] == 50 and now["replay"]["paused"]
        assert one.post("/api/whatif", {"rates": [1]}).status_code == 409
        assert one.post("/api/stop", {}).status_code == 401  # nobody has a token for a trace
        socket.send_json({"speed": 0})
        with pytest.raises(WebSocketDisconnect):
            while True:
                socket.receive_json()
