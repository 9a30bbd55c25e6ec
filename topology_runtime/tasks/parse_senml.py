"""SenML (RFC 8428) → one row per record, with what the pack says once worked into each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import msgspec

from headgate.topology_runtime.faults.words import shown
from headgate.topology_runtime.logic import flat_map

VALUES = ("v", "vs", "vb", "vd", "sv", "bv")  # the last two: in the older form, {"e": […], "bt": …}
_decode = msgspec.json.Decoder().decode


@flat_map
def parse_senml(text: str | bytes | tuple[int | str, str]) -> list[dict[str, Any]]:
    """The records of a pack (JSON; of an event (id, text) its text, the id in each row): {name, time_s,
    unit, value, sum}, None where a record has none. Raises ValueError when it is no SenML."""
    if isinstance(text, tuple):
        name, body = text
        return [{"id": name, **record} for record in records(body)]
    return list(records(text))


def records(text: Any) -> Iterator[dict[str, Any]]:
    """Each record resolved: base name, time, unit, value and sum hold from where they stand on."""
    if not isinstance(text, str | bytes):
        raise ValueError(f"SenML is text, not {shown(text)}")
    pack = _decode(text)
    if isinstance(pack, dict):
        first = {key: pack[key] for key in ("bn", "bt", "bu") if key in pack}
        entries = pack.get("e", [])
        pack = [first, *entries] if isinstance(entries, list) else None
    if not isinstance(pack, list) or not all(isinstance(record, dict) for record in pack):
        raise ValueError("SenML is a list of objects")
    base: dict[str, Any] = {}
    for record in pack:
        base.update({key: record[key] for key in ("bn", "bt", "bu", "bs") if key in record})
        if _is_number(record.get("bv")):
            base["bv"] = record["bv"]
        if any(key in record for key in (*VALUES, "s")) and _is_measured(record):
            yield _resolved(record, base)


def _is_measured(record: dict[str, Any]) -> bool:
    """A record with base fields alone is none."""
    return any(key in record for key in ("n", "v", "vs", "vb", "vd", "sv", "s"))


def _resolved(record: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    name = base.get("bn", ""), record.get("n", "")
    if not all(isinstance(part, str) for part in name) or not any(name):
        raise ValueError(f"{shown(name)} is no name of a SenML record")
    return {
        "name": "".join(name),
        "time_s": _sum(base, "bt", record, "t"),
        "unit": record.get("u", base.get("bu")),
        "value": _value(record, base.get("bv", 0)),
        "sum": _sum(base, "bs", record, "s") if record.get("s") is not None else None,
    }


def _sum(base: dict[str, Any], base_key: str, record: dict[str, Any], key: str) -> float:
    """Of two numbers, each 0 where it is not there."""
    first, second = base.get(base_key, 0), record.get(key, 0)
    if not (_is_number(first) and _is_number(second)):
        raise ValueError(f"{base_key} and {key} of SenML are numbers, not {shown((first, second))}")
    return first + second


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(record: dict[str, Any], base: float) -> Any:
    if _is_number(record.get("v")):
        return base + record["v"]
    return next((record[key] for key in VALUES if key in record), None)
