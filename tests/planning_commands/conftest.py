from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scene import Scene


@pytest.fixture
def scene(tmp_path: Path, capsys: Any) -> Scene:
    return Scene(tmp_path, capsys)
