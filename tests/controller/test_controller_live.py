"""The controller as a process: its endpoint, its lock, its signals, its return after a kill, hostile peers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from keys_made import agent, operator
from patience import PATIENCE_S, until, within

from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m

pytestmark = pytest.mark.live


class Process:
    """`headgate controller run` on a state directory."""

    def __init__(self, state: Path, *options: str) -> None:
        words = ["controller", "run", "--state-dir", str(state), "--run", "test", *options]
        self.state = state
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "headgate", *words],
            stderr=subprocess.PIPE,
            text=True,
        )

    def where(self) -> dict[str, Any]:
        """The endpoint file of this very process."""
        path = self.state / "controller" / "endpoint"

        def own() -> dict[str, Any] | None:
            found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {"pid": 0}
            return found if found["pid"] == self.popen.pid else None

        found: dict[str, Any] = until(own, lambda: "no endpoint", self.popen)
        return found

    def ask(self, command: str, **arguments: Any) -> m.Reply:
        self.where()
        return channels.ask(operator(self.state), m.Request(command, arguments), PATIENCE_S)

    def end(self, number: int) -> tuple[int, str]:
        """Signal it; its exit code and what it said."""
        self.popen.send_signal(number)
        said = self.popen.communicate(timeout=PATIENCE_S)[1]
        return self.popen.returncode, said


@contextmanager
def controller(state: Path, *options: str) -> Iterator[Process]:
    process = Process(state, *options)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
            process.popen.communicate()
        elif process.popen.stderr is not None:
            process.popen.stderr.close()


def test_it_answers_where_its_endpoint_says_and_leaves_no_endpoint(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        assert one.ask("ping").data["pid"] == one.popen.pid
        assert one.ask("status").data["stage"] == "idle"
        assert one.end(signal.SIGTERM)[0] == 0
        assert not (tmp_path / "controller" / "endpoint").exists()


def test_a_second_one_on_the_same_directory_says_who_is_there(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        one.where()
        with controller(tmp_path) as second:
            said = second.popen.communicate(timeout=PATIENCE_S)[1]
            assert second.popen.returncode == 6
            assert f"process {one.popen.pid}" in said
        assert one.ask("ping").error is None


def test_a_killed_one_comes_back_on_its_ports_with_a_higher_boot(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        where = one.where()
        one.popen.kill()
        one.popen.communicate()
    ports = [
        "--port",
        where["control"].rsplit(":", 1)[1],
        "--command-port",
        where["commands"].rsplit(":", 1)[1],
    ]
    with controller(tmp_path, *ports) as again:
        assert again.where() == {**where, "pid": again.popen.pid}
        assert again.ask("ping").data["boot"] == 2


def test_a_busy_port_is_an_error_in_the_contracts_form(tmp_path: Path) -> None:
    with controller(tmp_path / "a") as one:
        port = one.where()["control"].rsplit(":", 1)[1]
        with controller(tmp_path / "b", "--port", port) as second:
            said = second.popen.communicate(timeout=PATIENCE_S)[1]
        assert second.popen.returncode == 5
        assert "error[HG-UNREACHABLE]: cannot listen" in said and "try:" in said


def test_a_corrupt_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        one.ask("submit", topology={}, models=[], steps=[])
        one.end(signal.SIGKILL)
    path = tmp_path / "controller" / "journal.bin"
    good = path.read_bytes()
    path.write_bytes(bytes([good[0] ^ 0x40]) + good[1:] + good)
    broken = path.read_bytes()
    with controller(tmp_path) as one:
        said = one.popen.communicate(timeout=PATIENCE_S)[1]
        assert one.popen.returncode == 3 and "offset 0" in said
    assert path.read_bytes() == broken


AHEAD = [
    sys.executable,
    "-P",
    "-m",
    "headgate",
    "controller",
    "run",
    "--set",
    "begin-ahead=yes",
]


def test_one_that_is_begun_ahead_runs_by_the_words_it_is_told(tmp_path: Path) -> None:
    told, other = tmp_path / "told", tmp_path / "other"
    known = ["--state-dir", str(other), "--run", "other", "--owner", str(os.getpid())]
    with subprocess.Popen([*AHEAD, *known], stdin=subprocess.PIPE) as one:
        assert one.stdin is not None
        one.stdin.write(json.dumps(["--state-dir", str(told), "--run", "told"]).encode())
        one.stdin.close()
        path = told / "controller" / "endpoint"
        try:
            until(path.exists, str, one)
            assert json.loads(path.read_bytes())["pid"] == one.pid and not other.exists()
        finally:
            one.terminate()


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        (b"", 0, ""),
        (b"[1", 2, "no words came by standard input"),
        (b'["--ports", "1"]', 2, "No such option '--ports'"),
        (b'["--run", "a b"]', 2, "not a name"),
    ],
)
def test_one_that_is_begun_ahead_and_told_nothing_good_ends(
    tmp_path: Path, told: bytes, code: int, said: str
) -> None:
    done = subprocess.run(AHEAD, input=told, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (code, b"") and said in done.stderr.decode()
    assert b"Traceback" not in done.stderr and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_begun_ahead_can_be_ended_while_it_waits(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(AHEAD, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as one:
        until(lambda: "/numpy/" in Path(f"/proc/{one.pid}/maps").read_text(), str, one)
        one.send_signal(number)
        assert one.wait(PATIENCE_S) == 128 + number


@within(1.0)
def test_it_dies_with_its_owner(tmp_path: Path, within_s: float) -> None:
    words = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "controller",
        "run",
        "--state-dir",
        str(tmp_path),
    ]
    script = f"import os,subprocess,time; p=subprocess.Popen({words!r}+['--owner',str(os.getpid())]); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    path = tmp_path / "controller" / "endpoint"
    until(path.exists)
    pid = json.loads(path.read_bytes())["pid"]
    owner.kill()
    owner.wait()
    killed_s = time.monotonic()
    until(lambda: not alive(pid))
    assert time.monotonic() - killed_s < within_s


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_peer_that_talks_nonsense_is_told_so_and_not_heard(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        where = one.where()
        peer: channels.ClientChannel[m.FromAgent, m.FromController] = channels.ClientChannel(
            channels.from_controller, agent(tmp_path, "vm1").contact(where["control"])
        )
        try:
            for _ in range(10):
                peer.send(os.urandom(2000))
            assert channels.Waiter([peer]).wait(PATIENCE_S)
            told = peer.receive()
            assert isinstance(told, m.Welcome) and "too many bad messages" in told.refused
            peer.send(m.Hello("vm1", 1, 4, 0.2, 1 << 28, "none", 1))
        finally:
            peer.close()
        assert one.ask("ping").error is None
        assert one.ask("status").data["vms"] == []


def test_nonsense_on_the_command_port_gets_an_error(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        one.where()
        client: channels.ClientChannel[m.Request, m.Reply] = channels.ClientChannel(
            channels.replies, operator(one.state)
        )
        try:
            client.send(b"\xc1 nothing")
            assert channels.Waiter([client]).wait(PATIENCE_S)
            reply = client.receive()
        finally:
            client.close()
        assert reply is not None and reply.error is not None
        assert one.ask("ping").error is None


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--topology", "/no/such.json", "--models", "/no", "--rate", "5"], 3),
        (["--topology", "x.json", "--rate", "5"], 2),
        (["--vms", "vm1=0,vm2"], 2),
        (["--run", "../x"], 2),
    ],
)
def test_senseless_options_are_refused(tmp_path: Path, options: list[str], code: int) -> None:
    with controller(tmp_path, *options) as one:
        said = one.popen.communicate(timeout=PATIENCE_S)[1]
        assert one.popen.returncode == code and said.startswith("error[HG-")


def test_off_loopback_without_keys_is_refused_with_the_command_that_makes_them(tmp_path: Path) -> None:
    off = ("--listen", "0.0.0.0", "--advertise", "127.0.0.1")
    for more in ((), ("--keys", str(tmp_path / "keys"))):
        with controller(tmp_path / "a", *off, *more) as one:
            said = one.popen.communicate(timeout=PATIENCE_S)[1]
            assert one.popen.returncode == 2 and "try: `headgate keys init" in said
    assert not (tmp_path / "a").exists(), "nothing is left behind"
    key = Keyring.at(tmp_path / "keys").key("operator", "local")
    with controller(tmp_path / "a", *off, "--keys", str(tmp_path / "keys")) as one:
        where = one.where()
        assert where["commands"].startswith("tcp://127.0.0.1:") and not (tmp_path / "a" / "keys").exists()
        assert channels.ask(key.contact(where["commands"]), m.Request("ping"), PATIENCE_S).error is None
        listening = {
            each.laddr.ip
            for each in psutil.Process(one.popen.pid).net_connections()
            if each.status == "LISTEN"
        }
        assert listening == {"0.0.0.0"}
