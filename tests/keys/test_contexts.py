"""Controllers that somebody works with: added, used, listed, found by commands; and what is refused."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import click
import pytest
from click.testing import CliRunner, Result
from keys_made import MadeKeys

from headgate.dashboards.runs import connection as contexts
from headgate.dashboards.runs.connection import contact_of
from headgate.dashboards.terminal import access_commands as command
from headgate.topology_runtime.errors import Conflict, InvalidInput, Unreachable, UsageError
from headgate.topology_runtime.keys.key_pairs import KeyGuard
from headgate.topology_runtime.keys.keyring import Keyring, Trust
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import ServerChannel, Waiter
from headgate.topology_runtime.wire.messages import Reply, Request

HERE, THERE = "tcp://10.0.0.1:7312", "tcp://[fd00::1]:7312"


@pytest.fixture(autouse=True)
def nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HEADGATE_CONTEXTS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return str(MadeKeys("operator", "ann").file(tmp_path / "ann.key"))


def said(what: click.Command, *words: str) -> Result:
    return CliRunner().invoke(what, list(words))


def test_the_last_that_was_added_is_used_until_another_is(key: str) -> None:
    for name, address in (("here", HERE), ("there", THERE)):
        assert said(command.add_context, name, "--address", address, "--key", key).exit_code == 0
    assert contact_of(None).endpoint == THERE and contact_of("here").endpoint == HERE
    assert said(command.use, "here").exit_code == 0
    assert contact_of(None).endpoint == HERE
    assert contact_of(THERE).endpoint == THERE, "an address that is known has its key"
    rows = json.loads(said(command.list_contexts, "-o", "json").output)["contexts"]
    assert [(row["name"], row["used"], row["as"]) for row in rows] == [
        ("here", True, "operator ann"), ("there", False, "operator ann"),
    ]  # fmt: skip
    contexts.forget("here")
    with pytest.raises(Unreachable):
        contact_of(None)


def test_the_file_is_its_owners_alone_and_no_secret_is_printed(key: str) -> None:
    said(command.add_context, "here", "--address", HERE, "--key", key)
    assert stat.S_IMODE(contexts.path().stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts.path().parent.stat().st_mode) == 0o700
    secret = json.loads(Path(key).read_text())["secret"]
    assert secret not in said(command.list_contexts).output + said(command.list_contexts, "-o", "json").output
    contexts.path().chmod(0o644)
    with pytest.raises(InvalidInput, match="others may read"):
        contexts.read()


def test_what_cannot_be_is_refused_and_changes_nothing(key: str) -> None:
    said(command.add_context, "here", "--address", HERE, "--key", key)
    before = contexts.path().read_bytes()
    for error, words in (
        (Conflict, ["here", "--address", THERE, "--key", key]),
        (InvalidInput, ["a b", "--address", HERE, "--key", key]),
        (UsageError, ["more", "--address", "10.0.0.1:7312", "--key", key]),
        (UsageError, ["more", "--address", "tcp://h:99999", "--key", key]),
        (InvalidInput, ["more", "--address", HERE, "--key", "none.key"]),
    ):
        assert isinstance(said(command.add_context, *words).exception, error), words
    assert isinstance(said(command.use, "more").exception, InvalidInput)
    assert contexts.path().read_bytes() == before
    assert said(command.add_context, "here", "--address", THERE, "--key", key, "--force").exit_code == 0
    assert contact_of("here").endpoint == THERE


def test_an_address_whose_key_nobody_knows_says_what_to_do() -> None:
    with pytest.raises(InvalidInput) as caught:
        contact_of(HERE)
    assert caught.value.hint is not None and "--key FILE" in caught.value.hint


@contextmanager
def run_here(name: str, begun_s: int) -> Iterator[str]:
    """A controller of a run below `.headgate` that answers pings; where it listens."""
    state = Path(".headgate") / name
    ring = Keyring.at(state / "keys")
    guard = KeyGuard(ring.controller(), Trust(ring).admits("operator"))
    server: ServerChannel[Reply, Request] = ServerChannel(channels.requests, guard)
    (state / "controller").mkdir()
    file = state / "controller" / "endpoint"
    file.write_text(json.dumps({"commands": server.endpoint, "pid": os.getpid()}))
    os.utime(file, (begun_s, begun_s))
    over = Event()

    def answer() -> None:
        while not over.is_set():
            Waiter([server]).wait(0.02)
            if (asked := server.receive()) is not None:
                server.send(asked[0], Reply())
        server.close(0)

    thread = Thread(target=answer)
    thread.start()
    try:
        yield server.endpoint
    finally:
        over.set()
        thread.join()


def test_of_two_runs_here_it_is_said_which_one_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    with run_here("one", 1) as one:
        assert contact_of(None).endpoint == one and capsys.readouterr().err == ""
        with run_here("two", 2) as two:
            assert contact_of(None).endpoint == two, "the newest"
            said_of_it = capsys.readouterr().err
            assert (
                said_of_it == "this is run two, the newest of 2 here; --controller .headgate/two names one\n"
            )
            contact_of(None)
            assert capsys.readouterr().err == "", "once is enough"
