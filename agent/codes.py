"""Which codes a desired state has for a VM, and what the workers of each are told. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from headgate.topology_runtime.messages import DesiredState
from headgate.topology_runtime.task_code import TaskCode


def codes_on(desired: DesiredState, vm: str) -> Iterator[TaskCode]:
    """The newest, then older ones that threads on this VM still run."""
    yield TaskCode(desired.code, desired.topology, desired.user_paths, desired.package)
    here = {thread.code for thread in desired.threads if thread.slot.vm == vm}
    yield from (code for code in desired.older if code.number in here)


def paths_on(desired: DesiredState, vm: str) -> tuple[str, ...]:
    """Folders that workers of this VM import from."""
    return tuple(dict.fromkeys(path for code in codes_on(desired, vm) for path in code.user_paths))


def with_code(desired: DesiredState, code: TaskCode) -> DesiredState:
    """What a worker of this code obeys: as if there were no other."""
    return replace(
        desired,
        topology=code.topology,
        user_paths=code.user_paths,
        package=code.package,
        code=code.number,
        older=(),
    )
