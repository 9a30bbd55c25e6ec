"""One agent has a folder at a time; one that is still ending is waited for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headgate.agent.start_up import lock
from headgate.topology_runtime.errors import Conflict


def test_another_agent_is_refused(tmp_path: Path) -> None:
    held = lock(str(tmp_path), "vm1")
    with pytest.raises(Conflict) as refused:
        lock(str(tmp_path), "vm1", patience_s=0.0)
    assert "another agent of vm1 is running" in refused.value.what
    os.close(held)


def test_one_that_ends_is_waited_for(tmp_path: Path) -> None:
    held = lock(str(tmp_path), "vm1")
    ending = threading.Timer(0.1, os.close, (held,))
    ending.start()
    os.close(lock(str(tmp_path), "vm1", patience_s=30.0))
    ending.join()
