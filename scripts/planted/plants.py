"""All bugs that scripts/mutate plants."""

from __future__ import annotations

from planted.planting import Plant
from planted.plants_of_analysis import OF_ANALYSIS, OF_SUMS
from planted.plants_of_ends import OF_ENDS
from planted.plants_of_event_time import OF_EVENT_TIME
from planted.plants_of_failing import OF_FAILING
from planted.plants_of_health import OF_HEALTH
from planted.plants_of_hosts import OF_HOSTS
from planted.plants_of_links import OF_LINKS
from planted.plants_of_models import OF_LATENCY, OF_MEASURING, OF_TRAFFIC
from planted.plants_of_operators import OF_OPERATORS
from planted.plants_of_partitions import OF_PARTITIONS
from planted.plants_of_peers import OF_PEERS
from planted.plants_of_plans import OF_MOVES, OF_PACKAGES, OF_PLANS
from planted.plants_of_rows import OF_BOUNDS, OF_ROWS
from planted.plants_of_state import OF_KEYS, OF_STATE
from planted.plants_of_threads import OF_THREADS
from planted.plants_of_windows import OF_WINDOWS

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
    *OF_ENDS,
    *OF_EVENT_TIME,
    *OF_PARTITIONS,
    *OF_OPERATORS,
    *OF_PEERS,
    *OF_HEALTH,
    *OF_FAILING,
    *OF_HOSTS,
    *OF_LINKS,
    *OF_THREADS,
    *OF_WINDOWS,
)
