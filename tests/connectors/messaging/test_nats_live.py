"""Streams of NATS as a source and a sink, on a real server: kills of it, and what nobody would guess."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RetentionPolicy

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.connectors.messaging.nats_sink import NatsSink
from headgate.topology_runtime.connectors.messaging.nats_source import NatsSource
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from real_services import Certificates, Nats
from real_services.service import Login

pytestmark = pytest.mark.live
PATIENCE_S = 40.0


class Stream:
    """A stream of its own, and a bare client."""

    def __init__(self, server: Nats, **settings: Any) -> None:
        self.server, self.url = server, server.url
        self.name = f"S{secrets.token_hex(4)}"
        self.subject = f"{self.name}.in"
        self.metrics = UserMetrics()
        self.opened: list[Any] = []
        if settings.pop("create", True):
            self.do(
                lambda streams: streams.add_stream(name=self.name, subjects=[f"{self.name}.>"], **settings)
            )

    def do(self, what: Callable[[Any], Any]) -> Any:
        """By a client of its own."""

        async def done() -> Any:
            client = Client()
            await client.connect(self.url, allow_reconnect=False)
            try:
                return await what(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(done())

    def publish(self, payloads: Sequence[bytes], to: str = "in") -> None:
        async def all_of(streams: Any) -> None:
            for payload in payloads:
                await streams.publish(f"{self.name}.{to}", payload, headers={"unit": "K"})

        self.do(all_of)

    def numbers(self, first: int, count: int) -> None:
        self.publish([json.dumps({"n": n}).encode() for n in range(first, first + count)])

    def stored(self) -> list[int]:
        """All numbers in the stream, in its order."""

        async def all_of(streams: Any) -> list[int]:
            last = (await streams.stream_info(self.name)).state.last_seq
            return [json.loads((await streams.get_msg(self.name, n)).data)["n"] for n in range(1, last + 1)]

        return list(self.do(all_of))

    def source(self, partition: int = 0, offset: int | None = None, **given: Any) -> NatsSource:
        source = NatsSource(self.url, **({"stream": self.name} | given))
        self._open(source, partition)
        source.seek(offset)
        return source

    def sink(self, **given: Any) -> NatsSink:
        sink = NatsSink(self.url, **({"subject": self.subject} | given))
        self._open(sink, 0)
        return sink

    def _open(self, made: Any, partition: int) -> None:
        self.opened.append(made)
        made.open(Context("task", partition + 1, partition, partition + 1, "", self.metrics))


@pytest.fixture
def made(nats: Nats) -> Iterator[Callable[..., Stream]]:
    """A stream with these settings."""
    streams: list[Stream] = []

    def make(**settings: Any) -> Stream:
        streams.append(Stream(nats, **settings))
        return streams[-1]

    yield make
    for stream in streams:
        for one in stream.opened:
            one.close()


@pytest.fixture
def stream(made: Callable[..., Stream]) -> Stream:
    return made()


def rows_of(source: NatsSource, count: int, first: int | None = None) -> list[tuple[int, Any]]:
    """As its runtime asks: behind an error it seeks again."""
    found: list[tuple[int, Any]] = []
    end, sought = time.monotonic() + PATIENCE_S, True
    while len(found) < count:
        assert time.monotonic() < end, f"only {len(found)} rows"
        try:
            if not sought:
                source.seek(found[-1][0] + 1 if found else first)
                sought = True
            rows = source.poll(100)
        except ServiceAway:
            sought = False
            time.sleep(0.05)
            continue
        found += rows
        if not rows:
            time.sleep(0.005)
    return found


def names(first: int, count: int) -> list[RowId]:
    return [RowId("run", "source", 0, first + n, 0) for n in range(count)]


def rows(first: int, count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, first + count)]


def written(sink: NatsSink, first: int, count: int) -> int:
    """As its runtime would; how often the service was away."""
    away, end = 0, time.monotonic() + PATIENCE_S
    while True:
        try:
            sink.write(rows(first, count), names(first, count))
            return away
        except ServiceAway:
            assert time.monotonic() < end
            away += 1
            time.sleep(0.05)


# ── source ──────────────────────────────────────────────────────────────────────────────────────────


def test_each_row_is_read_once_though_the_server_is_killed(stream: Stream) -> None:
    threads = set(threading.enumerate())
    stream.numbers(0, 250)
    source = stream.source()
    found = rows_of(source, 200)
    stream.server.kill()
    with pytest.raises(ServiceAway, match="does not answer"):
        while True:
            found += source.poll(100)
    stream.server.start_again()
    stream.numbers(250, 250)
    found += rows_of(source, 500 - len(found), found[-1][0] + 1)
    assert found == [(n + 1, {"n": n}) for n in range(500)]
    assert source.lag() == 0 and set(threading.enumerate()) <= threads


def test_an_offset_gives_the_same_row_again_and_lag_is_what_is_behind(stream: Stream) -> None:
    stream.numbers(0, 50)
    source = stream.source(offset=11)
    assert source.poll(10) == [(n + 1, {"n": n}) for n in range(10, 20)]
    assert source.lag() == 30
    source.seek(11)
    assert source.poll(1) == [(11, {"n": 10})]
    assert stream.source(partition=1).poll(10) == []
    new = stream.source(start="new")
    stream.numbers(50, 1)
    assert rows_of(new, 1) == [(51, {"n": 50})]


def test_deleted_messages_are_holes(stream: Stream) -> None:
    stream.numbers(0, 10)
    stream.do(lambda streams: streams.delete_msg(stream.name, 5))
    source = stream.source(offset=3)
    assert [offset for offset, _ in rows_of(source, 7)] == [3, 4, 6, 7, 8, 9, 10]
    assert stream.metrics.counter("rows_gone").value == 0


def test_rows_that_are_gone_are_an_error_or_counted(stream: Stream, capfd: Any) -> None:
    stream.numbers(0, 10)
    source = stream.source()
    assert len(source.poll(3)) == 3
    stream.do(lambda streams: streams.purge_stream(stream.name, seq=8))
    with pytest.raises(InvalidInput, match=r"4 rows of .* are gone"):
        source.seek(4)
    skipping = stream.source(offset=4, on_gap="skip")
    assert [offset for offset, _ in rows_of(skipping, 3)] == [8, 9, 10]
    assert stream.metrics.counter("rows_gone").value == 4 and "4 rows" in capfd.readouterr().err


def test_rows_that_go_while_it_reads_are_an_error(made: Callable[..., Stream]) -> None:
    small = made(max_msgs=5)
    small.numbers(0, 5)
    source = small.source()
    assert len(source.poll(5)) == 5
    small.numbers(5, 12)
    with pytest.raises(InvalidInput, match=r"7 rows of .* are gone"):
        rows_of(source, 1)


def test_a_stream_that_was_made_again_is_told(stream: Stream) -> None:
    stream.numbers(0, 3)
    with pytest.raises(InvalidInput, match="ends at 3, and the run has read up to 6"):
        stream.source(offset=7)


def test_a_stream_that_was_made_again_and_is_longer_is_told(stream: Stream) -> None:
    """Its rows have sequences that the run has not read yet, and others that it took for read."""
    stream.numbers(0, 3)
    source = stream.source()
    assert len(rows_of(source, 3)) == 3
    stream.do(lambda streams: streams.delete_stream(stream.name))
    stream.do(lambda streams: streams.add_stream(name=stream.name, subjects=[f"{stream.name}.>"]))
    stream.numbers(100, 9)
    for _ in range(2):  # as often as it is asked for
        with pytest.raises(InvalidInput, match="was made again"):
            source.seek(4)


def test_what_came_while_the_server_was_away_is_new(stream: Stream) -> None:
    """Also to a source that had nothing to read before."""
    stream.numbers(0, 3)
    source = stream.source(start="new")
    assert source.poll(10) == []
    stream.server.kill()
    with pytest.raises(ServiceAway):
        source.poll(10)
    stream.server.start_again()
    stream.numbers(3, 5)
    source.seek(None)
    assert [offset for offset, _ in rows_of(source, 5)] == [4, 5, 6, 7, 8]


def test_what_cannot_be_decoded_is_given_as_a_bad_row(stream: Stream) -> None:
    stream.publish([b'{"n": \xff', b'{"n": 1}', b""])
    (_, bad), (_, row), (_, empty) = rows_of(stream.source(with_metadata=True), 3)
    assert isinstance(bad, BadRow) and isinstance(empty, BadRow)
    assert abs(row.pop("timestamp") - time.time()) < 600
    assert row == {"value": {"n": 1}, "subject": stream.subject, "headers": {"unit": "K"}, "sequence": 2}


def test_only_the_subject_that_is_asked_for(stream: Stream) -> None:
    stream.numbers(0, 3)
    stream.publish([b'{"n": 3}'], to="other")
    stream.numbers(4, 1)
    assert rows_of(stream.source(subject=f"{stream.name}.other"), 1) == [(4, {"n": 3})]
    with pytest.raises(InvalidInput, match="has nothing of subject"):
        stream.source(subject="nowhere.at.all")


def test_streams_that_cannot_be_read_by_offsets_are_refused(made: Callable[..., Stream]) -> None:
    with pytest.raises(InvalidInput, match="no such stream"):
        made(create=False).source()
    with pytest.raises(InvalidInput, match="cannot be read") as refused:
        made(retention=RetentionPolicy.WORK_QUEUE).source()
    assert "retention is workqueue" in (refused.value.cause or "") and refused.value.hint


def test_a_consumer_that_the_server_forgot_is_made_again(stream: Stream) -> None:
    stream.numbers(0, 5)
    source = stream.source()
    assert len(source.poll(2)) == 2

    async def delete_all(streams: Any) -> None:
        for one in await streams.consumers_info(stream.name):
            await streams.delete_consumer(stream.name, one.name)

    stream.do(delete_all)
    assert [offset for offset, _ in rows_of(source, 3, 3)] == [3, 4, 5]


# ── sink ────────────────────────────────────────────────────────────────────────────────────────────


def test_each_row_is_stored_once_though_the_server_is_killed_and_rows_come_again(stream: Stream) -> None:
    sink = stream.sink()
    sink.write(rows(0, 300), names(0, 300))
    stream.server.kill()
    with pytest.raises(ServiceAway) as away:
        sink.write(rows(300, 300), names(300, 300))
    assert "does not answer" in away.value.what
    killer = threading.Timer(0.05, stream.server.kill)
    stream.server.start_again()
    killer.start()
    with suppress(ServiceAway):  # as it happens
        sink.write(rows(300, 300), names(300, 300))
    killer.join()
    stream.server.start_again()
    written(sink, 200, 400)
    assert sorted(stream.stored()) == list(range(600))


def test_a_stream_that_is_full_or_missing_is_waited_for(made: Callable[..., Stream]) -> None:
    full = made(max_msgs=5, discard=DiscardPolicy.NEW)
    sink = full.sink()
    sink.write(rows(0, 5), names(0, 5))
    with pytest.raises(ServiceAway) as away:
        sink.write(rows(5, 1), names(5, 1))
    assert "maximum messages" in (away.value.cause or "")
    full.do(lambda streams: streams.purge_stream(full.name))
    sink.write(rows(5, 1), names(5, 1))
    missing = made(create=False)
    with pytest.raises(ServiceAway, match=r"no stream of .* takes"):
        missing.sink().write(rows(0, 1), names(0, 1))


def test_of_a_row_that_is_too_large_only_itself_fails(made: Callable[..., Stream]) -> None:
    small = made(max_msg_size=1000)
    sink = small.sink()
    with pytest.raises(BadRow, match="too large"):
        sink.write([{"n": 0}, {"n": 1, "text": "x" * 2000}], names(0, 2))
    sink.write([{"n": 0}], names(0, 1))
    with pytest.raises(BadRow, match="too large"):
        sink.write([{"n": 2, "text": "x" * 2_000_000}], names(2, 1))
    sink.write([{"n": 3}], names(3, 1))
    assert small.stored() == [0, 3]


def test_rows_go_where_their_fields_say(stream: Stream) -> None:
    sink = stream.sink(subject=f"{stream.name}.{{n}}")
    sink.write(rows(7, 1), names(7, 1))
    message = stream.do(lambda streams: streams.get_msg(stream.name, 1))
    assert (message.subject, message.headers["Nats-Msg-Id"]) == (f"{stream.name}.7", "run/source/0/7/0")
    with pytest.raises(BadRow, match="cannot stand in"):
        sink.write([{"n": "a.b"}], names(8, 1))


# ── both ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wrong_password_is_named_and_not_shown(service_folder: Path) -> None:
    with Nats(service_folder, login=Login("ada", "r1ght-secret")) as server:
        for kind in (NatsSource, NatsSink):
            made: Any = kind(server.url, "S", user="ada", password="wr0ng-secret")
            with pytest.raises(InvalidInput, match="refuses the connection") as refused:
                made.open(Context("task", 1, 0, 1, ""))
            said = " ".join(refused.value.lines())
            assert "password" in said and "wr0ng" not in said
            made.close()
        sink = NatsSink(server.url, "S", user="ada", password="r1ght-secret")
        sink.open(Context("task", 1, 0, 1, ""))
        sink.close()


def test_tls_is_spoken_and_a_stranger_is_refused(service_folder: Path, certificates: Certificates) -> None:
    with Nats(service_folder, tls=certificates) as server:
        sink = NatsSink(server.url, "a", tls={"ca": str(certificates.authority)})
        sink.open(Context("task", 1, 0, 1, ""))
        sink.close()
        stranger = NatsSink(server.url, "a")
        with pytest.raises(InvalidInput, match="no TLS with"):
            stranger.open(Context("task", 1, 0, 1, ""))
        stranger.close()
