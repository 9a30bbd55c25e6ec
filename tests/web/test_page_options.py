"""`headgate dashboard run` and `up --dashboard`: options that go together, and the file that holds the token."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from headgate.dashboards.headgate_command import run
from headgate.dashboards.runs.up_settings import UpSettings, check
from headgate.dashboards.web.dashboard_command import token_of
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError


def test_a_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = token_of(file)
    assert len(token) > 30 and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token_of(file) == token
    assert token_of(None) != token_of(None)
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match="others may read"):
        token_of(file)
    with pytest.raises(InvalidInput, match="cannot be written"):
        token_of(tmp_path / "no" / "such" / "folder")


def test_a_file_without_a_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    for text in ("", "short", "two words that are long enough", "x" * 300):
        file.write_text(text)
        with pytest.raises(InvalidInput, match="holds no token"):
            token_of(file)


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for words in (
        ["--controller", "tcp://127.0.0.1:1", "--trace", "x"], ["--set", "speed=2"], ["--port", "70000"],
        ["--trace", "x", "--set", "speed=0"],
    ):  # fmt: skip
        with pytest.raises(UsageError):
            run(["dashboard", "run", *words])
    with pytest.raises(InvalidInput, match="is no trace"):
        run(["dashboard", "run", "--trace", str(tmp_path)])
    with pytest.raises(UsageError) as refused:
        check(UpSettings(dashboard_port=8000))
    assert any("dashboard-port" in fault for fault in refused.value.faults)


def test_a_port_that_somebody_has_is_refused_before_anything_starts(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Conflict, match=f"--dashboard-port {port}"):
            run(
                [
                    "up",
                    "--dashboard",
                    "--set",
                    f"dashboard-port={port}",
                    "--state-dir",
                    str(state),
                    "--seconds",
                    "1",
                ]
            )
    assert not state.exists() or list(state.iterdir()) == []
