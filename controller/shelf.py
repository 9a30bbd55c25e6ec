"""Packages that clients bring to the controller and agents fetch from it.

It has whole and sound ones only, and does not judge whose they are: every host does that for itself. What is asked here
is no matter of the core, and in no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from headgate.controller.monitor.shipping import Shipping
from headgate.topology_runtime.clock import monotonic_ns
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.messages import FromController, Reply, Request, refusal
from headgate.topology_runtime.packages.manifest import DIGEST, SHORT, BadPackage
from headgate.topology_runtime.packages.store import PackageStore
from headgate.topology_runtime.packages.wire import PART_BYTES, PackageAt, PackageOffer, PackagePart

FOLDER = "packages"  # in a controller's state directory


class Shelf:
    """send: to a VM. folders: may code be in folders too? Not when others than this machine's users can ask."""

    def __init__(self, folder: Path, folders: bool, send: Callable[[str, FromController], object]) -> None:
        self._folder, self._folders, self._send = folder, folders, send
        self._shipping = Shipping()
        self._made: PackageStore | None = None
        self._running = ""

    @property
    def _store(self) -> PackageStore:
        if self._made is None:
            self._made = PackageStore(self._folder, unpacks=False)
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    # ── clients ─────────────────────────────────────────────────────────────────────────────────

    def answer(self, request: Request, vms: Collection[str]) -> Reply | None:
        """To a command about packages; None when it is another's matter. vms: that are connected."""
        try:
            match request.command:
                case "package_put":
                    return Reply(data=self._put(request.arguments))
                case "package_at":
                    return Reply(data=self._at(request.arguments, vms))
                case "submit":
                    self._look_at(request.arguments)
                case "replace" if not request.arguments.get("back"):
                    self._look_at(request.arguments)
        except HeadgateError as error:
            return refusal(error)
        except OSError as error:
            what = f"the controller cannot keep the package: {error.strerror}"
            return refusal(HeadgateError(what, cause=str(self._folder)))
        return None

    def _put(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """How much of it is here, and what was brought is added. Raises HeadgateError, OSError."""
        digest, offset, data = (arguments.get(name) for name in ("digest", "offset", "data"))
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise InvalidInput("a package is named by its digest", cause="64 hexadecimal digits")
        whole = self._store.manifest(digest) is not None
        if not whole and isinstance(data, bytes) and isinstance(offset, int):
            whole = self._store.add(digest, offset, data)
            if whole:
                self._store.collect(self._shipping.kept | {digest, self._running})
        return {
            "digest": digest,
            "taken": self._store.size(digest) if whole else self._store.taken(digest),
            "whole": whole,
        }

    def _at(self, arguments: dict[str, Any], vms: Collection[str]) -> dict[str, Any]:
        """How a package stands on every VM that is connected; asking for it has it offered there."""
        self._check({"package": arguments.get("digest")})
        digest: str = arguments["digest"]
        self._shipping.asked(digest, monotonic_ns())
        self.tick(vms)
        stands = self._shipping.stands(digest, vms)
        return {
            "digest": digest,
            "size": self._store.size(digest),
            "vms": [
                {
                    "vm": vm,
                    "taken": said.taken if said is not None else 0,
                    "whole": said is not None and said.whole,
                    "busy": said is not None and said.busy,
                    "refused": said.refused if said is not None else "",
                }
                for vm, said in stands.items()
            ],
        }

    def _look_at(self, submission: dict[str, Any]) -> None:
        """Is its code where it may be? Raises BadPackage, InvalidInput."""
        if submission.get("package"):
            self._check(submission)
        elif submission.get("user_paths") and not self._folders:
            raise InvalidInput(
                "code comes in packages here, not from folders",
                cause="the controller listens off loopback",
                hint="headgate submit --ship",
            )

    def _check(self, arguments: dict[str, Any]) -> None:
        """Is it here? Raises BadPackage, InvalidInput."""
        digest = arguments.get("package")
        if not isinstance(digest, str) or self._store.manifest(digest) is None:
            raise BadPackage(
                f"the controller has no package {str(digest)[:SHORT]}", hint="`headgate submit` brings it"
            )
        if arguments.get("user_paths"):
            raise InvalidInput("code comes from a package or from folders, not from both")

    # ── agents ──────────────────────────────────────────────────────────────────────────────────

    def heard(self, said: PackageAt) -> str:
        """An agent says how a package stands there, and is sent what it asks for; what is wrong with that."""
        if not self._shipping.heard(said, monotonic_ns()):
            return ""
        try:
            if self._store.manifest(said.digest) is None:
                return f"{said.vm} asks for package {said.digest[:SHORT]}, which is not here: submit it again"
            data = self._store.read(said.digest, said.taken, PART_BYTES)
        except (OSError, Conflict) as error:
            return f"package {said.digest[:SHORT]} cannot be read: {error} ({self._folder})"
        self._send(said.vm, PackagePart(said.digest, said.taken, data))
        return ""

    def tick(self, vms: Collection[str]) -> None:
        for vm, digest in self._shipping.offers(vms, monotonic_ns()):
            self._send(vm, PackageOffer(digest))

    def runs(self, digest: str) -> None:
        """This one is desired now: it stays."""
        self._running = digest
