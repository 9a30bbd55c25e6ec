"""An agent fetches and a controller offers, as functions of events and times; and both over a link that loses."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agent.package_fetch import AGAIN_NS, FETCHED_MOST, REFUSED_NS, PackageFetch
from headgate.controller.monitor.shipping import ASKED_NS, OFFER_EVERY_NS, PARTS_A_SECOND, Shipping
from headgate.topology_runtime.packages.wire import PackageAt

NS = 1_000_000_000


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
