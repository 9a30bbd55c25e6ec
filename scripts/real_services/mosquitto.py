"""Mosquitto, an MQTT broker (Debian's package)."""

from __future__ import annotations

from collections.abc import Mapping

from real_services.service import Service

CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x0a\x00\x03hg?"  # MQTT 3.1.1, clean session
CONNACK = 0x20


class Mosquitto(Service):
    """Keeps sessions, queues and retained rows on disk after every change: without `autosave_on_changes` a
    `kill -9` loses all of the last 30 minutes. Without `max_queued_messages` it drops what waits above 1,000 rows.

    saves_each_change: each time all that it has, so with 4,000 rows that wait it takes 110 rows/s and not 3,700. Where
    it is only asked to stop it need not."""

    saves_each_change = True
    name = "mosquitto"
    debian = "mosquitto"

    @property
    def url(self) -> str:
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{self.address}"

    @classmethod
    def check_installed(cls) -> None:
        cls.program("mosquitto")

    def prepare(self) -> None:
        lines = [
            f"listener {self.port} {self.host}",
            "persistence true",
            f"persistence_location {self.folder}/",
            *(["autosave_on_changes true", "autosave_interval 1"] if self.saves_each_change else []),
            "max_queued_messages 0",
            "user root",  # do not change to Debian's user when started by root
            f"allow_anonymous {'true' if self.login is None and not self.client_certificates else 'false'}",
        ]
        if self.login is not None:
            passwords = self.write("passwords", f"{self.login.user}:{self.login.password}\n")
            self.run(["mosquitto_passwd", "-U", str(passwords)])
            lines.append(f"password_file {passwords}")
        if self.tls is not None:
            certificate, key, authority = self.certificate_files(self.tls)
            lines += [f"certfile {certificate}", f"keyfile {key}", f"cafile {authority}"]
            if self.client_certificates:
                lines += ["require_certificate true"]
                lines += [] if self.login is not None else ["use_identity_as_username true"]
        self.write("mosquitto.conf", "\n".join(lines) + "\n")

    def commands(self) -> Mapping[str, list[str]]:
        return {"mosquitto": [self.program("mosquitto"), "-c", str(self.folder / "mosquitto.conf")]}

    def answers(self) -> bool:
        with self.connection() as broker:
            broker.sendall(CONNECT)
            reply = broker.recv(4)
        return reply[:1] == bytes([CONNACK])
