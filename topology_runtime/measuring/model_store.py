"""Where measured models are kept: a file per task, on each kind of machine, for each size of slot.

    $XDG_CACHE_HOME/headgate/models/<machine>/slot-<cores>/<digest>/<model>.json

The digest covers the task's code and what that calls in the user's project, its parameters, the grouping of its edges,
the slot's memory and the method's version, but no addresses and folders, which differ from run to run and change no
speed. So whoever edits one task measures one again.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headgate import tasks
from headgate.topology_runtime.api.topology import Task, Topology, digest_of
from headgate.topology_runtime.measuring.task_code import digest_reached, file_of

UNLIMITED_TPS = 1e9
METHOD = 5  # raise it when the way of measuring changes: older models are measured again
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


def cache_home() -> Path:
    """XDG_CACHE_HOME, where it is set to an absolute path; else ~/.cache."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def digest(topology: Topology, model: str, user_paths: Sequence[str], slot_memory_bytes: int) -> str:
    """Names everything that a model depends on but the machine and the slot's cores."""
    tasks = [
        [t.kind, t.run, speed_params(t.params), code_digest(t, user_paths), _edges(topology, t, user_paths)]
        for t in topology.tasks
        if t.model_name == model
    ]
    what = [METHOD, tasks, slot_memory_bytes]
    return digest_of(msgspec.json.encode(what, order="deterministic"))


def _edges(topology: Topology, task: Task, user_paths: Sequence[str]) -> list[list[list[Any]]]:
    """How rows come and go; keys that are functions with their code."""
    ends = (topology.in_edges(task.name), topology.out_edges(task.name))
    return [
        [[edge.grouping, edge.key, _run_digest(str(edge.key), user_paths)] for _, edge in edges]
        for edges in ends
    ]


def speed_params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters without those that are an address or a folder."""
    addresses = {key for key, value in params.items() if isinstance(value, str) and _address.fullmatch(value)}
    return {key: value for key, value in params.items() if key not in NO_SPEED | addresses}


def code_digest(task: Task, user_paths: Sequence[str]) -> str | None:
    """Of the task's code, found without importing anything; None when not found."""
    return _run_digest(task.run or "", user_paths)


def _run_digest(run: str, user_paths: Sequence[str]) -> str | None:
    """Of the user's: what is reached from there in the user's project. Of what came with headgate: its file."""
    module, _, name = run.rpartition(":")
    if module == tasks.__name__:
        module = tasks.PLACES.get(name, module)
    try:
        if (file := file_of(module, user_paths)) is not None:
            return digest_reached(file, name, [*user_paths, str(file.parent)])
        file = file_of(module, [INSTALLED])
        return None if file is None else digest_of(file.read_bytes())
    except OSError:
        return None


def code_of(task: Task, user_paths: Sequence[str]) -> dict[str, str | None]:
    """Keys of a model that say whose it is: where the code is, and its digest."""
    return {"run": task.run, "code_digest": code_digest(task, user_paths)}


@dataclass(frozen=True)
class Shelf:
    """The models of a topology that are kept for slots of one size on one kind of machine ("": this one)."""

    topology: Topology
    user_paths: Sequence[str]
    slot_cores: float
    slot_memory_bytes: int
    kind: str = ""
    cache: Path | None = None

    @property
    def folder(self) -> Path:
        base = self.cache if self.cache is not None else cache_home() / "headgate" / "models"
        return base / (self.kind or machine()) / f"slot-{self.slot_cores:g}"

    @property
    def slot(self) -> dict[str, Any]:
        """As models name it."""
        return {
            "cores": self.slot_cores,
            "memory_bytes": self.slot_memory_bytes,
            "machine": self.kind or machine(),
        }

    def file(self, model: str) -> Path:
        named = digest(self.topology, model, self.user_paths, self.slot_memory_bytes)
        return self.folder / named[:20] / f"{model}.json"

    def kept(self) -> dict[str, dict[str, Any]]:
        """Model → what is kept of it, where something is."""
        found = {name: _kept(self.file(name)) for name in modelled(self.topology)}
        return {n: model for n, model in found.items() if isinstance(model, dict) and not stands_in(model)}

    def lacking(self) -> list[str]:
        kept = self.kept()
        return [name for name in modelled(self.topology) if name not in kept]

    def keep(self, model: dict[str, Any]) -> None:
        save(self.file(model["task"]).parent, model)

    def take_up(self, fresh: Path) -> list[str]:
        """Keep what a run learned of tasks that had no model, in `fresh`; the names."""
        found = {name: _kept(fresh / f"{name}.json") for name in self.lacking()}
        taken = [name for name, model in found.items() if isinstance(model, dict) and not stands_in(model)]
        for name in taken:
            self.keep(found[name])
        return taken

    def take_corrections(self, fresh: Path) -> list[str]:
        """Keep corrected models of a run, in `fresh`, in the place of those before, which stay beside them as
        NAME.json.v1, v2, …; the names."""
        kept, taken = self.kept(), []
        for name in sorted(kept):
            found, before = _kept(fresh / f"{name}.json"), self.file(name)
            if found in (None, kept[name]):
                continue
            number = 1 + sum(1 for _ in before.parent.glob(f"{before.name}.v*"))
            before.with_name(f"{before.name}.v{number}").write_bytes(before.read_bytes())
            self.keep(found)
            taken.append(name)
        return taken


def modelled(topology: Topology) -> dict[str, Task]:
    """Model → the first task that uses it, of the tasks that need one (all but static ones); if it can be, one that is
    run on sample rows."""
    models: dict[str, Task] = {}
    for task in sorted(topology.breadth_first, key=lambda task: task.name in topology.unsampled):
        if task.static is None:
            models.setdefault(task.model_name, task)
    return models


def _kept(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def stands_in(model: Any) -> bool:
    return isinstance(model, dict) and model.get("unmeasured") is True


def stand_in(name: str, slot: dict[str, Any]) -> dict[str, Any]:
    """Of a task that nothing is known of yet: one thread, which limits nothing."""
    point = {"threads": 1, "rate_tps": UNLIMITED_TPS, "cpu": 0.0, "memory": 0.0}
    return {"schema": "headgate/model/v1", "task": name, "slot": slot, "points": [point], "unmeasured": True}


def save(directory: Path, model: dict[str, Any]) -> None:
    """Whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f".{model['task']}.{os.getpid()}.new"
    new.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")
    new.rename(directory / f"{model['task']}.json")
