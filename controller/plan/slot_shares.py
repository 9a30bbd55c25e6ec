"""Which slots of a cluster belong to which of its topologies. Pure; the same claims give the same shares.

How many: topologies of a higher priority come first, each as far as its need and its quota go. Within one priority
slots are shared by weighted max-min fairness (Bertsekas and Gallager, Data Networks, 2nd edition, section 6.5.2, by
whole slots): the next slot goes to whoever has fewest for its weight and needs another. Whoever runs keeps a slot
whatever comes (`floor`): nothing runs without one. What nobody needs is lent out in the same way, whatever the
priorities, as far as quotas go: a topology may plan with it at once, and loses it first.

Which: whoever has slots keeps them as far as the number goes. What is taken back is idle if possible, and nobody else
gets it before it is empty: as long as somebody holds it, it is not free.

    >>> claims = [Claim("a", needs=3), Claim("b", needs=9, quota=4)]
    >>> counts(6, claims)
    {'a': Count(needed=3, lent=0), 'b': Count(needed=3, lent=0)}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import NAME, counted

PRIORITY_MOST, WEIGHT_MOST = 1000, 1000
NO_QUOTA = 1 << 30
NAMED_MOST = 10_000


def slots_named(told: Any) -> tuple[Slot, ...]:
    """The slots that a peer or a file names: `["vm1/0", …]`, each once, in order. Raises InvalidInput with every fault.

    >>> slots_named(["vm1/10", "vm1/9"])
    (Slot(vm='vm1', number=9), Slot(vm='vm1', number=10))
    """
    if not isinstance(told, list | tuple) or len(told) > NAMED_MOST:
        raise InvalidInput(f"slots must be a list of at most {NAMED_MOST} names such as vm1/0")
    found, faults = set[Slot](), []
    for name in told:
        vm, _, number = str(name).rpartition("/")
        if NAME.fullmatch(vm) and number.isdecimal() and len(number) <= 4:
            found.add(Slot(vm, int(number)))
        else:
            faults.append(f"{name!r:.80} is no slot such as vm1/0")
    if faults:
        raise InvalidInput("invalid slots", faults=faults)
    return tuple(sorted(found))


class Claim(msgspec.Struct, frozen=True):
    """What one topology asks for. needs: slots that its rate takes. priority: higher comes first. weight: its part
    within its priority. quota: slots at most. floor: so many come before all priorities."""

    name: str
    needs: int
    priority: int = 0
    weight: int = 1
    quota: int = NO_QUOTA
    floor: int = 0


class Count(msgspec.Struct, frozen=True):
    """Slots that a topology gets: those it needs, and those nobody needs."""

    needed: int
    lent: int

    @property
    def total(self) -> int:
        return self.needed + self.lent


class Shares(msgspec.Struct, frozen=True):
    """counts: by topology. granted: slots that each may use from now on. withdrawn: slots that their holders are to
    empty; nobody may use them before they are."""

    counts: dict[str, Count]
    granted: dict[str, tuple[Slot, ...]]
    withdrawn: tuple[Slot, ...]


def counts(
    total: int, claims: Collection[Claim], having: Mapping[str, int] | None = None
) -> dict[str, Count]:
    """How many of `total` slots each gets. having: slots of each now, which decides between equals."""
    held = having or {}
    ranks = sorted({claim.priority for claim in claims}, reverse=True)
    needed = dict.fromkeys((claim.name for claim in claims), 0)
    for part in (
        lambda claim: min(claim.floor, claim.needs, claim.quota),
        lambda claim: min(claim.needs, claim.quota),
    ):
        for rank in ranks:
            asking = [claim for claim in claims if claim.priority == rank]
            needed |= _fairly(total - sum(needed.values()), asking, part, needed, held)
    lent = _fairly(
        total - sum(needed.values()),
        claims,
        lambda claim: claim.quota - needed[claim.name],
        {},
        {name: have - needed.get(name, 0) for name, have in held.items()},
    )
    return {claim.name: Count(needed[claim.name], lent[claim.name]) for claim in claims}


def _fairly(
    free: int,
    claims: Collection[Claim],
    limit: Callable[[Claim], int],
    before: Mapping[str, int],
    held: Mapping[str, int],
) -> dict[str, int]:
    """Weighted max-min, slot by slot: everybody has one before anybody has two for the same weight."""
    given = {claim.name: before.get(claim.name, 0) for claim in claims}

    def turn(claim: Claim) -> tuple[Fraction, int, int, bool, str]:
        so_far = given[claim.name]
        keeps = so_far < held.get(claim.name, 0)
        return Fraction(so_far, claim.weight), -claim.weight, -claim.priority, not keeps, claim.name

    for _ in range(free):
        asking = [claim for claim in claims if given[claim.name] < limit(claim)]
        if not asking:
            break
        given[min(asking, key=turn).name] += 1
    return given


def shares(
    slots: Sequence[Slot], claims: Collection[Claim], held: Mapping[Slot, str], used: Collection[Slot] = ()
) -> Shares:
    """Who gets what of `slots`. held: slots with whoever has them, or has not emptied them yet (also some that are no
    more among `slots`, and of topologies that claim nothing). used: slots with threads, which are taken back last."""
    there = set(slots)
    mine = {
        claim.name: [slot for slot, name in held.items() if name == claim.name and slot in there]
        for claim in claims
    }
    found = counts(len(there), claims, {name: len(has) for name, has in mine.items()})
    granted: dict[str, list[Slot]] = {}
    for name, has in mine.items():
        granted[name] = _kept(has, found[name].total, frozenset(used))
    free = sorted(there - held.keys())
    for claim in sorted(claims, key=lambda claim: (-claim.priority, claim.name)):
        has = granted[claim.name]
        lacks = found[claim.name].total - len(has)
        chosen = _chosen(free, has, lacks)
        has.extend(chosen)
        free = [slot for slot in free if slot not in chosen]
    stays = {slot for has in granted.values() for slot in has}
    return Shares(
        found,
        {name: tuple(sorted(has)) for name, has in granted.items()},
        tuple(sorted(held.keys() - stays)),
    )


def _kept(has: Iterable[Slot], most: int, used: frozenset[Slot]) -> list[Slot]:
    """The slots in use first, then those on VMs where most of them are: rows stay within few VMs."""
    slots = list(has)
    on = _by_vm(slots)
    return sorted(slots, key=lambda slot: (slot not in used, -on[slot.vm], slot))[:most]


def _chosen(free: Sequence[Slot], has: Sequence[Slot], lacks: int) -> list[Slot]:
    """Slots on VMs where it has some already, then on those where most are free."""
    mine, there = _by_vm(has), _by_vm(free)
    order = sorted(free, key=lambda slot: (-mine.get(slot.vm, 0), -there[slot.vm], slot))
    return order[: max(0, lacks)]


def _by_vm(slots: Iterable[Slot]) -> dict[str, int]:
    found: dict[str, int] = {}
    for slot in slots:
        found[slot.vm] = found.get(slot.vm, 0) + 1
    return found


def why_fewer(name: str, claims: Collection[Claim], total: int, found: Mapping[str, Count]) -> str:
    """Why this topology gets fewer slots than it needs, in words; empty when it does not.

    >>> claims = [Claim("a", needs=6), Claim("b", needs=4, priority=2)]
    >>> why_fewer("a", claims, 8, counts(8, claims))
    'needs 6 slots, gets 4: b has priority 2'
    """
    claim = next(claim for claim in claims if claim.name == name)
    gets = found[name].needed
    if gets >= claim.needs:
        return ""
    words = f"needs {counted(claim.needs, 'slot')}, gets {gets}: "
    if gets >= claim.quota:
        return f"{words}its quota is {claim.quota}"
    first = [one for one in claims if one.priority > claim.priority and found[one.name].needed]
    if first:
        return words + ", ".join(
            f"{one.name} has priority {one.priority}" for one in sorted(first, key=_by_priority)
        )
    rivals = [one for one in claims if one is not claim and one.priority == claim.priority]
    rivals = sorted((one for one in rivals if found[one.name].needed), key=_by_priority)
    if rivals:
        parts = ", ".join(f"{one.name} has {found[one.name].needed} (weight {one.weight})" for one in rivals)
        return f"{words}{parts}, of {counted(total, 'slot')} in all"
    return f"{words}the cluster has {counted(total, 'slot')}"


def _by_priority(claim: Claim) -> tuple[int, str]:
    return -claim.priority, claim.name
