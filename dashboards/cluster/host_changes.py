"""What has to change on a host. Pure: from what is there and what should be, steps in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec

from headgate.dashboards.cluster.host_facts import HostFacts
from headgate.dashboards.cluster.services import ServiceWanted

MODE = 0o600
SIGNS = {"add": "+", "change": "~", "remove": "-"}

Thing = Literal["wheels", "version", "file", "current", "service", "leave"]


class HostWanted(msgspec.Struct, frozen=True):
    """home: the cluster's folder there, named like the cluster. wheels: name → size, of all that a version is installed
    from. files: below home, for its owner alone."""

    home: str
    version: str
    wheels: dict[str, int]
    files: dict[str, bytes]
    services: tuple[ServiceWanted, ...]

    @property
    def cluster(self) -> str:
        return self.home.rpartition("/")[2]


class HostChange(msgspec.Struct, frozen=True):
    """One step. names: what it is about; why: in the words of a diff."""

    way: Literal["add", "change", "remove"]
    thing: Thing
    names: tuple[str, ...]
    why: str

    @property
    def is_restart(self) -> bool:
        """Does it end something that runs well?"""
        return self.thing == "service" and self.way == "change"

    def line(self) -> str:
        named = f" {self.names[0]}" if self.thing in ("version", "file", "service") else ""
        return f"{SIGNS[self.way]} {self.thing}{named}: {self.why}"


def digest_of(content: bytes) -> str:
    """As a host tells it of a file: its digest and its mode."""
    return f"{hashlib.sha256(content).hexdigest()}:{MODE:o}"


def changes(wanted: HostWanted, facts: HostFacts) -> tuple[HostChange, ...]:
    """In the order in which they are made; none when all is as it should be."""
    return tuple(_changes(wanted, facts))


def _changes(wanted: HostWanted, facts: HostFacts) -> Iterator[HostChange]:
    if wanted.version not in facts.versions:
        missing = tuple(sorted(set(wanted.wheels) - set(facts.wheels)))
        if missing:
            megabytes = sum(wanted.wheels[name] for name in missing) / 1e6
            yield HostChange("add", "wheels", missing, f"{len(missing)}, {megabytes:.0f} MB")
        yield HostChange("add", "version", (wanted.version,), "into a virtual environment of its own")
    for name, content in wanted.files.items():
        there = facts.files.get(name, "")
        if there != digest_of(content):
            yield HostChange("change" if there else "add", "file", (name,), "for its owner alone")
    if facts.current != wanted.version:
        before = facts.current or "none"
        yield HostChange(
            "change" if facts.current else "add", "current", (wanted.version,), f"{before} → {wanted.version}"
        )
    for service in wanted.services:
        runs = facts.services.get(service.name)
        if runs is None or not runs.running:
            yield HostChange("add", "service", (service.name,), "start it")
        elif runs.digest != service.digest:
            why = (
                "start it again, with other settings" if facts.current == wanted.version else "start it again"
            )
            yield HostChange("change", "service", (service.name,), why)
