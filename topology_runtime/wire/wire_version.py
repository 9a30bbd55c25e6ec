"""Which versions of what is said on the wire go together. Pure.

Each peer tells its wire version and its headgate version with its first words. A controller takes agents of its own
wire version and of the one before, and clients of the one after too, since a cluster is upgraded from a newer one. What
makes that possible, and when `WIRE` rises: docs/explanation/protocol.md, Versions.
"""

from __future__ import annotations

VERSION = "0.1.0"  # of headgate
WIRE = 3  # what it speaks …
OLDEST = WIRE - 1  # … and what it understands besides
UNTOLD = 2  # of whoever does not tell: versions up to 2 did not
RETIRED: frozenset[str] = frozenset()  # `Type.field`: read by nobody any more, and gone with the next version
# messages that `OLDEST` cannot read: only said to who speaks `WIRE`, or nothing is lost when they are dropped
NEW_KINDS: frozenset[str] = frozenset(
    {
        "LatencyReport",
        "Paces",
        "OutputLines",
        "OffsetsKept",
        "ReadTold",
        "TimeTold",
        "StateQuestion",
        "StateAnswer",
    }
)
REMEDY = "`headgate cluster upgrade HOSTS.toml` brings a cluster to one version"


def spoken(wire: int, version: str) -> str:
    """`headgate 0.1.0 (wire version 3)`."""
    return f"headgate {version or 'of an unknown version'} (wire version {wire})"


def agent_fault(wire: int, version: str, ours: str) -> str:
    """Why a controller, headgate `ours`, does not take an agent; empty when it does."""
    if OLDEST <= wire <= WIRE:
        return ""
    return f"it is {spoken(wire, version)}, the controller {spoken(WIRE, ours)} takes {OLDEST} and {WIRE}: {REMEDY}"


def controller_fault(wire: int, version: str, ours: str) -> str:
    """Why an agent, headgate `ours`, does not obey a controller; empty when it does."""
    if abs(wire - WIRE) <= 1:
        return ""
    return f"the controller is {spoken(wire, version)}, this agent {spoken(WIRE, ours)}: {REMEDY}"


def client_fault(wire: int, version: str, ours: str) -> str:
    """Why a controller, headgate `ours`, does not answer a client; empty when it does."""
    if OLDEST <= wire <= WIRE + 1:
        return ""
    return f"this is {spoken(wire, version)}, the controller {spoken(WIRE, ours)}"
