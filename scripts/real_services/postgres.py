"""PostgreSQL (Debian's package)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from real_services.service import Login, Service

PROGRAMS = "/usr/lib/postgresql"  # Debian has a folder here for each version


class Postgres(Service):
    """Ready for logical decoding (`wal_level=logical`); its superuser logs in by password (SCRAM)."""

    name = "postgres"
    debian = "postgresql"
    run_as = "postgres"  # it refuses root
    stop_signal = signal.SIGINT  # ends connections; SIGTERM would wait for them
    default_login = Login("headgate", "loopback")
    database = "postgres"

    @property
    def url(self) -> str:
        assert self.login is not None
        mode = "disable" if self.tls is None else "verify-full"
        return f"postgresql://{self.login.user}@{self.address}/{self.database}?sslmode={mode}"

    @classmethod
    def check_installed(cls) -> None:
        cls._program("postgres")

    @classmethod
    def _program(cls, name: str) -> str:
        versions = [folder for folder in Path(PROGRAMS).glob("*") if folder.name.isdigit()]
        newest = sorted(versions, key=lambda folder: int(folder.name), reverse=True)
        return cls.program(name, *(str(folder / "bin") for folder in newest))

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        assert self.login is not None
        if not (self.data / "PG_VERSION").exists():
            secret = self.write("password", self.login.password + "\n")
            words = [self._program("initdb"), "--pgdata", str(self.data), "--username", self.login.user]
            words += ["--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8"]
            self.run([*words, "--locale", "C", "--no-sync"])
            secret.unlink()
        lines = [
            f"listen_addresses = '{self.host}'",
            f"port = {self.port}",
            "unix_socket_directories = ''",
            "wal_level = logical",
            "max_connections = 50",
            "shared_buffers = 32MB",
        ]
        admit = "host"
        if self.tls is not None:
            certificate, key, authority = self.certificate_files(self.tls)
            lines += ["ssl = on", f"ssl_cert_file = '{certificate}'", f"ssl_key_file = '{key}'"]
            lines += [f"ssl_ca_file = '{authority}'"]
            admit = "hostssl"
        how = "scram-sha-256" + (" clientcert=verify-ca" if self.client_certificates else "")
        rules = [f"{admit} {what} all {self.host}/32 {how}\n" for what in ("all", "replication")]
        access = self.write("access.conf", "".join(rules))
        self.write("postgres.conf", "\n".join([*lines, f"hba_file = '{access}'"]) + "\n")

    def commands(self) -> Mapping[str, list[str]]:
        settings = f"config_file={self.folder / 'postgres.conf'}"
        return {"postgres": [self._program("postgres"), "-D", str(self.data), "-c", settings]}

    def answers(self) -> bool:
        words = [self._program("pg_isready"), "--quiet", "--host", self.host, "--port", str(self.port)]
        return subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode == 0
