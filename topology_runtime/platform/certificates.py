"""Certificates of what speaks HTTPS: one of one's own, made here, or one that is given.

One's own is signed by itself: who opens the page compares its fingerprint with the one that was printed. It is kept in
the settings folder, certificate and key in one file that its owner alone may read, one for each first name; it is made
again when it will soon have ended, or when it has to hold other names.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.addresses import is_address
from headgate.topology_runtime.platform.disk import write_private

DAYS, RENEWED_DAYS = 397, 30  # how long one of ours holds; it is made again when less than so long is left
FILE_MOST_BYTES = 256 * 1024
FOLDER = "tls"  # in the settings folder


@dataclass(frozen=True)
class Certificate:
    """What a server proves who it is with. file: the certificate and its chain; key: its secret key."""

    file: Path
    key: Path
    names: tuple[str, ...]
    until: datetime
    fingerprint: str  # SHA-256 of the certificate, as browsers show it
    pin: str  # base64 of the SHA-256 of its public key
    own: bool

    def sentence(self) -> str:
        return f"certificate until {self.until:%Y-%m-%d}, SHA-256 {self.fingerprint}"


def own_certificate(folder: Path, names: tuple[str, ...], now: datetime | None = None) -> Certificate:
    """The one for these names, made if it is not there or holds no longer. Raises InvalidInput."""
    path, now = folder / f"{names[0]}.pem", now or datetime.now(UTC)
    if path.exists():
        found = _read(path, path, own=True)
        if set(found.names) == set(names) and now < found.until - timedelta(days=RENEWED_DAYS):
            return found
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, _made(names, now))
    except OSError as error:
        raise InvalidInput(
            f"a certificate cannot be written to {path}", cause=error.strerror, hint="give one of your own"
        ) from error
    return _read(path, path, own=True)


def given_certificate(file: Path, key: Path, host: str, now: datetime | None = None) -> Certificate:
    """The one in these files, if it holds now and for this host. Raises InvalidInput."""
    found, now = _read(file, key, own=False), now or datetime.now(UTC)
    if now >= found.until:
        raise InvalidInput(
            f"the certificate {file} ended on {found.until:%Y-%m-%d}",
            hint="have it renewed, or have one made here",
        )
    if not any(holds_for(name, host) for name in found.names):
        raise InvalidInput(
            f"the certificate {file} is not for {host}",
            cause=f"it is for {', '.join(found.names) or 'nobody'}",
            hint=f"advertise {found.names[0]}" if found.names else "have one made with subjectAltName",
        )
    return found


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """TLS 1.2 and 1.3. Raises InvalidInput."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate.file, certificate.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the certificate {certificate.file} cannot be used", cause=str(error), hint="have one made here"
        ) from error
    return context


def holds_for(name: str, host: str) -> bool:
    """Is `host` this name of a certificate? `*.example.org` is any one label before it."""
    if is_address(host):
        return is_address(name) and ipaddress.ip_address(name) == ipaddress.ip_address(host)
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:])


def _read(file: Path, key_file: Path, own: bool) -> Certificate:
    """Raises InvalidInput for a file that is none, a pair that is none, a key that others may read."""
    try:
        if key_file.stat().st_mode & 0o077:
            raise InvalidInput(f"others may read the key {key_file}", hint=f"chmod 600 {key_file}")
        chain, secret = _bytes(file), _bytes(key_file)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be read", cause=error.strerror) from error
    try:
        first = x509.load_pem_x509_certificates(chain)[0]
        public = first.public_key().public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{file} holds no certificate", cause=str(error), hint="as PEM") from error
    if public != _public_of(secret, key_file):
        raise InvalidInput(
            f"{key_file} is not the key of {file}", hint="give the two that were made together"
        )
    digest, pin = first.fingerprint(hashes.SHA256()).hex(":").upper(), hashes.Hash(hashes.SHA256())
    pin.update(public)
    said = base64.b64encode(pin.finalize()).decode()
    return Certificate(file, key_file, _names(first), first.not_valid_after_utc, digest, said, own)


def _public_of(secret: bytes, key_file: Path) -> bytes:
    try:
        key = s.load_pem_private_key(secret, None)
    except TypeError as error:
        hint = f"openssl pkey -in {key_file} -out PLAIN.key, chmod 600 PLAIN.key"
        raise InvalidInput(f"the key {key_file} is encrypted", hint=hint) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{key_file} holds no key", cause=str(error), hint="as PEM") from error
    return key.public_key().public_bytes(s.Encoding.DER, s.PublicFormat.SubjectPublicKeyInfo)


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_MOST_BYTES)


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(one) for one in found.get_values_for_type(x509.IPAddress)]
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _made(names: tuple[str, ...], now: datetime) -> bytes:
    """A certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headgate")])
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    uses = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
         "crl_sign", "encipher_only", "decipher_only"), False,
    )  # fmt: skip
    extensions: Iterable[tuple[Any, bool]] = (
        (x509.SubjectAlternativeName([_general(name) for name in names]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(digital_signature=True, **uses), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (identity, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), False),
    )
    built = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=DAYS))
    for extension, critical in extensions:
        built = built.add_extension(extension, critical)
    pem = built.sign(key, hashes.SHA256()).public_bytes(s.Encoding.PEM)
    return pem + key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _general(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name)
