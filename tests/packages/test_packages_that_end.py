"""Packages whose time is over, and packages that their signer revoked: refused by controller and hosts, for good."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from package_made import FILES, SECRET, digest_of, package_of
from test_agent_packages import FLOW, Host, desired
from test_controller_shelf import Asked

from headgate.controller.package_shelf import TELL_NS
from headgate.dashboards import headgate_command as cli
from headgate.dashboards.terminal.package_commands import expiry_of
from headgate.topology_runtime.api.topology import document_of
from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.keys import passphrases, signing_keys
from headgate.topology_runtime.packages.package_manifest import (
    TOPOLOGY,
    BadPackage,
    Revocation,
    public_of,
    revocation_of,
)
from headgate.topology_runtime.packages.revocations import FILE, Revocations
from headgate.topology_runtime.wire.messages import PART_BYTES, PackageAt, PackageOffer
from headgate.topology_runtime.wording import utc_iso

CODE = {"words.py": b"x = 1\n", "a.txt": b"1", TOPOLOGY: msgspec.json.encode(document_of(FLOW))}
NS = 1_000_000_000
THEN = "2026-01-31T12:00:00.000000Z"
OVER = package_of(CODE, expires="2020-01-01T00:00:00.000000Z")
GOOD = package_of(CODE, expires=utc_iso(time.time_ns() + 10**6 * NS))
STRANGER = "7" * 64


def revoked(package: bytes, secret: str = SECRET) -> Revocation:
    return revocation_of(digest_of(package), THEN, secret)


# ── on a host ───────────────────────────────────────────────────────────────────────────────────


def test_a_host_takes_a_package_until_its_time_is_over(tmp_path: Path) -> None:
    host = Host(tmp_path / "vm1")
    assert host.fetch(GOOD, digest_of(GOOD)).whole
    said = host.fetch(OVER, digest_of(OVER))
    assert "has expired: its signer let it be run until 2020-01-01T00:00 UTC" in said.refused
    assert host.local(desired(package=digest_of(OVER))) is None and "has expired" in host.own.troubles()[0]


def test_what_runs_goes_on_after_its_time_with_an_alarm_and_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, digest = Host(tmp_path / "vm1"), digest_of(GOOD)
    host.fetch(GOOD, digest)
    assert host.local(desired(package=digest)) is not None and host.own.troubles() == ()
    later_ns = time.time_ns() + 2 * 10**6 * NS
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    assert host.local(desired(package=digest, counter=2)) is not None
    assert "has expired" in host.own.troubles()[0] and "it runs on until" in host.own.troubles()[0]
    host.own.close()
    again = Host(tmp_path / "vm1")
    assert again.local(desired(package=digest)) is None and "has expired" in again.own.troubles()[0]


def test_a_revoked_package_is_started_no_more_not_even_after_a_restart_without_a_controller(
    tmp_path: Path,
) -> None:
    host, digest = Host(tmp_path / "vm1"), digest_of(GOOD)
    host.fetch(GOOD, digest)
    host.hear(PackageOffer(digest, revoked(GOOD)))
    assert host.said[-1] == PackageAt("vm1", 1, digest, 0, refused=revoked(GOOD).words)
    assert host.local(desired(package=digest)) is None
    host.own.close()
    again = Host(tmp_path / "vm1")
    assert again.local(desired(package=digest)) is None
    assert "was revoked on 2026-01-31" in again.own.troubles()[0]


def test_one_that_comes_after_its_revocation_is_not_taken(tmp_path: Path) -> None:
    host, digest = Host(tmp_path / "vm1"), digest_of(GOOD)
    host.hear(PackageOffer(digest, revoked(GOOD)))
    assert "was revoked" in host.fetch(GOOD, digest).refused


def test_a_revoked_package_that_runs_goes_on_and_is_said(tmp_path: Path) -> None:
    host, digest = Host(tmp_path / "vm1"), digest_of(GOOD)
    host.fetch(GOOD, digest)
    host.local(desired(package=digest))
    host.hear(PackageOffer(digest, revoked(GOOD)))
    assert host.local(desired(package=digest, counter=2)) is not None
    assert "was revoked" in host.own.troubles()[0]


@pytest.mark.parametrize("how", ["a stranger's", "forged", "of another package"])
def test_nobody_else_revokes_a_package(tmp_path: Path, how: str) -> None:
    host, digest = Host(tmp_path / "vm1"), digest_of(GOOD)
    host.fetch(GOOD, digest)
    one = {
        "a stranger's": revoked(GOOD, STRANGER),
        "forged": msgspec.structs.replace(revoked(GOOD, STRANGER), signer=public_of(SECRET)),
        "of another package": msgspec.structs.replace(revoked(OVER), package=digest),
    }[how]
    host.hear(PackageOffer(digest, one))
    assert host.said[-1].refused and host.local(desired(package=digest)) is not None
    assert not (host.store / FILE).exists()


# ── at the controller ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    made = Asked(tmp_path / "packages")
    yield made
    made.shelf.close()


def put(asked: Asked, data: bytes) -> str:
    for at in range(0, len(data), PART_BYTES):
        asked.data("package_put", digest=digest_of(data), offset=at, data=data[at : at + PART_BYTES])
    return digest_of(data)


def test_an_expired_package_is_not_submitted(asked: Asked) -> None:
    good, over = put(asked, GOOD), put(asked, OVER)
    assert asked.ask("submit", package=good) is None
    for command in ("submit", "replace"):
        assert "has expired" in asked.error(command, package=over)
    reply = asked.ask("submit", package=over)
    assert "by this host's clock" in reply.error[3] and "sign it again" in reply.error[4]


def test_a_revoked_package_is_not_submitted_and_every_host_is_told_until_it_says_so(asked: Asked) -> None:
    digest, one = put(asked, GOOD), revoked(GOOD)
    told = asked.data("package_revoke", **msgspec.to_builtins(one))
    assert (told["new"], told["runs"], told["vms"]) == (True, False, ["vm1", "vm2"])
    assert "was revoked" in asked.error("submit", package=digest)
    offer = PackageOffer(digest, one)
    assert [(vm, what) for vm, what in asked.sent if what == offer] == [("vm2", offer), ("vm1", offer)]
    asked.sent.clear()
    asked.shelf.heard(PackageAt("vm1", 1, digest, 0, refused=one.words))
    asked.tell(2 * TELL_NS)
    assert asked.sent == [("vm2", offer)]
    asked.sent.clear()
    asked.tell(4 * TELL_NS, "vm2")
    asked.tell(6 * TELL_NS, "vm1", "vm2")
    assert ("vm1", offer) in asked.sent, "who was away is told again"


def test_the_list_outlives_the_controller_and_forged_ones_do_not_enter_it(asked: Asked) -> None:
    digest = put(asked, GOOD)
    forged = msgspec.structs.replace(revoked(GOOD, STRANGER), signer=public_of(SECRET))
    assert "not signed by who it names" in asked.error("package_revoke", **msgspec.to_builtins(forged))
    assert "no revocation" in asked.error("package_revoke", package=digest)
    assert asked.ask("submit", package=digest) is None
    asked.data("package_revoke", **msgspec.to_builtins(revoked(GOOD)))
    asked.shelf.close()
    later = Asked(asked.folder)
    assert "was revoked" in later.error("submit", package=digest)
    later.shelf.close()


def test_a_disk_that_takes_no_revocation_is_an_answer_and_it_is_not_believed_to_be_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "no").write_text("")
    kept = Revocations(tmp_path / "no" / FILE)
    with pytest.raises(OSError):
        kept.add(revoked(GOOD))
    assert kept.of(digest_of(GOOD)) is None


# ── commands ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text, hours", [("30d", 720), ("12h", 12), ("1970-01-03", 48)])
def test_when_a_package_ends(text: str, hours: int) -> None:
    assert expiry_of(text, 0) == utc_iso(hours * 3600 * NS) and expiry_of(None, 0) == ""


@pytest.mark.parametrize("text", ["soon", "30", "-1d", "2020-13-01", "1969-01-01", "0d", ""])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="invalid --set expires="):
        expiry_of(text, NS)


def test_a_package_with_an_end_shows_and_verifies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(passphrases.FILE, raising=False)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "words.py").write_bytes(FILES["words.py"])
    signing_keys.make(tmp_path / "k", "ann")
    made, sign = str(tmp_path / "made.package"), f"sign={tmp_path}/k/signing.key"
    words = ["package", "build", str(tmp_path / "code"), "--set", sign, "--output", made]
    assert cli.main([*words, "--set", "expires=30d"]) == 0
    assert cli.main(["package", "show", made]) == cli.main(["package", "verify", made]) == 0
    assert "no host starts it from 2" in capsys.readouterr().out
    later_ns = time.time_ns() + 31 * 86400 * NS
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    assert cli.main(["package", "verify", made]) == 3
    assert "has expired" in capsys.readouterr().err


def test_a_package_without_an_end_has_the_digest_that_it_always_had() -> None:
    assert b"expires" not in package_of(FILES)
    with pytest.raises(BadPackage, match="is not sound"):
        digest_of(package_of(FILES, expires="tomorrow"))
