"""A run whose alarms are posted: a source that cannot be read is told at the address, and that it is read again."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from http_target import Target
from patience import PATIENCE_S, until

pytestmark = pytest.mark.live
FLOW = """
import os
from headgate import Source, topology

class Tape(Source):
    def read(self, position, limit):
        if not os.path.exists("mended"):
            raise OSError("tape torn")
        return list(range(position, position + limit))

def same(row):
    return row

flow = topology("reads")
flow.source("tape", Tape) >> flow.task("same", same)
"""


def test_a_source_that_cannot_be_read_is_posted_and_that_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    with closing(Target()) as target, open(tmp_path / "up.log", "w+") as log:
        (tmp_path / "hook").write_text(f"{target.url}&key=s3cret-of-ours\n")
        words = [
            "up",
            "flow.py",
            "--vms",
            "1",
            "--rates",
            "50",
            "--set",
            f"alarms-to=${{FILE:{tmp_path}/hook}}",
        ]
        command = [sys.executable, "-m", "headgate", *words]
        with subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, process_group=0) as up:
            told = (tmp_path / "up.log").read_text
            until(lambda: len(target.came) == 1, told, up)
            (tmp_path / "mended").touch()
            until(lambda: len(target.came) == 2, told, up)
            up.send_signal(signal.SIGINT)
            assert up.wait(PATIENCE_S) == 0, told()
    first, second = target.rows
    assert (first["status"], second["status"]) == ("firing", "resolved")
    assert "tape torn" in first["text"] and first["groupKey"] == second["groupKey"]
    hook = (tmp_path / "hook").read_text()
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "hook"]
    assert hook and not [path for path in others if b"s3cret-of-ours" in path.read_bytes()]
