"""Packages that clients bring to the controller and agents fetch from it.

It has whole and sound ones only, and does not judge whose they are: every host does that for itself. What is asked here
is no matter of the core, and in no trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from headgate.controller.monitor.package_shipping import Shipping
from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.packages import revocations
from headgate.topology_runtime.packages.package_manifest import DIGEST, SHORT, BadPackage, Revocation
from headgate.topology_runtime.packages.package_store import PackageStore
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wire.messages import (
    PART_BYTES,
    FromController,
    PackageAt,
    PackageOffer,
    PackagePart,
    Reply,
    Request,
    refusal,
)

FOLDER = "packages"  # in a controller's state directory
TELL_NS, TOLD_AT_ONCE = 2_000_000_000, 32


class PackageShelf:
    """send: to a VM. folders: may code be in folders too? Not when others than this machine's users can ask."""

    def __init__(self, folder: Path, folders: bool, send: Callable[[str, FromController], object]) -> None:
        self._folder, self._folders, self._send = folder, folders, send
        self._shipping = Shipping()
        self._made: PackageStore | None = None
        self._running = ""
        self._revoked = revocations.Revocations(folder / revocations.FILE)
        self._told: dict[str, set[str]] = {}  # VM → revoked packages that it refuses
        self._tell_ns = 0

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
                case "package_revoke":
                    return Reply(data=self._revoke(request.arguments, vms))
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

    def _revoke(self, arguments: dict[str, Any], vms: Collection[str]) -> dict[str, Any]:
        """No host that trusts its signer starts it from now on. Raises BadPackage, OSError."""
        try:
            one = msgspec.convert(arguments, Revocation)
        except msgspec.ValidationError as error:
            raise BadPackage("this is no revocation", cause=str(error)) from error
        news = self._revoked.add(one)
        self._tell_ns = 0
        self.tick(vms)
        return {"package": one.package, "new": news, "runs": one.package == self._running, "vms": sorted(vms)}

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
        manifest = self._store.manifest(digest) if isinstance(digest, str) else None
        if manifest is not None and isinstance(digest, str):
            self._revoked.refuse(digest)
            manifest.refuse_expired(digest, time.time_ns())
        else:
            raise BadPackage(
                f"the controller has no package {str(digest)[:SHORT]}", hint="`headgate submit` brings it"
            )
        if arguments.get("user_paths"):
            raise InvalidInput("code comes from a package or from folders, not from both")

    # ── agents ──────────────────────────────────────────────────────────────────────────────────

    def heard(self, said: PackageAt) -> str:
        """An agent says how a package stands there, and is sent what it asks for; what is wrong with that."""
        if said.refused and self._revoked.of(said.digest) is not None:
            self._told.setdefault(said.vm, set()).add(said.digest)
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
            self._send(vm, PackageOffer(digest, self._revoked.of(digest)))
        self._tell(vms)

    def _tell(self, vms: Collection[str]) -> None:
        """What is revoked, until each VM says that it refuses it; again to one that was away."""
        self._told = {vm: told for vm, told in self._told.items() if vm in vms}
        if monotonic_ns() < self._tell_ns:
            return
        self._tell_ns = monotonic_ns() + TELL_NS
        for vm in vms:
            told = self._told.get(vm, set())
            for one in [one for one in self._revoked if one.package not in told][:TOLD_AT_ONCE]:
                self._send(vm, PackageOffer(one.package, one))

    def runs(self, digest: str) -> None:
        """This one is desired now: it stays."""
        self._running = digest
