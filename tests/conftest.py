"""What holds for every test: nobody's terminal decides how wide a table is."""

from __future__ import annotations

import os

for name in ("COLUMNS", "LINES"):  # workers of pytest-xdist come with those of a terminal of 80 columns
    os.environ.pop(name, None)
