"""A folder of performance models: one `<task>.json` per task.

Reading lists every fault of every file with its place and then refuses the whole folder.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.controller.models.model_data import model_data, model_of
from headgate.controller.models.plan_data import PlanTraffic, plan_of, read_back
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.api.cluster import MOST_MBPS, MOST_SPEED, Vm
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.measuring import model_store
from headgate.topology_runtime.traces.trace_plans import is_id, the_plan
from headgate.topology_runtime.wording import counted, did_you_mean, name_faults, shown

# ── Contents of files that others wrote: regular ones only, and only so many bytes ──────────────────────


def content_of(path: str | os.PathLike[str], most_bytes: int) -> tuple[bytes, str | None]:
    """(content, fault) of a regular file of at most so many bytes."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for its writer
            return b"", "is not a regular file"
        with open(path, "rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        return b"", f"cannot be read: {error.strerror}"
    return content, f"is larger than {most_bytes:,} bytes" if len(content) > most_bytes else None


def json_of(path: str | os.PathLike[str], most_bytes: int) -> tuple[Any, str | None]:
    """(plain data, fault) of a JSON file of at most so many bytes."""
    content, fault = content_of(path, most_bytes)
    if fault is not None:
        return None, fault
    try:
        return json.loads(content), None
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON: {error}"


MODEL_MOST_BYTES = 1024 * 1024  # reliability: model files are at most 1 MiB


def read_models(directory: str | os.PathLike[str]) -> dict[str, Model]:
    """Task → model of every `*.json` in the folder. Raises InvalidInput with all faults of all files."""
    folder = Path(directory)
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.name[0] != ".")
    except OSError as error:
        raise InvalidInput(
            f"models folder {str(folder)!r} cannot be read",
            cause=error.strerror,
            hint="name a folder that has one TASK.json per task (headgate model profile writes one)",
        ) from error
    models: dict[str, Model] = {}
    faults: list[str] = []
    for path in paths:
        model, found = read_model(path)
        faults += [f"{path.name}: {fault}" for fault in found]
        if model is not None:
            models[model.task] = model
    if faults:
        raise InvalidInput(
            f"models folder {str(folder)!r} has {counted(len(faults), 'fault')}", faults=faults
        )
    return models


def write_model(directory: str | os.PathLike[str], model: Model) -> Path:
    """Write `<task>.json` whole or not at all; returns its path. Raises InvalidInput on a faulty model."""
    data = model_data(model)
    _, faults = model_of(data)
    if faults:
        raise InvalidInput(f"model {model.task!r} is not sound and was not written", faults=faults)
    folder = Path(directory)
    path, unfinished = folder / f"{model.task}.json", folder / f".{model.task}.json.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise InvalidInput(f"model file {str(path)!r} cannot be written", cause=error.strerror) from error
    return path


def stale(model: Model, user_paths: Iterable[str]) -> list[str]:
    """Why the model may no longer hold here: another machine, or other code than was measured.

    Code is compared only where the model says which it was and that code is found."""
    reasons = []
    here = model_store.machine()
    if model.slot.machine != here:
        reasons.append(f"other machine: {model.slot.machine or 'not named'}")
    run, measured = model.more.get("run"), model.more.get("code_digest")
    if isinstance(run, str) and isinstance(measured, str):
        now = model_store.code_digest(Task(model.task, run=run), list(user_paths))
        if now is not None and now != measured:
            reasons.append(f"code of {run} has changed")
    return reasons


def read_model(path: Path) -> tuple[Model | None, list[str]]:
    """(model, faults) of a file named like its task; no model when there are faults."""
    data, fault = json_of(path, MODEL_MOST_BYTES)
    if fault is not None:
        return None, [fault]
    model, faults = model_of(data)
    if model is not None and model.task != path.stem:
        return None, [f"task: {model.task!r} belongs into {model.task}.json"]
    return model, faults


# ── Plans and placements in files: reading them. What they hold: `controller/models/plan_data.py` ───────

PLAN_MOST_BYTES = 64 * 1024**2  # a plan of 10,000 slots and 1,000 tasks takes about 5 MiB


def read_json(path: str | os.PathLike[str]) -> Any:
    """The data of a JSON file. Raises InvalidInput: unreadable, no regular file, too large, not JSON."""
    data, fault = json_of(path, PLAN_MOST_BYTES)
    if fault is not None:
        raise InvalidInput(f"{path} {fault}")
    return data


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan of a file. Raises InvalidInput with every fault."""
    return plan_of(read_json(path), str(path))


def read_base(path: str, topology: Topology) -> Plan:
    """The plan in force, of a file. Raises InvalidInput: no plan, or one of another topology."""
    base = read_plan(path)
    if base.topology != topology.name:
        raise InvalidInput(
            f"{path} is a plan of {base.topology!r}, not of {topology.name!r}",
            hint="headgate diff compares plans of any two topologies",
        )
    return base


def named_plan(name: str, traces: Path) -> tuple[Plan, PlanTraffic | None]:
    """The plan of a file, or of all runs the one whose id begins so; and its traffic, if that is in it. Raises
    InvalidInput."""
    if not is_id(name):
        return read_back(read_json(name), name)
    found = the_plan(name, traces)
    return read_back(found.data, f"plan {found.head.id} in {found.folder}")


# ── Price lists: the VMs that may be acquired and what each costs; TOML, format `headgate/prices/v1` ────
#
# schema = "headgate/prices/v1"
# [[size]]
# name = "D3"
# slots = 4
# usd_per_hour = 0.392
# slot_memory_bytes = 3758096384   # may be left out, as slot_cores, speed, rack and bandwidth_mbps

SCHEMA = "headgate/prices/v1"
PRICES_MOST_BYTES = 1024 * 1024
MOST_SLOTS = 1024  # of one VM
MOST_USD = 1e6  # per hour, of one VM

_TOP_KEYS = ("schema", "size")
_NEEDED = ("name", "slots", "usd_per_hour")
_ABOVE_ZERO = {
    "usd_per_hour": MOST_USD,
    "slot_cores": 1.0,
    "speed": MOST_SPEED,
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

    content, fault = content_of(path, PRICES_MOST_BYTES)
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
