"""Performance models as plain data, format `headgate/model/v1`: read with every fault and its place, and written.

Keys that headgate does not know are kept in `Model.more` and written again, unless they are within two characters
of a known key: those are taken for typing errors.

    Model.more: unknown keys of the file; under "slot" those of its slot; under "points" a list
                with those of each point, and there under "spread" those of its spread

A point's `spread` is a number, the half-width of its rate as a part of it (0.05: ±5 %), or an object with
half-widths: `rate_tps` in rows/s, `cpu` and `memory` in fractions of the slot. It is written as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.controller.models.field_reader import LARGEST, Fields
from headgate.controller.models.task_models import BASE, LEAST, SCHEMA, Model, ModelSlot, Point, Spread
from headgate.topology_runtime.measuring.row_spread import CPU_SPREAD, MOST, WAIT_SPREAD
from headgate.topology_runtime.wording import shown

MAX_THREADS = 1_000_000  # far above what one slot can hold; keeps every product of thread counts small
MAX_FRACTION = 2.0  # of a slot; measured values scatter round 1, so a 92.35 is a percentage by mistake

_TOP_KEYS = ("schema", "task", "slot", "points")
_HIGHEST = {BASE: MAX_FRACTION, CPU_SPREAD: MOST, WAIT_SPREAD: MOST}
_SLOT_KEYS = ("cores", "memory_bytes", "machine")
_NUMBER_KEYS = ("threads", "rate_tps", "cpu", "memory")
_POINT_KEYS = (*_NUMBER_KEYS, "spread")
_SPREAD_KEYS = ("rate_tps", "cpu", "memory")


def model_data(model: Model) -> dict[str, Any]:
    """The model as plain data of the file format, kept keys included."""
    more = dict(model.more)
    slot_more, points_more = more.pop("slot", {}), more.pop("points", [])
    points = [
        _point_data(point, points_more[i] if i < len(points_more) else {})
        for i, point in enumerate(model.points)
    ]
    slot = {"cores": model.slot.cores, "memory_bytes": model.slot.memory_bytes, "machine": model.slot.machine}
    return {"schema": SCHEMA, "task": model.task, "slot": slot | slot_more, "points": points} | more


def _point_data(point: Point, more: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {key: getattr(point, key) for key in _NUMBER_KEYS}
    spread = point.spread
    if spread is None:
        return data | more
    if spread.relative is not None:
        return data | {"spread": spread.relative} | more
    widths = {key: getattr(spread, key) for key in _SPREAD_KEYS if getattr(spread, key) is not None}
    return data | more | {"spread": widths | more.get("spread", {})}


def model_of(data: object) -> tuple[Model | None, list[str]]:
    """(model, faults) of a file's plain data; no model when there are faults. Numbers stay as they are written."""
    faults: list[str] = []
    top = Fields(data, "", faults, (*_TOP_KEYS, *LEAST))
    if top.data.get("schema") != SCHEMA:
        top.fault("schema", f"expected {SCHEMA!r}, got {shown(top.data.get('schema'))}")
    top.name("task")
    for key, least in LEAST.items():  # they stay in `Model.more`, from where they are read
        top.number(key, least, least, high=_HIGHEST.get(key, LARGEST))
    if top.has("slot"):
        slot = top.object("slot", _SLOT_KEYS)
        slot.number("cores", 1.0, above=True, high=1.0, what="more than 0 and at most 1")
        slot.integer("memory_bytes", 1, 2**63 - 1, 1)
        slot.text("machine")
    _check_points(top)
    if not isinstance(data, dict) or faults:
        return None, faults
    slot_data, points = data.get("slot", {}), data["points"]
    slot_more, points_more = _unknown(slot_data, _SLOT_KEYS), [_more_of(point) for point in points]
    more = _unknown(data, _TOP_KEYS) | ({"slot": slot_more} if slot_more else {})
    more |= {"points": points_more} if any(points_more) else {}
    found = tuple(
        Point(**{key: point[key] for key in _NUMBER_KEYS}, spread=_spread_of(point.get("spread")))
        for point in points
    )
    return Model(data["task"], ModelSlot(**_known(slot_data, _SLOT_KEYS)), found, more), []


def _check_points(top: Fields) -> None:
    points = top.objects("points", _POINT_KEYS)
    if top.data.get("points") == []:
        top.fault("points", "expected a list with at least one point, got []")
    largest = 0
    for point in points:
        threads = point.integer("threads", 1, MAX_THREADS)
        if point.has("threads") and threads <= largest:
            point.fault("threads", f"thread counts must rise, and {threads} follows {largest}")
        largest = max(largest, threads)
        point.number("rate_tps", above=True)
        for key in ("cpu", "memory"):
            point.number(key, high=MAX_FRACTION, what="a fraction of the slot (0.92, not 92)")
        if isinstance(point.data.get("spread"), dict):
            spread = point.object("spread", _SPREAD_KEYS)
            spread.number("rate_tps", 0.0)
            for key in ("cpu", "memory"):
                spread.number(key, 0.0, high=MAX_FRACTION, what="a fraction of the slot (0.02, not 2)")
        elif point.data.get("spread") is not None:
            point.number(
                "spread", high=1.0, what="a part of the rate from 0 to 1 (0.05, not 5), or an object"
            )


def _spread_of(data: Any) -> Spread | None:
    if isinstance(data, dict):
        return Spread(**_known(data, _SPREAD_KEYS))
    return None if data is None else Spread(relative=data)


def _more_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """What of a point is kept as it is."""
    more, spread = _unknown(point, _POINT_KEYS), point.get("spread", {})
    if isinstance(spread, dict):
        unknown = _unknown(spread, _SPREAD_KEYS)
        return more | ({"spread": unknown} if unknown else {})
    return more | ({"spread": None} if spread is None else {})


def _known(data: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in keys if key in data}


def _unknown(data: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}
