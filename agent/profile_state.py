"""What an agent knows of the profiles in free slots of its VM (profiles.ProfileSpec). Pure.

One runs while the newest desired state names it and no thread is desired in its slot, within its budget; a new life of
the controller names it anew, if at all. How it ended is said again with every desired state that still names it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from headgate.agent import events as e
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import DesiredState
from headgate.topology_runtime.profiles import ProfileAt, Profiled, ProfileSpec

NS = 1_000_000_000


@dataclass(slots=True)
class RunningProfile:
    """Its processes may be there until then. done, of: points, as far as it has told."""

    spec: ProfileSpec
    end_at_ns: int
    done: int = 0
    of: int = 0


@dataclass(slots=True)
class ProfileState:
    """Of VM `vm`. running: by number. told: how those ended that are still named."""

    vm: str
    running: dict[int, RunningProfile] = field(default_factory=dict)
    told: dict[int, Profiled] = field(default_factory=dict)

    @property
    def ends_ns(self) -> list[int]:
        """When budgets end."""
        return [one.end_at_ns for one in self.running.values()]

    def uses(self, slot: Slot) -> bool:
        return any(one.spec.slot == slot for one in self.running.values())

    def at(self) -> tuple[ProfileAt, ...]:
        """How far those are that run."""
        return tuple(ProfileAt(number, one.done, one.of) for number, one in sorted(self.running.items()))

    def want(self, desired: DesiredState, free: Set[Slot], now_ns: int) -> list[e.Instruction]:
        """New orders. free: this VM's slots without desired threads and without a worker."""
        beside = (desired.profile,) if desired.profile is not None else ()
        specs = (*desired.profiles, *beside)
        named = {spec.number for spec in specs}
        self.told = {number: said for number, said in self.told.items() if number in named}
        wanted = {spec.number: spec for spec in specs if spec.slot in free}
        out = [self._end(number) for number in sorted(self.running.keys() - wanted.keys())]
        for number, spec in sorted(wanted.items()):
            if number in self.told:
                out.append(e.SendProfiled(self.told[number]))
            elif number not in self.running and not self.uses(spec.slot):
                self.running[number] = RunningProfile(spec, now_ns + int(spec.budget_s * NS))
                out.append(e.StartProfile(spec, desired.topology, desired.user_paths))
        return out

    def stop(self) -> list[e.Instruction]:
        """None is desired any more; what they know stays in their records."""
        return [self._end(number) for number in sorted(self.running)]

    def _end(self, number: int) -> e.Instruction:
        del self.running[number]
        return e.EndProfile(number)

    def due(self, now_ns: int) -> list[e.Instruction]:
        """Budgets are used up: those profiles are ended, and what they measured is told."""
        return [
            e.EndProfile(number) for number, one in sorted(self.running.items()) if now_ns >= one.end_at_ns
        ]

    def stands(self, event: e.ProfileStands) -> None:
        """One has told how far it is."""
        if (one := self.running.get(event.number)) is not None:
            one.done, one.of = event.done, event.of

    def ended(self, event: e.ProfileEnded) -> list[e.Instruction]:
        """Its processes are gone."""
        if self.running.pop(event.number, None) is None:
            return []
        said = Profiled(self.vm, event.number, event.model, event.error, event.of_task)
        self.told[event.number] = said
        return [e.SendProfiled(said)]
