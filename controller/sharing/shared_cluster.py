"""What is known of a cluster that several topologies share, and what each may use next. Pure.

Each topology has a controller of its own; each VM an agent for each of them. A slot belongs to one topology from when
it is granted until that topology's controller says that it is empty, or the topology is over and no agent of it is left
on the VM. Both are written down before anybody is told, so that no slot is ever used by two, whoever dies when.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.plan.slot_shares import (
    NO_QUOTA,
    PRIORITY_MOST,
    WEIGHT_MOST,
    Claim,
    Count,
    shares,
    slots_named,
    why_fewer,
)
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.wording import NAME, did_you_mean, name_faults

NS = 1_000_000_000
HEARD_NS = 10 * NS  # a VM that says nothing for so long has no slots to give
TOPOLOGIES_MOST, SLOTS_MOST = 64, 1024
ENDED_KEPT = 16
SCHEMA = "headgate/topologies/v1"


class Admitted(msgspec.Struct, frozen=True):
    """A topology of the cluster. ports: of its controller, for agents, commands, the picture. over: how it ended."""

    name: str
    run: str
    priority: int = 0
    weight: int = 1
    quota: int = NO_QUOTA
    by: str = ""
    since: str = ""
    ports: tuple[int, int, int] = (0, 0, 0)
    over: str = ""


class SharedFile(msgspec.Struct, frozen=True):
    """What outlives a process. held: slot → the run it belongs to. vms: their slots."""

    topologies: tuple[Admitted, ...] = ()
    held: dict[str, str] = {}
    vms: dict[str, int] = {}
    schema: str = "headgate/shared/v1"


class RunShare(msgspec.Struct, frozen=True):
    """What a topology's controller says of itself (`core/granted_slots.py`)."""

    stage: str
    topology: str | None
    granted: tuple[str, ...] | None
    used: tuple[str, ...]
    empty: tuple[str, ...]
    needs: int
    planned_tps: float | None = None
    predicted_tps: float | None = None
    usd_per_hour: float = 0.0
    alarms: tuple[str, ...] = ()
    stays: str = ""  # why it moves nothing by itself

    @property
    def stands(self) -> str:
        """Its stage, in a word."""
        return self.stage if self.topology is not None else "waiting"


class _HeardVm(msgspec.Struct):
    at_ns: int
    agents: frozenset[str]  # runs that have an agent there
    pid: int = 0  # of the process that starts them; 0: not known


def settings_of(asked: Mapping[str, Any]) -> dict[str, int]:
    """priority, weight and quota as they were asked for. Raises InvalidInput with every fault."""
    limits = {"priority": (0, PRIORITY_MOST), "weight": (1, WEIGHT_MOST), "quota": (1, SLOTS_MOST)}
    found, faults = {}, []
    for name, (low, high) in limits.items():
        value = asked.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            faults.append(f"{name}: {value!r:.40} is not a whole number from {low} to {high}")
        else:
            found[name] = value
    if faults:
        raise InvalidInput("invalid shares", faults=faults)
    return found


