"""Ports that `up` names before anybody listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from headgate.dashboards.up import places


def test_ports_are_apart_from_each_other_and_from_those_of_connections() -> None:
    """A port that the kernel may give to a connection of anybody could be gone before the controller listens."""
    first = int(places.CONNECTIONS.read_text("ascii").split()[0])
    ports = places.free_ports(20)
    assert len(set(ports)) == 20
    assert all(places.LOWEST <= port < first for port in ports)
    for port in ports:
        socket.create_server((places.HOST, port)).close()


def test_where_none_is_left_below_any_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LOWEST", 1 << 16)
    assert len(set(places.free_ports(3))) == 3


def test_a_port_that_is_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((places.HOST, 0)) as server:
        taken: int = server.getsockname()[1]
        monkeypatch.setattr(places, "candidates", lambda beyond: iter([taken, taken]))
        assert places.free_ports(1) != [taken]


def test_processes_that_begin_at_once_do_not_choose_the_same() -> None:
    """Nobody listens on these ports yet, so none sees that they are given."""
    program = "from headgate.dashboards.up.places import free_ports as f; print(*f(3), *f(1))"
    started = [
        subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE) for _ in range(6)
    ]
    ports = [int(port) for one in started for port in one.communicate(timeout=30)[0].split()]
    assert len(ports) == len(set(ports)) == 24
