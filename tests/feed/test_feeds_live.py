"""A live feed of a real controller: complete, told when it falls silent, complete again after its return."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from keys_made import operator

from headgate.dashboards.feeding.items import Change, Stale, Whole
from headgate.dashboards.feeding.live_feed import LiveFeed
from headgate.topology_runtime import channels
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.messages import Request
from headgate.topology_runtime.picturing.merge_patch import advanced

pytestmark = pytest.mark.live

LIMIT_S = 20.0
STALE_S = 3.0


class Controller:
    """`headgate controller run`, with no topology yet."""

    def __init__(self, state: Path, *options: str) -> None:
        words = ["controller", "run", "--state-dir", str(state), *options]
        command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words]
        self.popen = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.contact = self._contact(state)

    def _contact(self, state: Path) -> Contact:
        endpoint = state / "controller" / "endpoint"
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            assert self.popen.poll() is None
            if endpoint.exists():
                found = json.loads(endpoint.read_bytes())
                if found["pid"] == self.popen.pid:
                    return operator(state)
            time.sleep(0.01)
        raise AssertionError("no endpoint")


@contextmanager
def controller(state: Path, *options: str) -> Iterator[Controller]:
    one = Controller(state, *options)
    try:
        yield one
    finally:
        one.popen.kill()
        one.popen.wait()


def until(feed: LiveFeed, kind: type[Any]) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        item = feed.next(0.5)
        if isinstance(item, kind):
            return item
    raise AssertionError(f"no {kind.__name__}")


def test_changes_follow_the_whole_and_add_up_to_the_next_whole(tmp_path: Path) -> None:
    with controller(tmp_path) as one, closing(LiveFeed(one.contact)) as feed:
        known = until(feed, Whole).document
        assert known["stage"] == "idle" and "plan" not in known
        for _ in range(4):
            item = until(feed, Change)
            known = advanced(known, json.loads(item.data))
            assert known == item.document
        asked = channels.ask(one.contact, Request("snapshot"), LIMIT_S).data["snapshot"]
        assert asked["number"] - known["number"] in (0, 1) and asked["boot"] == known["boot"]


def test_a_controller_that_vanishes_is_stale_within_three_seconds_and_whole_when_it_is_back(
    tmp_path: Path,
) -> None:
    with controller(tmp_path) as one, closing(LiveFeed(one.contact)) as feed:
        assert until(feed, Whole).document["boot"] == 1
        until(feed, Change)
        one.popen.send_signal(signal.SIGKILL)
        one.popen.wait()
        gone = time.monotonic()
        until(feed, Stale)
        assert time.monotonic() - gone < STALE_S
        with controller(tmp_path, "--command-port", one.contact.endpoint.rsplit(":", 1)[1]):
            assert until(feed, Whole).document["boot"] == 2
            until(feed, Change)


def test_the_last_that_is_heard_of_a_run_is_that_it_is_over(tmp_path: Path) -> None:
    with controller(tmp_path) as one, closing(LiveFeed(one.contact)) as feed:
        until(feed, Change)
        channels.ask(one.contact, Request("stop"), LIMIT_S)
        until(feed, Stale)
        assert feed.document is not None and feed.document["stage"] == "over"
        assert one.popen.wait(LIMIT_S) == 0


def test_listeners_that_read_nothing_neither_hold_up_the_controller_nor_each_other(tmp_path: Path) -> None:
    with controller(tmp_path) as one, closing(LiveFeed(one.contact)) as feed:
        until(feed, Whole)
        stream = channels.ask(one.contact, Request("snapshot"), LIMIT_S).data["stream"]
        deaf = [channels.SubscriberChannel(one.contact.to(stream)) for _ in range(50)]
        try:
            times = []
            for _ in range(6):
                until(feed, Change)
                begin = time.monotonic()
                channels.ask(one.contact, Request("ping"), LIMIT_S)
                times.append(time.monotonic() - begin)
            assert sorted(times)[len(times) // 2] < 0.25
        finally:
            for each in deaf:
                each.close(0)


def test_a_senseless_what_if_is_refused_and_the_next_one_answered(tmp_path: Path) -> None:
    with controller(tmp_path) as one:
        refused = channels.ask(one.contact, Request("whatif", {"rates": "all"}), LIMIT_S)
        assert refused.error is not None and refused.error[0] == "HG-INVALID"
        idle = channels.ask(one.contact, Request("whatif", {"rates": [1.0]}), LIMIT_S)
        assert idle.error is not None and "topology" in idle.error[2]
        assert channels.ask(one.contact, Request("ping"), LIMIT_S).error is None
