"""The ready-made tasks, by name: `from headgate.tasks import FileLines`. Each is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.topology_runtime.tasks.archive import Archive as Archive
    from headgate.topology_runtime.tasks.blob_download import BlobDownload as BlobDownload
    from headgate.topology_runtime.tasks.bloom_filter import DropSeen as DropSeen
    from headgate.topology_runtime.tasks.collect_to_file import CollectToFile as CollectToFile
    from headgate.topology_runtime.tasks.count import CountByKey as CountByKey
    from headgate.topology_runtime.tasks.counter import Counter as Counter
    from headgate.topology_runtime.tasks.file_lines import FileLines as FileLines
    from headgate.topology_runtime.tasks.file_write import FileWrite as FileWrite
    from headgate.topology_runtime.tasks.http_call import HttpCall as HttpCall
    from headgate.topology_runtime.tasks.join import Join as Join
    from headgate.topology_runtime.tasks.kalman import Kalman as Kalman
    from headgate.topology_runtime.tasks.lookup import Lookup as Lookup
    from headgate.topology_runtime.tasks.parse import parse as parse
    from headgate.topology_runtime.tasks.parse_json import parse_json as parse_json
    from headgate.topology_runtime.tasks.parse_senml import parse_senml as parse_senml
    from headgate.topology_runtime.tasks.parse_xml import ParseXml as ParseXml
    from headgate.topology_runtime.tasks.pi import Pi as Pi
    from headgate.topology_runtime.tasks.score import Score as Score
    from headgate.topology_runtime.tasks.sliding_window import SlidingMean as SlidingMean
    from headgate.topology_runtime.tasks.spin import Spin as Spin
    from headgate.topology_runtime.tasks.sql_query import SqlQuery as SqlQuery
    from headgate.topology_runtime.tasks.table_query import TableQuery as TableQuery
    from headgate.topology_runtime.tasks.tag import tag as tag
    from headgate.topology_runtime.tasks.telemetry import Telemetry as Telemetry
    from headgate.topology_runtime.tasks.wait import Wait as Wait

_PLACES = {
    "Archive": "headgate.topology_runtime.tasks.archive",
    "BlobDownload": "headgate.topology_runtime.tasks.blob_download",
    "CollectToFile": "headgate.topology_runtime.tasks.collect_to_file",
    "CountByKey": "headgate.topology_runtime.tasks.count",
    "Counter": "headgate.topology_runtime.tasks.counter",
    "DropSeen": "headgate.topology_runtime.tasks.bloom_filter",
    "FileLines": "headgate.topology_runtime.tasks.file_lines",
    "FileWrite": "headgate.topology_runtime.tasks.file_write",
    "HttpCall": "headgate.topology_runtime.tasks.http_call",
    "Join": "headgate.topology_runtime.tasks.join",
    "Kalman": "headgate.topology_runtime.tasks.kalman",
    "Lookup": "headgate.topology_runtime.tasks.lookup",
    "ParseXml": "headgate.topology_runtime.tasks.parse_xml",
    "Pi": "headgate.topology_runtime.tasks.pi",
    "Score": "headgate.topology_runtime.tasks.score",
    "SlidingMean": "headgate.topology_runtime.tasks.sliding_window",
    "Spin": "headgate.topology_runtime.tasks.spin",
    "SqlQuery": "headgate.topology_runtime.tasks.sql_query",
    "TableQuery": "headgate.topology_runtime.tasks.table_query",
    "Telemetry": "headgate.topology_runtime.tasks.telemetry",
    "Wait": "headgate.topology_runtime.tasks.wait",
    "parse": "headgate.topology_runtime.tasks.parse",
    "parse_json": "headgate.topology_runtime.tasks.parse_json",
    "parse_senml": "headgate.topology_runtime.tasks.parse_senml",
    "tag": "headgate.topology_runtime.tasks.tag",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """What is listed above, from where it is defined."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'headgate.tasks' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
