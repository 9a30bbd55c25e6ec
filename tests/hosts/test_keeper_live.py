"""A keeper keeps one service: started again when it ends, stopped when it is told, one keeper at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headgate.dashboards.cluster.on_host import keeper
from headgate.dashboards.cluster.on_host.host_side import NotDone, ServicesHere
from watched_runs.host_bed import wait_for

pytestmark = [pytest.mark.live, pytest.mark.alone]  # its time is told in seconds of a service


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    for name in ("services", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "keeper.py").write_text(Path(keeper.__file__).read_text())
    yield tmp_path
    ServicesHere(tmp_path).stop("one")


def write(home: Path, program: str, number: str = "SIGTERM") -> None:
    command = [sys.executable, "-c", program, "{keeper}"]
    told = {"name": "one", "command": command, "digest": "d", "signal": number}
    (home / "services" / "one.json").write_text(json.dumps(told))


def state(home: Path) -> dict[str, Any]:
    return ServicesHere(home).state("one")


SLEEPER = "import sys, time; print('with', sys.argv[1], flush=True); time.sleep(600)"


def test_a_service_that_is_killed_comes_again_and_one_that_is_stopped_leaves_nothing_but_its_log(
    home: Path,
) -> None:
    write(home, SLEEPER)
    services = ServicesHere(home)
    first = services.start("one", False)
    now = state(home)
    assert (now["running"], now["pid"], now["restarts"], now["digest"]) == (True, first, 0, "d")
    words = home / "log" / "one"
    wait_for(lambda: words.read_text() == f"with {now['keeper']}\n", "its words")

    command = [sys.executable, str(home / "keeper.py"), str(home / "services" / "one.json")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "kept by another process already" in ran.stderr
    assert state(home)["pid"] == first

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: state(home).get("pid") not in (0, first, None), "the next")
    now = state(home)
    assert now["restarts"] == 1 and now["last_exit"] == -9
    wait_for(lambda: words.read_text().count(f"with {now['keeper']}\n") == 2, "its words")

    services.stop("one")
    assert not Path(f"/proc/{now['pid']}").exists() and services.keeper("one") == 0
    wait_for(lambda: not is_running(now["keeper"]), "the keeper's end")
    assert list((home / "services").iterdir()) == [] and words.exists()
    assert services.others([]) == []


def test_a_service_that_ends_at_once_is_started_ever_more_seldom(home: Path) -> None:
    write(home, "raise SystemExit(3)")
    with suppress(NotDone):  # where it was gone before anybody looked
        ServicesHere(home).start("one", False)
    wait_for(lambda: state(home).get("again_in_s", 0) >= 2.0, "a longer wait")
    assert state(home)["last_exit"] == 3 and 2 <= state(home)["restarts"] <= 4


def is_running(pid: int) -> bool:
    """A process whose parent has not asked for its end counts as ended."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
