"""RabbitMQ (Debian's package rabbitmq-server), with an Erlang port mapper of its own."""

from __future__ import annotations

from collections.abc import Mapping

from real_services.service import Login, Service

PROGRAMS = "/usr/lib/rabbitmq/bin"  # Debian's own `rabbitmq-server` takes no user but its own
HELLO = b"AMQP\x00\x00\x09\x01"
METHOD = 1  # the type of the first frame of a server


class RabbitMQ(Service):
    """One node with its own name and data. Names and distribution of Erlang are on loopback, and its port
    mapper (epmd) is one of the processes: started by Erlang itself, it would outlive the node."""

    name = "rabbitmq"
    debian = "rabbitmq-server"
    run_as = "rabbitmq"
    default_login = Login("guest", "guest")

    @property
    def url(self) -> str:
        return f"{'amqp' if self.tls is None else 'amqps'}://{self.address}/"

    @classmethod
    def check_installed(cls) -> None:
        cls.program("rabbitmq-server", PROGRAMS)

    def prepare(self) -> None:
        assert self.login is not None
        place = f"{self.host}:{self.port}"
        lines = [
            f"default_user = {self.login.user}",
            f"default_pass = {self.login.password}",
            "log.console = true",
            "log.console.level = info",
            "log.file = false",
            "disk_free_limit.absolute = 50MB",
        ]
        if self.tls is None:
            lines.append(f"listeners.tcp.1 = {place}")
        else:
            certificate, key, authority = self.certificate_files(self.tls)
            lines += ["listeners.tcp = none", f"listeners.ssl.1 = {place}"]
            lines += [f"ssl_options.certfile = {certificate}", f"ssl_options.keyfile = {key}"]
            lines += [f"ssl_options.cacertfile = {authority}"]
            asks = "true" if self.client_certificates else "false"
            lines += [f"ssl_options.verify = verify_{'peer' if self.client_certificates else 'none'}"]
            lines += [f"ssl_options.fail_if_no_peer_cert = {asks}"]
        self.write("rabbitmq.conf", "\n".join(lines) + "\n")
        self.write("plugins", "[].\n")
        for name in ("mnesia", "logs"):
            (self.folder / name).mkdir(exist_ok=True)
            self.own(self.folder / name)

    def environment(self) -> Mapping[str, str]:
        loopback = "{127,0,0,1}"
        return {
            "HOME": str(self.folder),  # its cookie
            "ERL_EPMD_ADDRESS": self.host,
            "ERL_EPMD_PORT": str(self.port_of("epmd")),
            "RABBITMQ_NODENAME": f"hg{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_DIST_PORT": str(self.port_of("distribution")),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",  # Debian's settings
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {loopback}",
        }

    def commands(self) -> Mapping[str, list[str]]:
        mapper = ["-port", str(self.port_of("epmd")), "-address", self.host]
        return {
            "epmd": [self.program("epmd"), *mapper],
            "rabbitmq": [self.program("rabbitmq-server", PROGRAMS)],
        }

    def answers(self) -> bool:
        with self.connection() as broker:
            broker.sendall(HELLO)
            return broker.recv(1) == bytes([METHOD])
