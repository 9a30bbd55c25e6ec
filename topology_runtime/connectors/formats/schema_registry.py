"""A client of schema registries with Confluent's HTTP interface. What a number means is asked once."""

from __future__ import annotations

import random
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.tasks.service_clients import KeepAlive

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # after an attempt that failed, doubled each time
TIMEOUT_S = 10.0
MISSING_S = 60.0  # so long a number that is not there is not asked again
MISSING_MOST = 10_000  # of them are remembered
REFERENCES_MOST = 100  # schemas that one needs
CONTENT = "application/vnd.schemaregistry.v1+json"


class RegisteredSchema(msgspec.Struct):
    """kind: AVRO, PROTOBUF or JSON. others: (name, text) of the schemas that it names, those they need first."""

    text: str
    kind: str
    others: list[tuple[str, str]]


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _SchemaAnswer(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"
    references: list[_Reference] = []


class _Version(msgspec.Struct):
    id: int
    schemaType: str = "AVRO"


class SchemaRegistry:
    """url: `http://host:8081`, or https. user, password: of basic authentication.

    Raises ServiceAway while it does not answer, or not as it should: it is not asked again before a pause is over."""

    def __init__(
        self, url: str, user: str = "", password: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        parts = parts_of_address(url)
        if (
            parts is None
            or parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
        ):
            raise InvalidInput("registry= is no address", hint="http://HOST:PORT or https://HOST:PORT")
        tls, host, port = parts.scheme == "https", parts.hostname, parts.port
        port = port or (443 if tls else 80)
        self._name = f"the schema registry at {host}:{port}"
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept": CONTENT, "Content-Type": CONTENT}
        user = user or unquote(parts.username or "")
        if user:
            login = f"{user}:{password or unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(login).decode()}"
        self._http = KeepAlive(host, port, TIMEOUT_S, tls)
        self._clock = clock
        self._known: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, float] = {}  # until when
        self._fails, self._not_before, self._why = 0, 0.0, ""

    def close(self) -> None:
        self._http.close()

    def schema(self, number: int, form: str = "") -> RegisteredSchema:
        """What it has under this number. form: as what the registry is asked to write it. BadRow if there is none."""
        if (found := self._known.get(number)) is None:
            missing = BadRow(f"$: {self._name} has no schema {number}")
            if self._clock() < self._missing.get(number, 0.0):
                raise missing
            status, body = self._ask("GET", f"/schemas/ids/{number}{form}")
            if status == 404:
                if len(self._missing) >= MISSING_MOST:
                    self._missing.clear()
                self._missing[number] = self._clock() + MISSING_S
                raise missing
            got = self._told(body, _SchemaAnswer)
            others: dict[_Reference, str] = {}
            self._collect(got.references, form, others)
            named = [(one.name, text) for one, text in others.items()]
            found = RegisteredSchema(got.schema, got.schemaType.upper(), named)
            self._known[number] = found
        return found

    def _collect(
        self, references: list[_Reference], form: str, others: dict[_Reference, str], depth: int = 0
    ) -> None:
        for one in references:
            if one in others:
                continue
            if depth > REFERENCES_MOST or len(others) >= REFERENCES_MOST:
                raise BadRow(f"$: a schema needs more than {REFERENCES_MOST} others")
            place = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}{form}"
            status, body = self._ask("GET", place)
            if status == 404:
                raise BadRow(
                    f"$: {self._name} has no version {one.version} of {one.subject!r}, which a schema names"
                )
            got = self._told(body, _SchemaAnswer)
            self._collect(got.references, form, others, depth + 1)
            others[one] = got.schema

    def latest(self, subject: str, kind: str) -> int:
        """The number of the newest schema there. Raises InvalidInput if there is none, or it is of another format."""
        status, body = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        if status == 404:
            hint = "register=True puts the schema of this topology there"
            raise InvalidInput(f"{self._name} has no subject {subject!r}", hint=hint)
        got = self._told(body, _Version)
        if got.schemaType.upper() != kind:
            raise InvalidInput(f"the schema of {subject!r} is of format {got.schemaType}, not {kind}")
        return int(got.id)

    def register(self, subject: str, kind: str, text: str) -> int:
        """The number of this schema there; it is put there if it is new. Raises InvalidInput if it is refused, as when
        it does not fit those before."""
        sent: dict[str, Any] = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        path = f"/subjects/{quote(subject, safe='')}/versions"
        status, body = self._ask("POST", path, msgspec.json.encode(sent))
        if status in (404, 409, 422):
            cause = body.decode(errors="replace")[:400]
            raise InvalidInput(f"{self._name} refuses the schema of {subject!r}", cause=cause)
        return int(self._told(body, _Version).id)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """(200, 404, 409 or 422; what it says)."""
        left = self._not_before - self._clock()
        if left > 0:
            raise self._away(self._why)
        try:
            status, got = self._http.ask(method, self._base + path, body, self._headers)
        except OSError as error:
            raise self._failed(f"{type(error).__name__}: {error}") from error
        if status in (401, 403):
            raise self._failed(f"it answers {status}: the user or password is wrong, or lacks the right")
        if status not in (200, 404, 409, 422):
            raise self._failed(f"it answers {status}")
        self._fails, self._why = 0, ""
        return status, got

    def _told(self, body: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._failed(f"what answers there is no schema registry: {error}") from error

    def _failed(self, why: str) -> ServiceAway:
        wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._fails, 10)) * random.uniform(0.5, 1.0)
        self._fails, self._why, self._not_before = self._fails + 1, why, self._clock() + wait
        return self._away(why)

    def _away(self, why: str) -> ServiceAway:
        return ServiceAway(f"{self._name} does not answer", cause=why)
