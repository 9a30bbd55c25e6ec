"""Params that say where a server is and who we are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

Password = str | SecretText | None


class ServerAddress:
    """Of a server. Its text has no password. ports: of each scheme; the one that ends with `s` is by TLS.

    >>> str(ServerAddress("redis://localhost", {"redis": 6379, "rediss": 6379}))
    'redis://localhost:6379'
    """

    def __init__(self, url: str, ports: Mapping[str, int], user: str | None = None, password: Password = None,
                 tls: Mapping[str, Any] | bool | None = None) -> None:  # fmt: skip
        plain, safe = ports
        parts = parts_of_address(url)
        if parts is None:
            raise InvalidInput("invalid url of a server", hint=f"url: {plain}://host:{ports[plain]}")
        if parts.username is not None or parts.password is not None:
            hint = "leave it out, and give user= and password='${FILE:/path}' or '${ENV:NAME}'"
            raise InvalidInput("a user or password stands in the url of a server", hint=hint)
        if (
            parts.scheme not in ports
            or not parts.hostname
            or parts.port == 0
            or parts.query
            or parts.fragment
        ):
            hint = f"url: {plain}://host:{ports[plain]}, or {safe}://… by TLS"
            raise InvalidInput("invalid url of a server", hint=hint)
        for name, value in (("user", user), ("password", password)):
            if not isinstance(value, str | SecretText | None):
                raise InvalidInput(f"{name}: text is due")
        self.host, self.port = parts.hostname, parts.port or ports[parts.scheme]
        self.path = unquote(parts.path[1:])
        self.user, self._password = user, password
        self.tls = Tls.of(tls) or (Tls() if parts.scheme == safe else None)
        self._shown = f"{parts.scheme}://{parts.hostname}:{self.port}"

    @classmethod
    def of(cls, url: str, ports: Mapping[str, int], params: Mapping[str, Any]) -> ServerAddress:
        """params: user, password, tls. Raises InvalidInput for others."""
        if odd := sorted(params.keys() - {"user", "password", "tls"}):
            raise InvalidInput(f"there is no param {odd[0]!r}", hint="of a server: user, password, tls")
        return cls(url, ports, **params)

    def __str__(self) -> str:
        return self._shown

    def password(self) -> str | None:
        """As it is now."""
        return None if self._password is None else text_of(self._password)

    def said(self, error: BaseException) -> str:
        """What the server or the client says, in a line without the password."""
        text = one_line(str(error)) or type(error).__name__
        secret = self.password() if self._password is not None else ""
        return text.replace(secret, "***") if secret else text


@contextmanager
def waited_for() -> Iterator[None]:
    """What is wrong with a file of a password or of TLS is no row's fault: it comes out as ServiceAway."""
    try:
        yield
    except InvalidInput as error:
        raise ServiceAway(error.what, cause=error.cause, hint=error.hint) from error
