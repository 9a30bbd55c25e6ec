"""Keys for tests: of a server that a test plays, and of a run that it started."""

from __future__ import annotations

import json
from pathlib import Path

from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_files import keep_whole
from headgate.topology_runtime.keys.key_pairs import Contact, KeyGuard, Role, Who
from headgate.topology_runtime.keys.keyring import KeyFile
from headgate.topology_runtime.keys.keyring import Keyring as Ring


class MadeKeys:
    """A server's pair, and one of the only one whom it lets in."""

    def __init__(self, role: Role = "operator", name: str = "test") -> None:
        self.own, self.client, self.who = new_pair(), new_pair(), Who(role, name)
        self.guard = KeyGuard(self.own, {self.client.public: self.who}.get)

    def contact(self, endpoint: str) -> Contact:
        return Contact(endpoint, self.client, self.own.public)

    def file(self, path: Path) -> Path:
        """The client's key as a file."""
        pair, who = self.client, self.who
        keep_whole(path, KeyFile(who.role, who.name, pair.public, pair.secret, self.own.public))
        return path


def operator(state: Path) -> Contact:
    """At the command port of the controller of this state directory, as its operator. Raises FileNotFoundError."""
    commands = json.loads((state / "controller" / "endpoint").read_text())["commands"]
    return Ring(state / "keys").key("operator", "local").contact(commands)


def agent(state: Path, vm: str) -> KeyFile:
    """The key of a VM's agent in that run."""
    Ring(state / "keys").ensure("agent", vm)
    return Ring(state / "keys").key("agent", vm)
