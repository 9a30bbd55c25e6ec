"""Messages of a WebSocket that somebody else serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from headgate.topology_runtime.api.logic import Context, LiveSource
from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import hide, one_line

CONNECT_S, CLOSE_S = 4.0, 1.0
CALL_BYTES = 4 << 20  # of one call, about
PING_S = 20.0  # between two; without an answer for as long the connection is over


class WebSocketSource(LiveSource[Any]):
    """Each message that comes from `url` (ws:// or wss://) is a row of `format` (with its options). send: messages to
    send first, such as a subscription. token: a bearer token.

    Nothing is confirmed, so what is sent while nobody is connected, or is not read when a worker dies, is lost. A
    connection that ends is made again. A message that is no row is a dead letter; one that is longer than a row may be
    ends the connection.

    >>> source = WebSocketSource("wss://127.0.0.1:8443/trades", send=['{"subscribe": "all"}'])
    """

    reads_references = ("token",)

    def __init__(self, url: str, *, format: str = "json", type: str | None = None, send: Sequence[str] = (),
                 token: str | SecretText | None = None, tls: Mapping[str, Any] | None = None,
                 **options: Any) -> None:  # fmt: skip
        parts = parts_of_address(url)
        if (
            parts is None
            or parts.scheme not in ("ws", "wss")
            or not parts.hostname
            or parts.fragment
            or parts.username is not None
        ):
            raise InvalidInput(
                "url= is no address", hint="ws://HOST:PORT/PATH or wss://…, without a login: token="
            )
        if isinstance(send, str) or not all(isinstance(one, str) for one in send):
            raise InvalidInput("send= is a list of texts")
        if tls is not None and parts.scheme == "ws":
            raise InvalidInput("tls= is for wss://")
        if isinstance(token, str):
            hide(token)
        self._url, self._first, self._token = url, list(send), token
        self._tls = Tls.of(tls) or (Tls() if parts.scheme == "wss" else None)
        self.where = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._format = open_format(format, type=type, **options)
        self._socket: Any = None
        self._until_end = ExitStack()  # of the connection

    def open(self, context: Context) -> None:
        if context.partitions > 1:
            raise InvalidInput(
                f"{context.partitions} threads would each read every message of {self.where}",
                hint="threads=1",
            )
        needed("websockets", "web")

    def poll(self, limit: int) -> Sequence[Any]:
        needed("websockets.sync.client", "web")
        websockets = needed("websockets", "web")
        if self._socket is None:
            self._socket = self._connected(websockets)
        rows: list[Any] = []
        size = 0
        try:
            while len(rows) < limit and size < CALL_BYTES:
                message = self._socket.recv(timeout=0)
                rows.append(self._row(message))
                size += len(message)
        except TimeoutError:  # no more for now
            return rows
        except websockets.exceptions.ConnectionClosed as error:
            self._socket = None
            self._until_end.close()
            if not rows:
                raise ServiceAway(f"{self.where} ended the connection", cause=one_line(str(error))) from error
        return rows

    def close(self) -> None:
        self._until_end.close()
        self._format.close()

    def _row(self, message: str | bytes) -> Any:
        try:
            return self._format.decode(message.encode() if isinstance(message, str) else message)
        except BadRow as error:
            return error

    def _connected(self, websockets: Any) -> Any:
        headers = {} if self._token is None else {"Authorization": f"Bearer {text_of(self._token)}"}
        try:
            connecting = websockets.sync.client.connect(
                self._url, ssl=self._tls.context() if self._tls else None, additional_headers=headers,
                open_timeout=CONNECT_S, close_timeout=CLOSE_S, ping_interval=PING_S, ping_timeout=PING_S,
                max_size=MOST_BYTES, proxy=None,
            )  # fmt: skip
            made = self._until_end.enter_context(connecting)
            for text in self._first:
                made.send(text)
            return made
        except (OSError, websockets.exceptions.WebSocketException) as error:
            self._until_end.close()
            cause = one_line(f"{type(error).__name__}: {error}")
            raise ServiceAway(f"no WebSocket at {self.where}", cause=cause) from error
