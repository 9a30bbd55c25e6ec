"""What the source and the sink of MQTT share: a connection that only moves when it is called, and what brokers' codes
mean."""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from headgate.topology_runtime.connectors.addresses import parts_of_address
from headgate.topology_runtime.connectors.formats.extras import needed
from headgate.topology_runtime.connectors.secrets import SecretText, text_of
from headgate.topology_runtime.connectors.tls import Tls
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, ServiceAway
from headgate.topology_runtime.wording import one_line

PORTS = {"mqtt": 1883, "mqtts": 8883}
CONNECT_S, ANSWER_S, CLOSE_S = 4.0, 4.0, 1.0  # for TCP and TLS; for each answer: a call of a task has 10 s
KEEPALIVE_S = 60
RETRY_S, RETRY_MOST_S = 0.1, 2.0  # between tries to connect
REFUSED = 0x80  # from here on a reason code is an error
LOGIN = {0x86, 0x87, 0x8A, 0x8C}
LATER = {0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, 0x9C, 0x9D, 0x9F}  # the same may work at another time
TAKEN_OVER = 0x8E
ID_MOST_BYTES = 65_000
Password = str | SecretText | None


def paho() -> Any:
    """The module of the client. Raises InvalidInput when it is not installed."""
    return needed("paho.mqtt.client", "mqtt")


def faults_of(url: Any, connection: Mapping[str, Any]) -> list[str]:
    """What is wrong with these params. connection: user, password and tls."""
    faults = [f"{name}: there is no such param" for name in connection.keys() - {"user", "password", "tls"}]
    user, password = connection.get("user"), connection.get("password")
    parts = parts_of_address(url)
    if parts is None or parts.scheme not in PORTS or not parts.hostname or parts.port == 0:
        faults.append("url: mqtt://host:1883 or mqtts://host:8883")
    elif parts.username or parts.password or parts.path.strip("/") or parts.query:
        faults.append("url: only host and port; `user` and `password` are params")
    if user is not None and not isinstance(user, str):
        faults.append("user: text")
    if password is not None and not isinstance(password, str | SecretText):
        faults.append("password: text, best as '${FILE:/path}'")
    return faults


