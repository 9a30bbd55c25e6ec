"""Spools that an earlier run of this VM left on its disk."""

from __future__ import annotations

import os

from topology_runtime.messages import SpoolLeft


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Events on this VM's disk that an earlier run of it accepted and that are not done."""
    if not os.path.isdir(os.path.join(directory, "spools")):
        return ()
    from topology_runtime.worker import spool  # takes long to import, and is seldom needed

    return spool.left_over(directory)
