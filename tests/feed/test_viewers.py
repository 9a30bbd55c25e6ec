"""Whoever watches: what there is to see, questions thought about beside, and what goes wrong in it."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from enactment_world import World
from keys_made import MadeKeys

from headgate.controller.viewers import WAITING_MOST, Viewers
from headgate.topology_runtime.channels import Waker
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.messages import Reply

ANSWER_S = 30.0


@pytest.fixture
def wake() -> Iterator[Waker]:
    made = Waker()
    yield made
    made.close()


@pytest.fixture
def viewers(wake: Waker) -> Iterator[Viewers]:
    made = Viewers(wake, MadeKeys().guard)
    yield made
    made.close()


def answers(viewers: Viewers, wake: Waker, count: int) -> dict[int, Reply]:
    found: dict[int, Reply] = {}
    while len(found) < count:
        assert select.select([wake.fd], [], [], ANSWER_S)[0]
        wake.clear()
        found.update(viewers.answers())
    return found


def test_before_there_is_anything_to_see_who_asks_is_told_so(viewers: Viewers) -> None:
    assert viewers.snapshot().error is not None
    viewers.show(World().start().loop.view(World().now))
    reply = viewers.snapshot()
    assert reply.error is None and reply.data["snapshot"]["stage"] == "gathering"


def test_questions_are_answered_in_order_and_errors_are_answers(viewers: Viewers, wake: Waker) -> None:
    def wrong() -> Any:
        raise InvalidInput("no rate")

    viewers.think(1, lambda: {"rows": 3})
    viewers.think(2, wrong)
    viewers.think(3, lambda: 1 // 0)
    found = answers(viewers, wake, 3)
    assert list(found) == [1, 2, 3] and found[1].data == {"rows": 3}
    assert [found[n].error[2] for n in (2, 3)] == ["no rate", "what-if failed: ZeroDivisionError"]  # type: ignore[index]


def test_too_many_questions_are_refused_and_the_others_are_answered(viewers: Viewers, wake: Waker) -> None:
    go_on, begun = threading.Event(), threading.Event()
    viewers.think(0, lambda: begun.set() or go_on.wait(ANSWER_S))
    assert begun.wait(ANSWER_S)
    for number in range(1, WAITING_MOST + 2):
        viewers.think(number, lambda: True)
    refused = answers(viewers, wake, 1)
    assert list(refused) == [WAITING_MOST + 1] and "too many" in refused[WAITING_MOST + 1].error[2]  # type: ignore[index]
    go_on.set()
    assert set(answers(viewers, wake, WAITING_MOST + 1)) == set(range(WAITING_MOST + 1))


def test_what_goes_wrong_in_the_picture_costs_the_picture_alone(
    viewers: Viewers, capsys: pytest.CaptureFixture[str]
) -> None:
    viewers.show(None)  # type: ignore[arg-type]
    assert "no picture any more" in capsys.readouterr().err
    view = World().start().loop.view(World().now)
    viewers.show(view)
    assert viewers.snapshot().error is not None and viewers.view is view
