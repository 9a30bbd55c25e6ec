"""All bugs that scripts/mutate plants."""

from __future__ import annotations

from planting import Plant
from plants_of_analysis import OF_ANALYSIS
from plants_of_bounds import OF_BOUNDS
from plants_of_keys import OF_KEYS
from plants_of_latency import OF_LATENCY
from plants_of_measuring import OF_MEASURING
from plants_of_moves import OF_MOVES
from plants_of_packages import OF_PACKAGES
from plants_of_plans import OF_PLANS
from plants_of_rows import OF_ROWS
from plants_of_state import OF_STATE
from plants_of_sums import OF_SUMS
from plants_of_traffic import OF_TRAFFIC

PLANTS: tuple[Plant, ...] = (
    *OF_ROWS,
    *OF_BOUNDS,
    *OF_PLANS,
    *OF_STATE,
    *OF_KEYS,
    *OF_PACKAGES,
    *OF_MOVES,
    *OF_ANALYSIS,
    *OF_SUMS,
    *OF_MEASURING,
    *OF_TRAFFIC,
    *OF_LATENCY,
)
