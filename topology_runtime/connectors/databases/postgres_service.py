"""A connection to PostgreSQL: where it is, how it is opened, and whose fault an error is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

ANSWER_S = 5
STATEMENT_MS = 8000  # a call takes ten seconds at most
OF_ROWS = ("22", "23")  # classes of SQLSTATE: data, constraints


class PostgresAddress:
    """Of a database. Its text has no password."""

    def __init__(
        self, url: str, password: str | SecretText | None = None, tls: Mapping[str, Any] | None = None
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
            raise InvalidInput(
                f"invalid address {url!r}" if not parts.password else "invalid address of a database",
                cause="postgresql://user@host:5432/database is due",
            )
        if parts.password is not None:
            raise InvalidInput(
                "a password stands in the address of a database",
                hint="leave it out, and give password='${FILE:/path}' or '${ENV:NAME}'",
            )
        self.url, self.password, self.tls = url, password, Tls.of(tls)
        self._shown = urlunsplit(parts._replace(query="", fragment=""))

    def __str__(self) -> str:
        return self._shown

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {"connect_timeout": ANSWER_S, "application_name": "headgate"}
        found |= {
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 9000,
        }
        found["options"] = f"-c statement_timeout={STATEMENT_MS}"
        if self.password is not None:
            found["password"] = text_of(self.password)
        return found | (self.tls.libpq() if self.tls is not None else {})

    def said(self, error: BaseException) -> str:
        """What the server or the client says, in a line without the password."""
        text = one_line(str(error)) or type(error).__name__
        secret = text_of(self.password) if self.password is not None else ""
        return text.replace(secret, "***") if secret else text


def connected(address: PostgresAddress, **more: Any) -> Any:
    """Raises ServiceAway while it cannot be had; InvalidInput without psycopg."""
    try:
        import psycopg
    except ImportError as error:
        raise InvalidInput("PostgreSQL needs psycopg", hint="pip install 'headgate[postgres]'") from error
    try:
        return psycopg.connect(address.url, **address.options(), **more)
    except psycopg.Error as error:
        raise ServiceAway(f"no answer of {address}", cause=address.said(error)) from error


def is_of_rows(error: Any) -> bool:
    """Is it what a row holds that the database does not take?"""
    import psycopg

    state = error.sqlstate or ""
    if state:
        return state.startswith(OF_ROWS)
    return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
