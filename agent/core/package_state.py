"""Which packages a VM fetches, and what is reported of each. Pure.

One that was offered, or that a desired state needs, is asked for part after part: the next when one has come, the same
again when it has not come within a second. How it ends, whole or refused, is said once, and again with each offer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.topology_runtime.wire.messages import DesiredState, PackageAt, TaskCode

NS = 1_000_000_000
AGAIN_NS = NS
REFUSED_NS = 10 * NS  # then it may be offered afresh: what was wrong with it may be fixed
FETCHED_MOST = 4  # at once; of more, the one that was asked for first is forgotten


@dataclass(slots=True)
class _Fetch:
    taken: int
    whole: bool = False
    busy: bool = False
    refused: str = ""
    refused_ns: int = 0
    say_ns: int = 0  # when it is to be said how it stands

    @property
    def settled(self) -> bool:
        return self.whole or self.refused != ""


class PackageFetch:
    """Of one VM, in one life of its agent."""

    def __init__(self, vm: str, boot: int) -> None:
        self._vm, self._boot = vm, boot
        self._now: dict[str, _Fetch] = {}

    def want(self, digest: str, now_ns: int) -> bool:
        """It is offered, or needed. True when it is new here: how much of it is there is to be reported."""
        fetch = self._now.get(digest)
        if fetch is not None and not (fetch.refused and now_ns - fetch.refused_ns >= REFUSED_NS):
            if fetch.settled:
                fetch.say_ns = now_ns
            return False
        if fetch is None and len(self._now) >= FETCHED_MOST:
            del self._now[next(iter(self._now))]
        self._now[digest] = _Fetch(0, say_ns=now_ns)
        return True

    def wanted(self, digest: str, taken: int) -> bool:
        """Is this the part that was asked for?"""
        fetch = self._now.get(digest)
        return fetch is not None and not fetch.settled and not fetch.busy and fetch.taken == taken

    def has(self, digest: str, taken: int, now_ns: int, whole: bool = False, busy: bool = False) -> None:
        """So much of it is there now; whole: it may be run; busy: what it needs is being installed."""
        self._stands(digest, _Fetch(taken, whole, busy, say_ns=now_ns))

    def refuse(self, digest: str, why: str, now_ns: int) -> None:
        self._stands(digest, _Fetch(0, refused=why, refused_ns=now_ns, say_ns=now_ns))

    def _stands(self, digest: str, fetch: _Fetch) -> None:
        if digest in self._now:
            self._now[digest] = fetch

    def due(self, now_ns: int) -> list[PackageAt]:
        """What is to be said now."""
        out = []
        for digest, fetch in self._now.items():
            if 0 <= fetch.say_ns <= now_ns:
                fetch.say_ns = -1 if fetch.settled else now_ns + AGAIN_NS
                out.append(self._said(digest, fetch))
        return out

    def _said(self, digest: str, fetch: _Fetch) -> PackageAt:
        return PackageAt(self._vm, self._boot, digest, fetch.taken, fetch.whole, fetch.refused, fetch.busy)

    def refusal(self, digest: str) -> str:
        """Why it is not taken; nothing when it is, or may be."""
        return self._now[digest].refused if digest in self._now else ""

    @property
    def here(self) -> frozenset[str]:
        """What was wanted and is whole."""
        return frozenset(digest for digest, fetch in self._now.items() if fetch.whole)

    @property
    def under_way(self) -> frozenset[str]:
        return frozenset(self._now)


# ── Which codes a desired state has for a VM, and what the workers of each get. Pure ───────────────


def codes_on(desired: DesiredState, vm: str) -> Iterator[TaskCode]:
    """The newest, then older ones that threads on this VM still run."""
    yield TaskCode(desired.code, desired.topology, desired.user_paths, desired.package)
    here = {thread.code for thread in desired.threads if thread.slot.vm == vm}
    yield from (code for code in desired.older if code.number in here)


def paths_on(desired: DesiredState, vm: str) -> tuple[str, ...]:
    """Folders that workers of this VM import from."""
    return tuple(dict.fromkeys(path for code in codes_on(desired, vm) for path in code.user_paths))


def variables_on(desired: DesiredState, vm: str) -> tuple[str, ...]:
    """Environment variables that workers of this VM may have."""
    return tuple(dict.fromkeys(name for code in codes_on(desired, vm) for name in code.topology.variables))


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
