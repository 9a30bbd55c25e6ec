"""What holds for every test: nobody's terminal decides how wide a table is, nor a shell that Ctrl-C is ignored;
and property tests try fewer examples, unless `--hypothesis-profile=all-examples` is asked for."""

from __future__ import annotations

import faulthandler
import os
import signal

import pytest
from examples import SHORT, regardless_of_imports
from hypothesis import settings

settings.load_profile(SHORT)

for name in ("COLUMNS", "LINES"):  # workers of pytest-xdist come with those of a terminal of 80 columns
    os.environ.pop(name, None)

LONGEST = (  # files of the gate's live tests that others wait for if they come last, the longest first
    "test_cluster_up_live.py",
    "test_user_code_lost_live.py",
    "test_faults_live.py",
    "test_up_live.py",
    "test_own_user_live.py",
    "test_agent_live.py",
    "test_live_page.py",
    "test_analysis_live.py",
    "test_keyed_state_live.py",
    "test_code_replaced_live.py",
    "test_page_by_https.py",
    "test_examples_live.py",
    "test_key_matrix_live.py",
)
STDERR = pytest.StashKey[int]()  # as it is outside of tests
RANK = {name: number for number, name in enumerate(LONGEST)}

FULL = {  # files that only `scripts/test full` runs, and why
    **dict.fromkeys(
        (
            "test_connect_live.py", "test_figures_again_live.py", "test_follow_live.py", "test_followed_season_live.py",
            "test_interrupted_live.py", "test_offers_live.py", "test_policies_live.py", "test_views_on_spark_live.py",
            "test_report_again_live.py",
        ),
        "another form of an analysis; the gate has one",
    ),
    **dict.fromkeys(
        (
            "test_calibration_live.py", "test_latency_constraint_live.py",
            "test_machine_speed.py", "test_profile_live.py", "test_rollback_live.py", "test_spare_slot_live.py",
            "test_submit_measures_live.py", "test_scenarios_live.py", "test_feeds_live.py",
            "test_models_and_replay_live.py",
        ),
        "what it asserts depends on how fast the machine is",
    ),
    **dict.fromkeys(
        ("test_page_is_accessible.py", "test_page_keeps_up.py", "test_page_reads_alike.py"),
        "a longer look at the page that `test_live_page.py` opens",
    ),
    "test_tables_recorded_live.py": "its worker must be killed while a row is between a sink and its ack",
    "test_machines_command_live.py": "VMs of a command, started for a minute",
    "test_flink_live.py": "needs Flink, in an environment of its own",
}  # fmt: skip

# A shell that starts tests in the background has them ignore Ctrl-C, and all that they start: it is sent to some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Without a profile that was asked for, property tests try the same examples each time."""
    config.stash[STDERR] = os.dup(2)
    if not config.getoption("--hypothesis-profile", None):
        regardless_of_imports()


def limited(config: pytest.Config) -> None:
    """What hangs from now on says where, and ends (`faulthandler_timeout` in pyproject.toml)."""
    if limit_s := float(config.getini("faulthandler_timeout") or 0.0):
        faulthandler.dump_traceback_later(limit_s, exit=True, file=config.stash[STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """pytest's own limit ends when a test fails."""
    limited(item.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """… and when all are over: threads that do not end would keep the process."""
    limited(config)


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that at the end nothing waits for one of them alone."""
    for item in items:
        if item.path.name in FULL:
            item.add_marker(pytest.mark.full)
    items.sort(key=lambda item: RANK.get(item.path.name, len(RANK)))
