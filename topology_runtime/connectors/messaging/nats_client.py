"""What the source and the sink of NATS share: a connection that only moves when it is called."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

CONNECT_S, ANSWER_S, CLOSE_S = 4.0, 4.0, 2.0  # a call of a task has 10 s
PING_S = 20
SCHEMES = ("nats", "tls")
LOGIN = ("authorization", "authentication", "permissions", "nkey", "jwt", "expired")
T = TypeVar("T")
Password = str | SecretText | None


def faults_of(url: Any, connection: Mapping[str, Any]) -> list[str]:
    """What is wrong with these params. connection: user, password, credentials and tls."""
    known = {"user", "password", "credentials", "tls"}
    faults = [f"{name}: there is no such param" for name in connection.keys() - known]
    for one in url.split(",") if isinstance(url, str) else [""]:
        parts = parts_of_address(one.strip())
        good = parts is not None and parts.scheme in SCHEMES and parts.hostname and parts.port != 0
        if parts is None or not good or parts.username or parts.path.strip("/") or parts.query:
            faults.append("url: nats://host:4222 or tls://host:4222, several with commas, without a login")
            break
    texts = {name: connection.get(name) for name in known - {"tls"}}
    return faults + [
        f"{name}: text" for name, value in texts.items() if not isinstance(value, str | SecretText | None)
    ]


class NatsLink:
    """A connection to a server, without reconnects of its own and without a thread: it lives in `run`."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: Password = None,
        credentials: str | None = None,
        tls: Any = None,
    ) -> None:
        self._servers = [one.strip() for one in url.split(",")]
        self.where = ", ".join(urlsplit(one).netloc for one in self._servers)
        self._user, self._password, self._credentials = user, password, credentials
        self._tls = Tls.of(tls) or (Tls() if any(one.startswith("tls:") for one in self._servers) else None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said: Exception | None = None  # by its error callback
        self.client: Any = None

    @property
    def up(self) -> bool:
        return self.client is not None and self.client.is_connected

    @property
    def streams(self) -> Any:
        """JetStream's interface."""
        return self.client.jetstream(timeout=ANSWER_S)

    def connect(self) -> None:
        """A new connection, unless there is one. Raises why there is none."""
        if self.up:
            return
        self.drop()
        nats = needed("nats.aio.client", "nats")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self.client, self._said = nats.Client(), None
        try:
            self.run(self.client.connect(**self._options()), CONNECT_S)
        except Exception as error:
            found = self.trouble(error)
            self.drop()
            raise found from error

    def _options(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "servers": self._servers,
            "error_cb": self._told,
            "allow_reconnect": False,
            "connect_timeout": 2,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.1,
            "ping_interval": PING_S,
            "name": "headgate",
        }
        if self._user is not None:
            found["user"] = self._user
        if self._password is not None:
            found["password"] = text_of(self._password)
        if self._credentials is not None:
            found["user_credentials"] = self._credentials
        if self._tls is not None:
            found["tls"] = self._tls.context()
        return found

    async def _told(self, error: Exception) -> None:
        self._said = error

    def run(self, what: Coroutine[Any, Any, T], patience_s: float = ANSWER_S) -> T:
        """Raises what it raises; TimeoutError."""
        assert self._loop is not None
        return self._loop.run_until_complete(asyncio.wait_for(what, patience_s))

    def trouble(self, error: Exception) -> HeadgateError:
        """What an error of the client means that is no answer of JetStream."""
        if isinstance(error, HeadgateError):
            return error
        heard = [one for one in (self._said, error) if one is not None]
        for one in heard:
            if isinstance(one, ssl.SSLError) and self._tls is not None:
                return self._tls.explained(one, self.where)
            if any(word in str(one).lower() for word in LOGIN):
                hint = f"are `user`, `password` and `credentials` those of {self.where}?"
                return InvalidInput(
                    f"NATS at {self.where} refuses the connection", cause=one_line(str(one)), hint=hint
                )
        cause = one_line(str(heard[0])) or type(heard[0]).__name__
        return ServiceAway(f"NATS at {self.where} does not answer", cause=cause)

    def drop(self) -> None:
        client, self.client = self.client, None
        if client is None or self._loop is None:
            return
        try:
            self.run(client.close(), CLOSE_S)
        except Exception as error:  # it has ended anyhow
            self._said = error

    def close(self) -> None:
        self.drop()
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run_until_complete(_end_tasks())
            loop.run_until_complete(loop.shutdown_default_executor())  # of names that were looked up
        finally:
            loop.close()


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
