"""Keys and archives under a passphrase: opened by it alone, and never by halves."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.keys import passphrases as p
from headgate.topology_runtime.keys import signing_keys
from headgate.topology_runtime.packages.package_manifest import public_of

GOOD, BAD = "correct horse battery", "correct horse batterie"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a passphrase costs is no matter here."""
    monkeypatch.setattr(p, "COST", 2)


@pytest.mark.parametrize(
    "size", [0, 1, p.PART_BYTES - 1, p.PART_BYTES, p.PART_BYTES + 1, 2 * p.PART_BYTES + 7]
)
def test_what_was_locked_comes_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert p.unlock(p.lock(data[:size], GOOD), GOOD, "it") == data[:size]


def test_another_passphrase_opens_nothing_and_says_so() -> None:
    with pytest.raises(InvalidInput, match="the passphrase does not open it") as told:
        p.unlock(p.lock(b"secret", GOOD), BAD, "it")
    assert "another one" in (told.value.cause or "") and BAD not in str(told.value.lines())


HEAD, PART = len(p.MAGIC) + p.SALT_BYTES, p.PART_BYTES + p.TAG_BYTES
ONE, TWO = slice(HEAD, HEAD + PART), slice(HEAD + PART, HEAD + 2 * PART)
SPOILS = {
    "a byte": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "cut within a part": lambda data: data[: HEAD + PART + 5],
    "cut at a part": lambda data: data[: HEAD + PART],
    "parts the other way round": lambda data: data[:HEAD] + data[TWO] + data[ONE] + data[HEAD + 2 * PART :],
    "only its head": lambda data: data[:HEAD],
    "of something else": lambda data: b"x" + data,
}


@pytest.mark.parametrize("how", SPOILS)
def test_nothing_can_be_changed_or_cut_off(how: str) -> None:
    data = p.lock(bytes(2 * p.PART_BYTES + 7), GOOD)
    with pytest.raises(InvalidInput):
        p.unlock(SPOILS[how](data), GOOD, "it")


def test_no_part_comes_out_before_it_is_known_to_be_sound() -> None:
    data = p.lock(bytes(2 * p.PART_BYTES + 7), GOOD)
    parts = p.opened(io.BytesIO(SPOILS["a byte"](data)[len(p.MAGIC) :]), GOOD, "it")
    assert len(next(parts)) == len(next(parts)) == p.PART_BYTES
    with pytest.raises(InvalidInput):
        next(parts)


def test_a_signing_key_under_a_passphrase_holds_no_secret_and_opens_by_it(tmp_path: Path) -> None:
    signing_keys.make(tmp_path, "ann", GOOD)
    file = tmp_path / signing_keys.SECRET
    key = signing_keys.read_key(file, lambda what: GOOD)
    assert (
        key.public == public_of(key.secret) == signing_keys.read_signer(tmp_path / signing_keys.PUBLIC).public
    )
    assert key.secret not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InvalidInput, match="the passphrase does not open"):
        signing_keys.read_key(file, lambda what: BAD)


def test_a_passphrase_is_given_changed_and_taken_away(tmp_path: Path) -> None:
    signing_keys.make(tmp_path, "ann")
    file = tmp_path / signing_keys.SECRET
    secret = signing_keys.read_key(file, lambda what: pytest.fail("it has none")).secret
    for before, after in ((BAD, GOOD), (GOOD, BAD), (BAD, "")):
        signing_keys.lock_key(file, signing_keys.read_key(file, lambda what, now=before: now), after)
    assert signing_keys.read_key(file, lambda what: pytest.fail("it has none")).secret == secret


def test_a_disk_that_takes_nothing_leaves_the_key_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signing_keys.make(tmp_path, "ann", GOOD)
    file = tmp_path / signing_keys.SECRET
    before, key = file.read_bytes(), signing_keys.read_key(file, lambda what: GOOD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInput, match="cannot be written"):
        signing_keys.lock_key(file, key, BAD)
    assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def passphrase_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "words"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_passphrase_comes_from_a_file_that_only_its_owner_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(p.FILE, str(passphrase_file(tmp_path, f"{GOOD}\nmore")))
    assert p.asked("it") == p.chosen("it") == GOOD
    for text, mode, told in ((GOOD, 0o644, "others may read"), ("", 0o600, "no passphrase in")):
        passphrase_file(tmp_path, text, mode)
        with pytest.raises(InvalidInput, match=told):
            p.asked("it")
    passphrase_file(tmp_path, "short")
    assert p.asked("it") == "short"
    with pytest.raises(InvalidInput, match="is short"):
        p.chosen("it")


def test_where_nobody_can_be_asked_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(p.FILE, raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match="no passphrase for it"):
        p.asked("it")


def test_the_commands_make_and_use_a_locked_key_and_leave_no_half_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "words.py").write_text("def count(x): return len(x)\n")
    monkeypatch.chdir(tmp_path)

    def headgate(*words: str, phrase: str = GOOD) -> int:
        monkeypatch.setenv(p.FILE, str(passphrase_file(tmp_path, phrase)))
        return cli.main(list(words))

    assert headgate("package", "key", "init", "--passphrase", "--keys", "k") == 0
    build = ("package", "build", "code", "--set", "sign=k/signing.key", "--output", "made.package")
    assert headgate(*build, phrase=BAD) == 3
    assert "the passphrase does not open k/signing.key" in capsys.readouterr().err
    assert not list(tmp_path.glob("*made*"))
    assert headgate(*build) == 0
    assert headgate("package", "verify", "made.package", "--trust-signer", "k/signing.pub") == 0
    assert headgate("package", "key", "passphrase", "k", phrase=BAD) == 3