class _Socket(ssl.SSLSocket):
    """paho forgets one whose handshake has failed."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


class MqttLink:
    """A connection to a broker. Each is a paho client of its own, without a thread: it reads and writes in `turn`."""

    def __init__(
        self, url: str, *, user: str | None = None, password: Password = None, tls: Any = None
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), parts.port or PORTS[parts.scheme]
        self._user, self._password = user, password
        self._tls = Tls.of(tls) or (Tls() if parts.scheme == "mqtts" else None)
        self.where = f"{self._host}:{self._port}"
        self.client: Any = None
        self.number = 0  # of this connection
        self.on_message: Callable[[Any], None] | None = None
        self.on_publish: Callable[[int, Any], None] | None = None
        self._retry_at, self._delay, self._trouble = 0.0, RETRY_S, None  # type: float, float, HeadgateError | None
        self._ended: Any = None  # the reason that the broker gave

    @property
    def up(self) -> bool:
        return self.client is not None and self.client.socket() is not None

    def connect(
        self, client_id: str, clean: bool, properties: Mapping[str, int], prepare: Callable[[Any], None]
    ) -> None:
        """A new connection, at most so often. prepare: is given the broker's answer, and may ask for more. Raises why
        there is none."""
        if self._trouble is not None and time.monotonic() < self._retry_at:
            raise self._trouble.with_traceback(None)
        try:
            prepare(self._connected(client_id, clean, properties))
        except HeadgateError as error:
            self.drop()
            self._trouble, self._retry_at = error, time.monotonic() + self._delay
            self._delay = min(RETRY_MOST_S, 2 * self._delay)
            raise
        self._trouble, self._delay = None, RETRY_S

    def _connected(self, client_id: str, clean: bool, properties: Mapping[str, int]) -> Any:
        self.drop()
        mqtt = paho()
        answers: list[Any] = []
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5, manual_ack=True
        )
        client.connect_timeout = CONNECT_S
        client.max_inflight_messages = 0  # the sink bounds them
        client.on_connect = lambda _client, _data, flags, reason, more: answers.append((flags, reason, more))
        client.on_socket_open = lambda _client, _data, opened: opened.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        client.on_disconnect = self._on_disconnect
        client.on_message = lambda _client, _data, message: self.on_message and self.on_message(message)
        client.on_publish = lambda _client, _data, mid, reason, _more: (
            self.on_publish and self.on_publish(mid, reason)
        )
        if self._user is not None or self._password is not None:
            password = None if self._password is None else text_of(self._password)
            client.username_pw_set(self._user or "", password)
        self._open(client, clean, mqtt, properties)
        self.wait(lambda: answers, "does not answer to CONNECT")
        flags, reason, more = answers[0]
        if reason.value >= REFUSED:
            raise self.refused("the broker refuses the connection", reason)
        return flags.session_present, more

    def _open(self, client: Any, clean: bool, mqtt: Any, properties: Mapping[str, int]) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        for name, value in properties.items():
            setattr(asked, name, value)
        if self._tls is not None:
            context = self._tls.context()
            context.sslsocket_class = _Socket
            client.tls_set_context(context)
            if not context.check_hostname:
                client.tls_insecure_set(True)  # it would look at the name itself
        self.client, self._ended = client, None
        self.number += 1
        try:
            client.connect(self._host, self._port, KEEPALIVE_S, clean_start=clean, properties=asked)
        except ssl.SSLError as error:
            assert self._tls is not None
            raise self._tls.explained(error, self.where) from error
        except OSError as error:
            cause = one_line(error.strerror or str(error)) or type(error).__name__
            raise ServiceAway(f"no MQTT broker at {self.where}", cause=cause) from error

    def _on_disconnect(self, _client: Any, _data: Any, flags: Any, reason: Any, _more: Any) -> None:
        if flags.is_disconnect_packet_from_server:
            self._ended = reason

    def turn(self, wait_s: float = 0.0) -> bool:
        """Read and write what is there, after at most so long; False: the connection has ended."""
        client = self.client
        connection = client.socket() if client is not None else None
        if connection is None:
            return False
        if wait_s and not (self._tls is not None and connection.pending()):
            ready = select.poll()
            ready.register(connection, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
            ready.poll(wait_s * 1000)
        return not (client.loop_read() or (client.want_write() and client.loop_write()) or client.loop_misc())

    def wait(self, has_come: Callable[[], Any], what: str) -> None:
        """Until it has; raises why not."""
        end = time.monotonic() + ANSWER_S
        while not has_come():
            if not self.turn(0.1) and not has_come():
                raise self.lost()
            if time.monotonic() > end:
                raise ServiceAway(f"the MQTT broker at {self.where} {what}", cause=f"waited {ANSWER_S:g} s")

    def lost(self) -> HeadgateError:
        """Why the connection has ended."""
        if self._ended is not None and self._ended.value >= REFUSED:
            return self.refused("the broker ended the connection", self._ended)
        hint = "if it does so again and again: is another client of the same `client_id` there?"
        return ServiceAway(f"no MQTT broker at {self.where}", cause="the connection was closed", hint=hint)

    def raise_end(self) -> None:
        """Once, of each connection that has ended by itself."""
        if self.client is not None:
            error = self.lost()
            self.drop()
            raise error

    def refused(self, what: str, reason: Any) -> HeadgateError:
        code, cause = reason.value, f"{reason} (0x{reason.value:02x})"
        if code in LATER:
            return ServiceAway(f"{what} at {self.where}", cause=cause)
        hint = None
        if code in LOGIN:
            hint = f"are `user` and `password` those of {self.where}, and may this user do it there?"
        elif code == TAKEN_OVER:
            hint = "another client has the same `client_id`: each source of each run has its own"
        return InvalidInput(f"{what} at {self.where}", cause=cause, hint=hint)

    def drop(self) -> None:
        """End it at once; what was not confirmed is to be sent anew."""
        client, self.client = self.client, None
        if client is not None:
            client.on_message = client.on_publish = None
            client.disconnect()

    def close(self) -> None:
        """Send what waits, say goodbye, and read to the end: who closes with unread rows behind makes the broker forget
        what it has not read yet."""
        if not self.up:
            return self.drop()
        end = time.monotonic() + CLOSE_S
        with socket.socket(fileno=os.dup(self.client.socket().fileno())) as connection:
            while self.up and self.client.want_write() and time.monotonic() < end:
                self.turn(0.05)
            self.drop()
            try:
                connection.shutdown(socket.SHUT_WR)
                while (left_s := end - time.monotonic()) > 0:
                    connection.settimeout(left_s)
                    if not connection.recv(65536):
                        break
            except OSError:
                return None  # it has ended meanwhile
        return None
