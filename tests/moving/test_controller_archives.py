"""A controller as one file: all of it, as it was at one moment; what comes back is the same or nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.controller.files import journal as j
from headgate.controller.knowledge.journal_records import Booted, Draining, Moved, fold_all
from headgate.controller.moving import controller_archive as ca
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.keys import passphrases
from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.packages.package_archive import END, header, padding

GOOD = "correct horse battery"
DIGEST = "ab" * 32


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a passphrase costs is no matter here."""
    monkeypatch.setattr(passphrases, "COST", 2)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A controller's directory, and what stands in one that is no part of it."""
    folder = tmp_path / "old"
    Keyring.make(folder / "keys").ensure("operator", "ann")
    files = {
        "run": b"01a224ba-e638-7497-865d-3398301a1907\n",
        "models/blob.json": b"{}",
        "machines/vm1.desired": b"",
        f"packages/{DIGEST}/package.tar": os.urandom(700_000),
        "packages/revoked.json": b"{}",
        f"packages/parts/{DIGEST}": b"coming",
        f"packages/new-{DIGEST}/package.tar": b"half",
        "controller/tallies.bin": b"tallies",
        "controller/audit.jsonl": b"lines",
        "controller/endpoint": b"{}",
        "controller/tallies.bin.new": b"half",
        "logs/controller.log": b"words",
        "agents/vm1/rows": b"spool",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    journal = j.Journal(folder / "controller")
    journal.append((Booted(1, 10),))
    journal.append((Draining("stop", 20, 0.1),))
    journal.close()
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def moved(state: Path, to: str = "new", passphrase: str = "") -> Path:
    """Out and in again."""
    file, new = state.parent / f"{to}.archive", state.parent / to
    ca.export(state, state / "keys", file, passphrase)
    ca.restore(file, new, ask=lambda what: passphrase)
    return new


@pytest.mark.parametrize("passphrase", ["", GOOD])
def test_what_belongs_to_it_comes_back_and_what_is_of_a_process_does_not(
    state: Path, passphrase: str
) -> None:
    new = moved(state, passphrase=passphrase)
    old, found = files_of(state), files_of(new)
    kept = {"run", "models/blob.json", "machines/vm1.desired", "packages/revoked.json",
            f"packages/{DIGEST}/package.tar",
            "controller/tallies.bin", "controller/audit.jsonl", "keys/trust.json", "keys/controller.key",
            "keys/operator.ann.key"}  # fmt: skip
    assert found.keys() == kept | {ca.JOURNAL}
    assert {name: found[name] for name in kept} == {name: old[name] for name in kept}
    files = [path for path in new.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in (new, new / "keys", *files)} == {0}


def test_the_archive_is_its_owners_alone_and_without_the_passphrase_says_nothing(state: Path) -> None:
    moved(state, "open")
    moved(state, "shut", GOOD)
    opened, shut = (state.parent / f"{name}.archive" for name in ("open", "shut"))
    assert opened.stat().st_mode & 0o777 == shut.stat().st_mode & 0o777 == 0o600
    secret = Keyring(state / "keys").controller().secret.encode()
    assert secret in opened.read_bytes() and secret not in shut.read_bytes()
    with pytest.raises(InvalidInput, match="the passphrase does not open"):
        ca.restore(shut, state.parent / "wrong", ask=lambda what: "another one")
    assert not list(state.parent.glob("*wrong*"))


def test_the_journal_goes_on_under_a_higher_boot_and_knows_that_it_was_moved(state: Path) -> None:
    records, _, _ = j.read(moved(state) / ca.JOURNAL)
    assert records[:-1] == (Booted(1, 10), Draining("stop", 20, 0.1)) and isinstance(records[-1], Moved)
    d = fold_all(records)
    assert d.boot > 1_000_000_000 and d.moved_epoch == d.next_epoch


def test_one_that_is_moved_twice_still_rises(state: Path) -> None:
    one = moved(state)
    first = fold_all(j.read(one / ca.JOURNAL)[0]).boot
    assert fold_all(j.read(moved(one, "newer") / ca.JOURNAL)[0]).boot > first


def test_a_record_that_is_half_written_is_left_out(state: Path) -> None:
    whole = (state / ca.JOURNAL).read_bytes()
    with (state / ca.JOURNAL).open("ab") as file:
        file.write(whole[: len(whole) // 3])
    assert len(j.read(moved(state) / ca.JOURNAL)[0]) == 3


def test_what_is_beside_the_journal_is_never_newer(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tallies name the journal's length, and both grow whenever one of them was read."""
    journal = j.Journal(state / "controller")
    tallies, count, read = state / "controller" / "tallies.bin", [2], Path.read_bytes

    def reading(path: Path) -> bytes:
        data = read(path)
        if path.parent == state / "controller":
            journal.append((Booted(count[0], 0),))
            count[0] += 1
            tallies.write_bytes(b"%d" % count[0])
        return data

    tallies.write_bytes(b"2")
    monkeypatch.setattr(Path, "read_bytes", reading)
    new = moved(state)
    monkeypatch.undo()
    journal.close()
    records = len(j.read(new / ca.JOURNAL)[0]) - 1  # but for what says that it was moved
    assert int((new / "controller" / "tallies.bin").read_bytes()) <= records > 3


def test_nothing_is_written_over(state: Path) -> None:
    new, file = moved(state), state.parent / "new.archive"
    before = files_of(new)
    with pytest.raises(Conflict, match="is not empty"):
        ca.restore(file, new)
    with pytest.raises(Conflict, match="exists already"):
        ca.export(state, state / "keys", file)
    with pytest.raises(Conflict, match="holds keys already"):
        ca.restore(file, state.parent / "third", state / "keys")
    assert files_of(new) == before and not (state.parent / "third").exists()


def test_keys_go_to_a_folder_of_their_own(state: Path) -> None:
    moved(state)
    keys = state.parent / "etc" / "keys"
    ca.restore(state.parent / "new.archive", state.parent / "third", keys)
    assert Keyring(keys).trust() == Keyring(state / "keys").trust()
    assert not (state.parent / "third" / "keys").exists()


def made(path: Path, change: Callable[[dict[str, Any]], None], contents: dict[str, bytes]) -> Path:
    """An archive put together here, its list changed."""
    files = [
        {"path": n, "size": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in contents.items()
    ]
    listed = {"run": "", "boot": 1, "epoch": 0, "headgate": "0", "files": files, "schema": ca.SCHEMA}
    change(listed)
    data = msgspec.json.encode(listed)
    parts = [header(ca.LIST, len(data)), data, padding(len(data))]
    for name, one in contents.items():
        parts += [header(name.lstrip("/"), len(one)), one, padding(len(one))]
    path.write_bytes(b"".join([*parts, END]))
    return path


ELSEWHERE = (
    "../harmless",
    "keys/../../harmless",
    "/harmless",
    "harmless",
    "keys/../run",
    "controller/lock",
    "keys/.lock",
)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_path_that_leads_elsewhere_is_refused(state: Path, name: str) -> None:
    sound = {ca.JOURNAL: (state / ca.JOURNAL).read_bytes(), "keys/trust.json": b"{}"}
    file = made(state.parent / "bad.archive", lambda listed: None, {**sound, name: b"harmless"})
    with pytest.raises(InvalidInput, match="is not sound"):
        ca.restore(file, state.parent / "place" / "new")
    assert not list(state.parent.rglob("harmless")) and not (state.parent / "place").exists()


def test_another_version_and_other_files_are_named_as_such(state: Path) -> None:
    sound = {ca.JOURNAL: (state / ca.JOURNAL).read_bytes(), "keys/trust.json": b"{}"}
    newer = made(
        state.parent / "v9", lambda listed: listed.update(schema="headgate/controller-archive/v9"), sound
    )
    with pytest.raises(InvalidInput, match="is of another version") as told:
        ca.restore(newer, state.parent / "new")
    assert "v9" in (told.value.cause or "")
    for data in (b"", b"hello", bytes(2048), header(ca.LIST, 5) + b"hello" + padding(5)):
        (state.parent / "no").write_bytes(data)
        with pytest.raises(InvalidInput):
            ca.restore(state.parent / "no", state.parent / "new")
    assert not list(state.parent.glob("*new*"))


@pytest.mark.parametrize("passphrase", ["", GOOD])
def test_an_archive_that_was_cut_short_anywhere_makes_nothing(state: Path, passphrase: str) -> None:
    moved(state, "whole", passphrase)
    data = (state.parent / "whole.archive").read_bytes()
    for size in (0, 10, 511, 600, len(data) // 2, len(data) - 1025, len(data) - 1):
        (state.parent / "cut").write_bytes(data[:size])
        with pytest.raises(InvalidInput):
            ca.restore(state.parent / "cut", state.parent / "new", ask=lambda what: passphrase)
        assert not list(state.parent.glob("*new*")), size


def test_a_byte_that_was_changed_anywhere_makes_nothing(state: Path) -> None:
    moved(state, "whole")
    data = bytearray((state.parent / "whole.archive").read_bytes())
    for at in range(0, len(data), len(data) // 40):
        data[at] ^= 1
        (state.parent / "spoilt").write_bytes(data)
        data[at] ^= 1
        with pytest.raises(InvalidInput):
            ca.restore(state.parent / "spoilt", state.parent / "new")
        assert not list(state.parent.glob("*new*")), at


def test_a_disk_that_is_full_leaves_nothing_behind(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved(state, "whole")
    before = files_of(state.parent)
    real, left = os.fsync, [0]

    def full(fd: int) -> None:
        if not left[0]:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    for allowed in range(4):
        left[0] = allowed
        with pytest.raises(InvalidInput, match="cannot be made") as told:
            ca.restore(state.parent / "whole.archive", state.parent / "new")
        assert told.value.cause == "No space left on device"
    left[0] = 0
    with pytest.raises(InvalidInput, match="cannot be written"):
        ca.export(state, state / "keys", state.parent / "other.archive")
    assert files_of(state.parent) == before and not list(state.parent.glob("*new*"))


def test_a_directory_without_a_controller_and_a_name_that_no_archive_may_have_are_refused(
    state: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="holds no controller"):
        ca.export(tmp_path / "nothing", tmp_path / "keys", tmp_path / "out")
    (state / "models" / ("m" * 120)).write_bytes(b"{}")
    with pytest.raises(InvalidInput, match="is not sound"):
        ca.export(state, state / "keys", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_commands(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text(GOOD)
    words.chmod(0o600)
    monkeypatch.setenv(passphrases.FILE, str(words))
    file, new = tmp_path / "a", tmp_path / "made"
    assert cli.main(["controller", "export", str(file), str(state), "--passphrase"]) == 0
    assert "unlocked" not in capsys.readouterr().err
    assert cli.main(["controller", "import", str(file), str(new)]) == 0
    assert f"headgate controller run --state-dir {new}" in capsys.readouterr().out
    assert cli.main(["controller", "import", str(file), str(new)]) == 6
    assert cli.main(["controller", "import", str(tmp_path / "none"), str(tmp_path / "other")]) == 3
    assert "none cannot be read" in capsys.readouterr().err


def test_what_cannot_be_read_is_named_and_no_folder_is_left(state: Path) -> None:
    """A folder where the archive is due, one where a file of the controller is; a bad archive into a deep place."""
    top, bad = state.parent, state.parent / "bad"
    bad.write_bytes(b"x" * 2000)
    with pytest.raises(InvalidInput, match="old cannot be read"):
        ca.restore(state, top / "new")
    for keys in (None, top / "some" / "where" / "keys"):
        with pytest.raises(InvalidInput, match="no archive"):
            ca.restore(bad, top / "far" / "away" / "new", keys)
    (state / "controller" / "journal.bin").unlink()
    (state / "controller" / "journal.bin").mkdir()
    with pytest.raises(InvalidInput, match=r"journal\.bin cannot be read"):
        ca.export(state, state / "keys", top / "archive")
    assert {path.name for path in top.iterdir()} == {"old", "bad"}
