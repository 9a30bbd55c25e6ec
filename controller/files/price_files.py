"""Price lists: the VMs that may be acquired and what each costs; TOML, format `headgate/prices/v1`.

schema = "headgate/prices/v1"
[[size]]
name = "D3"
slots = 4
usd_per_hour = 0.392
slot_memory_bytes = 3758096384   # may be left out, as slot_cores, speed, rack and bandwidth_mbps
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headgate.controller.files.contents import content_of
from headgate.topology_runtime.cluster import MOST_MBPS, Vm
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import counted, did_you_mean, name_faults, shown

SCHEMA = "headgate/prices/v1"
MAX_BYTES = 1024 * 1024
MOST_SLOTS = 1024  # of one VM
MOST_USD = 1e6  # per hour, of one VM

_TOP_KEYS = ("schema", "size")
_NEEDED = ("name", "slots", "usd_per_hour")
_ABOVE_ZERO = {
    "usd_per_hour": MOST_USD,
    "slot_cores": 1.0,
    "speed": 1000.0,
    "bandwidth_mbps": MOST_MBPS,
}  # key → the most
_KEYS = (*_NEEDED, "slot_memory_bytes", "slot_cores", "speed", "rack", "bandwidth_mbps")


def read_prices(path: str | os.PathLike[str]) -> tuple[Vm, ...]:
    """One template for each size, in the order of the file; `vm` is the size's name.

    Raises InvalidInput with every fault of the file and its place."""
    data = _data(path)
    faults = list(_key_faults("", data, _TOP_KEYS))
    if data.get("schema") != SCHEMA:
        faults.append(f"schema: expected {SCHEMA!r}, got {shown(data.get('schema'))}")
    sizes = data.get("size", [])
    if not isinstance(sizes, list) or not sizes:
        faults.append("size: expected at least one [[size]]")
        sizes = []
    seen: set[str] = set()
    for number, size in enumerate(sizes):
        faults += _size_faults(f"size[{number}]", size, seen)
    if faults:
        raise InvalidInput(f"price list {str(path)!r} has {counted(len(faults), 'fault')}", faults=faults)
    return tuple(_template(size) for size in sizes)


def _template(size: Mapping[str, Any]) -> Vm:
    more = {key: size[key] for key in _KEYS[2:] if key in size}
    return Vm(size["name"], size["slots"], **more)


def _data(path: str | os.PathLike[str]) -> dict[str, Any]:
    import tomllib

    content, fault = content_of(path, MAX_BYTES)
    if fault is not None:
        raise InvalidInput(f"price list {str(path)!r} {fault}")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"price list {str(path)!r} is not TOML", cause=str(error)) from error


def _size_faults(place: str, size: object, seen: set[str]) -> Iterator[str]:
    """Faults of one [[size]]; adds its name to `seen`."""
    if not isinstance(size, dict):
        yield f"{place}: expected a table, got {shown(size)}"
        return
    yield from _key_faults(f"{place}.", size, _KEYS)
    yield from (f"{place}.{key}: is missing" for key in _NEEDED if key not in size)
    if "name" in size:
        yield from _name_faults(f"{place}.name", size["name"], seen)
    if "rack" in size:
        yield from _name_faults(f"{place}.rack", size["rack"], set())
    for key, most in (("slots", MOST_SLOTS), ("slot_memory_bytes", 2**63 - 1)):
        value = size.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            yield f"{place}.{key}: expected a whole number from 1 to {most}, got {shown(value)}"
    for key, high in _ABOVE_ZERO.items():
        number = size.get(key, 1.0)
        desired = f"expected a number above 0 and at most {high:g}"
        if not isinstance(number, int | float) or isinstance(number, bool):
            yield f"{place}.{key}: {desired}, got {shown(number)}"
        elif not (math.isfinite(number) and 0 < number <= high):
            yield f"{place}.{key}: {desired}, got {number}"


def _name_faults(place: str, name: object, seen: set[str]) -> Iterator[str]:
    if not isinstance(name, str):
        yield f"{place}: expected a name, got {shown(name)}"
        return
    yield from name_faults(place, name)
    if name in seen:
        yield f"{place}: {name!r} is listed twice"
    seen.add(name)


def _key_faults(place: str, data: Mapping[str, Any], known: Iterable[str]) -> Iterator[str]:
    for key in data:
        if key not in known:
            yield f"{place}{shown(key)[1:-1]}: unknown key{did_you_mean(key, known)}"
