"""A connection to PostgreSQL: where it is, how it is opened, and whose fault an error is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

ANSWER_S = 5
STATEMENT_MS = 8000  # a call takes ten seconds at most
NEVER, NO_RIGHT = ("22", "42"), "42501"  # SQLSTATE of what cannot be as it is asked for
# data, constraints, another type, the check of a view, what a trigger raises
OF_ROWS = ("22", "23", "42804", "44", "P0")
ADDRESS = re.compile(
    r"postgres(ql)?://((?P<user>[^@/?]*)@)?(?P<hosts>[^/?@]*)/(?P<name>[^?@/]+)(\?(?P<options>.*))?"
)
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:]*)(:[0-9]*)?")  # libpq takes several
SECRET_OPTION = re.compile(r"(^|&)(ssl)?password=")


class PostgresAddress:
    """Of a database. Its text has no password."""

    def __init__(
        self, url: str, password: str | SecretText | None = None, tls: Mapping[str, Any] | None = None
    ):
        found = ADDRESS.fullmatch(url) if isinstance(url, str) else None
        if found is None or not all(map(HOST.fullmatch, found["hosts"].split(","))):
            raise InvalidInput(
                "invalid address of a database", cause="postgresql://user@host:5432/database is due"
            )
        if ":" in (found["user"] or "") or SECRET_OPTION.search(found["options"] or ""):
            raise InvalidInput(
                "a password stands in the address of a database",
                hint="leave it out, and give password='${FILE:/path}' or '${ENV:NAME}'",
            )
        self.url, self.password, self.tls = url, password, Tls.of(tls)
        self._shown = url.partition("?")[0]

    def __str__(self) -> str:
        return self._shown

    def options(self, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
        """settings: of the server's, for this connection."""
        found: dict[str, Any] = {"connect_timeout": ANSWER_S, "application_name": "headgate"}
        found |= {
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 9000,
        }
        wanted = {"statement_timeout": STATEMENT_MS} | dict(settings or {})
        found["options"] = " ".join(f"-c {name}={value}" for name, value in wanted.items())
        if self.password is not None:
            found["password"] = text_of(self.password)
        return found | (self.tls.libpq() if self.tls is not None else {})

    def said(self, error: BaseException) -> str:
        """What the server or the client says, in a line without the password."""
        text = one_line(str(error)) or type(error).__name__
        secret = text_of(self.password) if self.password is not None else ""
        return text.replace(secret, "***") if secret else text


def connected(address: PostgresAddress, *, settings: Mapping[str, str] | None = None, **more: Any) -> Any:
    """more: of `psycopg.connect`. Raises ServiceAway while it cannot be had; InvalidInput without psycopg."""
    psycopg = needed("psycopg", "postgres")
    try:
        connection = psycopg.connect(address.url, **address.options(settings), **more)
        if "replication" not in more and _is_pooled(connection):
            connection.prepare_threshold = None
        return connection
    except psycopg.Error as error:
        raise ServiceAway(f"no answer of {address}", cause=address.said(error)) from error


def _is_pooled(connection: Any) -> bool:
    """Does a pooler stand between, which may give each transaction to another server process? There our names of
    prepared statements may be those of another client, and run his: rows would go into his table."""
    (process,) = connection.execute("select pg_backend_pid()").fetchone()
    connection.rollback()
    return bool(process != connection.info.backend_pid)


def trouble(where: str, address: PostgresAddress, error: Any) -> InvalidInput | ServiceAway:
    """What an error of psycopg means for who reads: a statement that cannot be is InvalidInput; all else, a right that
    is lacking too, may be better later."""
    state = error.sqlstate or ""
    if state.startswith(NEVER) and state != NO_RIGHT:
        return InvalidInput(f"{where} cannot be read", cause=address.said(error))
    return ServiceAway(f"{where} cannot be read now", cause=address.said(error))


def is_of_rows(error: Any) -> bool:
    """Is it what a row holds that the database does not take?"""
    import psycopg

    state = error.sqlstate or ""
    if state:
        return state.startswith(OF_ROWS)
    return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
