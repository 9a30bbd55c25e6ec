"""Alarms that are posted: once when they begin, once when they are over, whoever of both sides is away meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from http_target import Target
from patience import until

from headgate.controller.alarm_posts import AlarmPosts
from headgate.controller.knowledge.run_view import AlarmNow
from headgate.topology_runtime.errors import InvalidInput

Made = Callable[..., AlarmPosts]
LAG, SHORT = (
    AlarmNow("lag", "clicks is 7 s behind", 1_764_400_000_000_000_000),
    AlarmNow("short", "too slow", 5),
)


@pytest.fixture
def target() -> Iterator[Target]:
    with closing(Target()) as found:
        yield found


@pytest.fixture
def made(target: Target, tmp_path: Path) -> Iterator[Made]:
    living: list[AlarmPosts] = []

    def make(url: str = "", **given: Any) -> AlarmPosts:
        living.append(AlarmPosts(url or target.url, tmp_path, **given))
        return living[-1]

    yield make
    for one in living:
        one.close()


def came(target: Target) -> list[tuple[str, str]]:
    """(state, what) of each post, in order."""
    return [(row["status"], row["alerts"][0]["labels"]["what"]) for row in target.rows]


def test_an_alarm_is_posted_when_it_begins_and_when_it_is_over(target: Target, made: Made) -> None:
    posts = made()
    posts.show("r1", (LAG,))
    posts.show("r1", (AlarmNow("lag", "clicks is 9 s behind", LAG.since_ns),))  # its words changed
    until(lambda: len(target.came) == 1)
    posts.show("r1", ())
    until(lambda: len(target.came) == 2)
    assert came(target) == [("firing", "lag"), ("resolved", "lag")]
    first, second = target.rows
    assert first["text"].startswith("headgate, run r1: clicks is ")
    assert second["text"].startswith("headgate, run r1: over: clicks is ")
    assert first["version"] == "4" and first["alerts"][0]["startsAt"].startswith("2025-11-29T")
    assert first["alerts"][0]["fingerprint"] == second["alerts"][0]["fingerprint"] == first["groupKey"]
    assert target.keys == [f"{first['groupKey']}-firing", f"{first['groupKey']}-resolved"]


def test_one_that_is_still_so_after_a_restart_is_not_posted_again(target: Target, made: Made) -> None:
    before = made()
    before.show("r1", (LAG, SHORT))
    until(lambda: len(target.came) == 2)
    before.close()
    after = made()
    after.show("r1", ())  # it has not noticed yet
    after.show("r1", (AlarmNow("lag", "noticed anew", LAG.since_ns + 1),))
    after.show("r1", (AlarmNow("lag", "noticed anew", LAG.since_ns + 1), AlarmNow("vm", "missing", 7)))
    until(lambda: len(target.came) == 3)
    after.show("r1", (AlarmNow("vm", "missing", 7),))
    until(lambda: len(target.came) == 4)
    assert came(target)[2:] == [("firing", "vm"), ("resolved", "lag")]
    assert target.keys[3] == target.keys[0].replace("firing", "resolved")


def test_what_was_over_while_nobody_looked_is_posted_when_it_is_sure(target: Target, made: Made) -> None:
    before = made()
    before.show("r1", (LAG,))
    until(lambda: len(target.came) == 1)
    before.close()
    made(noticed_s=0.0).show("r1", ())
    until(lambda: len(target.came) == 2)
    assert came(target)[1] == ("resolved", "lag")


def test_what_another_run_left_open_is_over(target: Target, made: Made) -> None:
    before = made()
    before.show("r1", (LAG,))
    until(lambda: len(target.came) == 1)
    before.close()
    made().show("r2", (LAG,))
    until(lambda: len(target.came) == 3)
    assert [(row["status"], row["commonLabels"]["run"]) for row in target.rows[1:]] == [
        ("resolved", "r1"), ("firing", "r2"),
    ]  # fmt: skip


def test_the_end_of_a_run_ends_its_alarms(target: Target, made: Made) -> None:
    posts = made()
    posts.show("r1", (LAG,))
    until(lambda: len(target.came) == 1)
    posts.close(over=True)
    assert came(target)[1] == ("resolved", "lag")


def test_while_the_address_is_away_nothing_waits_and_the_newest_state_is_posted(
    target: Target, made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target.answers = lambda *_: (503, {}, b"busy")
    secret = tmp_path / "address"
    secret.write_text(target.url + "&token=s3cret-of-ours")
    posts = made(f"${{FILE:{secret}}}")
    for _ in range(1000):
        posts.show("r1", (LAG,))
        posts.show("r1", ())
    posts.show("r1", (SHORT,))
    until(lambda: len(target.came) > 0)
    target.answers = lambda *_: (200, {}, b"")
    until(lambda: (tmp_path / "alarms_posted.json").exists())
    assert [one["what"] for one in json.loads((tmp_path / "alarms_posted.json").read_bytes())] == ["short"]
    told = capsys.readouterr().err
    assert (
        told == "controller: warning: an alarm cannot be posted: it answers 503 (Service Unavailable) busy\n"
    )


def test_what_the_address_refuses_is_said_and_not_tried_again(
    target: Target, made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    target.answers = lambda *_: (400, {}, b"invalid_payload")
    posts = made()
    posts.show("r1", (LAG, SHORT))
    until(lambda: len(target.came) == 2)
    posts.close()
    assert came(target) == [("firing", "lag"), ("firing", "short")]
    assert "it answers 400 (Bad Request) invalid_payload" in capsys.readouterr().err


def test_what_is_no_address_is_refused_at_once(made: Made) -> None:
    for url in ("slack", "${FILE:/none/there}", "ftp://x/y"):
        with pytest.raises(InvalidInput):
            made(url)
