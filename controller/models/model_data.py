"""Performance models as plain data, format `headgate/model/v1`: read with every fault and its place, and written.

Keys that headgate does not know are kept in `Model.more` and written again, unless they are within two characters
of a known key: those are taken for typing errors.

    Model.more: unknown keys of the file; under "slot" those of its slot; under "points" a list
                with those of each point, and there under "spread" those of its spread

A point's `spread` is a number, the half-width of its rate as a part of it (0.05: ±5 %), or an object with
half-widths: `rate_tps` in rows/s, `cpu` and `memory` in fractions of the slot. It is written as it was read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.controller.models.field_reader import near_key
from headgate.controller.models.task_models import SCHEMA, Model, ModelSlot, Point, Spread
from headgate.topology_runtime.wording import name_faults, shown

MAX_THREADS = 1_000_000  # far above what one slot can hold; keeps every product of thread counts small
MAX_FRACTION = 2.0  # of a slot; measured values scatter round 1, so a 92.35 is a percentage by mistake

_TOP_KEYS = ("schema", "task", "slot", "points")
_WAKE_KEY = "wake_cpu"  # stays in `Model.more`, from where `Model.wake` reads it
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
    """(model, faults) of a file's plain data; no model when there are faults."""
    if not isinstance(data, dict):
        return None, [f"expected an object, got {shown(data)}"]
    faults = list(_key_faults("", data, (*_TOP_KEYS, _WAKE_KEY)))
    if data.get("schema") != SCHEMA:
        faults.append(f"schema: expected {SCHEMA!r}, got {shown(data.get('schema'))}")
    task = data.get("task")
    if isinstance(task, str):
        faults += name_faults("task", task)
    else:
        faults.append(f"task: expected a name, got {shown(task)}")
    wake: Any = data.get(_WAKE_KEY, 0.0)
    if not _is_amount(wake):
        faults.append(f"{_WAKE_KEY}: expected a finite number of at least 0, got {shown(wake)}")
    slot, slot_more = _slot_of(data.get("slot", {}), faults)
    points, points_more = _points_of(data.get("points"), faults)
    if faults:
        return None, faults
    more = {key: value for key, value in data.items() if key not in _TOP_KEYS}
    more |= {"slot": slot_more} if slot_more else {}
    more |= {"points": points_more} if any(points_more) else {}
    return Model(str(task), slot, points, more), []


def _slot_of(data: object, faults: list[str]) -> tuple[ModelSlot, dict[str, Any]]:
    if not isinstance(data, dict):
        faults.append(f"slot: expected an object, got {shown(data)}")
        return ModelSlot(), {}
    faults += _key_faults("slot.", data, _SLOT_KEYS)
    cores, size = data.get("cores", ModelSlot().cores), data.get("memory_bytes", ModelSlot().memory_bytes)
    machine = data.get("machine", "")
    if not _is_number(cores) or not 0 < cores <= 1:
        faults.append(f"slot.cores: expected more than 0 and at most 1, got {shown(cores)}")
    if not _is_integer(size) or not 0 < size < 2**63:
        faults.append(f"slot.memory_bytes: expected a positive integer, got {shown(size)}")
    if not isinstance(machine, str):
        faults.append(f"slot.machine: expected text, got {shown(machine)}")
    more = {key: value for key, value in data.items() if key not in _SLOT_KEYS}
    return ModelSlot(cores, size, machine), more


def _points_of(data: object, faults: list[str]) -> tuple[tuple[Point, ...], list[dict[str, Any]]]:
    if not isinstance(data, list) or not data:
        faults.append(f"points: expected a list with at least one point, got {shown(data)}")
        return (), []
    points: list[Point] = []
    more: list[dict[str, Any]] = []
    largest = 0
    for number, point in enumerate(data):
        place = f"points[{number}]"
        if not isinstance(point, dict):
            faults.append(f"{place}: expected an object, got {shown(point)}")
            continue
        found = [*_key_faults(f"{place}.", point, _POINT_KEYS), *_point_faults(place, point, largest)]
        faults += found
        if _is_integer(point.get("threads")):
            largest = max(largest, point["threads"])
        if not found:
            numbers = {key: point[key] for key in _NUMBER_KEYS}
            points.append(Point(**numbers, spread=_spread_of(point.get("spread"))))
        more.append(_more_of(point))
    return tuple(points), more


def _spread_of(data: Any) -> Spread | None:
    if isinstance(data, dict):
        return Spread(**{key: data[key] for key in _SPREAD_KEYS if key in data})
    return None if data is None else Spread(relative=data)


def _more_of(point: Mapping[str, Any]) -> dict[str, Any]:
    """What of a point is kept as it is."""
    more = {key: value for key, value in point.items() if key not in _POINT_KEYS}
    spread = point.get("spread", {})
    if isinstance(spread, dict):
        unknown = {key: value for key, value in spread.items() if key not in _SPREAD_KEYS}
        return more | ({"spread": unknown} if unknown else {})
    return more | ({"spread": None} if spread is None else {})


def _point_faults(place: str, point: Mapping[str, Any], largest: int) -> Iterable[str]:
    """Faults of one point; `largest`: the most threads of the points before it."""
    threads: Any = point.get("threads")
    rate: Any = point.get("rate_tps")
    if not _is_integer(threads) or not 1 <= threads <= MAX_THREADS:
        yield f"{place}.threads: expected an integer from 1 to {MAX_THREADS}, got {shown(threads)}"
    elif threads <= largest:
        yield f"{place}.threads: thread counts must rise, and {threads} follows {largest}"
    if not _is_number(rate) or not 0 < rate < math.inf:
        yield f"{place}.rate_tps: expected a positive finite number, got {shown(rate)}"
    for key in ("cpu", "memory"):
        value: Any = point.get(key)
        if not _is_number(value) or not 0 <= value < math.inf:
            yield f"{place}.{key}: expected a finite number of at least 0, got {shown(value)}"
        elif value > MAX_FRACTION:
            yield f"{place}.{key}: expected a fraction of the slot (0.92, not 92), got {shown(value)}"
    yield from _spread_faults(f"{place}.spread", point.get("spread"))


def _spread_faults(place: str, spread: Any) -> Iterable[str]:
    if isinstance(spread, dict):
        yield from _key_faults(f"{place}.", spread, _SPREAD_KEYS)
        for key in _SPREAD_KEYS:
            if key in spread and not _is_amount(spread[key]):
                yield f"{place}.{key}: expected a finite number of at least 0, got {shown(spread[key])}"
            elif key in spread and key != "rate_tps" and spread[key] > MAX_FRACTION:
                found = shown(spread[key])
                yield f"{place}.{key}: expected a fraction of the slot (0.02, not 2), got {found}"
    elif spread is not None and not _is_number(spread):
        yield f"{place}: expected a number or an object, got {shown(spread)}"
    elif spread is not None and not (_is_amount(spread) and spread <= 1):
        yield f"{place}: expected a part of the rate from 0 to 1 (0.05, not 5), got {shown(spread)}"


def _key_faults(place: str, data: Mapping[Any, Any], known: tuple[str, ...]) -> Iterable[str]:
    for key in data:
        near = near_key(str(key), known)
        if near is not None:
            yield f"{place}{shown(key)[1:-1]}: unknown key; did you mean {near!r}?"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
