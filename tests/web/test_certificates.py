"""Certificates: one's own, made, kept and made anew, as openssl sees them; given ones that are refused."""

from __future__ import annotations

import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certificates_made import made_by_openssl, openssl

from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.certificates import (
    DAYS,
    RENEWED_DAYS,
    given_certificate,
    holds_for,
    own_certificate,
    server_context,
)
from headgate.topology_runtime.platform.http_options import certificate_of, names_of

NAMES = ("10.0.0.5", "page.example", "fd00::1")
pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="there is no openssl: apt-get install openssl"
)


def test_one_of_ones_own_is_what_openssl_reads(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "tls", NAMES)
    told = openssl(
        "x509", "-in", str(made.file), "-noout", "-ext", "subjectAltName,extendedKeyUsage,basicConstraints"
    )
    assert "IP Address:10.0.0.5, DNS:page.example, IP Address:FD00:0:0:0:0:0:0:1" in told
    assert "TLS Web Server Authentication" in told and "CA:FALSE" in told
    assert (
        openssl("x509", "-in", str(made.file), "-noout", "-fingerprint", "-sha256")
        .strip()
        .endswith(made.fingerprint)
    )
    openssl("verify", "-x509_strict", "-CAfile", str(made.file), "-verify_ip", "10.0.0.5", str(made.file))
    left = made.until - datetime.now(UTC)
    assert timedelta(days=DAYS - 1) < left <= timedelta(days=DAYS)


def test_its_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "tls", NAMES)
    assert (
        stat.S_IMODE(made.key.stat().st_mode) == 0o600
        and stat.S_IMODE(made.key.parent.stat().st_mode) == 0o700
    )
    assert [path.name for path in made.key.parent.iterdir()] == ["10.0.0.5.pem"]
    made.key.chmod(0o640)
    with pytest.raises(InvalidInput, match="others may read") as refused:
        own_certificate(tmp_path / "tls", NAMES)
    assert refused.value.hint == f"chmod 600 {made.key}"


def test_it_stays_until_it_ends_soon_or_the_names_are_others(tmp_path: Path) -> None:
    first = own_certificate(tmp_path, NAMES)
    assert own_certificate(tmp_path, NAMES) == first
    just_before = first.until - timedelta(days=RENEWED_DAYS, seconds=1)
    assert own_certificate(tmp_path, NAMES, just_before).fingerprint == first.fingerprint
    later = own_certificate(tmp_path, NAMES, first.until - timedelta(days=RENEWED_DAYS))
    assert later.fingerprint != first.fingerprint and later.until > first.until
    others = own_certificate(tmp_path, (*NAMES[:2], "other.example"))
    assert set(others.names) == {"10.0.0.5", "page.example", "other.example"}


def test_a_given_pair_is_taken_until_it_ends(tmp_path: Path) -> None:
    file, key = made_by_openssl(tmp_path, "DNS:*.page.example,IP:10.0.0.5")
    for host in ("10.0.0.5", "one.page.example"):
        found = given_certificate(file, key, host)
        server_context(found)
        assert not found.own and found.names == ("*.page.example", "10.0.0.5")
    at = Listening("0.0.0.0", "10.0.0.5")
    assert certificate_of(at, False, file, key) == found
    given_certificate(file, key, "10.0.0.5", found.until - timedelta(seconds=1))
    with pytest.raises(InvalidInput, match=f"ended on {found.until:%Y-%m-%d}"):
        given_certificate(file, key, "10.0.0.5", found.until)
    for tls, certificate, secret in ((False, file, None), (False, None, file), (True, file, file)):
        with pytest.raises(UsageError):
            certificate_of(at, tls, certificate, secret)
    assert certificate_of(at, False, None, None) is None


def test_a_given_pair_that_will_not_do_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file, key = made_by_openssl(tmp_path, "DNS:page.example")
    _, other = made_by_openssl(tmp_path, "DNS:page.example", name="other")
    locked = tmp_path / "locked.key"
    openssl("pkey", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked))
    locked.chmod(0o600)
    (nonsense := tmp_path / "nonsense").write_text("-----BEGIN")
    nonsense.chmod(0o600)
    for one, secret, host, what, hint in (
        (file, other, "page.example", "is not the key of", "made together"),
        (file, key, "10.0.0.5", "is not for 10.0.0.5", "advertise page.example"),
        (file, key, "page.example.org", "is not for page.example.org", "advertise page.example"),
        (file, locked, "page.example", "is encrypted", "openssl pkey -in"),
        (nonsense, key, "page.example", "holds no certificate", "PEM"),
        (file, nonsense, "page.example", "holds no key", "PEM"),
        (tmp_path / "none", key, "page.example", "cannot be read", None),
        (file, tmp_path / "none", "page.example", "cannot be read", None),
    ):
        with pytest.raises(InvalidInput, match=what) as refused:
            given_certificate(one, secret, host)
        assert hint is None or hint in str(refused.value.hint)
    key.chmod(0o644)
    with pytest.raises(InvalidInput, match="others may read"):
        given_certificate(file, key, "page.example")


@pytest.mark.parametrize(
    ("name", "host", "holds"),
    [("page.example", "PAGE.example", True), ("*.example", "page.example", True),
     ("*.example", "a.page.example", False), 
     ("*.example", "example", False), ("10.0.0.5", "10.0.0.5", True), ("10.0.0.5", "10.0.0.50", False),
     ("fd00:0::1", "fd00::1", True), ("*.0.0.5", "10.0.0.5", False)],
)  # fmt: skip
def test_names_of_certificates(name: str, host: str, holds: bool) -> None:
    assert holds_for(name, host) is holds


@pytest.mark.parametrize(
    ("listen", "advertise", "names"),
    [("127.0.0.1", "127.0.0.1", ("127.0.0.1", "localhost")), ("10.0.0.5", "10.0.0.5", ("10.0.0.5",)),
     ("10.0.0.5", "page.example", ("page.example", "10.0.0.5")),
     ("0.0.0.0", "page.example", ("page.example", "127.0.0.1", "localhost")),
     ("::1", "::1", ("::1", "127.0.0.1", "localhost"))],
)  # fmt: skip
def test_what_a_server_is_called(listen: str, advertise: str, names: tuple[str, ...]) -> None:
    assert names_of(Listening(listen, advertise)) == names
