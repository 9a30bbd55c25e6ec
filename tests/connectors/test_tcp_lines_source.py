"""Lines that come over TCP: each a row, however it is cut into packets; what is none is a dead letter."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from patience import PATIENCE_S, until

from headgate.connectors import TcpLinesSource
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.http import tcp_lines_source
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

LONGEST = tcp_lines_source.MOST_BYTES


class Port:
    def __init__(self, **given: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.source = TcpLinesSource(self.port, **given)
        self.source.open(Context("in", 1, 0, 1, ""))
        self.rows: list[Any] = []
        self.source.poll(0)

    def client(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
        client.sendall(data)
        return client

    def come(self, count: int, limit: int = 1024) -> list[Any]:
        """Wait for so many rows; faults as their text."""

        def there() -> bool:
            found = self.source.poll(limit)
            assert len(found) <= limit
            self.rows += [one.what if isinstance(one, BadRow) else one for one in found]
            return len(self.rows) >= count

        until(there)
        assert len(self.rows) == count
        return self.rows


@pytest.fixture
def port_of() -> Iterator[Callable[..., Port]]:
    made: list[Port] = []

    def make(**given: Any) -> Port:
        made.append(Port(**given))
        return made[-1]

    yield make
    for one in made:
        one.source.close()


@pytest.fixture
def port(port_of: Callable[..., Port]) -> Port:
    return port_of()


def test_each_line_is_a_row_however_it_is_cut(port: Port) -> None:
    with port.client(b'{"n": 1}\r\n\n[2') as client:
        assert port.come(1) == [{"n": 1}]
        client.sendall(b"]\n3\n")
        assert port.come(3) == [{"n": 1}, [2], 3]


def test_lines_have_the_format_that_is_named(port_of: Callable[..., Port]) -> None:
    port = port_of(format="csv", columns=["sensor", "value"], types={"value": "float"})
    with port.client(b"a,1.5\nb,x\n"):
        first, second = port.come(2)
    assert first == {"sensor": "a", "value": 1.5} and second.startswith("$.value")


def test_what_is_no_row_too_long_or_has_no_end_is_said_and_the_rest_goes_on(port: Port) -> None:
    with port.client(b"no JSON\n"):
        assert port.come(1)[0].startswith("$: no JSON")
    with port.client():
        port.rows.clear()
    long = port.client()
    for data in (b'"' + b"a" * (LONGEST - 2), b'"\n', b"a" * LONGEST, b"aa\n7\nhalf"):
        view = memoryview(data)
        long.setblocking(False)
        while view:
            try:
                view = view[long.send(view) :]
            except BlockingIOError:
                port.rows += port.source.poll(1024)
    long.close()
    whole, too_long, seven, half = port.come(4)
    assert len(whole) == LONGEST - 2 and seven == 7 and "middle of a line" in str(half)
    assert f"{LONGEST + 2:,} bytes" in str(too_long)


def test_a_connection_that_breaks_ends_nothing(port: Port) -> None:
    client = port.client(b"1\n")
    port.come(1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    with port.client(b"2\n"):
        assert port.come(2) == [1, 2]


def test_no_more_is_taken_than_is_asked_for_and_senders_wait(port: Port) -> None:
    line = b'"' + b"a" * 9_997 + b'"\n'
    with port.client() as client:
        client.setblocking(False)
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += client.send(line[sent % len(line) :])
        assert len(port.come(3, limit=3)) == 3
        rest = memoryview(line)[sent % len(line) :]
        while rest:
            try:
                rest = rest[client.send(rest) :]
            except BlockingIOError:
                port.rows += port.source.poll(1024)
        assert len(port.come(sent // len(line) + 1)) > 20 and set(port.rows) == {"a" * 9_997}


def test_more_connections_than_may_be_wait_for_their_turn(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_lines_source, "CONNECTIONS_MOST", 2)
    first, second = port.client(b"1\n"), port.client(b"2\n")
    assert sorted(port.come(2)) == [1, 2]
    with port.client(b"3\n"):
        assert port.source.poll(10) == []
        first.close()
        assert port.come(3)[2] == 3
    second.close()


def test_a_port_that_another_has_is_waited_for(port: Port) -> None:
    other = TcpLinesSource(port.port)
    with pytest.raises(ServiceAway, match=str(port.port)):
        other.poll(1)
    other.close()


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput):
        TcpLinesSource(70_000)
    source = TcpLinesSource(65_535)
    with pytest.raises(InvalidInput, match="65536"):
        source.open(Context("in", 1, 1, 2, ""))
    source.close()


def test_no_more_is_taken_at_once_than_a_worker_has_room_for(port_of: Callable[..., Port]) -> None:
    port = port_of()
    line = b'"' + b"x" * 700_000 + b'"\n'
    with socket.create_connection(("127.0.0.1", port.port), PATIENCE_S) as client:
        sender = threading.Thread(target=lambda: [client.sendall(line) for _ in range(60)])
        sender.start()
        rows: list[Any] = []

        def come() -> bool:
            found = port.source.poll(1024)
            assert len(found) <= 7
            rows.extend(found)
            return len(rows) == 60

        until(come)
        sender.join()
