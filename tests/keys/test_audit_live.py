"""Over real sockets: what operators asked of a controller, and who was refused, is in its audit log."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_run import RealRun, headgate

from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.wire import channels as c
from headgate.topology_runtime.wire import messages as m

pytestmark = pytest.mark.live
WAIT_S = 5.0


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    one = RealRun(tmp_path, "audited", 0.2, tmp_path)
    try:
        one.start_controller()
        yield one
    finally:
        one.end()


def audit(run: RealRun, code: int = 0) -> dict[str, Any]:
    words = headgate("events", "--audit", "--controller", run.state, "-o", "json")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def deeds(run: RealRun) -> list[tuple[str, str, str]]:
    return [(row["who"], row["command"], row["result"][:10]) for row in audit(run)["commands"]]


def test_named_operators_viewers_and_revoked_keys_leave_their_traces(run: RealRun) -> None:
    ring = Keyring(run.state / "keys")
    for role, name in (("operator", "ann"), ("operator", "bob"), ("viewer", "eve")):
        run.headgate("keys", "add", role, name, "--keys", ring.folder)
    where = run.where()["commands"]
    contacts = {name: ring.key(role, name).contact(where) for role, name in
                (("operator", "ann"), ("operator", "bob"), ("viewer", "eve"))}  # fmt: skip

    def ask(who: str, command: str, **arguments: Any) -> m.Reply:
        return c.ask(contacts[who], m.Request(command, arguments), WAIT_S)

    assert ask("ann", "status").error is None
    assert ask("ann", "rate_set", rate_tps=5.0, password="hunter2").error is not None  # nothing runs
    assert ask("bob", "drain", vm="vm9").error is not None
    refused = ask("eve", "stop")
    assert refused.error is not None and refused.error[0] == "HG-REFUSED"
    run.headgate("keys", "revoke", "operator", "bob", "--keys", ring.folder)
    run.wait(lambda: ("the keys", "keys", "out: opera") in deeds(run))
    with pytest.raises(Unreachable):
        ask("bob", "stop")
    run.wait(lambda: ("operator bob", "come in", "HG-REFUSED") in deeds(run))
    stranger = Contact(where, new_pair(), contacts["ann"].server)
    with pytest.raises(Unreachable):
        c.ask(stranger, m.Request("stop"), WAIT_S)
    run.wait(lambda: ("an unknown key", "come in", "HG-REFUSED") in deeds(run))
    found = deeds(run)
    assert [one[:2] for one in found if one[0] == "operator ann"] == [("operator ann", "rate_set")]
    assert ("viewer eve", "stop", "HG-REFUSED") in found
    whole = audit(run)
    assert whole["fault"] is None and "hunter2" not in str(whole)
    [row] = [row for row in whole["commands"] if row["command"] == "rate_set"]
    assert row["key"] == ring.trust().of("operator", "ann").public  # type: ignore[union-attr]


def test_the_log_outlives_a_kill_and_is_read_without_a_controller_and_a_change_ends_8(run: RealRun) -> None:
    run.ask("drain", vm="vm9")
    run.controller.kill()
    run.controller.wait()
    run.start_controller()
    run.ask("cordon", vm="vm9")
    assert run.ask("stop").error is None
    run.controller.wait(60)
    found = audit(run)
    assert [row["command"] for row in found["commands"]] == ["drain", "cordon", "stop"]
    assert found["commands"][2]["result"] == "done"
    file = run.state / "controller" / "audit.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert "lines were removed" in audit(run, code=8)["fault"]
