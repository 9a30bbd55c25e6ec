"""Models of a topology's tasks, measured on this machine for a few seconds each on first use.

models_for(topology, …)                   the folder of models; measures those that are not there yet
python -P -m topology_runtime.calibrate   the process that measures: no user code in itself, JSON lines
                                          {"task", "threads", "done", "of"} on stdout
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from topology_runtime.calibration import lines, search, store
from topology_runtime.calibration.collecting import ENDING_S, IMPORTS_S, TEMPORARY, collect_rows, own_folder
from topology_runtime.calibration.lines import Speaker
from topology_runtime.clock import wall_ns
from topology_runtime.errors import HeadgateError, InvalidInput
from topology_runtime.owner import die_with
from topology_runtime.topology import Topology
from topology_runtime.utc import utc_iso

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
    measure_effects: bool = False,
) -> tuple[Path, bool]:
    """(folder of models, was anything measured now?). Measures the models that this machine has not yet; tasks that
    are not run on samples (`Topology.unsampled`) get stand-ins, unless `measure_effects`.

    `tell` hears of every point. Raises InvalidInput for tasks without code, HeadgateError when a task
    fails, hangs or misses its service; nothing is left running then, nor on Ctrl-C."""
    directory = store.folder(topology, user_paths, slot_cores, slot_memory_bytes, cache)
    lacking = store.missing(topology, directory, measured=measure_effects)
    if lacking:
        _raise_if_planned_only(topology)
    if not measure_effects:
        slot = {"cores": slot_cores, "memory_bytes": slot_memory_bytes, "machine": store.machine()}
        spared = unsampled_models(topology)
        for name in spared & set(lacking):
            store.save(directory, store.stand_in(name, slot))
        lacking = [name for name in lacking if name not in spared]
    if not lacking:
        return directory, False
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{os.getpid()}-") as temporary:
        file = Path(temporary, "topology.json")
        file.write_bytes(msgspec.json.encode(topology))
        command = [sys.executable, "-P", "-m", "topology_runtime.calibrate", "--owner", str(os.getpid())]
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
    from topology_runtime.calibration import bench

    longest_s = max((task.max_call_s for task in topology.tasks), default=0.0)
    silence_s = IMPORTS_S + 2 * (bench.START_S + bench.SILENCE_S + longest_s + bench.LONGEST * seconds)
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, process_group=0
        )
        try:
            for line in lines.heard(process, silence_s):
                if tell is not None:
                    tell(line["task"], line["threads"], line["done"], line["of"])
            code = lines.ended(process, ENDING_S)
        except TimeoutError as error:
            raise HeadgateError("the models could not be measured", cause=str(error)) from error
        except HeadgateError as error:
            error.cause = error.cause or lines.last_line(stderr)  # what a worker said before it died
            raise
        finally:
            lines.stopped(process, ENDING_S)
            assert process.stdout is not None
            process.stdout.close()
        if code != 0:
            raise HeadgateError(
                f"the models could not be measured: exit code {code}", cause=lines.last_line(stderr)
            )


# ── the measuring process ───────────────────────────────────────────────────────────────────────


class Interrupted(Exception):
    """SIGTERM or SIGINT."""


def _interrupted_by(numbers: Sequence[signal.Signals]) -> threading.Event:
    """The first of these signals sets the event, which ends all measuring threads, and raises
    Interrupted; later ones do not disturb the tidying up."""
    stop = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        stop.set()
        raise Interrupted

    for number in numbers:
        signal.signal(number, interrupt)
    return stop


def run(a: argparse.Namespace, speaker: Speaker, stop: threading.Event) -> None:
    """Collect sample rows, measure, save. Leaves nothing but models, however it ends."""
    from topology_runtime.calibration.bench import BenchPlace
    from topology_runtime.calibration.measuring import Measuring, PointsDone, about
    from topology_runtime.calibration.quota import Quotas

    topology = msgspec.json.decode(a.topology.read_bytes(), type=Topology)
    tasks = {name: task for name, task in store.modelled(topology).items() if not a.model or name in a.model}
    temporary = own_folder()
    quotas = Quotas()
    progress = PointsDone(
        lambda task, threads, done, of: speaker.say(task=task, threads=threads, done=done, of=of)
    )
    place = BenchPlace(temporary, tuple(a.user_path), a.slot_cores)
    measuring = Measuring(topology, place, quotas, a.seconds, progress, stop)
    slot = {"cores": a.slot_cores, "memory_bytes": a.slot_memory_bytes, "machine": store.machine()}
    began = utc_iso(wall_ns())

    def done(model: str, points: list[search.MeasuredRate]) -> None:
        code = store.code_of(tasks[model], a.user_path)
        store.save(a.output, search.model_of(model, points, slot, about(quotas, place, began) | code))

    try:
        collect_rows(a.topology, topology, [task.name for task in tasks.values()], a.user_path, temporary)
        measuring.all(tasks, done)
    finally:
        quotas.remove()
        shutil.rmtree(temporary, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="topology_runtime.calibrate", description=__doc__)
    parser.add_argument("--topology", type=Path, required=True, help="JSON file")
    parser.add_argument("--output", type=Path, required=True, help="folder for the models")
    parser.add_argument("--slot-cores", type=float, required=True)
    parser.add_argument("--slot-memory-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per point")
    parser.add_argument("--user-path", action="append", default=[], help="where the tasks' code is found")
    parser.add_argument("--model", action="append", default=[], help="only these (default: all)")
    parser.add_argument("--owner", type=int, default=None, help="process to end with")
    a = parser.parse_args(arguments)
    stop = _interrupted_by((signal.SIGTERM, signal.SIGINT))
    if a.owner is not None:
        die_with(a.owner, signal.SIGTERM)
    speaker = Speaker()
    try:
        run(a, speaker, stop)
    except HeadgateError as error:
        speaker.say_error(error)
        return error.exit_code
    except Interrupted:
        return 128 + signal.SIGTERM
    return 0


if __name__ == "__main__":
    sys.exit(main())
