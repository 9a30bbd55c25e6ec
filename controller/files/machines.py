"""Getting and giving back VMs: the provider's contract, and two providers.

`request` and `release` are idempotent and return at once; `list` says what is asked for and what runs.
The controller journals its intent first and reconciles with `list`, so a crash leaks no VM.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Infeasible


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of VMs asked for, and of VMs that run; trouble: why it is not as it should be, in words."""

    desired: tuple[str, ...]
    running: tuple[str, ...]
    trouble: str = ""


class Machines(Protocol):
    """A machines provider."""

    def start(self) -> None:
        """The controller begins: it has the state directory for itself now."""

    def request(self, vm: Vm) -> None:
        """Start this VM with its agent, unless it is asked for already."""

    def release(self, name: str) -> None:
        """Stop it, if it is there."""

    def list(self) -> Listing:
        """What is asked for and what runs now."""

    def close(self) -> tuple[str, ...]:
        """The controller ends: names of VMs that are to be given back and are not yet."""


class NoMachines:
    """The VMs are what they are; none can be had."""

    def start(self) -> None:
        return

    def request(self, vm: Vm) -> None:
        raise Infeasible(
            f"VM {vm.vm} cannot be had: this controller has no machines provider",
            hint="start an agent there with `headgate agent run`",
        )

    def release(self, name: str) -> None:
        return

    def list(self) -> Listing:
        return Listing((), ())

    def close(self) -> tuple[str, ...]:
        return ()


class FileMachines:
    """VMs on this machine, kept by `headgate up`: it runs an agent for every `<vm>.desired` in
    `directory` and says so in `<vm>.running`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        return

    def request(self, vm: Vm) -> None:
        path = self._desired(vm.vm)
        if path.exists():
            return
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(vm))
        os.replace(new, path)

    def release(self, name: str) -> None:
        self._desired(name).unlink(missing_ok=True)

    def list(self) -> Listing:
        names = sorted(path.name for path in self._directory.iterdir())
        return Listing(
            tuple(name.removesuffix(".desired") for name in names if name.endswith(".desired")),
            tuple(name.removesuffix(".running") for name in names if name.endswith(".running")),
        )

    def close(self) -> tuple[str, ...]:
        return ()  # `up` ends its agents

    def _desired(self, name: str) -> Path:
        return self._directory / f"{name}.desired"
