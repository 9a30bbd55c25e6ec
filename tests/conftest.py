"""What holds for every test: nobody's terminal decides how wide a table is, nor a shell that Ctrl-C is ignored;
and property tests try fewer examples, unless `--hypothesis-profile=all-examples` is asked for."""

from __future__ import annotations

import os
import signal

import pytest
from examples import SHORT
from hypothesis import settings

settings.load_profile(SHORT)

for name in ("COLUMNS", "LINES"):  # workers of pytest-xdist come with those of a terminal of 80 columns
    os.environ.pop(name, None)

LONGEST = (  # files of live tests that others wait for if they come last: 45 s and more, the longest first
    "test_cluster_up_live.py",
    "test_live_page.py",
    "test_analysis_live.py",
    "test_profile_live.py",
    "test_keyed_state_moves_live.py",
    "test_keyed_owners_die_live.py",
    "test_faults_live.py",
    "test_stalls_live.py",
    "test_up_live.py",
    "test_user_code_lost_live.py",
    "test_spare_slot_live.py",
)
RANK = {name: number for number, name in enumerate(LONGEST)}

# A shell that starts tests in the background has them ignore Ctrl-C, and all that they start: it is sent to some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that at the end nothing waits for one of them alone."""
    items.sort(key=lambda item: RANK.get(item.path.name, len(RANK)))
