"""An agent and its packages, without processes: whom it believes, what it keeps, what it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from package_made import KEY, digest_of, package_of

from headgate.agent.config import AgentConfig
from headgate.agent.packages import Packages
from headgate.topology_runtime import channels
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.curve import new_pair
from headgate.topology_runtime.keys.keyring import KeyFile, keep_whole
from headgate.topology_runtime.messages import DesiredState, ThreadSpec, Token
from headgate.topology_runtime.packages.params import TOPOLOGY
from headgate.topology_runtime.packages.wire import PART_BYTES, PackageAt, PackageOffer, PackagePart
from headgate.topology_runtime.reading import document_of
from headgate.topology_runtime.task_code import TaskCode
from headgate.topology_runtime.topology import Task, Topology

NS = 1_000_000_000
FLOW = Topology("flow", (Task("read", run="words:Read", kind="source", params={"path": "package:a.txt"}),))
FILES = {"words.py": b"x = 1\n", "a.txt": b"1", TOPOLOGY: msgspec.json.encode(document_of(FLOW))}
WHOLE = package_of({**FILES, "large.bin": os.urandom(2 * PART_BYTES)})
DIGEST = digest_of(WHOLE)
OTHER = package_of({**FILES, "words.py": b"x = 2\n"})


MADE: list[Packages] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while MADE:
        MADE.pop().close()


class Host:
    """An agent's packages, and what they have said; `controller` answers from `packages`."""

    def __init__(self, root: Path, signers: tuple[str, ...] = (KEY.public,), **options: Any) -> None:
        root.mkdir(exist_ok=True)
        pair = new_pair()
        if not (root / "key").exists():
            keep_whole(root / "key", KeyFile("agent", "vm1", pair.public, pair.secret, pair.public, signers))
        config = AgentConfig("tcp://h:1", "vm1", 1, 1.0, 2**30, str(root), key=str(root / "key"), **options)
        self.said: list[PackageAt] = []
        self.own = Packages(config, 1, self.said.append)
        MADE.append(self.own)
        self.now_ns = 0
        self.store = root / "packages"

    def hear(self, message: PackageOffer | PackagePart) -> None:
        self.now_ns += 1
        self.own.hear(message, self.now_ns)

    def fetch(self, data: bytes = WHOLE, digest: str = DIGEST) -> PackageAt:
        """Give it what it asks for until it asks no more."""
        self.hear(PackageOffer(digest))
        for _ in range(100):
            last = self.said[-1]
            if last.whole or last.refused:
                return last
            self.hear(PackagePart(digest, last.taken, data[last.taken : last.taken + PART_BYTES]))
        raise AssertionError(self.said)

    def local(self, desired: DesiredState) -> DesiredState | None:
        self.now_ns += NS
        found = self.own.local(desired, channels.encode(desired), self.now_ns)
        if found is None:
            return None
        assert channels.decode(channels.from_controller, found[1]) == found[0]
        return found[0]


def desired(topology: Topology = FLOW, counter: int = 1, **more: Any) -> DesiredState:
    return DesiredState(
        Token(1, 1, counter), "committed", "run", topology, ("/controllers",), (), 1, (), **more
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "vm1")


def test_it_fetches_what_is_desired_and_obeys_with_its_own_folders(host: Host) -> None:
    assert host.local(desired(package=DIGEST)) is None
    assert host.said[-1] == PackageAt("vm1", 1, DIGEST)
    host.fetch()
    here = host.local(desired(package=DIGEST))
    assert here is not None
    code = host.store / DIGEST / "code"
    assert here.user_paths == (str(code),), "not the controller's"
    assert here.topology.tasks[0].params == {"path": f"{code}/a.txt"} and here.token == Token(1, 1, 1)
    assert Path(here.topology.tasks[0].params["path"]).read_bytes() == b"1"


def older_too(package: str, *vms: str) -> DesiredState:
    """Code 1 in DIGEST; threads on these VMs still run code 0 in `package`."""
    threads = tuple(ThreadSpec(n, "read", Slot(vm, 0)) for n, vm in enumerate(vms))
    older = (TaskCode(0, FLOW, ("/controllers",), package),)
    return replace(desired(package=DIGEST), threads=threads, code=1, older=older)


def test_older_code_that_is_run_here_is_fetched_and_placed_too(host: Host) -> None:
    host.fetch()
    both = older_too(digest_of(OTHER), "vm1", "vm2")
    assert host.local(both) is None, "half of it"
    host.fetch(OTHER, digest_of(OTHER))
    here = host.local(both)
    assert here is not None and here.user_paths == (str(host.store / DIGEST / "code"),)
    (older,) = here.older
    code = host.store / digest_of(OTHER) / "code"
    assert older.user_paths == (str(code),) and older.topology.tasks[0].params == {"path": f"{code}/a.txt"}


