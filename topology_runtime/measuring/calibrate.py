"""Models of a topology's tasks, measured on this machine for a few seconds each on first use."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.collected_rows import last_line, own_folder

DERATE = 0.93  # of what one probe of seconds finds: it errs low
SECONDS = 2.0  # per point: a hundred periods of the slot's quota

Tell = Callable[[str, int, int, int], None]  # task, threads, points done, points expected in all


def models_for(  # what models depend on, and how to measure them
    topology: Topology,
    user_paths: Sequence[str],
    slot_cores: float,
    slot_memory_bytes: int,
    seconds: float = SECONDS,
    tell: Tell | None = None,
    cache: Path | None = None,
    measure_side_effects: bool = False,
) -> tuple[Path, bool]:
    """(folder of models, was anything measured now?). Measures the models that this machine has not yet; tasks that
    are not run on samples (`Topology.unsampled`) get stand-ins, unless `measure_side_effects`.

    `tell` hears of every point. Raises InvalidInput for tasks without code, HeadgateError when a task
    fails, hangs or misses its service; nothing is left running then, nor on Ctrl-C."""
    directory = store.folder(topology, user_paths, slot_cores, slot_memory_bytes, cache)
    lacking = store.missing(topology, directory, measured=measure_side_effects)
    if lacking:
        _raise_if_planned_only(topology)
    if not measure_side_effects:
        slot = {"cores": slot_cores, "memory_bytes": slot_memory_bytes, "machine": store.machine()}
        spared = unsampled_models(topology)
        for name in spared & set(lacking):
            store.save(directory, store.stand_in(name, slot))
        lacking = [name for name in lacking if name not in spared]
    if not lacking:
        directory.mkdir(parents=True, exist_ok=True)  # no task may need a model
        return directory, False
    tasks = tuple(store.modelled(topology)[name] for name in lacking)
    with tempfile.TemporaryFile() as said:
        size = slot_cores, slot_memory_bytes
        try:
            _measure(topology, tasks, tuple(user_paths), directory, size, seconds, tell, said)
        except HeadgateError as error:
            error.cause = error.cause or last_line(said)  # what a worker said before it died
            raise
    return directory, True


def unsampled_models(topology: Topology) -> set[str]:
    """Models of which no task may be run on sample rows."""
    sampled = {t.model_name for t in topology.tasks if t.name not in topology.unsampled}
    return set(store.modelled(topology)) - sampled


def _raise_if_planned_only(topology: Topology) -> None:
    faults = [f"task {task.name!r}: no `run`" for task in topology.tasks if task.run is None]
    if faults:
        raise InvalidInput(
            "the models cannot be measured: there is no code",
            faults=faults,
            hint="give models with --models DIR",
        )


def _measure(
    topology: Topology, tasks: tuple[Task, ...], user_paths: tuple[str, ...], directory: Path,
    size: tuple[float, int], seconds: float, tell: Tell | None, said: IO[bytes],
) -> None:  # fmt: skip
    """Each model is kept as soon as it is whole; the first task that fails ends all."""
    from headgate.topology_runtime.measuring.profile_steps import QUICK, USUAL_COUNTS, Next, steps_left
    from headgate.topology_runtime.measuring.task_profile import ProfileRecord, ProfileRequest, profile

    done, left = Counter[str](), dict.fromkeys((task.model_name for task in tasks), USUAL_COUNTS)

    def hear(record: ProfileRecord, step: Next | None) -> None:
        if record.failed is not None:
            raise record.failed
        if step is None:
            store.save(directory, msgspec.json.decode((fresh / f"{record.task}.json").read_bytes()))
        done[record.task] = len(record.probes)
        left[record.task] = max(1, steps_left(record.probes, (), QUICK)[0]) if step is not None else 0
        if tell is not None:
            threads = step.threads if step is not None else record.probes[-1].threads
            tell(record.task, threads, done.total(), done.total() + sum(left.values()))

    fresh, wish = Path(own_folder()), replace(QUICK, derate=DERATE)
    try:
        profile(
            ProfileRequest(topology, tasks, user_paths, fresh, *size, wish, seconds, said=said.fileno()), hear
        )
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
