"""What the page changes: a proposal with its diff first, then the same thing done, once, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from feed_made import example, plain
from page_made import MadeFeed, Page, page

from headgate.dashboards.web.feed_items import Whole
from headgate.dashboards.web.proposals import EXPIRES_S, NS, WAITING_MOST, PageProposal, Proposals
from headgate.topology_runtime.errors import Conflict, Infeasible, InvalidInput, Unreachable

ROW = {"rate_tps": 300.0, "slots": {"used": 8, "total": 8}, "fits": False, "reason": None}


class Controller:
    """Answers as told; `error` instead, when there is one."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __call__(self, command: str, arguments: dict[str, Any]) -> Any:
        if self.error is not None:
            raise self.error
        headroom = 1.25 if arguments.get("offered") else 1.0
        rows = [{**ROW, "rate_tps": rate * headroom} for rate in arguments.get("rates", ())]
        return {"rows": rows, "did": command}


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def shown(controller: Controller) -> Iterator[Page]:
    with page(MadeFeed(plain(example())), controller) as one:
        one.until_shown()
        yield one


def test_a_rate_is_shown_before_it_is_set(shown: Page) -> None:
    proposed = shown.post("/api/rate", {"rate_tps": 300})
    assert proposed.status_code == 200
    assert proposed.json()["diff"] == [
        "- 212 rows/s offered",
        "+ 300 rows/s offered",
        "~ 6 → 8 slots, planned for 375 rows/s, more than may be had here",
    ]
    assert shown.asked == [("whatif", {"rates": [300.0], "full": False, "offered": True, "compare": False})]
    done = shown.post("/api/apply", {"id": proposed.json()["id"]})
    assert done.json()["kind"] == "rate" and shown.asked[-1] == ("rate_set", {"rate_tps": 300.0})
    planned = plain(example())["plan"]
    proposed = shown.post("/api/rate", {"rate_tps": planned["rate_tps"] / 1.25})
    slots = planned["slots"]["used"]
    assert proposed.json()["diff"][-1] == f"~ the plan stays: {slots} slots, planned for 240 rows/s"


def test_a_proposal_is_applied_once_and_not_to_another_plan(shown: Page) -> None:
    id_ = shown.post("/api/stop", {}).json()["id"]
    assert shown.post("/api/apply", {"id": id_}).status_code == 200
    assert shown.post("/api/apply", {"id": id_}).status_code == 409
    id_ = shown.post("/api/stop", {}).json()["id"]
    later = plain(example())
    later["plan"]["epoch"] += 1
    shown.feed.give(Whole(later))
    while shown.get("/api/snapshot").json()["plan"]["epoch"] != later["plan"]["epoch"]:
        pass
    answer = shown.post("/api/apply", {"id": id_})
    assert answer.status_code == 409 and "changed" in answer.json()["error"]["what"]
    assert [command for command, _ in shown.asked] == ["stop"]


def test_a_plan_that_waits_is_approved_by_its_diff(controller: Controller, shown: Page) -> None:
    assert shown.post("/api/approve", {}).status_code == 409, "none waits"
    waits = {"id": "beef", "reason": "rate_changed", "text": "8 slots", "rate_tps": 300.0, "predicted_tps": 310.0,
             "slots": 8, "base_epoch": 3, "diff": ["+ vm2/2 parse×4"]}  # fmt: skip
    with page(MadeFeed({**plain(example()), "proposal": waits}), controller) as one:
        one.until_shown()
        assert one.post("/api/approve", {"plan": "dead"}).status_code == 409
        proposed = one.post("/api/approve", {}).json()
        assert proposed["diff"] == waits["diff"] and "8 slots" in proposed["summary"]
        assert one.post("/api/apply", {"id": proposed["id"]}).status_code == 200
        assert one.asked == [("apply", {"id": "beef"})]


def test_a_rate_that_is_none_is_refused(shown: Page) -> None:
    for rate in ("-1", "1e12", "1e400"):
        assert shown.post("/api/rate", f'{{"rate_tps": {rate}}}'.encode()).status_code == 400
    assert shown.asked == []


def test_what_if_is_the_controllers_own_answer_and_needs_no_token(shown: Page) -> None:
    answer = shown.post("/api/whatif", {"rates": [100, 200], "full": True}, token=None)
    assert [row["rate_tps"] for row in answer.json()["rows"]] == [100, 200]
    assert shown.asked == [
        ("whatif", {"rates": [100.0, 200.0], "full": True, "offered": False, "compare": False})
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [(Unreachable("gone"), 503), (InvalidInput("bad", faults=["a", "b"]), 400), (Conflict("stale"), 409),
     (Infeasible("no"), 422)],
)  # fmt: skip
def test_what_the_controller_refuses_is_told_as_it_is(
    shown: Page, controller: Controller, error: Any, status: int
) -> None:
    controller.error = error
    answer = shown.post("/api/whatif", {"rates": [1]})
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["what"]) == (status, error.code, error.what)
    assert told.get("faults", []) == list(error.faults)


def proposal(number: int, made_ns: int = 0) -> PageProposal:
    return PageProposal(str(number), "stop", "stop", {}, "", (), boot=1, epoch=3, made_ns=made_ns)


def test_proposals_expire_and_are_few() -> None:
    now, waiting = plain(example()), Proposals()
    waiting.add(proposal(0))
    with pytest.raises(Conflict):
        waiting.take("0", now, (EXPIRES_S + 1) * NS)
    for number in range(WAITING_MOST + 1):
        waiting.add(proposal(number))
    with pytest.raises(Conflict):
        waiting.take("0", now, 0)
    assert waiting.take(str(WAITING_MOST), now, 0).kind == "stop"
