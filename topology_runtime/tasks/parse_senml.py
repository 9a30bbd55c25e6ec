"""SenML (RFC 8428) → one row per record, with what the pack says once worked into each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from topology_runtime.logic import flat_map

VALUES = ("v", "vs", "vb", "vd", "sv", "bv")  # the last two: in the older form, {"e": […], "bt": …}
_decode = msgspec.json.Decoder().decode


@flat_map
def parse_senml(text: str | bytes | tuple[int | str, str]) -> list[dict[str, Any]]:
    """The records of a pack (JSON; of an event (id, text) its text, the id in each row): {name, time_s,
    unit, value, sum}, None where a record has none. Raises ValueError when it is no SenML."""
    if isinstance(text, tuple):
        return [{"id": text[0], **record} for record in records(_decode(text[1]))]
    return list(records(_decode(text)))


def records(pack: Any) -> Iterator[dict[str, Any]]:
    """Each record resolved: base name, time, unit, value and sum hold from where they stand on."""
    if isinstance(pack, dict):
        first = {key: pack[key] for key in ("bn", "bt", "bu") if key in pack}
        pack = [first, *pack.get("e", ())]
    if not isinstance(pack, list) or not all(isinstance(record, dict) for record in pack):
        raise ValueError("SenML is a list of objects")
    base: dict[str, Any] = {}
    for record in pack:
        base.update({key: record[key] for key in ("bn", "bt", "bu", "bs") if key in record})
        if isinstance(record.get("bv"), int | float) and not isinstance(record["bv"], bool):
            base["bv"] = record["bv"]
        if any(key in record for key in (*VALUES, "s")) and _is_measured(record):
            yield _resolved(record, base)


def _is_measured(record: dict[str, Any]) -> bool:
    """A record with base fields alone is none."""
    return any(key in record for key in ("n", "v", "vs", "vb", "vd", "sv", "s"))


def _resolved(record: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    name = f"{base.get('bn', '')}{record.get('n', '')}"
    if not name:
        raise ValueError("a SenML record has no name")
    total = record.get("s")
    return {
        "name": name,
        "time_s": base.get("bt", 0) + record.get("t", 0),
        "unit": record.get("u", base.get("bu")),
        "value": _value(record, base.get("bv", 0)),
        "sum": None if total is None else base.get("bs", 0) + total,
    }


def _value(record: dict[str, Any], base: float) -> Any:
    if isinstance(record.get("v"), int | float) and not isinstance(record["v"], bool):
        return base + record["v"]
    return next((record[key] for key in VALUES if key in record), None)
