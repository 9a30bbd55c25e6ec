"""Sample rows collected by a process of its own, which imports the user's code; and a folder for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headgate.topology_runtime.calibration import json_lines
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.topology import Topology

TEMPORARY = "headgate-calibrate-"
IMPORTS_S = 20.0  # user code may import much
ENDING_S = 5.0


def collect_rows(
    file: Path, topology: Topology, tasks: Sequence[str], user_paths: Sequence[str], directory: str
) -> None:
    """Rows that reach each of these tasks, in `directory`/<task>.rows. `file`: the topology as JSON.

    Raises HeadgateError that names the task that fails or hangs."""
    from headgate.topology_runtime.calibration.collect import SECONDS_A_TASK

    command = [sys.executable, "-P", "-m", "headgate.topology_runtime.calibration.collect"]
    command += ["--owner", str(os.getpid()), "--topology", str(file), "--directory", directory]
    command += [word for path in user_paths for word in ("--user-path", path)]
    command += [word for task in tasks for word in ("--task", task)]
    longest_s = max(task.max_call_s for task in topology.tasks)
    at = "the first one"
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr)
        try:
            for line in json_lines.heard(process, IMPORTS_S + SECONDS_A_TASK + longest_s):
                at = repr(line["task"])
            code = json_lines.ended(process, ENDING_S)
        except TimeoutError as error:
            raise HeadgateError(f"no sample rows: task {at} hangs", cause=str(error)) from error
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if code != 0:
            raise HeadgateError(f"no sample rows: task {at} failed", cause=json_lines.last_line(stderr))


def own_folder() -> str:
    """A new folder for this process; those of processes that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        pid = path.name.removeprefix(TEMPORARY).split("-")[0]
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-")
