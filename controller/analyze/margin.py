"""How much more than was foreseen has to be carried so that few rows come above it. Pure."""

from __future__ import annotations

import numpy as np

from headgate.topology_runtime.stability.slopes import Floats


def margin_of(above: Floats, rows: float) -> float:
    """The least for which at most so many rows would have come above it. above: by how much more came than was
    foreseen, of each second."""
    above = -np.sort(-above[above > 0])
    if not len(above):
        return 0.0
    return max(0.0, float(((np.cumsum(above) - rows) / np.arange(1, len(above) + 1)).max()))
