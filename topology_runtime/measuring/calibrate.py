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

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.collected_rows import Killed, last_line, own_folder

DERATE = 0.93  # of what one probe of seconds finds: it errs low
SECONDS = 2.0  # per point: a hundred periods of the slot's quota

Tell = Callable[[str, int, int, int], None]  # task, threads, points done, points expected in all


def models_for(
    shelf: store.Shelf,
    directory: Path,
    first: bool = True,
    seconds: float = SECONDS,
    tell: Tell | None = None,
    measure_side_effects: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Put a model of every task into `directory`: those that are kept; of the others what is measured now, if `first`,
    and else stand-ins. Tasks that are not run on samples (`Topology.unsampled`) get stand-ins in any case, unless
    `measure_side_effects`. The names of those that were measured now.

    A process that is killed meanwhile costs the models that it measured, and `say` hears of it.

    `tell` hears of every point. Raises InvalidInput for tasks without code, HeadgateError when a task
    fails, hangs or misses its service; nothing is left running then, nor on Ctrl-C."""
    kept, lacking = shelf.kept(), shelf.lacking()
    if lacking:
        _raise_if_planned_only(shelf.topology)
    directory.mkdir(parents=True, exist_ok=True)  # no task may need a model
    for model in kept.values():
        store.save(directory, model)
    spared = unsampled_models(shelf.topology) if first and not measure_side_effects else set()
    asked = [name for name in lacking if first and name not in spared]
    for name in lacking:
        store.save(directory, store.stand_in(name, shelf.slot))
    if not asked:
        return []
    measured: list[str] = []
    with tempfile.TemporaryFile() as said:
        try:
            _measure(shelf, asked, directory, seconds, tell, said, measured, say)
        except Killed as error:
            say(f"{error.what} ({error.cause}): nothing is measured now")
        except HeadgateError as error:
            error.cause = error.cause or last_line(said)  # what a worker said before it died
            raise
    return measured


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
    shelf: store.Shelf,
    names: Sequence[str],
    directory: Path,
    seconds: float,
    tell: Tell | None,
    said: IO[bytes],
    measured: list[str],
    say: Callable[[str], None],
) -> None:
    """Each model is kept as soon as it is whole, and its name is `measured`; the first task that fails ends all."""
    from headgate.topology_runtime.measuring.profile_steps import QUICK, USUAL_COUNTS, Next, steps_left
    from headgate.topology_runtime.measuring.task_profile import ProfileRecord, ProfileRequest, profile

    topology, size = shelf.topology, (shelf.slot_cores, shelf.slot_memory_bytes)
    tasks = tuple(store.modelled(topology)[name] for name in names)
    done, left = Counter[str](), dict.fromkeys((task.model_name for task in tasks), USUAL_COUNTS)

    def hear(record: ProfileRecord, step: Next | None) -> None:
        if isinstance(record.failed, Killed):
            say(f"{record.failed.what} ({record.failed.cause}): it is not measured now")
        elif record.failed is not None:
            raise record.failed
        elif step is None:
            measured.append(record.task)
            found = msgspec.json.decode((fresh / f"{record.task}.json").read_bytes())
            shelf.keep(found)
            store.save(directory, found)
        done[record.task] = len(record.probes)
        left[record.task] = max(1, steps_left(record.probes, (), QUICK)[0]) if step is not None else 0
        if tell is not None:
            last = step or (record.probes[-1] if record.probes else None)
            tell(
                record.task,
                last.threads if last is not None else 1,
                done.total(),
                done.total() + sum(left.values()),
            )

    fresh, wish = Path(own_folder()), replace(QUICK, derate=DERATE)
    try:
        profile(
            ProfileRequest(
                topology, tasks, tuple(shelf.user_paths), fresh, *size, wish, seconds, said=said.fileno()
            ),
            hear,
        )
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
