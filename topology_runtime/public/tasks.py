"""The ready-made tasks, by name: `from headgate.tasks import FileLines`. Each is imported on first use."""

from __future__ import annotations

from headgate import _imported, _places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headgate.topology_runtime.connectors.files import FilesSource as FilesSource
    from headgate.topology_runtime.tasks.computing import Pi as Pi
    from headgate.topology_runtime.tasks.computing import Score as Score
    from headgate.topology_runtime.tasks.computing import Spin as Spin
    from headgate.topology_runtime.tasks.computing import tag as tag
    from headgate.topology_runtime.tasks.machine_telemetry import Telemetry as Telemetry
    from headgate.topology_runtime.tasks.parsers import ParseXml as ParseXml
    from headgate.topology_runtime.tasks.parsers import parse as parse
    from headgate.topology_runtime.tasks.parsers import parse_json as parse_json
    from headgate.topology_runtime.tasks.parsers import parse_senml as parse_senml
    from headgate.topology_runtime.tasks.row_sources import Counter as Counter
    from headgate.topology_runtime.tasks.row_sources import FileLines as FileLines
    from headgate.topology_runtime.tasks.service_calls import BlobDownload as BlobDownload
    from headgate.topology_runtime.tasks.service_calls import HttpCall as HttpCall
    from headgate.topology_runtime.tasks.service_calls import SqlQuery as SqlQuery
    from headgate.topology_runtime.tasks.service_calls import TableQuery as TableQuery
    from headgate.topology_runtime.tasks.sinks import Archive as Archive
    from headgate.topology_runtime.tasks.sinks import CollectToFile as CollectToFile
    from headgate.topology_runtime.tasks.sinks import FileWrite as FileWrite
    from headgate.topology_runtime.tasks.stateful import CountByKey as CountByKey
    from headgate.topology_runtime.tasks.stateful import DropSeen as DropSeen
    from headgate.topology_runtime.tasks.stateful import Join as Join
    from headgate.topology_runtime.tasks.stateful import Kalman as Kalman
    from headgate.topology_runtime.tasks.stateful import SlidingMean as SlidingMean
    from headgate.topology_runtime.tasks.waiting import Lookup as Lookup
    from headgate.topology_runtime.tasks.waiting import Wait as Wait

PLACES = _places(
    "tasks",
    {
        "computing": "Pi Score Spin tag",
        "machine_telemetry": "Telemetry",
        "parsers": "parse parse_json parse_senml ParseXml",
        "row_sources": "Counter FileLines",
        "service_calls": "BlobDownload HttpCall SqlQuery TableQuery",
        "sinks": "Archive CollectToFile FileWrite",
        "stateful": "CountByKey DropSeen Join Kalman SlidingMean",
        "waiting": "Lookup Wait",
    },
) | _places("connectors", {"files": "FilesSource"})
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    return _imported("headgate.tasks", PLACES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
