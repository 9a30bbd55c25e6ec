"""TLS of all connectors: one set of fields, and what each client wants of them.

    tls = Tls.of(params["tls"])   # {"ca": "/etc/ca.pem", "certificate": …, "key": …, "key_password": "${FILE:…}"}
    tls.context()                 # for Python clients: an ssl.SSLContext, made anew when a file has changed
    tls.librdkafka(), tls.libpq() # options for clients that read the files themselves

A client that is told file names once asks `version()` when it connects again: another one means a new client.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean, shown

FULL, CA, NONE = "full", "ca", "none"
FILE_MOST_BYTES = 4 * 1024 * 1024  # of certificates
FILES = ("ca", "certificate", "key")
SSLMODES = {FULL: "verify-full", CA: "verify-ca", NONE: "require"}

# What OpenSSL says of a peer's certificate: code → (cause, hint)
_UNKNOWN = "no certificate in {ca} signed it", "name the file of its CA: tls.ca"
VERIFY_ERRORS = {
    9: ("its certificate does not hold yet", "look at the clocks of both hosts"),
    10: ("its certificate has expired", "have it renewed there"),
    18: _UNKNOWN,
    19: _UNKNOWN,
    20: _UNKNOWN,
    21: _UNKNOWN,
    62: ("its certificate is for another name", "connect by a name that it has, or set tls.verify to 'ca'"),
    64: (
        "its certificate is for another address",
        "connect by a name that it has, or set tls.verify to 'ca'",
    ),
}
# What a server says of ours, at the end of an alert's name → (cause, hint)
ALERTS = {
    "CERTIFICATE_REQUIRED": ("it wants a certificate of ours", "give tls.certificate and tls.key"),
    "CERTIFICATE_EXPIRED": ("our certificate has expired", "have {certificate} renewed"),
    "UNKNOWN_CA": ("it does not know who signed our certificate", "have {certificate} signed by its CA"),
    "BAD_CERTIFICATE": ("it refuses our certificate", "is {certificate} for this server, and a client's?"),
    "HANDSHAKE_FAILURE": ("nothing suits both ends", "does it want a certificate, or an older TLS?"),
    "WRONG_VERSION_NUMBER": ("what answers there does not speak TLS", "look at the port, or leave `tls` out"),
}


@dataclass
class _Made:
    """The context of the newest version of the files."""

    version: str = ""
    context: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Tls:
    """ca: file of the certificates that are trusted (None: those of this system). certificate, key: files of our own,
    for servers that ask (mTLS); key: None when it is in the same file. verify: `full`, `ca` (any host's name) or
    `none` (encrypted, and anybody may be at the other end)."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | SecretText | None = field(default=None, repr=False)
    verify: str = FULL
    _made: _Made = field(default_factory=_Made, init=False, repr=False, compare=False)
    _served: _Made = field(default_factory=_Made, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, given: Mapping[str, Any] | bool | None) -> Tls | None:
        """From a task's param: its fields, True for the defaults, nothing for no TLS. Raises InvalidInput."""
        if given is None or given is False:
            return None
        if given is True:
            return cls()
        if not isinstance(given, Mapping):
            raise InvalidInput(f"tls is {shown(given)}", hint="give its fields, or true for the defaults")
        known = [one.name for one in fields(cls) if one.init]
        for name, value in given.items():
            if name not in known:
                raise InvalidInput(f"tls has no field {name!r}{did_you_mean(str(name), known)}")
            if not isinstance(value, str | SecretText | None):
                raise InvalidInput(f"tls.{name} is {shown(value)}, and should be text")
        texts: dict[str, Any] = {
            name: _plain(name, value) for name, value in given.items() if value is not None
        }
        made = cls(**texts)
        if made.verify not in SSLMODES:
            hint = f"one of {', '.join(SSLMODES)}"
            raise InvalidInput(f"tls.verify is {shown(made.verify)}", hint=hint)
        if made.certificate is None and (made.key or made.key_password):
            raise InvalidInput("tls.key without tls.certificate", hint="give both, or neither")
        return made

    def version(self) -> str:
        """Another one when one of the files, or the key's password, has changed. Raises InvalidInput."""
        digest = hashlib.sha256(self._password().encode())
        for name in FILES:
            if getattr(self, name) is not None:
                digest.update(hashlib.sha256(self._bytes(name)).digest())
        return digest.hexdigest()

    def context(self) -> ssl.SSLContext:
        """For a client; the same one until a file changes. Raises InvalidInput that says which file is wrong, and
        how."""
        version = self.version()
        if self._made.context is None or self._made.version != version:
            self._made.context, self._made.version = self._new(), version
        return self._made.context

    def server_context(self) -> ssl.SSLContext:
        """For a server, which shows `certificate`; with `ca`, clients need one that it signed. Raises as `context`."""
        version = self.version()
        if self._served.context is None or self._served.version != version:
            self._served.context, self._served.version = self._new_server(), version
        return self._served.context

    def librdkafka(self) -> dict[str, str]:
        """Its options, without `security.protocol`. Raises InvalidInput, as `context`."""
        self.context()
        options = {
            "enable.ssl.certificate.verification": "false" if self.verify == NONE else "true",
            "ssl.endpoint.identification.algorithm": "https" if self.verify == FULL else "none",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.certificate and (self.key or self.certificate),
            "ssl.key.password": self._password(),
        }
        return {name: value for name, value in options.items() if value}

    def libpq(self) -> dict[str, str]:
        """Its connection parameters. Raises InvalidInput, as `context`."""
        if self.ca is None and self.verify == CA:
            raise InvalidInput(
                "tls.verify 'ca' needs tls.ca here",
                cause="PostgreSQL's client trusts the system's by full checks only",
            )
        self.context()
        options = {
            "sslmode": SSLMODES[self.verify],
            "sslrootcert": self.ca or ("system" if self.verify == FULL else None),
            "sslcert": self.certificate,
            "sslkey": self.certificate and (self.key or self.certificate),
            "sslpassword": self._password(),
        }
        return {name: value for name, value in options.items() if value}

    def explained(self, error: ssl.SSLError, where: str) -> InvalidInput:
        """What a failed handshake with `where` means."""
        names = {
            "ca": self.ca or "the system's CA file",
            "certificate": self.certificate or "tls.certificate",
        }
        cause, hint = str(error), "look at the certificates of both ends"
        if isinstance(error, ssl.SSLCertVerificationError):
            cause, hint = VERIFY_ERRORS.get(error.verify_code, (error.verify_message, hint))
        else:
            for end, told in ALERTS.items():
                if (error.reason or "").endswith(end):
                    cause, hint = told
        return InvalidInput(f"no TLS with {where}", cause=cause.format(**names), hint=hint.format(**names))

    def _new(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify == FULL
        context.verify_mode = ssl.CERT_NONE if self.verify == NONE else ssl.CERT_REQUIRED
        if self.ca is None:
            context.load_default_certs()
        else:
            self._trust(context)
        if self.certificate is not None:
            self._show(context)
        return context

    def _new_server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is not None:
            self._trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        self._show(context)
        return context

    def _trust(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self._bytes("ca").decode("ascii", "ignore"))
        except ssl.SSLError as error:
            raise InvalidInput(f"tls.ca: {self.ca} holds no certificate", hint="give it as PEM") from error

    def _show(self, context: ssl.SSLContext) -> None:
        assert self.certificate is not None
        self._check_own()
        try:
            context.load_cert_chain(self.certificate, self.key, self._password)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(
                f"tls.certificate: {self.certificate} cannot be used", cause=str(error)
            ) from error

    def _check_own(self) -> None:
        """OpenSSL does not say in words what is wrong with a certificate and its key."""
        from cryptography import x509
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            first = x509.load_pem_x509_certificates(self._bytes("certificate"))[0]
        except (ValueError, UnsupportedAlgorithm) as error:
            raise InvalidInput(
                f"tls.certificate: {self.certificate} holds no certificate", hint="give it as PEM"
            ) from error
        if datetime.now(UTC) >= first.not_valid_after_utc:
            until = f"{first.not_valid_after_utc:%Y-%m-%d}"
            raise InvalidInput(
                f"tls.certificate: {self.certificate} expired on {until}", hint="have it renewed"
            )
        name, password = ("key" if self.key else "certificate"), self._password().encode()
        what, data = f"tls.key: {self.key or self.certificate}", self._bytes(name)
        try:
            key = load_pem_private_key(data, password if b"ENCRYPTED" in data else None)
        except (TypeError, ValueError, UnsupportedAlgorithm) as error:
            if b"ENCRYPTED" in data:
                cause = "tls.key_password is another's" if password else "it is encrypted"
                raise InvalidInput(
                    f"{what} cannot be opened", cause=cause, hint="give tls.key_password"
                ) from error
            raise InvalidInput(f"{what} holds no key", hint="give it as PEM") from error
        if key.public_key() != first.public_key():
            hint = "give the two that were made together; while they are replaced it is tried again"
            raise InvalidInput(f"{what} is not the key of {self.certificate}", hint=hint)

    def _password(self) -> str:
        return text_of(self.key_password) if self.key_password is not None else ""

    def _bytes(self, name: str) -> bytes:
        path = getattr(self, name)
        try:
            with open(path, "rb") as file:
                data = file.read(FILE_MOST_BYTES + 1)
        except OSError as error:
            raise InvalidInput(f"tls.{name}: cannot read {path}", cause=error.strerror) from error
        if len(data) > FILE_MOST_BYTES:
            raise InvalidInput(f"tls.{name}: {path} has more than 4 MiB")
        return data


def _plain(name: str, value: str | SecretText) -> str | SecretText:
    if name == "key_password":
        return value
    text = text_of(value)
    if "-----BEGIN" in text:
        raise InvalidInput(f"tls.{name} is the text of a file", hint="give the file's path, not ${FILE:…}")
    return text
