"""Ready-made tasks by name: for `headgate model profile NAME` and the guide."""

from __future__ import annotations

from typing import Any

import msgspec

HERE = "topology_runtime.tasks"


class ReadyMade(msgspec.Struct, frozen=True):
    """`run`: where its code is; `params` that it needs to be tried alone."""

    run: str
    params: dict[str, Any] = {}


READY_MADE: dict[str, ReadyMade] = {
    "blob": ReadyMade(f"{HERE}.blob_download:BlobDownload"),
    "table": ReadyMade(f"{HERE}.table_query:TableQuery"),
    "pi": ReadyMade(f"{HERE}.pi:Pi"),
    "xml": ReadyMade(f"{HERE}.parse_xml:ParseXml"),
    "file": ReadyMade(f"{HERE}.file_write:FileWrite"),
    "http": ReadyMade(f"{HERE}.http_call:HttpCall"),
    "json": ReadyMade(f"{HERE}.parse_json:parse_json"),
    "senml": ReadyMade(f"{HERE}.parse_senml:parse_senml"),
    "sql": ReadyMade(f"{HERE}.sql_query:SqlQuery"),
    "spin": ReadyMade(f"{HERE}.spin:Spin"),
    "wait": ReadyMade(f"{HERE}.wait:Wait"),
}
