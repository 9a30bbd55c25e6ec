"""Where calibrated models are kept: per machine, per topology's tasks and inputs, per slot size.

    $XDG_CACHE_HOME/headgate/models/<machine>/<digest>/slot-<cores>/<model>.json

The digest covers tasks with their parameters and code, edges, the slot's memory and the method's
version, but no addresses and folders, which differ from run to run and change no speed.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate import tasks
from headgate.topology_runtime.api.topology import Task, Topology, digest_of

UNLIMITED_TPS = 1e9
METHOD = 4  # raise it when the way of measuring changes: older models are measured again
NO_SPEED = frozenset({"address", "directory", "endpoint", "host", "port", "service", "url"})  # parameters
_address = re.compile(r"(\w+://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z][\w.\-]*|\d+(\.\d+){3}):\d{1,5}")
_slug = re.compile(r"[^A-Za-z0-9.]+")
INSTALLED = str(Path(tasks.__file__).parents[1])  # the folder that has `headgate`: of a clone, links to it


def machine() -> str:
    """CPU model, cores and Python of this machine, as a folder's name."""
    words = (
        f"{cpu_model()} {os.cpu_count()} cores {platform.python_implementation()} {platform.python_version()}"
    )
    return _slug.sub("-", words).strip("-").lower()[:100]


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def folder(
    topology: Topology,
    user_paths: Sequence[str],
    slot_cores: float,
    slot_memory_bytes: int,
    cache: Path | None = None,
    kind: str | None = None,
) -> Path:
    """Where the models of this topology for slots of this size are, or would be. kind: of machine (none: this one)."""
    base = cache if cache is not None else cache_home() / "headgate" / "models"
    return (
        base / (kind or machine()) / digest(topology, user_paths, slot_memory_bytes) / f"slot-{slot_cores:g}"
    )


def cache_home() -> Path:
    """XDG_CACHE_HOME, where it is set to an absolute path; else ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def digest(topology: Topology, user_paths: Sequence[str], slot_memory_bytes: int) -> str:
    """Names everything that a model depends on but the machine and the slot's cores."""
    tasks = [
        [t.name, t.model_name, t.kind, t.run, speed_params(t.params), code_digest(t, user_paths)]
        for t in topology.tasks
    ]
    edges = [[edge.source, edge.target, edge.grouping, edge.key] for edge in topology.edges]
    what = [METHOD, tasks, edges, slot_memory_bytes]
    return digest_of(msgspec.json.encode(what, order="deterministic"))


def speed_params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters without those that are an address or a folder."""
    addresses = {key for key, value in params.items() if isinstance(value, str) and _address.fullmatch(value)}
    return {key: value for key, value in params.items() if key not in NO_SPEED | addresses}


def code_digest(task: Task, user_paths: Sequence[str]) -> str | None:
    """Of the file that holds the task's code, found without importing anything; None when not found."""
    module, _, name = (task.run or "").rpartition(":")
    if module == tasks.__name__:
        module = tasks.PLACES.get(name, module)
    for path in _code_files(module, [*user_paths, INSTALLED]):
        if path.is_file():
            return digest_of(path.read_bytes())
    return None


def code_of(task: Task, user_paths: Sequence[str]) -> dict[str, str | None]:
    """Keys of a model that say whose it is: where the code is, and its digest."""
    return {"run": task.run, "code_digest": code_digest(task, user_paths)}


def _code_files(module: str, places: Sequence[str]) -> list[Path]:
    if not module:
        return []
    if module.endswith(".py"):
        return [Path(module), *(Path(place) / module for place in places)]
    parts = module.split(".")
    found = [Path(place, *parts) for place in places]
    return [file for path in found for file in (path.with_suffix(".py"), path / "__init__.py")]


def modelled(topology: Topology) -> dict[str, Task]:
    """Model → the first task that uses it, of the tasks that need one (all but static ones); if it can be, one that is
    run on sample rows."""
    models: dict[str, Task] = {}
    for task in sorted(topology.breadth_first, key=lambda task: task.name in topology.unsampled):
        if task.static is None:
            models.setdefault(task.model_name, task)
    return models


def missing(topology: Topology, directory: Path, measured: bool = False) -> list[str]:
    """Models that are not there, or are no JSON; `measured`: also those that only stand in."""
    found = {name: _kept(directory / f"{name}.json") for name in modelled(topology)}
    return [name for name, kept in found.items() if kept is None or (measured and stands_in(kept))]


def read(directory: Path) -> list[dict[str, Any]]:
    """The measured models that are kept there."""
    found = (_kept(path) for path in sorted(directory.glob("*.json")))
    return [kept for kept in found if isinstance(kept, dict) and not stands_in(kept)]


def _kept(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def stands_in(model: Any) -> bool:
    return isinstance(model, dict) and model.get("unmeasured") is True


def stand_in(name: str, slot: dict[str, Any]) -> dict[str, Any]:
    """Of a task that is not run on sample rows: one thread, which takes a slot and limits nothing."""
    point = {"threads": 1, "rate_tps": UNLIMITED_TPS, "cpu": 0.0, "memory": 0.0}
    return {"schema": "headgate/model/v1", "task": name, "slot": slot, "points": [point], "unmeasured": True}


def take_up(topology: Topology, directory: Path, fresh: Path) -> list[str]:
    """Replace stand-ins in `directory` by what a run measured of their tasks, in `fresh`; the names."""
    taken = []
    for name in missing(topology, directory, measured=True):
        found = _kept(fresh / f"{name}.json")
        if found is not None and not stands_in(found):
            save(directory, found)
            taken.append(name)
    return taken


def take_corrections(directory: Path, fresh: Path) -> list[str]:
    """Put corrected models of a run, in `fresh`, in the place of those in `directory`, which stay beside them as
    NAME.json.v1, v2, …; the names."""
    taken = []
    for path in sorted(fresh.glob("*.json")):
        before, found = directory / path.name, _kept(path)
        if found is None or _kept(before) in (None, found):
            continue
        number = 1 + sum(1 for _ in directory.glob(f"{path.name}.v*"))
        before.with_name(f"{path.name}.v{number}").write_bytes(before.read_bytes())
        save(directory, found)
        taken.append(path.stem)
    return taken


def save(directory: Path, model: dict[str, Any]) -> None:
    """Whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f".{model['task']}.{os.getpid()}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    new.rename(directory / f"{model['task']}.json")
