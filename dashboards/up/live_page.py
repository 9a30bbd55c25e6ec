"""The live page beside a run of `up`: a child like the others, but a run goes on without it."""

from __future__ import annotations

from headgate.dashboards.up.places import HOST, Places, free_ports
from headgate.dashboards.up.supervisor import Child, ChildRefused, GaveUp, headgate_command, owner_option
from headgate.topology_runtime.keys.keyring import LOCAL, Keyring


class LivePage:
    """`headgate dashboard run` on a port of its own. Its token is in a file that only its owner reads."""

    def __init__(self, places: Places, port: int) -> None:
        from headgate.dashboards.web.cli import check_installed

        check_installed()
        self._port = port or free_ports(1)[0]
        self._token_file = places.state / "page-token"
        key = Keyring.at(places.keys).path("operator", LOCAL)
        words = ["--controller", places.commands, "--key", str(key), "--port", str(self._port)]
        words += ["--token-file", str(self._token_file), *owner_option()]
        self.child = Child("the page", headgate_command("dashboard", "run", *words), places.log("page"))

    def start(self) -> str:
        """The line that says where it is; this is the only time that its token is shown."""
        from headgate.dashboards.web.cli import token_of

        token = token_of(self._token_file)
        self.child.start()
        return f"the live page: http://{HOST}:{self._port}/#token={token}"

    def look(self, now_ns: int) -> str | None:
        """Start it again if it died; the line to show then. When it cannot run the run goes on without it."""
        try:
            return self.child.look(now_ns)
        except (ChildRefused, GaveUp) as error:
            self.child.stopping = True
            return "there is no live page any more: " + " ".join(error.lines()).removeprefix("error")
