"""Windows, joins and states by event time: `from headgate import windows`. Each is imported on first use."""

from __future__ import annotations

from headgate import _imported, _places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headgate.topology_runtime.event_time.window_assigners import global_window as global_window
    from headgate.topology_runtime.event_time.window_assigners import session as session
    from headgate.topology_runtime.event_time.window_assigners import sliding as sliding
    from headgate.topology_runtime.event_time.window_assigners import tumbling as tumbling
    from headgate.topology_runtime.tasks.event_joins import AsOfJoin as AsOfJoin
    from headgate.topology_runtime.tasks.event_joins import IntervalJoin as IntervalJoin
    from headgate.topology_runtime.tasks.event_joins import WindowJoin as WindowJoin
    from headgate.topology_runtime.tasks.event_state import DropRepeats as DropRepeats
    from headgate.topology_runtime.tasks.event_state import NamedStates as NamedStates
    from headgate.topology_runtime.tasks.event_windows import EventWindow as EventWindow
    from headgate.topology_runtime.tasks.window_aggregates import aggregate as aggregate
    from headgate.topology_runtime.tasks.window_aggregates import collect as collect
    from headgate.topology_runtime.tasks.window_aggregates import count as count
    from headgate.topology_runtime.tasks.window_aggregates import distinct as distinct
    from headgate.topology_runtime.tasks.window_aggregates import max_of as max_of
    from headgate.topology_runtime.tasks.window_aggregates import mean_of as mean_of
    from headgate.topology_runtime.tasks.window_aggregates import min_of as min_of
    from headgate.topology_runtime.tasks.window_aggregates import quantile as quantile
    from headgate.topology_runtime.tasks.window_aggregates import reduce as reduce
    from headgate.topology_runtime.tasks.window_aggregates import several as several
    from headgate.topology_runtime.tasks.window_aggregates import sum_of as sum_of
    from headgate.topology_runtime.tasks.window_aggregates import top as top

PLACES = _places("event_time", {"window_assigners": "global_window session sliding tumbling"}) | _places(
    "tasks",
    {
        "event_joins": "AsOfJoin IntervalJoin WindowJoin",
        "event_state": "DropRepeats NamedStates",
        "event_windows": "EventWindow",
        "window_aggregates": "aggregate collect count distinct max_of mean_of min_of quantile reduce several "
        "sum_of top",
    },
)
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    return _imported("headgate.windows", PLACES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