class SharedCluster:
    """All topologies and VMs of a cluster."""

    def __init__(self, kept: SharedFile, now_ns: int) -> None:
        """kept: of an earlier life; its VMs count as heard now, until they prove silent."""
        self.topologies = {one.name: one for one in kept.topologies}
        self.held = {slot: kept.held[str(slot)] for slot in slots_named([*kept.held])}
        self.vms = dict(kept.vms)
        self._heard = dict.fromkeys(kept.vms, _HeardVm(now_ns, frozenset()))
        self._sure: set[str] = set()  # VMs that were heard in this life
        self._shares: dict[str, RunShare] = {}
        self.troubles: dict[str, str] = {}
        self._counts: dict[str, Count] = {}
        self._granted: dict[str, tuple[Slot, ...]] = {}
        self._claims: list[Claim] = []
        self._total = 0
        self._here: set[str] = set()  # VMs that are not silent

    def kept(self) -> SharedFile:
        held = {str(slot): run for slot, run in sorted(self.held.items())}
        return SharedFile(tuple(self.topologies.values()), held, dict(self.vms))

    # ── topologies come and go ──────────────────────────────────────────────────────────────────

    @property
    def running(self) -> list[Admitted]:
        return [one for one in self.topologies.values() if not one.over]

    def admitted(self, name: str, asked: Mapping[str, Any]) -> Admitted:
        """A new topology of this name, which is not there yet, or the one that was admitted and never submitted.
        Raises InvalidInput, Conflict."""
        if faults := list(name_faults("topology", name)):
            raise InvalidInput("there is no such name", faults=faults)
        found = settings_of(asked)
        before = self.topologies.get(name)
        if before is not None and not before.over:
            share = self._shares.get(name)
            if share is None or share.topology is not None:
                hint = f"`headgate stop {name}` ends it, `headgate replace` gives it other code"
                raise Conflict(f"a topology {name} runs here already, run {before.run}", hint=hint)
            return replace(before, **found)
        if len(self.running) >= TOPOLOGIES_MOST:
            raise Conflict(f"{TOPOLOGIES_MOST} topologies run here already", hint="stop one of them")
        return replace(Admitted(name, "", by=str(asked.get("by", ""))[:128]), **found)

    def put(self, one: Admitted) -> None:
        """The topology as it is from now on."""
        self.topologies.pop(one.name, None)
        self.topologies[one.name] = one
        if one.over:
            self._shares.pop(one.name, None)
            self.troubles.pop(one.name, None)
        over = [name for name, other in self.topologies.items() if other.over]
        for name in over[:-ENDED_KEPT]:
            del self.topologies[name]

    def named(self, name: Any) -> Admitted:
        """One that runs. Raises InvalidInput."""
        found = self.topologies.get(str(name))
        names = [one.name for one in self.running]
        if found is None:
            near = did_you_mean(str(name), names)
            text = ", ".join(names) or "none runs"
            raise InvalidInput(f"there is no topology {str(name)[:64]!r} here", hint=near or text)
        if found.over:
            raise InvalidInput(f"topology {found.name} is over: {found.over}", hint=", ".join(names) or None)
        return found

    def refuse_to_let_be(self, one: Admitted) -> None:
        """Raises Conflict unless its controller cannot run: one that is between a death and its next start goes on."""
        if one.name not in self.troubles:
            raise Conflict(
                f"the controller of {one.name} runs, or is starting",
                hint=f"`headgate stop {one.name}`, in a few seconds",
            )

    # ── what is heard ───────────────────────────────────────────────────────────────────────────

    def heard_vm(self, vm: str, slots: Any, runs: Any, now_ns: int, pid: Any = 0) -> list[Admitted]:
        """A VM says its slots, and which runs have an agent there; who shall have one. Raises InvalidInput."""
        sound = isinstance(slots, int) and not isinstance(slots, bool) and 1 <= slots <= SLOTS_MOST
        if not NAME.fullmatch(vm) or not sound or not isinstance(runs, list):
            raise InvalidInput("a VM says its slots and its agents", cause=f"{vm:.64}: {slots!r:.40}")
        self.vms[vm] = slots
        agents = [one for one in self.running if one.run]
        known = frozenset(map(str, runs)).union(one.run for one in agents)
        self._heard[vm] = _HeardVm(now_ns, known, pid if isinstance(pid, int) else 0)
        self._sure.add(vm)
        return agents

    def heard_share(self, name: str, share: RunShare | None) -> None:
        """What its controller says now; None: it is not known any more."""
        if share is None:
            self._shares.pop(name, None)
        elif name in self.topologies:
            self._shares[name] = share

    def told(self, name: str) -> tuple[str, ...] | None:
        """The slots that its controller knows to be granted."""
        share = self._shares.get(name)
        return share.granted if share is not None else None

    def knows(self, name: str, slots: Collection[str]) -> bool:
        """Does its controller know that it may use these and no others? One that was told of none yet does not: it
        would use all there are."""
        told = self.told(name)
        return told is not None and {*told} == {*slots}

    # ── what each may use ───────────────────────────────────────────────────────────────────────

    def decide(self, now_ns: int) -> dict[str, tuple[Slot, ...]]:
        """Topology → the slots it may use from now on; `held` knows of them. To be kept before anybody is told."""
        self._release()
        self._here = heard = {vm for vm, at in self._heard.items() if now_ns - at.at_ns < HEARD_NS}
        slots = [
            Slot(vm, number) for vm, many in sorted(self.vms.items()) if vm in heard for number in range(many)
        ]
        self._claims = [self._claim(one) for one in self.running]
        self._total = len(slots)
        used = {slot for share in self._shares.values() for slot in slots_named(share.used)}
        names = {one.run: one.name for one in self.running}
        held = {slot: names.get(run, f"run {run}") for slot, run in self.held.items()}
        found = shares(slots, self._claims, held, used)
        self._counts, self._granted = found.counts, found.granted
        for name, granted in found.granted.items():
            self.held.update(dict.fromkeys(granted, self.topologies[name].run))
        return found.granted

    def _claim(self, one: Admitted) -> Claim:
        share = self._shares.get(one.name)
        mine = sum(run == one.run for run in self.held.values())
        if share is None:  # it may run: what it has is what it needs, until it says
            return Claim(one.name, mine, one.priority, one.weight, one.quota, min(1, mine))
        if share.topology is None:
            return Claim(one.name, 0, one.priority, one.weight, 0)
        return Claim(one.name, share.needs, one.priority, one.weight, one.quota, min(1, len(share.used)))

    def _release(self) -> None:
        """Slots with nothing in them of whoever had them belong to nobody."""
        names = {one.run: one.name for one in self.running}
        self.held = {
            slot: run for slot, run in self.held.items() if not self._is_empty(slot, run, names.get(run))
        }

    def _is_empty(self, slot: Slot, run: str, name: str | None) -> bool:
        if name is None:  # it is over: its agent is gone, with all workers
            return slot.vm in self._sure and run not in self._heard[slot.vm].agents
        share = self._shares.get(name)
        if share is None or share.granted is None:
            return False
        return str(slot) in share.empty and str(slot) not in share.granted

    # ── what is shown ───────────────────────────────────────────────────────────────────────────

    def document(self) -> dict[str, Any]:
        """`headgate/topologies/v1`."""
        return {
            "schema": SCHEMA,
            "slots": self._total,
            "vms": [self._vm_row(vm) for vm in sorted(self.vms)],
            "topologies": [self.row(one) for one in self.topologies.values()],
        }

    def _vm_row(self, vm: str) -> dict[str, Any]:
        state = "joined" if vm in self._here & self._sure else "silent"
        return {"vm": vm, "slots": self.vms[vm], "state": state, "pid": self._heard[vm].pid or None}

    def row(self, one: Admitted) -> dict[str, Any]:
        share, count = self._shares.get(one.name), self._counts.get(one.name)
        held = sorted(str(slot) for slot, run in self.held.items() if run == one.run)
        return {
            "topology": one.name,
            "run": one.run,
            "stage": "over" if one.over else share.stands if share is not None else "starting",
            "priority": one.priority,
            "weight": one.weight,
            "quota": one.quota if one.quota != NO_QUOTA else None,
            "needs": share.needs if share is not None else None,
            "gets": min(count.needed, share.needs) if count is not None and share is not None else None,
            "used": len(share.used) if share is not None else 0,
            "slots": held,
            "planned_tps": share.planned_tps if share is not None else None,
            "predicted_tps": share.predicted_tps if share is not None else None,
            "usd_per_hour": share.usd_per_hour if share is not None else None,
            "by": one.by or None,
            "since": one.since or None,
            "text": self._words(one, share),
        }

    def _words(self, one: Admitted, share: RunShare | None) -> str:
        if one.over or self.troubles.get(one.name):
            return one.over or self.troubles[one.name]
        if share is None:
            return "its controller does not answer yet"
        words = []
        if any(claim.name == one.name for claim in self._claims):
            words.append(why_fewer(one.name, self._claims, self._total, self._counts))
        mine = {slot for slot, run in self.held.items() if run == one.run}
        going = len(mine - {*self._granted.get(one.name, mine)})
        words.append(f"{going} being emptied for others" if going and not share.stays else "")
        words.append(
            f"{going} wanted by others, and not emptied: {share.stays}" if going and share.stays else ""
        )
        return "; ".join(word for word in (*words, *share.alarms[:1]) if word)


