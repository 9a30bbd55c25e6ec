"""Redis (Debian's package redis-server)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from real_services.service import Service


class Redis(Service):
    """Writes each command to its append-only file before it answers."""

    name = "redis"
    debian = "redis-server"

    @property
    def url(self) -> str:
        return f"{'redis' if self.tls is None else 'rediss'}://{self.address}/0"

    @classmethod
    def check_installed(cls) -> None:
        cls.program("redis-server")

    def prepare(self) -> None:
        lines = [
            f"bind {self.host}",
            f"port {self.port if self.tls is None else 0}",
            f'dir "{self.folder}"',
            "appendonly yes",
            "appendfsync always",
            'save ""',
        ]
        if self.login is not None:
            name, password = self.login
            lines += [f"user {name} on >{password} ~* &* +@all"]
            # on: as that user the server reads its own file (findings/redis-default-user-off.sh)
            lines += [f"user default on >{secrets.token_hex()} ~* &* +@all"]
        if self.tls is not None:
            certificate, key, authority = self.certificate_files(self.tls)
            lines += [f"tls-port {self.port}", f"tls-cert-file {certificate}", f"tls-key-file {key}"]
            lines += [f"tls-ca-cert-file {authority}"]
            lines += [f"tls-auth-clients {'yes' if self.client_certificates else 'no'}"]
        self.write("redis.conf", "\n".join(lines) + "\n")

    def commands(self) -> Mapping[str, list[str]]:
        return {"redis": [self.program("redis-server"), str(self.folder / "redis.conf")]}

    def answers(self) -> bool:
        with self.connection() as server:
            server.sendall(b"PING\r\n")
            return server.recv(64).startswith((b"+PONG", b"-NOAUTH"))
