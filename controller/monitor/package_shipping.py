"""Which packages are offered to which VMs, and how many parts of them are sent. Pure.

Somebody who waits for a package to be everywhere asks how it stands; as long as he asks, it is offered to every VM
that has not said. Parts go out as VMs ask for them, at most so many a second to each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from headgate.topology_runtime.wire.messages import PackageAt

NS = 1_000_000_000
OFFER_EVERY_NS = NS // 2
ASKED_NS = 10 * NS  # so long after somebody asked for it last, it is still offered
PARTS_A_SECOND = 64
VMS_MOST = 4096


@dataclass(slots=True)
class _Offered:
    asked_ns: int
    offered_ns: int = -ASKED_NS
    said: dict[str, PackageAt] = field(default_factory=dict)


class Shipping:
    """Of one life of a controller."""

    def __init__(self) -> None:
        self._offered: dict[str, _Offered] = {}
        self._sent: dict[str, tuple[float, int]] = {}  # VM → parts that may be sent at once, as of when

    def asked(self, digest: str, now_ns: int) -> None:
        """It is to be on every VM."""
        self._offered.setdefault(digest, _Offered(now_ns)).asked_ns = now_ns

    def stands(self, digest: str, vms: Collection[str]) -> dict[str, PackageAt | None]:
        """How it stands on these VMs, as far as they have said."""
        said = self._offered[digest].said if digest in self._offered else {}
        return {vm: said.get(vm) for vm in sorted(vms)}

    def offers(self, vms: Collection[str], now_ns: int) -> list[tuple[str, str]]:
        """(VM, digest) of what is to be offered now."""
        out = []
        for digest, offered in list(self._offered.items()):
            if now_ns - offered.asked_ns >= ASKED_NS:
                del self._offered[digest]
            elif now_ns - offered.offered_ns >= OFFER_EVERY_NS:
                offered.offered_ns = now_ns
                out += [(vm, digest) for vm in sorted(vms) if not _settled(offered.said.get(vm))]
        return out

    def heard(self, said: PackageAt, now_ns: int) -> bool:
        """True when the VM is to be sent the part that it asks for."""
        offered = self._offered.get(said.digest)
        if offered is not None and (said.vm in offered.said or len(offered.said) < VMS_MOST):
            offered.said[said.vm] = said
        return not _settled(said) and not said.busy and self._may_send(said.vm, now_ns)

    def _may_send(self, vm: str, now_ns: int) -> bool:
        left, at_ns = self._sent.get(vm, (float(PARTS_A_SECOND), now_ns))
        left = min(PARTS_A_SECOND, left + (now_ns - at_ns) * PARTS_A_SECOND / NS)
        if vm not in self._sent and len(self._sent) >= VMS_MOST:
            del self._sent[next(iter(self._sent))]
        self._sent[vm] = (left - 1 if left >= 1 else left), now_ns
        return left >= 1

    @property
    def kept(self) -> frozenset[str]:
        """What somebody waits for."""
        return frozenset(self._offered)


def _settled(said: PackageAt | None) -> bool:
    return said is not None and (said.whole or said.refused != "")
