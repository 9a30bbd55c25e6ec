"""What a slot's tasks may take besides CPU and memory: processes, and room on disk. Who takes more is named and ended.

Processes are refused by the kernel, which counts how often (a control group). Room is looked at: files of the workers'
folder belong to the group of the slot that wrote them, whichever of its processes did. Where slots have no groups of
their own nobody can tell whose a file is, and nothing is bounded. What lies there from before ends nobody: only a slot
whose files still grow, by a sixteenth of its bound each time.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress

from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.process.worker_user import slot_group
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.containment import WorkerUser
from headgate.topology_runtime.platform.slot_binding import SlotBinding

NS = 1_000_000_000
LOOK_EVERY_NS, COST_SHARE = 2 * NS, 100  # looking takes a hundredth of the time at most
GROWN_SHARE = 1 / 16
BLOCK = 512  # of st_blocks, whatever the file system's are
GB = 1e9


class SlotBounds:
    """Of one VM's slots."""

    def __init__(self, config: AgentConfig, binding: SlotBinding, user: WorkerUser | None) -> None:
        self._config, self._binding, self._user = config, binding, user
        self._used: dict[int, int] = {}
        self._excused: dict[
            int, int
        ] = {}  # what was there when it was looked first, or its worker ended for it
        self._due_ns = 0

    def refused(self, slot: int) -> int:
        """How often processes were, up to now."""
        return self._binding.forks_refused(slot)

    def beyond(self, slot: int, refused_before: int) -> str:
        """What its tasks took too much of, in words; "" for nothing."""
        if self.refused(slot) > refused_before:
            return f"too many processes, its slot may have {self._config.slot_processes:,}"
        used, most = self._used.get(slot, 0), self._config.slot_disk_bytes
        if used <= most or used - self._excused.get(slot, 0) <= GROWN_SHARE * most:
            return ""
        self._excused[slot] = used
        words = f"{used / GB:,.3f} GB of at most {most / GB:,.3f} GB in {self._config.work}"
        return f"too much on disk, its slot has {words}"

    def look(self, now_ns: int) -> None:
        """At the disk, now and then."""
        most = self._config.slot_disk_bytes
        if self._user is None or not most or now_ns < self._due_ns:
            return
        began_ns = monotonic_ns()
        first, sizes = not self._due_ns, by_group(self._config.work)
        for slot in range(self._config.slots):
            group = slot_group(self._user, slot)
            used = self._used[slot] = sizes[group] if group else 0
            before = used if first and used > most else self._excused.get(slot, 0)
            self._excused[slot] = min(before, used)
        self._due_ns = now_ns + max(LOOK_EVERY_NS, COST_SHARE * (monotonic_ns() - began_ns))


def by_group(folder: str) -> Counter[int]:
    """Bytes on disk of all files below it, by the group that they belong to. What goes meanwhile is not counted."""
    found: Counter[int] = Counter()
    waiting = [folder]
    while waiting:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found[status.st_gid] += BLOCK * status.st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return found