PORTS_EACH = 3  # of a topology's controller: agents, commands, the picture


def ports_from(first: int, topologies: Collection[Admitted]) -> tuple[int, int, int]:
    """The next three of as many as all topologies can have, from this port on: the first that are free after those of
    the newest run, so that what is left of a run that is over does not soon find another one there.

    >>> ports_from(7500, [Admitted("a", "1", ports=(7500, 7501, 7502), over="it ended")])
    (7503, 7504, 7505)
    """
    taken = {one.ports[0] for one in topologies if not one.over}
    newest = max((one for one in topologies if one.run), key=lambda one: (one.since, one.run), default=None)
    after = (
        (newest.ports[0] - first) // PORTS_EACH + 1 if newest is not None and newest.ports[0] >= first else 0
    )
    firsts = (first + PORTS_EACH * ((after + n) % TOPOLOGIES_MOST) for n in range(TOPOLOGIES_MOST))
    port = next(port for port in firsts if port not in taken)
    return port, port + 1, port + 2


def share_of(data: Any) -> RunShare | None:
    """What a controller answered; None when it cannot be understood."""
    try:
        share = msgspec.convert(data, RunShare)
        for names in (share.granted or (), share.used, share.empty):
            slots_named(names)
    except (msgspec.ValidationError, InvalidInput):
        return None
    return share
