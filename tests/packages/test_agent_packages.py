"""An agent and its packages, without processes: whom it believes, what it keeps, what it says."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from package_made import KEY, digest_of, package_of

from headgate.agent.core.package_state import AGAIN_NS, FETCHED_MOST, REFUSED_NS, PackageFetch
from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.slots.agent_packages import Packages
from headgate.controller.monitor.package_shipping import ASKED_NS, OFFER_EVERY_NS, PARTS_A_SECOND, Shipping
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Task, Topology, document_of
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_files import keep_whole
from headgate.topology_runtime.keys.keyring import KeyFile
from headgate.topology_runtime.packages.package_manifest import TOPOLOGY
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import (
    PART_BYTES,
    DesiredState,
    PackageAt,
    PackageOffer,
    PackagePart,
    TaskCode,
    ThreadSpec,
    Token,
)

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


def test_a_package_of_one_part_is_of_a_trusted_signer_too(tmp_path: Path) -> None:
    """It is whole before anybody could look who signed it."""
    small = package_of(FILES)
    assert len(small) < PART_BYTES
    stranger = Host(tmp_path / "vm1", signers=("ab" * 32,))
    said = stranger.fetch(small, digest_of(small))
    assert f"key {KEY.public} signed it" in said.refused and not said.whole
    assert stranger.local(desired(package=digest_of(small))) is None


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


# ── An agent fetches and a controller offers, as functions of events and times; and both over a link that
# loses


def test_it_asks_for_the_next_part_at_once_and_for_the_same_again_a_second_later() -> None:
    fetch = PackageFetch("vm1", 7)
    assert fetch.want("d", 0)
    assert fetch.due(0) == [PackageAt("vm1", 7, "d", 0)]
    assert fetch.due(AGAIN_NS - 1) == []
    assert fetch.due(AGAIN_NS) == [PackageAt("vm1", 7, "d", 0)]
    assert fetch.wanted("d", 0) and not fetch.wanted("d", 10) and not fetch.wanted("e", 0)
    fetch.has("d", 10, AGAIN_NS + 5)
    assert fetch.due(AGAIN_NS + 5) == [PackageAt("vm1", 7, "d", 10)]
    assert not fetch.want("d", AGAIN_NS + 6), "it is under way"
    assert fetch.due(AGAIN_NS + 6) == []


def test_how_it_ended_is_said_once_and_again_with_each_offer() -> None:
    fetch = PackageFetch("vm1", 7)
    fetch.want("d", 0)
    fetch.has("d", 30, 5, whole=True)
    whole = PackageAt("vm1", 7, "d", 30, whole=True)
    assert fetch.due(5) == [whole] and fetch.due(100 * NS) == [] and fetch.here == {"d"}
    fetch.want("d", 101 * NS)
    assert fetch.due(101 * NS) == [whole] and not fetch.wanted("d", 30)


def test_what_is_refused_is_tried_afresh_after_a_while() -> None:
    fetch = PackageFetch("vm1", 7)
    fetch.want("d", 0)
    fetch.refuse("d", "no", 5)
    assert fetch.due(5) == [PackageAt("vm1", 7, "d", refused="no")] and fetch.refusal("d") == "no"
    assert not fetch.want("d", 6) and not fetch.wanted("d", 0)
    assert fetch.want("d", 5 + REFUSED_NS) and fetch.refusal("d") == ""


def test_of_too_many_the_oldest_is_forgotten() -> None:
    fetch = PackageFetch("vm1", 7)
    for n in range(FETCHED_MOST + 1):
        fetch.want(str(n), n)
    assert fetch.under_way == {str(n) for n in range(1, FETCHED_MOST + 1)}
    fetch.has("0", 99, 9)
    fetch.refuse("0", "no", 9)
    assert "0" not in fetch.under_way


def test_it_is_offered_as_long_as_somebody_asks() -> None:
    shipping = Shipping()
    assert shipping.offers(["vm1"], 0) == []
    shipping.asked("d", 0)
    assert shipping.offers(["vm2", "vm1"], 0) == [("vm1", "d"), ("vm2", "d")]
    assert shipping.offers(["vm2", "vm1"], 1) == []
    shipping.heard(PackageAt("vm1", 1, "d", 9, whole=True), 2)
    shipping.heard(PackageAt("vm2", 1, "d", 3), 2)
    assert shipping.offers(["vm1", "vm2"], OFFER_EVERY_NS) == [("vm2", "d")]
    assert shipping.stands("d", ["vm1", "vm3"])["vm3"] is None
    assert shipping.kept == {"d"}
    assert shipping.offers(["vm1", "vm2"], ASKED_NS) == [] and shipping.kept == frozenset()


def test_a_vm_that_asks_without_end_gets_so_much_a_second() -> None:
    shipping = Shipping()
    sent = sum(shipping.heard(PackageAt("vm1", 1, "d", n), n * NS // 1000) for n in range(10_000))
    assert PARTS_A_SECOND * 10 <= sent <= PARTS_A_SECOND * 11
    assert shipping.heard(PackageAt("vm2", 1, "d", 0), 10 * NS), "another VM is not kept from its own"


def test_what_is_settled_is_sent_nothing() -> None:
    shipping = Shipping()
    assert not shipping.heard(PackageAt("vm1", 1, "d", 9, whole=True), 0)
    assert not shipping.heard(PackageAt("vm1", 1, "d", refused="no"), 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 40))
def test_over_a_link_that_loses_doubles_and_delays_all_of_it_comes_once(
    seed: int, loss: int, parts: int
) -> None:
    """The controller's side forgets everything in the middle, as a restart does."""
    chance, size, now = random.Random(seed), 100 * parts, 0
    fetch, shipping, got, way = PackageFetch("vm1", 1), Shipping(), 0, []
    shipping.asked("d", 0)
    for turn in range(20_000):
        now += NS // 50
        if turn == 50:
            shipping = Shipping()
        shipping.asked("d", now)
        sends: list[tuple[str, int]] = [("offer", 0) for _ in shipping.offers(["vm1"], now)]
        for said in fetch.due(now):
            if chance.randrange(100) >= loss and shipping.heard(said, now):
                sends.append(("part", said.taken))
        for one in sends:
            if chance.randrange(100) >= loss:
                way += [(now + chance.randrange(NS), one)] * chance.choice((1, 1, 2))
        for due, (kind, at) in sorted(way):
            if due <= now and kind == "offer":
                fetch.want("d", now)
            elif due <= now and fetch.wanted("d", at):
                assert at == got, "a part that was not asked for was taken"
                got = min(size, got + 100)
                fetch.has("d", got, now, whole=got == size)
        way = [one for one in way if one[0] > now]
        said_whole = shipping.stands("d", ["vm1"])["vm1"]
        if said_whole is not None and said_whole.whole:
            assert got == size
            return
    raise AssertionError(f"{got} of {size} came")
