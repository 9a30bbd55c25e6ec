"""Spools that workers left on this VM's disk."""

from __future__ import annotations

import os
from contextlib import suppress

from headgate.topology_runtime.messages import SpoolLeft


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Events on this VM's disk that a worker accepted and that are not done."""
    if not os.path.isdir(os.path.join(directory, "spools")):
        return ()
    from headgate.topology_runtime.worker import spool  # takes long to import, and is seldom needed

    with suppress(OSError):  # whoever opens it to read says so
        return spool.left_over(directory)
    return ()
