"""Slots shared out among topologies: what holds for any claims, and small cases that can be checked by hand."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.plan.slot_shares import NO_QUOTA, Claim, Shares, counts, shares, why_fewer
from headgate.topology_runtime.api.cluster import Slot

NAMES = ("a", "b", "c", "d")


def cluster(*sizes: int) -> list[Slot]:
    return [Slot(f"vm{vm}", number) for vm, size in enumerate(sizes, 1) for number in range(size)]


claims_made = st.lists(
    st.builds(
        Claim,
        name=st.sampled_from(NAMES),
        needs=st.integers(0, 12),
        priority=st.integers(0, 2),
        weight=st.integers(1, 3),
        quota=st.one_of(st.integers(1, 6), st.just(NO_QUOTA)),
        floor=st.integers(0, 1),
    ),
    unique_by=lambda claim: claim.name,
    max_size=4,
)
clusters_made = st.lists(st.integers(1, 5), max_size=3).map(lambda sizes: cluster(*sizes))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Slot], list[Claim], dict[Slot, str], set[Slot]]:
    """Slots, claims, who holds which of them (and one that is gone), and which are in use."""
    slots, claims = draw(clusters_made), draw(claims_made)
    held = {
        slot: draw(st.sampled_from((*NAMES, "gone")))
        for slot in (*slots, Slot("lost", 0))
        if draw(st.booleans())
    }
    return slots, claims, held, {slot for slot in held if draw(st.booleans())}


@given(worlds())
def test_no_slot_belongs_to_two_or_to_somebody_before_its_holder_has_emptied_it(world) -> None:  # type: ignore[no-untyped-def]
    slots, claims, held, used = world
    found = shares(slots, claims, held, used)
    granted = [(slot, name) for name, has in found.granted.items() for slot in has]
    assert len({slot for slot, _ in granted}) == len(granted)
    assert all(slot in slots and held.get(slot, name) == name for slot, name in granted)
    assert set(found.withdrawn) == held.keys() - {slot for slot, _ in granted}


@given(st.integers(0, 14), claims_made)
def test_needs_are_met_while_slots_are_free_and_no_quota_is_exceeded(total: int, claims: list[Claim]) -> None:
    found = counts(total, claims)
    assert sum(count.total for count in found.values()) <= total
    assert all(found[claim.name].total <= claim.quota for claim in claims)
    wanting = [claim for claim in claims if found[claim.name].needed < min(claim.needs, claim.quota)]
    assert not wanting or sum(count.needed for count in found.values()) == total
    below_quota = [claim for claim in claims if found[claim.name].total < claim.quota]
    assert not below_quota or sum(count.total for count in found.values()) == total, "none lies idle"


@given(st.integers(0, 14), claims_made)
def test_a_higher_priority_is_served_first_and_equals_by_weight(total: int, claims: list[Claim]) -> None:
    found = counts(total, claims)
    for one in claims:
        lacks = found[one.name].needed < min(one.needs, one.quota)
        for other in claims:
            has = found[other.name].needed
            if lacks and other.priority < one.priority:
                assert has <= other.floor, "somebody below has what one above needs"
            if lacks and has > other.floor and other.priority == one.priority:
                mine = Fraction(found[one.name].needed, one.weight)
                assert Fraction(has - 1, other.weight) <= mine, "a slot fewer there would be fairer"


@given(worlds())
def test_nothing_moves_that_need_not(world) -> None:  # type: ignore[no-untyped-def]
    slots, claims, held, used = world
    found = shares(slots, claims, held, used)
    for claim in claims:
        has = {slot for slot, name in held.items() if name == claim.name and slot in slots}
        kept, gets = has & set(found.granted[claim.name]), found.counts[claim.name].total
        assert len(kept) == min(len(has), gets)
        assert has - kept == set() or not (has - kept) & used or kept <= used, (
            "idle slots are taken back first"
        )
    again = {slot: name for name, kept in found.granted.items() for slot in kept}
    claimed = {claim.name for claim in claims}
    if not set(held.values()) - claimed and not found.withdrawn:
        settled = shares(slots, claims, again, used)
        assert settled.granted == found.granted and not settled.withdrawn


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_claims_and_slots_says_nothing(world, chance) -> None:  # type: ignore[no-untyped-def]
    slots, claims, held, used = world
    others = chance.sample(slots, len(slots)), chance.sample(claims, len(claims))
    assert shares(*others, held, used).granted == shares(slots, claims, held, used).granted


def totals(found: Shares) -> dict[str, int]:
    return {name: len(has) for name, has in found.granted.items()}


def test_a_slot_is_given_on_once_it_is_empty_and_not_before() -> None:
    slots = cluster(2, 2)
    low = Claim("low", needs=4)
    alone = shares(slots, [low], {})
    assert totals(alone) == {"low": 4}
    held = dict.fromkeys(alone.granted["low"], "low")
    both = [low, Claim("high", needs=2, priority=5)]
    first = shares(slots, both, held, used=held)
    assert totals(first) == {"low": 2, "high": 0} and len(first.withdrawn) == 2
    emptied = {slot: "low" for slot in first.granted["low"]}
    then = shares(slots, both, emptied, used=emptied)
    assert totals(then) == {"low": 2, "high": 2} and set(then.granted["high"]) == set(first.withdrawn)
    assert len({slot.vm for slot in then.granted["high"]}) == 1, "on one VM, as they came free there"


def test_slots_that_nobody_needs_are_lent_and_come_back_to_whoever_needs_them() -> None:
    claims = [Claim("a", needs=1), Claim("b", needs=1)]
    assert {name: count.lent for name, count in counts(8, claims).items()} == {"a": 3, "b": 3}
    claims = [Claim("a", needs=1, priority=9), Claim("b", needs=7)]
    assert counts(8, claims)["b"].needed == 7, "what is lent to a higher priority is no need of it"


def test_whoever_gets_fewer_is_told_why() -> None:
    def told(total: int, *claims: Claim) -> str:
        return why_fewer("a", claims, total, counts(total, claims))

    assert (
        told(8, Claim("a", 6), Claim("b", 9))
        == "needs 6 slots, gets 4: b has 4 (weight 1), of 8 slots in all"
    )
    assert told(3, Claim("a", 6), Claim("b", 3, priority=1)) == "needs 6 slots, gets 0: b has priority 1"
    assert told(8, Claim("a", 6, quota=2)) == "needs 6 slots, gets 2: its quota is 2"
    assert told(4, Claim("a", 6)) == "needs 6 slots, gets 4: the cluster has 4 slots"
    assert told(8, Claim("a", 6)) == ""


def test_equals_share_by_weight_and_everybody_begins() -> None:
    def needed(total: int, *claims: Claim) -> list[int]:
        return [count.needed for count in counts(total, claims).values()]

    assert needed(8, Claim("a", 8, weight=3), Claim("b", 8)) == [6, 2]
    assert needed(2, Claim("a", 8, weight=100), Claim("b", 8)) == [1, 1]
    assert needed(8, Claim("a", 1, weight=3), Claim("b", 8), Claim("c", 8)) == [1, 4, 3], (
        "what a leaves is shared"
    )
    assert needed(2, Claim("a", 8, floor=1), Claim("b", 8, priority=9)) == [1, 1], "whoever runs keeps a slot"


def test_idle_slots_are_taken_back_before_those_in_use() -> None:
    slots = cluster(2, 2)
    used = {Slot("vm1", 1), Slot("vm2", 0)}
    found = shares(slots, [Claim("a", 2), Claim("b", 2)], dict.fromkeys(slots, "a"), used)
    assert set(found.granted["a"]) == used and set(found.withdrawn) == set(slots) - used
