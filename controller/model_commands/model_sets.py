"""Model files wherever they are: one file, a folder, a tree of folders, the `run.json` of a trace.

Nothing here raises for what is wrong with a file: readers return what is sound and every fault with its
place, so that a command can show the one and then refuse because of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headgate.controller.files.planning_inputs import json_of, read_model
from headgate.controller.models.model_data import model_of
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.measuring import model_store
from headgate.topology_runtime.traces.trace_tables import RUN_FILE, SCHEMA
from headgate.topology_runtime.wording import counted

MAX_RUN_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ModelFile:
    """A sound model and the file it was read from."""

    file: Path
    model: Model


@dataclass
class Found:
    """Sound models in order of their files, and the faults of the others."""

    models: list[ModelFile] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.models += other.models
        self.faults += other.faults


def cache() -> Path:
    """Where models measured on this machine are, in folders per machine, topology and slot size."""
    return model_store.cache_home() / "headgate" / "models"


def in_tree(directory: Path) -> Found:
    """The models of a folder and all folders below it."""
    found = Found()
    for path in sorted(directory.rglob("*.json")):
        if not any(part.startswith(".") for part in path.relative_to(directory).parts):
            found.add(_run(path) if path.name == RUN_FILE else _file(path))
    return found


def at(place: Path) -> Found:
    """The models of a file, a folder, or a trace: its `run.json` or the folder that holds that.

    Raises InvalidInput when there is nothing at that place or nothing that could be a model."""
    if place.is_dir():
        if (place / RUN_FILE).is_file():
            return _run(place / RUN_FILE)
        files = sorted(path for path in place.glob("*.json") if not path.name.startswith("."))
        if not files:
            raise InvalidInput(f"no model in folder {str(place)!r}", hint="put one TASK.json per task there")
        found = Found()
        for path in files:
            found.add(_file(path))
        return found
    if not place.exists():
        raise InvalidInput(
            f"no file or folder {str(place)!r}", hint="name a model file or a folder of models"
        )
    return _run(place) if place.name == RUN_FILE else _file(place)


def sound(found: Found, what: str) -> list[ModelFile]:
    """The models, all of them. Raises InvalidInput with every fault when one is not sound."""
    if found.faults:
        raise InvalidInput(f"{what}: {counted(len(found.faults), 'fault')}", faults=found.faults)
    return found.models


def newest(models: Sequence[ModelFile]) -> ModelFile:
    """The one measured last; those that do not say when come before all others."""
    return max(models, key=lambda one: str(one.model.more.get("measured_at", "")))


def age_s(model: Model, now_ns: int) -> float | None:
    """Seconds since the model was measured; None when it does not say when."""
    try:
        then = datetime.fromisoformat(str(model.more.get("measured_at", "")))
    except ValueError:
        return None
    then = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return max(0.0, now_ns / 1e9 - then.timestamp())


def _file(path: Path) -> Found:
    model, faults = read_model(path)
    return Found([ModelFile(path, model)] if model else [], [f"{path}: {fault}" for fault in faults])


def _run(path: Path) -> Found:
    """The models that a run was planned with."""
    data, fault = json_of(path, MAX_RUN_BYTES)
    if fault is not None:
        return Found(faults=[f"{path}: {fault}"])
    models = data.get("models") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(models, list) or not models:
        return Found(faults=[f"{path}: expected a {SCHEMA} with at least one model"])
    found = Found()
    for place, each in enumerate(models):
        model, faults = model_of(each)
        found.faults += [f"{path}: models[{place}]: {fault}" for fault in faults]
        if model is not None:
            found.models.append(ModelFile(path, model))
    return found
