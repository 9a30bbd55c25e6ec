"""JSON lines between a calibration's processes: errors, silence, and users who print."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headgate.topology_runtime.calibration import json_lines
from headgate.topology_runtime.errors import HeadgateError

SPEAK = "from headgate.topology_runtime.calibration.json_lines import Speaker\n"


@contextmanager
def child(code: str) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield process, stderr
        finally:
            json_lines.stopped(process, 0.0)
            assert process.stdout is not None
            process.stdout.close()


@pytest.mark.live
def test_what_user_code_prints_stays_apart() -> None:
    code = SPEAK + "s = Speaker()\nprint('a user')\ns.say(a=1)\ns.say(b='\\n')\nprint('more')\n"
    with child(code) as (process, stderr):
        assert list(json_lines.heard(process, 10.0)) == [{"a": 1}, {"b": "\n"}]
        assert json_lines.ended(process, 5.0) == 0
        assert json_lines.last_line(stderr) == "more"


@pytest.mark.live
def test_an_error_is_raised_with_all_it_says() -> None:
    code = SPEAK + (
        "from headgate.topology_runtime.errors import HeadgateError\n"
        "Speaker().say_error(HeadgateError('what', cause='why', hint='try', faults=['one']))\n"
    )
    with child(code) as (process, _), pytest.raises(HeadgateError) as caught:
        list(json_lines.heard(process, 10.0))
    assert caught.value.lines() == ["error[HG-FAILED]: what", "  - one", "cause: why", "try: try"]


@pytest.mark.live
def test_silence_is_noticed_and_the_silent_one_ended() -> None:
    with child("import time\ntime.sleep(60)") as (process, _):
        with pytest.raises(TimeoutError):
            list(json_lines.heard(process, 0.05))
        json_lines.stopped(process, 1.0)
        assert process.returncode is not None
