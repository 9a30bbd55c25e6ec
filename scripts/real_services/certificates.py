"""A private certificate authority with a server's and a client's certificate, for services on loopback."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = "127.0.0.1"
DAY = dt.timedelta(days=1)
Usage = x509.ObjectIdentifier


class Pair(NamedTuple):
    certificate: Path
    key: Path


class Certificates:
    """Makes `ca.pem`, and `server` and `client` as `.pem` and `.key`, in `folder`."""

    def __init__(self, folder: Path, *, client: str = "headgate", expired: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("headgate test authority")
        basic = x509.BasicConstraints(ca=True, path_length=0)
        authority = _draft(self._name, self._name, self._key.public_key(), expired=False)
        authority = authority.add_extension(basic, critical=True)
        self.authority = folder / "ca.pem"
        self.authority.write_bytes(_pem(authority.sign(self._key, hashes.SHA256())))
        self.server, self.server_key = self.issue("server", "localhost", expired=expired)
        self.client, self.client_key = self.issue("client", client, expired=expired)

    def issue(self, file: str, subject: str, *, expired: bool = False) -> Pair:
        """A new certificate for `subject` as `FILE.pem` and `FILE.key`, over what is there; `expired` yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(_name(subject), self._name, key.public_key(), expired=expired)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        draft = draft.add_extension(x509.SubjectAlternativeName(names), critical=False)
        draft = draft.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        pair = Pair(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        pair.key.touch(mode=0o600)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.certificate.write_bytes(_pem(draft.sign(self._key, hashes.SHA256())))
        return pair

    def client_context(self) -> ssl.SSLContext:
        """For a client that trusts only this authority and shows the client certificate."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.client, self.client_key)
        return context


def _draft(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 3 * DAY)
        .not_valid_after(now - DAY if expired else now + 30 * DAY)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
