"""What holds for every test: nobody's terminal decides how wide a table is, nor a shell that Ctrl-C is ignored;
and property tests try fewer examples, unless `--hypothesis-profile=all-examples` is asked for."""

from __future__ import annotations

import os
import signal

from examples import SHORT
from hypothesis import settings

settings.load_profile(SHORT)

for name in ("COLUMNS", "LINES"):  # workers of pytest-xdist come with those of a terminal of 80 columns
    os.environ.pop(name, None)

# A shell that starts tests in the background has them ignore Ctrl-C, and all that they start: it is sent to some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
