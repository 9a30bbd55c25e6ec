"""The folder of keys: who has one, who may read it, and what two who change it at once leave."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headgate.dashboards.terminal import keys as command
from headgate.topology_runtime.errors import Conflict, InvalidInput, UsageError
from headgate.topology_runtime.keys.keyring import TRUST, Keyring, read_key
from headgate.topology_runtime.keys.trust import Trust

ADD = "import sys; from pathlib import Path; from headgate.topology_runtime.keys.keyring import Keyring; " + (
    "[Keyring(Path(sys.argv[1])).add('agent', f'{sys.argv[2]}-{n}') for n in range(20)]"
)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring.make(tmp_path / "keys")


def test_nobody_else_may_read_any_of_it(ring: Keyring) -> None:
    ring.add("agent", "vm1")
    assert stat.S_IMODE(ring.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in ring.folder.iterdir()} == {0o600}


def test_a_secret_half_stands_in_its_own_file_and_is_never_printed(ring: Keyring) -> None:
    key = read_key(ring.add("agent", "vm1"))
    where = [path.name for path in ring.folder.iterdir() if key.secret in path.read_text()]
    assert where == ["agent.vm1.key"]
    assert key.secret not in repr(key) + repr(key.pair) + repr(key.contact("tcp://h:1")) + str(key)


def test_a_name_has_one_key_until_it_is_rotated_or_revoked(ring: Keyring) -> None:
    first = read_key(ring.add("agent", "vm1")).public
    with pytest.raises(Conflict):
        ring.add("agent", "vm1")
    assert read_key(ring.ensure("agent", "vm1")).public == first
    second = read_key(ring.rotate("agent", "vm1")).public
    known = {key.public: bool(key.revoked) for key in ring.trust().keys}
    assert known == {first: True, second: False}
    ring.revoke("agent", "vm1")
    assert all(key.revoked for key in ring.trust().keys) and not ring.path("agent", "vm1").exists()
    with pytest.raises(InvalidInput):
        ring.revoke("agent", "vm1")
    assert read_key(ring.add("agent", "vm1")).public not in known


def test_a_new_key_of_the_controller_stands_in_every_file(ring: Keyring) -> None:
    names = [read_key(ring.add("agent", "vm1")).name, read_key(ring.add("operator", "ann")).name]
    before = ring.controller().public
    ring.rotate("controller", "controller")
    after = ring.controller().public
    assert after != before and ring.trust().controller == after
    assert {ring.key("agent", names[0]).controller, ring.key("operator", names[1]).controller} == {after}


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "x" * 65, "../agent"])
def test_names_that_would_be_paths_are_refused_and_leave_nothing(name: str, ring: Keyring) -> None:
    before = sorted(path.name for path in ring.folder.iterdir())
    with pytest.raises(InvalidInput):
        ring.add("agent", name)
    assert sorted(path.name for path in ring.folder.iterdir()) == before and not ring.trust().keys


def test_a_second_init_and_a_folder_without_keys_are_refused(ring: Keyring, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        Keyring.make(ring.folder)
    for asked in (lambda ring: ring.add("agent", "vm1"), lambda ring: ring.trust()):
        with pytest.raises(InvalidInput) as caught:
            asked(Keyring(tmp_path / "none"))
        assert caught.value.hint == f"headgate keys init {tmp_path / 'none'}"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": 1}', "\x00" * 50])
def test_a_damaged_file_is_named(damage: str, ring: Keyring) -> None:
    path = ring.add("agent", "vm1")
    path.write_text(damage)
    with pytest.raises(InvalidInput, match=path.name):
        read_key(path)


def test_a_key_that_others_may_read_is_not_taken(ring: Keyring) -> None:
    path = ring.add("agent", "vm1")
    path.chmod(0o640)
    with pytest.raises(InvalidInput) as caught:
        read_key(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_two_who_add_at_once_lose_nothing(ring: Keyring) -> None:
    words = [sys.executable, "-P", "-c", ADD, str(ring.folder)]
    both = [subprocess.Popen([*words, name], env=os.environ) for name in ("a", "b")]
    assert [one.wait(60) for one in both] == [0, 0]
    assert sorted(key.name for key in ring.trust().keys) == sorted(
        f"{n}-{k}" for n in "ab" for k in range(20)
    )


def test_a_running_controller_sees_who_came_and_who_is_gone(ring: Keyring) -> None:
    trust = Trust(ring)
    agents, viewers = trust.admits("agent"), trust.admits("viewer")
    public = read_key(ring.add("agent", "vm1")).public
    who = agents(public)
    assert who is not None and (who.role, who.name) == ("agent", "vm1"), "at once: no look in between"
    assert viewers(public) is None and not trust.look()
    ring.revoke("agent", "vm1")
    assert trust.look() and agents(public) is None and not trust.look()


def test_a_file_that_is_broken_lets_nobody_in_anew_and_throws_nobody_out(ring: Keyring) -> None:
    public = read_key(ring.add("agent", "vm1")).public
    trust = Trust(ring)
    whole = (ring.folder / TRUST).read_text()
    (ring.folder / TRUST).write_text(whole[: len(whole) // 2])
    assert not trust.look() and trust.trouble and trust.admits("agent")(public) is not None
    (ring.folder / TRUST).unlink()
    assert not trust.look() and trust.admits("agent")(public) is not None
    ring = Keyring.make(ring.folder)
    assert trust.look() and trust.admits("agent")(public) is None and not trust.trouble


def test_what_the_commands_print_holds_no_secret(tmp_path: Path) -> None:
    folder, out = str(tmp_path / "k"), str(tmp_path / "vm1.key")
    said = ""
    for words in (
        [command.init, [folder]],
        [command.add, ["agent", "vm1", "--keys", folder]],
        [command.export, ["agent", "vm1", "-o", out, "--keys", folder]],
        [command.rotate, ["agent", "vm1", "--keys", folder]],
        [command.list_keys, ["--keys", folder]],
        [command.list_keys, ["--keys", folder, "-o", "json"]],
        [command.revoke, ["agent", "vm1", "--keys", folder]],
    ):
        done = CliRunner().invoke(*words)  # type: ignore[arg-type]
        assert done.exit_code == 0, done.output
        said += done.output
    files = [Path(out), *(tmp_path / "k").glob("*.key")]
    secrets = {json.loads(path.read_text())["secret"] for path in files}
    assert len(secrets) == 4 and not any(secret in said for secret in secrets)
    listed = json.loads(CliRunner().invoke(command.list_keys, ["--keys", folder, "-o", "json"]).output)
    assert [bool(key["revoked"]) for key in listed["keys"]] == [False, True, True]
    assert stat.S_IMODE(Path(out).stat().st_mode) == 0o600


def test_an_agents_key_names_whose_code_it_runs_and_others_name_nobody(tmp_path: Path) -> None:
    made = CliRunner().invoke(command.init, [str(tmp_path / "keys")], catch_exceptions=False)
    assert made.exit_code == 0
    ring = Keyring(tmp_path / "keys")
    signer = json.loads((ring.folder / "signing.pub").read_text())["public"]
    assert stat.S_IMODE((ring.folder / "signing.key").stat().st_mode) == 0o600
    assert read_key(ring.add("agent", "vm1")).signers == (signer,)
    assert read_key(ring.add("viewer", "eve")).signers == ()
    assert ring.key("operator", "local").signers == ()
    (ring.folder / "signing.pub").unlink()
    assert read_key(ring.rotate("agent", "vm1")).signers == ()
    written = json.loads(ring.path("agent", "vm1").read_text())
    del written["signers"]  # as one that was made before
    ring.path("agent", "vm1").write_text(json.dumps(written))
    assert ring.key("agent", "vm1").signers == ()
    (ring.folder / "signing.pub").write_text("{}")
    with pytest.raises(InvalidInput, match=r"signing\.pub"):
        ring.add("agent", "vm2")


def test_whose_key_is_rotated_has_to_be_said(tmp_path: Path) -> None:
    folder = str(tmp_path / "k")
    CliRunner().invoke(command.init, [folder])
    done = CliRunner().invoke(command.rotate, ["agent", "--keys", folder])
    assert isinstance(done.exception, UsageError) and "which agent?" in str(done.exception)
    assert CliRunner().invoke(command.rotate, ["controller", "--keys", folder]).exit_code == 0
