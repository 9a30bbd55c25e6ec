"""A connection to one Redis server, and whose fault an error is."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.queues.server_address import ServerAddress, waited_for
from headgate.topology_runtime.connectors.tls import CA, FULL, NONE
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

PORTS = {"redis": 6379, "rediss": 6379}
CONNECT_S, ANSWER_S = 3.0, 5.0  # a call of a task has 10 s
AWAY = {"OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "NOPERM", "NOAUTH", "WRONGPASS",
        "MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"}  # fmt: skip
HINTS = {
    "OOM": "raise maxmemory there, or set maxlen=",
    "READONLY": "connect to the primary",
    "MISCONF": "look at its disk and its log",
    "NOPERM": "the user needs the right to run scripts (+eval +evalsha) and the commands in them",
    "MOVED": "clusters of Redis are not supported: connect to a single server",
}


class RedisServer:
    """One connection, made anew after it broke. Clusters and Sentinel are not supported."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        if not (address.path or "0").isdigit():
            raise InvalidInput(
                f"invalid database {address.path!r} of Redis", hint="a number: redis://host:6379/0"
            )
        self._client: Any = None

    def call(self, script: str, keys: list[Any], args: list[Any]) -> Any:
        """What a script says. Raises ServiceAway, or InvalidInput for what the server does not do."""
        return self._asked("EVAL", script, len(keys), *keys, *args)

    def command(self, *words: Any) -> Any:
        """What the server answers, without the client's reading of it. Raises as `call`."""
        return self._asked(*words)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(self, *words: Any) -> Any:
        redis = needed("redis", "redis")
        try:
            if self._client is None:
                with waited_for():
                    self._client = self._connected(redis)
            return self._client.execute_command(*words)
        except redis.RedisError as error:
            if not isinstance(error, redis.ResponseError):
                self.close()
            raise self._explained(error, isinstance(error, redis.ResponseError)) from error
        except OSError as error:
            self.close()
            raise ServiceAway(f"no answer of {self.address}", cause=self.address.said(error)) from error

    def _connected(self, redis: Any) -> Any:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        tls: dict[str, Any] = {}
        if (files := self.address.tls) is not None:
            files.context()  # says which file is wrong
            secret = {"ssl_password": files.key_password} if isinstance(files.key_password, str) else {}
            if files.key_password is not None and not secret:
                secret = {"ssl_password": files.key_password.text()}  # type: ignore[union-attr]
            tls = {"ssl": True, "ssl_ca_certs": files.ca, "ssl_certfile": files.certificate,
                   "ssl_keyfile": files.certificate and (files.key or files.certificate),
                   "ssl_check_hostname": files.verify == FULL, **secret,
                   "ssl_cert_reqs": {FULL: "required", CA: "required", NONE: "none"}[files.verify]}  # fmt: skip
        return redis.Redis(
            self.address.host,
            self.address.port,
            int(self.address.path or 0),
            username=self.address.user,
            password=self.address.password(),
            socket_timeout=ANSWER_S,
            socket_connect_timeout=CONNECT_S,
            retry=Retry(NoBackoff(), 0),  # the runtime tries again, and says so
            client_name="headgate",
            protocol=2,
            single_connection_client=False,
            max_connections=1,
            **tls,
        )

    def _explained(self, error: Any, answered: bool) -> HeadgateError:
        cause = self.address.said(error)
        if not answered:
            return ServiceAway(f"no answer of {self.address}", cause=cause)
        return explained(f"{self.address} refuses a call", type(error).__name__, cause)


NAMES = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "MasterDownError": "MASTERDOWN",
}


def explained(what: str, kind: str, cause: str) -> HeadgateError:
    """From an error's text; the client cuts the first word off where it has a class for it (`kind`).

    >>> type(explained("", "OutOfMemoryError", "command not allowed")).__name__
    'ServiceAway'
    """
    words = cause.split(None, 1)
    code = NAMES.get(kind, words[0] if words else "")
    if code in AWAY:
        return ServiceAway(what, cause=cause, hint=HINTS.get(code))
    return InvalidInput(what, cause=one_line(cause))
