"""TLS of connectors: real handshakes with certificates made here, and what is said when one fails."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from patience import PATIENCE_S

from headgate.topology_runtime.connectors.secrets import SecretText
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import InvalidInput

DAY = timedelta(days=1)


@dataclass
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path
    made: x509.Certificate
    secret: ec.EllipticCurvePrivateKey


def pair(folder: Path, name: str, by: Pair | None = None, days: float = 1, password: bytes = b"") -> Pair:
    """For this name, signed by another's or by its own key; it ends in so many days."""
    secret, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.made.subject if by else subject)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .sign(by.secret if by else secret, hashes.SHA256())
    )
    found = Pair(folder / f"{name}.pem", folder / f"{name}.key", made, secret)
    found.certificate.write_bytes(made.public_bytes(s.Encoding.PEM))
    locked = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    found.key.write_bytes(secret.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, locked))
    return found


@dataclass
class Place:
    folder: Path
    ca: Pair
    server: Pair
    client: Pair


@pytest.fixture
def place(tmp_path: Path) -> Place:
    ca = pair(tmp_path, "ca")
    return Place(tmp_path, ca, pair(tmp_path, "server", ca), pair(tmp_path, "client", ca))


def greeted(tls: Tls, server: Pair, host: str = "server", client_ca: Pair | None = None) -> str:
    """The server's word to a client that connects so. Raises what `Tls` says of a handshake that fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca.certificate)
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(PATIENCE_S)

    def serve() -> None:
        try:
            with theirs, context.wrap_socket(theirs, server_side=True) as link:
                link.sendall(b"welcome")
        except OSError:
            return  # the client says why

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours, tls.context().wrap_socket(ours, server_hostname=host) as link:
            return link.recv(100).decode()
    except ssl.SSLError as error:
        raise tls.explained(error, host) from error
    finally:
        thread.join(PATIENCE_S)


def test_a_server_of_a_trusted_ca_and_name_is_connected_to(place: Place) -> None:
    assert greeted(Tls.of({"ca": str(place.ca.certificate)}), place.server) == "welcome"  # type: ignore[arg-type]


def test_both_ends_prove_themselves(place: Place) -> None:
    tls = Tls(str(place.ca.certificate), str(place.client.certificate), str(place.client.key))
    assert greeted(tls, place.server, client_ca=place.ca) == "welcome"


@pytest.mark.parametrize(
    ("verify", "host", "welcome"),
    [("full", "server", True), ("full", "other", False), ("ca", "other", True), ("none", "other", True)],
)
def test_how_much_is_verified(place: Place, verify: str, host: str, welcome: bool) -> None:
    tls = Tls(str(place.ca.certificate), verify=verify)
    if welcome:
        assert greeted(tls, place.server, host) == "welcome"
    else:
        with pytest.raises(InvalidInput) as raised:
            greeted(tls, place.server, host)
        assert raised.value.cause == "its certificate is for another name"


def test_nothing_is_verified_by_none_alone(place: Place) -> None:
    stranger = pair(place.folder, "stranger")
    assert greeted(Tls(verify="none"), stranger) == "welcome"
    for verify in ("ca", "full"):
        with pytest.raises(InvalidInput) as raised:
            greeted(Tls(str(place.ca.certificate), verify=verify), stranger, "stranger")
        assert str(place.ca.certificate) in (raised.value.cause or "") and raised.value.hint


def _expired(place: Place) -> tuple[Tls, dict[str, Any]]:
    return Tls(str(place.ca.certificate)), {"server": pair(place.folder, "server", place.ca, days=-1)}


def _system(place: Place) -> tuple[Tls, dict[str, Any]]:
    return Tls(), {"server": place.server}


def _none_of_ours(place: Place) -> tuple[Tls, dict[str, Any]]:
    return Tls(str(place.ca.certificate)), {"server": place.server, "client_ca": place.ca}


def _unknown_to_them(place: Place) -> tuple[Tls, dict[str, Any]]:
    other = pair(place.folder, "other-ca")
    mine = pair(place.folder, "mine", other)
    tls = Tls(str(place.ca.certificate), str(mine.certificate), str(mine.key))
    return tls, {"server": place.server, "client_ca": place.ca}


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        (_expired, "its certificate has expired"),
        (_system, "no certificate in the system's CA file signed it"),
        (_none_of_ours, "it wants a certificate of ours"),
        (_unknown_to_them, "it does not know who signed our certificate"),
    ],
)
def test_a_handshake_that_fails_says_why(
    place: Place, made: Callable[[Place], tuple[Tls, dict[str, Any]]], cause: str
) -> None:
    tls, more = made(place)
    with pytest.raises(InvalidInput) as raised:
        greeted(tls, **more)
    assert (raised.value.what, raised.value.cause) == ("no TLS with server", cause)
    assert raised.value.hint


def test_what_answers_without_tls_is_told() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"220 plain text\r\n")
        with pytest.raises(ssl.SSLError) as raised:
            Tls(verify="none").context().wrap_socket(ours)
    assert "does not speak TLS" in (Tls().explained(raised.value, "mail").cause or "")


# ── files that are wrong ────────────────────────────────────────────────────────────────────────


def test_wrong_files_are_told_one_by_one(place: Place) -> None:
    junk, gone = place.folder / "junk", place.folder / "gone"
    junk.write_text("no certificate\n")
    own = {"certificate": str(place.client.certificate), "key": str(place.client.key)}
    locked = pair(place.folder, "locked", place.ca, password=b"opens-it")
    old = pair(place.folder, "old", place.ca, days=-1)
    for given, what in (
        ({"ca": str(gone)}, f"tls.ca: cannot read {gone}"),
        ({"ca": str(junk)}, f"tls.ca: {junk} holds no certificate"),
        ({**own, "certificate": str(junk)}, f"tls.certificate: {junk} holds no certificate"),
        ({**own, "key": str(junk)}, f"tls.key: {junk} holds no key"),
        ({**own, "key": str(place.ca.key)}, f"tls.key: {place.ca.key} is not the key of"),
        ({"certificate": own["certificate"]}, f"tls.key: {own['certificate']} holds no key"),
        (
            {"certificate": str(old.certificate), "key": str(old.key)},
            f"tls.certificate: {old.certificate} expired",
        ),
        (
            {"certificate": str(locked.certificate), "key": str(locked.key), "key_password": "wrong"},
            f"tls.key: {locked.key} cannot be opened",
        ),
        (
            {"certificate": str(locked.certificate), "key": str(locked.key)},
            f"tls.key: {locked.key} cannot be opened",
        ),
    ):
        tls = Tls.of(given)
        assert tls is not None
        with pytest.raises(InvalidInput) as raised:
            tls.context()
        assert raised.value.what.startswith(what)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"cafile": "/x"}, "tls has no field 'cafile'"),
        ({"verify": "maybe"}, "tls.verify is 'maybe'"),
        ({"verify": False}, "tls.verify is False"),
        ({"key": "/x"}, "tls.key without tls.certificate"),
        ({"ca": "-----BEGIN CERTIFICATE-----\n"}, "tls.ca is the text of a file"),
        ("yes", "tls is 'yes'"),
    ],
)
def test_fields_that_are_wrong_are_told(given: Any, what: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Tls.of(given)
    assert raised.value.what.startswith(what)


def test_nothing_true_and_false() -> None:
    assert (Tls.of(None), Tls.of(False), Tls.of(True)) == (None, None, Tls())


def test_a_key_with_a_password(place: Place) -> None:
    locked = pair(place.folder, "locked", place.ca, password=b"opens-it")
    (place.folder / "password").write_text("opens-it\n")
    secret = SecretText(f"${{FILE:{place.folder}/password}}")
    given = {"ca": str(place.ca.certificate), "certificate": str(locked.certificate), "key": str(locked.key)}
    tls = Tls.of({**given, "key_password": secret})
    assert tls is not None and greeted(tls, place.server, client_ca=place.ca) == "welcome"
    assert "opens-it" not in repr(tls)


# ── files that change ───────────────────────────────────────────────────────────────────────────


def test_the_context_is_the_same_until_a_file_changes(place: Place) -> None:
    tls = Tls(str(place.ca.certificate), str(place.client.certificate), str(place.client.key))
    first, version = tls.context(), tls.version()
    assert tls.context() is first
    pair(place.folder, "client", place.ca)
    assert tls.version() != version and tls.context() is not first


def test_a_renewed_ca_counts_at_the_next_connection(place: Place) -> None:
    tls = Tls(str(place.ca.certificate))
    assert greeted(tls, place.server) == "welcome"
    renewed = pair(place.folder, "ca")
    with pytest.raises(InvalidInput, match="no TLS with server"):
        greeted(tls, place.server)
    assert greeted(tls, pair(place.folder, "server", renewed)) == "welcome"


# ── clients that read the files themselves ──────────────────────────────────────────────────────


def test_options_of_librdkafka_are_its_own(place: Place) -> None:
    tls = Tls(str(place.ca.certificate), str(place.client.certificate), str(place.client.key))
    assert tls.librdkafka() == {
        "enable.ssl.certificate.verification": "true",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.location": str(place.ca.certificate),
        "ssl.certificate.location": str(place.client.certificate),
        "ssl.key.location": str(place.client.key),
    }
    assert Tls(verify="ca").librdkafka()["ssl.endpoint.identification.algorithm"] == "none"
    assert Tls(verify="none").librdkafka()["enable.ssl.certificate.verification"] == "false"


def test_options_of_libpq_are_its_own(place: Place) -> None:
    tls = Tls(str(place.ca.certificate), str(place.client.certificate), str(place.client.key))
    assert tls.libpq() == {
        "sslmode": "verify-full",
        "sslrootcert": str(place.ca.certificate),
        "sslcert": str(place.client.certificate),
        "sslkey": str(place.client.key),
    }
    assert Tls().libpq() == {"sslmode": "verify-full", "sslrootcert": "system"}
    assert Tls(verify="none").libpq() == {"sslmode": "require"}
    with pytest.raises(InvalidInput, match=r"needs tls\.ca"):
        Tls(verify="ca").libpq()
