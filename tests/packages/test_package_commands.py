"""`headgate package …`: what people type, and what they are told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from package_made import folder

from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.keys.signing_keys import read_key


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder(tmp_path / "flow", {"words.py": b"x = 1\n", "deploy.key": b"s"})


def keys(tmp_path: Path) -> Path:
    return tmp_path / "config" / "headgate" / "keys"


def test_from_a_key_to_a_package_that_is_verified(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["package", "key", "init", "--name", "ann"]) == 0
    secret = keys(tmp_path) / "signing.key"
    assert secret.stat().st_mode & 0o777 == 0o600 and secret.parent.stat().st_mode & 0o777 == 0o700
    capsys.readouterr()
    assert cli.main(["package", "build", "flow", "-o", "json"]) == 0
    out = capsys.readouterr()
    made = json.loads(out.out)
    assert made["schema"] == "headgate/packed/v1" and made["files"] == 1 and "deploy.key" in out.err
    assert made["file"] == f"flow-{made['digest'][:12]}.package"
    assert (
        cli.main(["package", "verify", made["file"], "--trust-signer", str(secret.with_suffix(".pub"))]) == 0
    )
    assert "(ann)" in capsys.readouterr().out
    assert cli.main(["package", "show", made["file"], "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == "headgate/package/v1" and shown["digest"] == made["digest"]
    assert [file["path"] for file in shown["files"]] == ["words.py"]
    assert cli.main(["package", "show", made["file"]]) == 0
    assert json.loads(secret.read_bytes())["secret"] not in capsys.readouterr().out


def test_what_is_refused_is_one_error_with_the_remedy(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        command = words if words[0] in ("show", "verify") else ("build", *words)
        assert cli.main(["package", *command]) == 3
        return capsys.readouterr().err

    assert "headgate package key init" in refused("flow")
    assert cli.main(["package", "key", "init", "--name", "ann"]) == 0
    assert cli.main(["package", "key", "init", "--name", "ann"]) == 6  # never over one that is there
    secret = keys(tmp_path) / "signing.key"
    assert cli.main(["package", "build", "flow", "--output", "made.package"]) == 0
    assert cli.main(["package", "key", "init", "--name", "eve", "--keys", "eve"]) == 0
    said = refused("verify", "made.package", "--trust-signer", "eve/signing.pub")
    assert "made.package is signed by somebody else" in said
    os.truncate("made.package", 2000)
    assert "made.package: the package is cut short" in refused("verify", "made.package")
    assert "made.package: the package is cut short" in refused("show", "made.package")
    assert "cannot be read" in refused("verify", "nothing.package")
    secret.chmod(0o640)
    assert "chmod 600" in refused("flow")
    secret.chmod(0o600)
    key = json.loads(secret.read_bytes())
    secret.write_text(json.dumps({**key, "public": "00" * 32}))
    assert "do not belong together" in refused("flow")
    secret.write_text(json.dumps(key))
    assert "--name" in refused("flow", "--name", "../x")
    secret.write_text("{}")
    assert "is no headgate/signing-key/v1" in refused("flow")
    assert "is no headgate/signer/v1" in refused("verify", "made.package", "--trust-signer", str(secret))


def test_a_package_is_never_half_there(place: Path, tmp_path: Path) -> None:
    assert cli.main(["package", "key", "init"]) == 0
    os.mkfifo(place / "pipe")
    assert cli.main(["package", "build", "flow", "--output", "made.package"]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config", "flow"]


def test_a_secret_is_in_no_representation(place: Path, tmp_path: Path) -> None:
    assert cli.main(["package", "key", "init"]) == 0
    key = read_key(keys(tmp_path) / "signing.key")
    assert key.secret not in repr(key) and key.secret not in str(key)
