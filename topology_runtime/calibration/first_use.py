"""`python -P -m headgate.topology_runtime.calibration.first_use`: the process that measures models on first use.

There is no user code in it. It says JSON lines {"task", "threads", "done", "of"} on stdout.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.calibration import store
from headgate.topology_runtime.calibration.collecting import own_folder
from headgate.topology_runtime.calibration.json_lines import Speaker
from headgate.topology_runtime.calibration.profile_steps import QUICK, USUAL_COUNTS, Next, steps_left
from headgate.topology_runtime.calibration.record import ProfileRecord
from headgate.topology_runtime.calibration.side_by_side import ProfileRequest, profile
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.owner import die_with
from headgate.topology_runtime.topology import Topology

DERATE = 0.93  # of what one probe of seconds finds: it errs low


class Interrupted(Exception):
    """SIGTERM or SIGINT."""


def _interrupted_by(numbers: Sequence[signal.Signals]) -> None:
    """The first of these signals raises Interrupted; later ones do not disturb the tidying up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted

    for number in numbers:
        signal.signal(number, interrupt)


class FirstUse:
    """Keeps each model as soon as it is whole, and says how far all of them are. The first task that fails ends all."""

    def __init__(self, models: Sequence[str], fresh: Path, output: Path, speaker: Speaker) -> None:
        self._fresh, self._output, self._speaker = fresh, output, speaker
        self._done, self._left = dict.fromkeys(models, 0), dict.fromkeys(models, USUAL_COUNTS)

    def hear(self, record: ProfileRecord, step: Next | None) -> None:
        if record.failed is not None:
            raise record.failed
        if step is None:
            file = self._fresh / f"{record.task}.json"
            store.save(self._output, msgspec.json.decode(file.read_bytes()))
        self._done[record.task] = len(record.probes)
        self._left[record.task] = max(1, steps_left(record.probes, (), QUICK)[0]) if step is not None else 0
        done, left = sum(self._done.values()), sum(self._left.values())
        threads = step.threads if step is not None else record.probes[-1].threads
        self._speaker.say(task=record.task, threads=threads, done=done, of=done + left)


def run(a: argparse.Namespace, speaker: Speaker) -> None:
    """Measure and save. Leaves nothing but models, however it ends."""
    topology = msgspec.json.decode(a.topology.read_bytes(), type=Topology)
    tasks = {name: task for name, task in store.modelled(topology).items() if not a.model or name in a.model}
    fresh = Path(own_folder())
    asked = ProfileRequest(
        topology,
        tuple(tasks.values()),
        tuple(a.user_path),
        fresh,
        a.slot_cores,
        a.slot_memory_bytes,
        replace(QUICK, derate=DERATE),
        a.seconds,
    )
    try:
        profile(asked, FirstUse(list(tasks), fresh, a.output, speaker).hear)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="headgate.topology_runtime.calibration.first_use", description=__doc__
    )
    parser.add_argument("--topology", type=Path, required=True, help="JSON file")
    parser.add_argument("--output", type=Path, required=True, help="folder for the models")
    parser.add_argument("--slot-cores", type=float, required=True)
    parser.add_argument("--slot-memory-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="per point")
    parser.add_argument("--user-path", action="append", default=[], help="where the tasks' code is found")
    parser.add_argument("--model", action="append", default=[], help="only these (default: all)")
    parser.add_argument("--owner", type=int, default=None, help="process to end with")
    a = parser.parse_args(arguments)
    _interrupted_by((signal.SIGTERM, signal.SIGINT))
    if a.owner is not None:
        die_with(a.owner, signal.SIGTERM)
    speaker = Speaker()
    try:
        run(a, speaker)
    except HeadgateError as error:
        speaker.say_error(error)
        return error.exit_code
    except Interrupted:
        return 128 + signal.SIGTERM
    return 0


if __name__ == "__main__":
    sys.exit(main())
