"""A folder of performance models: one `<task>.json` per task.

Reading lists every fault of every file with its place and then refuses the whole folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from headgate.controller.files.contents import json_of
from headgate.controller.knowledge.model_data import model_data, model_of
from headgate.controller.knowledge.models import Model
from headgate.topology_runtime.calibration import store
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.topology import Task

MAX_BYTES = 1024 * 1024  # reliability: model files are at most 1 MiB


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
    here = store.machine()
    if model.slot.machine != here:
        reasons.append(f"other machine: {model.slot.machine or 'not named'}")
    run, measured = model.more.get("run"), model.more.get("code_digest")
    if isinstance(run, str) and isinstance(measured, str):
        now = store.code_digest(Task(model.task, run=run), list(user_paths))
        if now is not None and now != measured:
            reasons.append(f"code of {run} has changed")
    return reasons


def read_model(path: Path) -> tuple[Model | None, list[str]]:
    """(model, faults) of a file named like its task; the model is None when there are faults."""
    data, fault = json_of(path, MAX_BYTES)
    if fault is not None:
        return None, [fault]
    model, faults = model_of(data)
    if model is not None and model.task != path.stem:
        return None, [f"task: {model.task!r} belongs into {model.task}.json"]
    return model, faults
