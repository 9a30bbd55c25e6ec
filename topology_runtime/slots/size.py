"""What slots a VM has: the one thing every slot binding is made from."""

from __future__ import annotations

import msgspec

PROCESSES_MOST = 2048  # a slot's own threads are some hundreds; the rest is what its tasks start


class SlotSize(msgspec.Struct, frozen=True):
    """`count` slots of VM `vm` in run `run`, each `cores` of a core and `memory_bytes` (0: as much as there is), each
    kept to one core unless told otherwise. processes: and threads, at most, in each."""

    run: str
    vm: str
    count: int
    cores: float
    memory_bytes: int
    one_core: bool = True
    processes: int = PROCESSES_MOST


def joining(procs: list[str], command: list[str]) -> list[str]:
    """A command line that enters control groups and then *becomes* `command`, under the same process id.

    A shell does it: running Python between fork and exec is not safe in a process that has threads."""
    enter = " && ".join(f'echo $$ > "${n}"' for n in range(1, len(procs) + 1))
    script = f'{enter} && shift {len(procs)} && exec "$@"'
    return ["/bin/sh", "-c", script, "headgate-slot", *procs, *command]
