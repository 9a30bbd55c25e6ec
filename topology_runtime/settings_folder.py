"""Where a user's own settings are: keys, contexts, what belongs to clusters."""

from __future__ import annotations

import os
from pathlib import Path


def settings_folder() -> Path:
    """By the XDG base directory specification."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "headgate"
