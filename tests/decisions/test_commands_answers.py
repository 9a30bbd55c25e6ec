"""What clients may ask of a controller, in a world that runs: answers, refusals, modes, the end of a run."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from enactment_world import MODELS, TOPOLOGY, World, vm

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.models.model_data import model_data
from headgate.topology_runtime.wire import messages as m

S = 1_000_000_000


def running(**settings: Any) -> World:
    return World(**settings).start().until("committed").run(10)


def exit_code(reply: m.Reply) -> int:
    assert reply.error is not None
    return reply.error[1]


def as_json(data: Any) -> Any:
    """As a client prints it: plain values, no NaN."""
    return json.loads(json.dumps(data, allow_nan=False))


# ── looking ─────────────────────────────────────────────────────────────────────────────────────


def test_status_says_what_a_person_wants_to_know() -> None:
    status = as_json(running().ask("status").data)
    assert status["schema"] == "headgate/status/v1"
    assert (status["topology"], status["stage"], status["mode"], status["boot"]) == (
        "line",
        "committed",
        "auto",
        1,
    )
    assert status["plan"]["epoch"] == 1 and status["plan"]["reason"] == "start"
    assert status["rates"]["offered_now_tps"] == 100.0
    assert status["rates"]["acked_tps"] == pytest.approx(100, rel=0.1)
    assert status["tuples"]["lost"] == 0 and status["tuples"]["acked"] > 1000
    assert status["verdict"]["verdict"] == "stable"
    assert status["slots"] == {"used": 1, "total": 8, "quarantined": 0, "workers": 1}
    slot = status["vms"][0]["slots"][0]
    assert slot["threads"] == {"source": 1, "work": 3, "sink": 1} and slot["predicted_cpu"] > 0
    assert [one["vm"] for one in status["vms"]] == ["vm1", "vm2"]
    assert status["enactment"]["phase"] == "committed" and status["alarms"] == []
    assert status["last_decision"]["action"] == "none"


def test_status_of_a_controller_without_a_topology() -> None:
    loop = Loop(ControllerSettings("idle"))
    loop.step(t.Started(), t.Now(S, S))
    answers = loop.step(t.Command(1, m.Request("status")), t.Now(2 * S, 2 * S))
    [answer] = [i for i in answers if isinstance(i, t.Answer)]
    assert as_json(answer.reply.data)["stage"] == "idle"


def test_explain_tells_why_so_many_threads() -> None:
    explained = as_json(running().ask("explain", last=5).data)
    assert [decision["action"] for decision in explained["decisions"]] == ["plan"]
    tasks = {task["task"]: task for task in explained["plan"]["tasks"]}
    assert tasks["work"]["threads"] == 3 and "rest of the rate" in tasks["work"]["why"]
    assert "fixed" in tasks["source"]["why"]
    assert explained["last_decision"]["trigger"]


def test_events_since_a_number_come_once() -> None:
    world = running()
    first = as_json(world.ask("events", since=0).data)
    assert [event["number"] for event in first["events"]] == list(range(1, first["last"] + 1))
    assert {"submitted", "vm_joined", "plan", "probation", "committed"} <= {
        e["kind"] for e in first["events"]
    }
    assert world.ask("events", since=first["last"]).data["events"] == []


def test_plan_tells_and_changes_nothing() -> None:
    world = running()
    before = world.durable
    plan = as_json(world.ask("plan", rate_tps=700.0).data)
    assert plan["rate_tps"] == 700.0 and plan["slots"]["used"] == 4
    assert world.durable == before
    assert exit_code(world.ask("plan", rate_tps=100000.0)) == 4


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("no_such", {}),
        ("rate_set", {"rate_tps": "many"}),
        ("rate_set", {"rate_tps": -1.0}),
        ("rate_set", {"rate_tps": float("nan")}),
        ("plan", {"rate_tps": 0}),
        ("explain", {"last": -3}),
        ("events", {"since": "x"}),
        ("resume", {"mode": "reckless"}),
    ],
)
def test_senseless_requests_are_refused_and_change_nothing(command: str, arguments: dict[str, Any]) -> None:
    world = World().start().run(1)
    before = world.durable
    assert exit_code(world.ask(command, **arguments)) in (2, 3)
    assert world.durable == before


# ── changing ────────────────────────────────────────────────────────────────────────────────────


def test_a_rate_that_is_set_goes_on_from_what_was_offered() -> None:
    world = running()
    reply = world.ask("rate_set", rate_tps=10.0)
    assert reply.data == {"rate_tps": 10.0, "before_tps": 100.0}
    before = world.loop.knowledge.counts.emitted
    world.run(5)
    assert before + 40 <= world.loop.knowledge.counts.emitted <= before + 90


def test_no_rate_is_set_before_anything_is_offered() -> None:
    assert exit_code(World().start().ask("rate_set", rate_tps=5.0)) == 6


def submission() -> dict[str, Any]:
    return {
        "topology": msgspec.to_builtins(TOPOLOGY),
        "models": [model_data(model) for model in MODELS],
        "steps": [[0, 50]],
    }


def idle_world() -> World:
    world = World()
    world.loop = Loop(world.settings)
    return world.start().run(1)


def test_a_submitted_model_keeps_what_its_file_says_besides() -> None:
    """What a wake costs, and that it only stands in: planning goes by both."""
    world = idle_world()
    (work,) = submission()["models"]
    assert world.ask("submit", **{**submission(), "models": [{**work, "wake_cpu": 0.004}]}).error is None
    assert world.loop.knowledge.models["work"].wake.cpu == 0.004
    assert (
        exit_code(idle_world().ask("submit", **{**submission(), "models": [{**work, "points": 3}, 7]})) == 3
    )


def test_a_topology_is_submitted_to_an_idle_controller_and_runs() -> None:
    world = idle_world()
    assert world.ask("submit", **submission()).error is None
    world.until("probation")
    assert exit_code(world.ask("submit", **submission())) == 6, "one controller runs one topology"


def test_a_submission_without_its_models_is_refused() -> None:
    world = idle_world()
    reply = world.ask("submit", **{**submission(), "models": []})
    assert exit_code(reply) == 3 and world.durable.run is None
    assert exit_code(world.ask("submit", topology=3)) == 3
    assert exit_code(world.ask("submit", **{**submission(), "steps": [[0, -4]]})) == 3
    assert exit_code(world.ask("submit", **submission(), drain_timeout_s=-1)) == 3
    assert world.ask("submit", **submission(), drain_timeout_s=9).error is None
    assert world.durable.run is not None and world.durable.run.drain_timeout_s == 9


# ── modes ───────────────────────────────────────────────────────────────────────────────────────


def test_advise_says_what_it_would_do_and_does_not() -> None:
    world = running(mode="advise")
    world.ask("rate_set", rate_tps=500.0)
    world.run(4)
    assert world.rollout.epoch == 1
    assert {str(d["action"]) for d in world.loop.knowledge.actions} == {"plan", "advise"}


def test_approve_waits_for_the_word() -> None:
    world = running(mode="approve")
    world.ask("rate_set", rate_tps=500.0)
    world.run(4)
    proposal = world.ask("status").data["proposal"]
    assert world.rollout.epoch == 1 and proposal["reason"] == "rate_changed"
    assert exit_code(world.ask("apply", id="another")) == 6
    assert world.ask("apply", id=proposal["id"]).data == {"id": proposal["id"], "epoch": 2}
    world.until("committed", 25)
    assert world.rollout.epoch == 2 and world.ask("status").data["proposal"] is None
    assert exit_code(world.ask("apply", id=proposal["id"])) == 6


def test_an_operator_may_propose_a_plan_also_one_with_more_vms() -> None:
    world = running(max_vms=3, spare=vm("x"))
    plan = world.ask("plan", rate_tps=1700.0, propose=True).data
    assert world.rollout.epoch == 1
    assert world.ask("apply", id=plan["id"]).error is None
    world.run(1).until("committed", 25)
    assert world.rollout.reason == "operator" and "vm3" in {slot.vm for slot in world.rollout.slots}


def test_approve_does_not_wait_when_a_vm_is_lost() -> None:
    world = (
        World((vm("vm1"), vm("vm2"), vm("vm3")), rate_tps=1400.0, mode="approve").start().until("committed")
    )
    world.vms["vm3"].down = True
    world.run(5)
    assert world.rollout.reason == "vm_lost"


# ── the end ─────────────────────────────────────────────────────────────────────────────────────


def test_stop_drains_and_tells_the_run_in_numbers() -> None:
    world = running()
    assert world.ask("stop").data["stage"] == "ending"
    world.run(8)
    assert world.finish is not None and world.finish.error is None
    summary = as_json(world.finish.summary)
    tuples = summary["tuples"]
    assert summary["schema"] == "headgate/run/v1"
    assert tuples["offered"] == tuples["emitted"] == tuples["acked"] > 1000
    assert (tuples["lost"], tuples["in_flight"], tuples["duplicates"]) == (0, 0, 0)
    assert [plan["reason"] for plan in summary["plans"]] == ["start"]
    assert summary["achieved_tps"] == pytest.approx(summary["offered_tps"]) == pytest.approx(100, rel=0.02)
    assert summary["latency_ms"]["p50"] is not None
    assert all(one.shut_down for one in world.vms.values())


def test_a_vm_that_says_goodbye_at_the_end_is_not_told_as_lost() -> None:
    """Also when a plan is under way whose leaving threads were there."""
    world = World(rate_tps=1000.0).start().until("committed")
    assert {slot.vm for slot in world.rollout.slots} == {"vm1", "vm2"}
    world.ask("rate_set", rate_tps=20.0)
    world.until("probation", 60)
    assert {thread.slot.vm for thread in world.rollout.leaving} >= {"vm2"}
    world.ask("stop")
    world.run(10)
    assert world.finish is not None and world.finish.summary is not None
    tuples = world.finish.summary["tuples"]
    assert (tuples["duplicates_exact"], tuples["duplicates_why"]) == (True, [])
    assert world.durable.held_dead == ()


def test_a_run_of_so_many_seconds_ends_by_itself() -> None:
    world = World(seconds=12.0).start().run(30)
    assert world.finish is not None and world.finish.summary is not None
    assert world.finish.summary["seconds"] == pytest.approx(12, abs=0.6)


def test_a_drain_goes_on_under_the_next_controller() -> None:
    world = running()
    world.hold_acks = True
    world.ask("stop")
    world.run(2)
    assert world.durable.draining
    world.restart_controller()
    world.hold_acks = False
    world.run(12)
    assert world.finish is not None and world.finish.error is None


def test_a_run_that_ended_is_not_begun_again() -> None:
    world = running()
    world.ask("stop")
    world.run(8)
    world.finish = None
    world.restart_controller()
    assert world.finish is not None
    assert world.finish.error is not None and world.finish.error.exit_code == 6


def test_a_journal_that_fails_at_the_very_end_does_not_keep_the_run_alive() -> None:
    world = running()
    world.ask("stop")
    world.run(1.5)
    world.journal_fails = True
    world.run(20)
    assert world.finish is not None


def test_dead_letters_are_counted_once_and_shown() -> None:
    world = running()
    letter = m.DeadLetter("work", 2, "source", 0, 7, "row", "ValueError: bad", "Traceback …")
    for _ in range(2):
        world.do(t.FromVm(m.DeadLetters("vm1", (letter,))))
    status = world.ask("status").data
    assert status["tuples"]["dead_lettered"] == 1
    assert status["dead_letters"] == [
        {
            "task": "work",
            "of": "row 7 of source, partition 0",
            "source": "source",
            "partition": 0,
            "position": 7,
            "error": "ValueError: bad",
            "row": "row",
        }
    ]
    assert status["tuples"]["acked"] == world.loop.knowledge.counts.done - 1


def test_samples_that_make_no_sense_are_not_believed() -> None:
    world = running()
    bad = msgspec.structs.replace(world.vms["vm1"].block(), window_ns=-5)
    out = world.do(t.FromVm(bad))
    assert [i.vm for i in out if isinstance(i, t.Distrust)] == ["vm1"]


def test_the_same_events_give_the_same_decisions() -> None:
    world = World(max_vms=3, spare=vm("x")).start().until("committed")
    world.ask("rate_set", rate_tps=1400.0)
    world.run(20)
    world.vms["vm2"].down = True
    world.run(10)
    world.check_decisions()


def test_a_question_that_takes_long_is_refused_too_when_its_turn_was_not_journaled() -> None:
    world = World().start().run(5.0)
    (later,) = world.do(t.Command(7, m.Request("whatif", {"rates": [50.0]})))
    assert isinstance(later, t.AnswerLater) and later.work()["rows"]
    (answer,) = [one for one in world.do(t.JournalFailed("full")) if isinstance(one, t.Answer)]
    assert answer.number == 7 and answer.reply.error is not None


def test_a_senseless_question_is_refused_at_once() -> None:
    world = World().start().run(5.0)
    for arguments in ({}, {"rates": []}, {"rates": [0]}):
        assert world.ask("whatif", **arguments).error is not None
