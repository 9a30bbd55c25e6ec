"""Streams and keys of Redis, on a real server: each row once over kills of it, and what was trimmed is told."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opened_connectors import Opened, ids
from redis import Redis as Client

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.queues.redis_sink import RedisSink
from headgate.topology_runtime.connectors.queues.redis_source import RedisSource
from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.errors import BadRow, HeadgateError, InvalidInput, ServiceAway
from real_services import Certificates, Login, Redis

pytestmark = pytest.mark.live
ADA = Login("ada", "s3cret-of-ada")


class Place(Opened):
    """Names of its own on a server, and the bare client."""

    def __init__(self, server: Redis) -> None:
        super().__init__(f"rows_{secrets.token_hex(4)}")
        self.server, self.bare = server, Client(server.host, server.port)

    def source(self, **given: Any) -> RedisSource:
        return self.opened(RedisSource(self.server.url, given.pop("stream", self.name), **given))

    def sink(self, **given: Any) -> RedisSink:
        return self.opened(RedisSink(self.server.url, **(given or {"stream": self.name})))

    def add(self, *rows: int) -> None:
        for n in rows:
            self.bare.xadd(self.name, {"n": n}, id=f"{n + 1}-0")

    def close(self) -> None:
        super().close()
        self.bare.close()


@pytest.fixture
def place(redis: Redis) -> Iterator[Place]:
    found = Place(redis)
    yield found
    found.close()


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(first, first + count)]


def all_of(source: RedisSource, offset: int | None = None) -> list[tuple[int, Any]]:
    source.seek(offset)
    found: list[tuple[int, Any]] = []
    while given := source.poll(100):
        found += given
    return found


def numbers(found: list[tuple[int, Any]]) -> list[int]:
    return [int(row["n"]) for _, row in found]


def test_each_row_is_there_once_though_the_server_is_killed_and_rows_come_again(place: Place) -> None:
    sink, middle, back = place.sink(), threading.Event(), threading.Event()

    def kill() -> None:
        middle.wait(60)
        place.server.kill()
        place.server.start_again()
        back.set()

    killer = threading.Thread(target=kill)
    killer.start()
    away, first = 0, 0
    while first < 3000 or not back.is_set():
        if first >= 500:
            middle.set()
        try:
            sink.write(rows(first, 50), ids(first, 50))
            first += 50
        except ServiceAway:
            away += 1
            first = max(0, first - 100)  # rows come again, and some were confirmed
    killer.join()
    assert away > 0
    found = all_of(place.source())
    assert numbers(found) == list(range(first))
    half = found[len(found) // 2][0]
    assert [offset for offset, _ in all_of(place.source(), half + 1)] == [o for o, _ in found if o > half]


def test_a_source_goes_on_where_it_was_when_the_server_is_back(place: Place) -> None:
    place.add(*range(10))
    source = place.source()
    source.seek(None)
    found = [*source.poll(5)]
    place.server.kill()
    with pytest.raises(ServiceAway):
        source.poll(5)
    place.server.start_again()
    found += all_of(source, found[-1][0] + 1)
    assert numbers(found) == list(range(10))


def test_what_other_clients_write_is_read(place: Place) -> None:
    place.bare.xadd(place.name, {"n": 1, "name": "ä"}, id="5-3")
    place.bare.xadd(place.name, {"data": json.dumps({"a": [1]}), "n": 2})
    place.bare.xadd(place.name, {"data": b"{", "n": b"\xff"})
    plain = [row for _, row in all_of(place.source())]
    assert plain[0] == {"n": "1", "name": "ä"} and "no UTF-8" in str(plain[2])
    lacking, good, cut = [row for _, row in all_of(place.source(field="data"))]
    assert good == {"a": [1]}
    assert isinstance(lacking, BadRow) and "no field 'data'" in str(lacking)
    assert isinstance(cut, BadRow) and "no JSON" in str(cut)


def test_what_is_written_is_read_by_other_clients(place: Place) -> None:
    place.sink().write([{"a": "ä", "b": 2.5, "c": b"\xff"}], ids(0, 1))
    assert [fields for _, fields in place.bare.xrange(place.name)] == [
        {b"a": "ä".encode(), b"b": b"2.5", b"c": b"\xff"}
    ]
    place.sink(key=place.name + ":{n}").write(rows(0, 3), ids(10, 3))
    assert place.bare.mget([f"{place.name}:{n}" for n in range(3)]) == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    place.sink(key=place.name + ":h{n}", as_hash=True).write(rows(0, 3), ids(20, 3))
    assert place.bare.hgetall(f"{place.name}:h2") == {b"n": b"2"}


def test_an_older_row_that_comes_again_does_not_replace_a_newer_one(place: Place) -> None:
    sink = place.sink(key=place.name + ":{n}")
    for value, first in (("old", 0), ("new", 1), ("old", 0)):
        sink.write([{"n": 1, "value": value}], ids(first, 1))
    assert json.loads(place.bare.get(f"{place.name}:1") or b"")["value"] == "new"


def test_a_row_that_redis_refuses_takes_no_other_with_it(place: Place) -> None:
    place.bare.set(f"{place.name}:1", "text")
    sink = place.sink(key=place.name + ":{n}", as_hash=True)
    for _ in range(2):
        with pytest.raises(InvalidInput) as refused:
            sink.write(rows(0, 3), ids(0, 3))
        assert "WRONGTYPE" in (refused.value.cause or "") and "run/source/0/1/0" in str(refused.value)
    place.bare.delete(f"{place.name}:1")
    sink.write(rows(0, 3), ids(0, 3))
    assert [place.bare.hget(f"{place.name}:{n}", "n") for n in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("bad", "good"), [
    ({"maxmemory": "1"}, {"maxmemory": "0"}), ({"min-replicas-to-write": "1"}, {"min-replicas-to-write": "0"}),
])  # fmt: skip
def test_a_server_that_takes_nothing_is_waited_for(
    place: Place, bad: dict[str, str], good: dict[str, str]
) -> None:
    sink = place.sink()
    try:
        place.bare.config_set(*next(iter(bad.items())))
        with pytest.raises(ServiceAway):
            sink.write(rows(0, 3), ids(0, 3))
    finally:
        place.bare.config_set(*next(iter(good.items())))
    sink.write(rows(0, 3), ids(0, 3))
    assert numbers(all_of(place.source())) == [0, 1, 2]


def test_a_replica_is_waited_for_until_it_is_a_primary(place: Place) -> None:
    sink = place.sink()
    place.bare.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(ServiceAway) as away:
            sink.write(rows(0, 1), ids(0, 1))
    finally:
        place.bare.execute_command("REPLICAOF", "NO", "ONE")
    assert away.value.hint == "connect to the primary"


def test_names_and_entries_are_bounded(place: Place) -> None:
    sink = place.sink(stream=place.name, maxlen=100)
    sink.remembered = 1000
    for first in range(0, 5000, 500):
        sink.write(rows(first, 500), ids(first, 500))
    names = f"headgate:rows:run:{place.name}"
    assert place.bare.zcard(names) == 1000 and 0 < place.bare.ttl(names) <= 7 * 86400
    assert place.bare.xlen(place.name) < 300  # about: whole nodes of 100 entries are removed
    sink.write(rows(4000, 1000), ids(4000, 1000))
    assert place.bare.xinfo_stream(place.name)["entries-added"] == 5000


def test_where_a_run_begins_that_has_read_nothing(place: Place) -> None:
    place.add(0, 1, 2)
    latest, behind = place.source(start="latest"), place.source(start="2-0")
    assert all_of(latest) == []
    place.add(3)
    assert numbers(list(latest.poll(10))) == [3] and numbers(all_of(behind)) == [2, 3]
    early = place.source(stream=f"{place.name}_later", start="latest")
    assert all_of(early) == []
    place.bare.xadd(f"{place.name}_later", {"n": 1})
    assert numbers(list(early.poll(10))) == [1]


def test_what_comes_while_the_server_is_away_is_no_part_of_before(place: Place) -> None:
    place.add(0)
    source = place.source(start="latest")
    assert all_of(source) == []
    place.server.kill()
    with pytest.raises(ServiceAway):
        source.poll(10)
    place.server.start_again()
    place.add(1)
    assert numbers(all_of(source)) == [1]


def test_a_second_thread_has_nothing_to_read(place: Place) -> None:
    place.add(0)
    source = RedisSource(place.server.url, place.name)
    source.open(Context(place.name, 2, 1, 2, ""))
    assert all_of(source) == [] and source.lag() is None


def test_what_was_trimmed_unread_is_told_or_skipped(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.add(*range(10))
    strict, lenient = place.source(), place.source(on_gap="skip")
    for source in (strict, lenient):
        source.seek(None)
        assert numbers(list(source.poll(4))) == [0, 1, 2, 3]
    place.bare.xtrim(place.name, maxlen=6, approximate=False)
    assert numbers(list(strict.poll(1))) == [4]  # only what was read is gone
    place.bare.xtrim(place.name, maxlen=3, approximate=False)
    for _ in range(2):
        with pytest.raises(InvalidInput, match="does not go on behind 5-0") as gap:
            strict.poll(10)
        assert "it begins at 8-0; 2 entries were removed unread" in (gap.value.cause or "")
    assert numbers(list(lenient.poll(10))) == [7, 8, 9]
    assert lenient.poll(10) == [] and capsys.readouterr().err.count("going on without them") == 1


def test_a_stream_that_is_gone_is_told(place: Place) -> None:
    place.add(*range(5))
    source = place.source()
    assert len(all_of(source)) == 5
    place.bare.delete(place.name)
    with pytest.raises(InvalidInput, match="does not go on"):
        source.poll(10)
    place.bare.xadd(place.name, {"n": 7})
    with pytest.raises(InvalidInput, match="does not go on"):
        source.poll(10)


def test_no_more_comes_at_once_when_entries_become_large(place: Place) -> None:
    """What small ones let expect: a thousand in an answer, which was held here and, twice, in the server."""
    for n in range(40):
        place.bare.xadd(place.name, {"n": n})
    for n in range(40, 70):
        place.bare.xadd(place.name, {"n": n, "text": "x" * 700_000})
    source, found = place.source(), list[tuple[int, Any]]()
    source.seek(None)
    while len(found) < 70:
        given = source.poll(1000)
        assert sum(len(row.get("text", "")) for _, row in given) < 8e6
        found += given
    assert numbers(found) == list(range(70))


def test_ids_that_make_no_offset_are_refused_behind_the_good_ones(place: Place) -> None:
    place.add(0, 1)
    place.bare.xadd(place.name, {"n": 2}, id=f"7-{1 << 20}")
    source = place.source()
    source.seek(None)
    assert numbers(list(source.poll(10))) == [0, 1]
    with pytest.raises(InvalidInput, match="7-1048576"):
        source.poll(10)


def test_lag_is_reported_here_and_to_tools_that_ask_the_group(place: Place) -> None:
    place.add(*range(10))
    source = place.source(group="tools")
    source.seek(None)
    given = [*source.poll(4)]
    assert source.lag() == 6
    source.done(given[2][0] + 1)
    place.add(10)
    assert source.lag() == 7
    group = place.bare.xinfo_groups(place.name)[0]
    assert (group["last-delivered-id"], group["entries-read"], group["lag"]) == (b"3-0", 3, 8)
    source.done(given[3][0] + 1)
    assert place.bare.xinfo_groups(place.name)[0]["lag"] == 7
    place.bare.xdel(place.name, "9-0")
    assert source.lag() is None
    assert len(source.poll(100)) == 6 and source.lag() == 0


def test_a_wrong_password_is_named_and_not_shown(service_folder: Path) -> None:
    with Redis(service_folder, login=ADA) as server:
        for password in ("wr0ng-secret", None):
            source = RedisSource(server.url, "rows", user=ADA.user if password else None, password=password)
            source.open(Context("rows", 1, 0, 1, ""))
            with pytest.raises(ServiceAway) as away:
                source.seek(None)
            said = " ".join(away.value.lines())
            assert "wr0ng-secret" not in said and ("password" in said or "Authentication required" in said)
        good = RedisSource(server.url, "rows", user=ADA.user, password=ADA.password)
        good.open(Context("rows", 1, 0, 1, ""))
        assert all_of(good) == []
        good.close()


def test_a_server_that_would_forget_at_its_next_start_is_not_written_to(service_folder: Path) -> None:
    """Its append-only file is read as the default user, who may not write."""
    with Redis(service_folder, login=ADA) as server:
        with Client(server.host, server.port, username=ADA.user, password=ADA.password) as bare:
            bare.acl_setuser("default", enabled=False, reset=True)
        sink = RedisSink(server.url, stream="rows", user=ADA.user, password=ADA.password)
        with pytest.raises(InvalidInput, match="lose all rows"):
            sink.open(Context("rows", 1, 0, 1, ""))
        sink.close()


def test_tls_with_certificates_of_both_ends(service_folder: Path, certificates: Certificates) -> None:
    files = {"ca": str(certificates.authority), "certificate": str(certificates.client),
             "key": str(certificates.client_key)}  # fmt: skip
    with Redis(service_folder, tls=certificates, client_certificates=True) as server:
        sink = RedisSink(server.url, stream="rows", tls=files)
        sink.open(Context("rows", 1, 0, 1, ""))
        sink.write(rows(0, 2), ids(0, 2))
        sink.close()
        with pytest.raises(HeadgateError):
            RedisSink(server.url, stream="rows", tls={"verify": "full"}).open(Context("rows", 1, 0, 1, ""))


@pytest.mark.parametrize(("path", "tls"), [("/nowhere", None), (None, {"ca": "/nowhere"})])
def test_a_file_that_cannot_be_read_is_waited_for(path: str | None, tls: dict[str, str] | None) -> None:
    lost = SecretText("${FILE:" + path + "}") if path else None
    sink = RedisSink("redis://127.0.0.1:1", stream="rows", password=lost, tls=tls)
    with pytest.raises(ServiceAway, match="/nowhere"):
        sink.open(Context("rows", 1, 0, 1, ""))


@pytest.mark.parametrize("given", [
    {"url": "http://x"}, {"url": "redis://u:s3cret@h"}, {"stream": ""}, {"start": "first"}, {"on_gap": "wait"},
    {"url": "redis://h/x"}, {"format": "xml"}, {"password": 7}, {"group": ""},
])  # fmt: skip
def test_params_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        RedisSource(**{"url": "redis://h", "stream": "s", **given})
    assert "s3cret" not in " ".join(refused.value.lines())


@pytest.mark.parametrize("given", [
    {}, {"stream": "s", "key": "k"}, {"key": "k", "maxlen": 5}, {"stream": "s", "maxlen": 0},
    {"stream": "s", "as_hash": True}, {"key": "k", "field": "f"}, {"stream": "s", "passwort": "x"},
])  # fmt: skip
def test_params_of_a_sink_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        RedisSink("redis://h", **given)


@pytest.mark.parametrize(
    "row", [7, {}, {"a": None}, {"a": [1]}, {"a": True}, {f"f{n}": 1 for n in range(1001)}]
)
def test_rows_that_make_no_fields_are_refused(row: Any) -> None:
    with pytest.raises(BadRow):
        RedisSink("redis://h", stream="s").write([row], ids(0, 1))
