"""How much more than the rate is planned for where nobody says so: what the models' spread may take away. Pure.

Mixes fill slots to the brim, so what a model promises too much is missing at once. The rule: the rate times the largest
ratio, of all tasks' models, between the peak of a slot and that peak with every point at the low end of its spread. No
spread, no margin.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.controller.knowledge.models import Model, at_worst, has_spread, peak
from headgate.topology_runtime.topology import Topology

MOST_MARGIN = 10.0  # times the rate, that may be asked for
MOST = 1.5  # a model that may be off by more should be measured again
DIGITS = 4
NO_SPREAD = "the models have no spread"
ASKED = "it was asked for"


def margin_of(
    topology: Topology, models: Mapping[str, Model], asked: float | None, brims: bool
) -> tuple[float, str]:
    """(times the rate, why): what was asked for, or by the models' spread where slots are filled to the brim."""
    if asked is not None:
        return asked, ASKED
    return by_spread(topology, models) if brims else (1.0, "")


def by_spread(topology: Topology, models: Mapping[str, Model]) -> tuple[float, str]:
    """(times the rate, why)."""
    largest, why = 1.0, NO_SPREAD
    for name in dict.fromkeys(task.model_name for task in topology.tasks if task.static is None):
        model = models[name]
        if model.unmeasured or not has_spread(model):
            continue
        high, low = peak(model)[0], peak(at_worst(model))[0]
        ratio = min(MOST, high / low if low > 0 else MOST)
        if why == NO_SPREAD or ratio > largest:
            largest = ratio
            why = f"by its spread a slot of {name} may carry {1 - low / high:.1%} less than its model says"
    return round(largest, DIGITS), why
