"""Ready-made tasks that have a short name, and where their code is: for `headgate model profile NAME`."""

from __future__ import annotations

HERE = "headgate.topology_runtime.tasks"
READY_MADE = {
    "blob": f"{HERE}.blob_download:BlobDownload",
    "table": f"{HERE}.table_query:TableQuery",
    "pi": f"{HERE}.pi:Pi",
    "xml": f"{HERE}.parse_xml:ParseXml",
    "file": f"{HERE}.file_write:FileWrite",
    "http": f"{HERE}.http_call:HttpCall",
    "json": f"{HERE}.parse_json:parse_json",
    "senml": f"{HERE}.parse_senml:parse_senml",
    "sql": f"{HERE}.sql_query:SqlQuery",
    "spin": f"{HERE}.spin:Spin",
    "wait": f"{HERE}.wait:Wait",
}
