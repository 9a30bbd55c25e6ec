"""What an agent knows of the profile in a spare slot of its VM (profiles.ProfileWanted). Pure.

It runs while the newest desired state names it and no thread is desired in its slot, within its budget. How
it ended is said again with every desired state that still names it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from agent import events as e
from topology_runtime.cluster import Slot
from topology_runtime.messages import DesiredState
from topology_runtime.profiles import Profiled, ProfileSpec

NS = 1_000_000_000


@dataclass(slots=True)
class ProfileState:
    """Of VM `vm`. running: the profile whose processes may be there. told: how the last one ended."""

    vm: str
    running: ProfileSpec | None = None
    end_at_ns: int = 0
    told: Profiled | None = None

    def want(self, desired: DesiredState, free: Set[Slot], now_ns: int) -> list[e.Instruction]:
        """New orders. free: this VM's slots without desired threads and without a worker."""
        profile = desired.profile
        if profile is None or profile.slot not in free:
            return self.stop()
        if self.running is not None and self.running.number == profile.number:
            return []
        if self.told is not None and self.told.number == profile.number:
            return [e.SendProfiled(self.told)]
        out = self.stop()
        self.running, self.end_at_ns = profile, now_ns + int(profile.budget_s * NS)
        return [*out, e.StartProfile(profile, desired.topology, desired.user_paths)]

    def stop(self) -> list[e.Instruction]:
        """It is no longer desired; what it knows stays in its record."""
        running, self.running = self.running, None
        return [e.EndProfile(running.number)] if running is not None else []

    def due(self, now_ns: int) -> list[e.Instruction]:
        """Its budget is used up: it is ended, and what it measured is told."""
        if self.running is None or now_ns < self.end_at_ns:
            return []
        return [e.EndProfile(self.running.number)]

    def ended(self, event: e.ProfileEnded) -> list[e.Instruction]:
        """Its processes are gone."""
        if self.running is None or event.number != self.running.number:
            return []
        self.running = None
        self.told = Profiled(self.vm, event.number, event.model, event.error)
        return [e.SendProfiled(self.told)]
