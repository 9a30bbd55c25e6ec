"""What a controller takes of packages, from whom, and what it sends; without processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from package_made import FILES, digest_of, package_of

from headgate.controller import package_shelf
from headgate.controller.package_shelf import PackageShelf
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import (
    BROUGHT_BYTES,
    PART_BYTES,
    PackageAt,
    PackageOffer,
    PackagePart,
    Request,
)

WHOLE = package_of({**FILES, "large.bin": os.urandom(PART_BYTES)})
DIGEST = digest_of(WHOLE)


class Asked:
    def __init__(self, folder: Path, folders: bool = True) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.folder = folder
        self.shelf = PackageShelf(folder, folders, lambda vm, message: self.sent.append((vm, message)))

    def ask(self, command: str, **arguments: Any) -> Any:
        return self.shelf.answer(Request(command, arguments), ["vm2", "vm1"])

    def tell(self, now_ns: int, *vms: str) -> None:
        """What it says by itself at that time."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(package_shelf, "monotonic_ns", lambda: monotonic_ns() + now_ns)
            self.shelf.tick(vms or ("vm1", "vm2"))

    def data(self, command: str, **arguments: Any) -> Any:
        reply = self.ask(command, **arguments)
        assert reply.error is None, reply.error
        return reply.data

    def error(self, command: str, **arguments: Any) -> str:
        reply = self.ask(command, **arguments)
        assert reply is not None and reply.error is not None, reply
        return str(reply.error[2])

    def put(self) -> None:
        for at in range(0, len(WHOLE), PART_BYTES):
            self.data("package_put", digest=DIGEST, offset=at, data=WHOLE[at : at + PART_BYTES])


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path / "packages")
    yield made
    made.shelf.close()


def test_what_was_brought_whole_is_offered_to_every_vm_and_sent_to_those_that_ask(asked: Asked) -> None:
    asked.put()
    stands = asked.data("package_at", digest=DIGEST)
    assert stands["size"] == len(WHOLE) and [vm["vm"] for vm in stands["vms"]] == ["vm1", "vm2"]
    assert asked.sent == [("vm1", PackageOffer(DIGEST)), ("vm2", PackageOffer(DIGEST))]
    assert asked.shelf.heard(PackageAt("vm1", 1, DIGEST, PART_BYTES)) == ""
    assert asked.sent[-1] == ("vm1", PackagePart(DIGEST, PART_BYTES, WHOLE[PART_BYTES : 2 * PART_BYTES]))
    assert asked.shelf.heard(PackageAt("vm1", 1, DIGEST, len(WHOLE), busy=True)) == ""
    assert asked.data("package_at", digest=DIGEST)["vms"][0]["busy"]
    asked.shelf.heard(PackageAt("vm1", 1, DIGEST, len(WHOLE), whole=True))
    asked.shelf.heard(PackageAt("vm2", 1, DIGEST, refused="no"))
    vms = asked.data("package_at", digest=DIGEST)["vms"]
    assert vms[0]["whole"] and vms[1]["refused"] == "no" and len(asked.sent) == 3


def test_it_is_taken_up_by_a_shelf_of_a_later_life(asked: Asked) -> None:
    asked.data("package_put", digest=DIGEST, offset=0, data=WHOLE[:PART_BYTES])
    asked.shelf.close()
    later = Asked(asked.folder)
    assert later.data("package_put", digest=DIGEST) == {"digest": DIGEST, "taken": PART_BYTES, "whole": False}
    later.put()
    assert later.data("package_put", digest=DIGEST)["whole"]
    later.shelf.close()


def test_a_vm_that_asks_for_what_is_not_here_gets_nothing_and_that_is_said(asked: Asked) -> None:
    assert "not here" in asked.shelf.heard(PackageAt("vm1", 1, DIGEST, 0))
    assert "not here" in asked.shelf.heard(PackageAt("vm1", 1, "../../x", 0)) and asked.sent == []
    asked.put()
    assert asked.shelf.heard(PackageAt("vm1", 1, DIGEST, 1 << 60)) == ""
    assert asked.sent == [("vm1", PackagePart(DIGEST, 1 << 60, b""))]


def test_only_what_is_whole_can_be_submitted_and_not_with_folders(asked: Asked) -> None:
    asked.data("package_put", digest=DIGEST, offset=0, data=WHOLE[:PART_BYTES])
    assert "has no package" in asked.error("submit", package=DIGEST)
    assert "has no package" in asked.error("package_at", digest=DIGEST)
    asked.put()
    assert "not from both" in asked.error("submit", package=DIGEST, user_paths=["/x"])
    assert asked.ask("submit", package=DIGEST) is None, "the core's matter"
    assert asked.ask("submit", user_paths=["/x"]) is None and asked.ask("status") is None


def test_whoever_can_be_asked_from_elsewhere_takes_no_folders(tmp_path: Path) -> None:
    far = Asked(tmp_path / "packages", folders=False)
    assert "not from folders" in far.error("submit", user_paths=["/x"])
    assert far.ask("submit", user_paths=[]) is None
    assert not (tmp_path / "packages").exists()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"digest": None}, {"digest": 7}, {"digest": ".."}, {"digest": "A" * 64}, {"digest": ["a" * 64]}],
)
def test_arguments_that_make_no_sense_reach_no_disk(asked: Asked, arguments: dict[str, Any]) -> None:
    for command in ("package_put", "package_at", "submit"):
        if command != "submit" or arguments.get("digest"):
            renamed = {"package": arguments.get("digest")} if command == "submit" else arguments
            assert asked.error(command, **renamed)
    assert not asked.folder.exists() or [path.name for path in asked.folder.iterdir()] == ["parts"]


def test_bytes_that_are_no_bytes_change_nothing(asked: Asked) -> None:
    for offset, data in (("0", b"x"), (0, "text"), (None, None), (0, [1]), (-1, b"x"), (1 << 70, b"x")):
        assert asked.data("package_put", digest=DIGEST, offset=offset, data=data)["taken"] == 0


def test_whatever_bytes_a_part_holds_it_is_a_command_that_is_taken() -> None:
    for byte in range(256):
        part = {"digest": DIGEST, "offset": 1 << 40, "data": bytes([byte]) * BROUGHT_BYTES}
        data = channels.encode(Request("package_put", part))
        channels.weigh(data)
        assert len(data) <= channels.REQUEST_MAX_BYTES


def test_a_disk_that_takes_nothing_is_an_answer(asked: Asked) -> None:
    asked.folder.write_bytes(b"")
    assert "cannot keep the package" in asked.error("package_put", digest=DIGEST)
    assert "cannot be read" in asked.shelf.heard(PackageAt("vm1", 1, DIGEST, 0))
