"""Models of a topology's tasks, measured on this machine for a few seconds each on first use.

`models_for` gives the folder of models, and has those measured that are not there yet: by a process of their own
(`calibration/first_use.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.measuring import collected_rows as json_lines
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring.collected_rows import ENDING_S, IMPORTS_S, TEMPORARY

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
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{os.getpid()}-") as temporary:
        file = Path(temporary, "topology.json")
        file.write_bytes(msgspec.json.encode(topology))
        command = [
            sys.executable,
            "-P",
            "-m",
            "headgate.topology_runtime.measuring.first_use",
            "--owner",
            str(os.getpid()),
        ]
        command += ["--topology", str(file), "--output", str(directory), "--seconds", str(seconds)]
        command += ["--slot-cores", str(slot_cores), "--slot-memory-bytes", str(slot_memory_bytes)]
        command += [word for path in user_paths for word in ("--user-path", path)]
        command += [word for name in lacking for word in ("--model", name)]
        _listen(command, topology, seconds, tell)
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


def _listen(command: list[str], topology: Topology, seconds: float, tell: Tell | None) -> None:
    """Run the measuring process to its end."""
    from headgate.topology_runtime.measuring import bench, task_profile
    from headgate.topology_runtime.measuring import bench_trials as probing

    longest_s = max((task.max_call_s for task in topology.tasks), default=0.0)
    silence_s = IMPORTS_S + 2 * (
        bench.START_S + task_profile.SILENCE_S + longest_s + probing.LONGEST * seconds
    )
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, process_group=0
        )
        try:
            for line in json_lines.heard(process, silence_s):
                if tell is not None:
                    tell(line["task"], line["threads"], line["done"], line["of"])
            code = json_lines.ended(process, ENDING_S)
        except TimeoutError as error:
            raise HeadgateError("the models could not be measured", cause=str(error)) from error
        except HeadgateError as error:
            error.cause = error.cause or json_lines.last_line(stderr)  # what a worker said before it died
            raise
        finally:
            json_lines.stopped(process, ENDING_S)
            assert process.stdout is not None
            process.stdout.close()
        if code != 0:
            raise HeadgateError(
                f"the models could not be measured: exit code {code}", cause=json_lines.last_line(stderr)
            )