def test_older_code_that_is_run_elsewhere_is_not_asked_for(host: Host) -> None:
    host.fetch()
    here = host.local(older_too(digest_of(OTHER), "vm2"))
    assert here is not None and here.older == ()


def test_older_code_from_folders_is_not_run_where_code_is_signed(host: Host) -> None:
    host.fetch()
    assert host.local(older_too("", "vm1")) is None and "signed packages only" in host.own.troubles()[0]


def test_after_a_restart_nothing_is_fetched_again(host: Host, tmp_path: Path) -> None:
    host.fetch()
    host.own.close()
    again = Host(tmp_path / "vm1")
    assert again.local(desired(package=DIGEST)) is not None
    assert [said.whole for said in again.said] == [True]


def test_a_topology_that_was_not_signed_is_not_obeyed(host: Host) -> None:
    host.fetch()
    for n, other in enumerate(
        (
            Topology(
                "flow", (Task("read", run="os:system", kind="source", params={"path": "package:a.txt"}),)
            ),
            Topology(
                "flow", (Task("read", run="words:Read", kind="source", params={"path": "/etc/shadow"}),)
            ),
        )
    ):
        assert host.local(desired(other, n + 2, package=DIGEST)) is None
        assert "vm1 does not take package" in host.own.troubles()[0] and "signed" in host.own.troubles()[0]
    host.now_ns += 60 * NS
    assert host.local(desired(counter=9, package=DIGEST)) is not None and host.own.troubles() == ()


def test_a_package_without_topology_is_not_run(host: Host) -> None:
    data = package_of({"words.py": b""})
    assert host.fetch(data, digest_of(data)).whole
    assert host.local(desired(package=digest_of(data))) is None
    assert "holds no topology" in host.own.troubles()[0]


def test_who_trusts_signers_runs_no_folders_unless_it_is_told_to(host: Host, tmp_path: Path) -> None:
    assert host.own.only_signed and host.local(desired()) is None
    assert "signed packages only" in host.own.troubles()[0]
    told = Host(tmp_path / "vm2", allow_folders=True)
    assert not told.own.only_signed and told.local(desired()) == desired() and told.own.troubles() == ()
    nobody = Host(tmp_path / "vm3", signers=())
    assert nobody.local(desired()) == desired(), "as `up` does"


def test_of_a_signer_that_is_not_trusted_it_takes_one_part_and_keeps_nothing(tmp_path: Path) -> None:
    for vm, signers in (("other", ("00" * 32,)), ("nobody", ())):
        host = Host(tmp_path / vm, signers)
        refused = host.fetch().refused
        assert refused.startswith(f"vm1 does not take package {DIGEST[:12]}: key {KEY.public} signed it")
        assert len(host.said) == 2 and [p.name for p in host.store.rglob("*")] == ["parts"]
        assert host.local(desired(package=DIGEST)) is None and host.own.troubles() == (refused,)


def test_trust_that_was_taken_away_holds_for_what_is_here_already(host: Host, tmp_path: Path) -> None:
    host.fetch()
    host.own.close()
    (tmp_path / "vm1" / "key").unlink()
    later = Host(tmp_path / "vm1", ("00" * 32,))
    assert later.local(desired(package=DIGEST)) is None and "trusts other signers" in later.own.troubles()[0]


def test_parts_that_nobody_asked_for_reach_no_disk(host: Host) -> None:
    host.hear(PackagePart(DIGEST, 0, WHOLE[:PART_BYTES]))
    assert host.said == [] and not host.store.exists()
    host.hear(PackageOffer(DIGEST))
    host.hear(PackagePart(DIGEST, PART_BYTES, WHOLE[PART_BYTES:]))
    host.hear(PackagePart(DIGEST, 0, b""))
    assert [said.taken for said in host.said] == [0]


def test_what_cannot_be_there_is_refused_and_tried_again_when_it_is_offered_later(host: Host) -> None:
    refused = host.fetch(WHOLE[:700] + b"x" * 10_000)
    assert refused.refused and list((host.store / "parts").iterdir()) == []
    host.hear(PackageOffer(DIGEST))
    assert host.said[-1] == refused
    host.now_ns += 60 * NS
    assert host.fetch().whole


@pytest.mark.parametrize("digest", ["", "..", "../../x", "x" * 64, "a" * 63, "a" * 64 + "\0"])
def test_names_that_are_none_reach_no_file(host: Host, digest: str, tmp_path: Path) -> None:
    host.hear(PackageOffer(digest))
    assert host.said[-1].refused
    host.hear(PackagePart(digest, 0, WHOLE))
    if digest:
        assert host.local(desired(package=digest)) is None
    assert sorted(p.name for p in host.store.rglob("*")) == ["parts"]


def test_a_disk_that_takes_nothing_is_said(host: Host) -> None:
    host.store.write_bytes(b"")  # a file where the folder is to be
    host.hear(PackageOffer(DIGEST))
    assert "it cannot be kept" in host.said[-1].refused
