"""Names of policies on a command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.faults.words import did_you_mean


def chosen_policies(given: Sequence[str], known: Collection[str], default: Sequence[str]) -> tuple[str, ...]:
    """Each once, in their order; texts may hold several with commas between. Raises UsageError with every one that
    there is not."""
    names = [name.strip() for text in given for name in text.split(",")]
    faults = [
        f"{name!r}: there are {', '.join(known)}{did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]
    if faults:
        raise UsageError("there is no such policy", faults=faults)
    return tuple(dict.fromkeys(names)) or tuple(default)
