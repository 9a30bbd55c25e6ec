"""Other policies beside a run: the same table while it goes on and from its trace, and a row for what it did."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recorded_runs import WALL_NS, moments, settings, submitted, write

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge import loop_events as t
from headgate.controller.replay.exact_replay import ExactReplay, Moment
from headgate.controller.replay.ideal_machines import Delays, IdealAccount, IdealWorld
from headgate.controller.replay.trace_reading import Recording, tailed
from headgate.lab.rate_policies.policy_rules import DECIDERS
from headgate.lab.rate_policies.shadow_command import shadow
from headgate.lab.rate_policies.shadow_policies import RUN, SHADOWS, Shadows
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wire.messages import DesiredState

SECONDS = 60.0
STEPS = ((0.0, 30.0), (20.0, 90.0), (45.0, 40.0))


@pytest.fixture(scope="module")
def run() -> list[Moment]:
    return moments(SECONDS, STEPS)


@pytest.fixture(scope="module")
def trace(run: list[Moment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("trace"), run)


def told(*words: str) -> Any:
    result = CliRunner().invoke(shadow, [*words, "-o", "json"], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def by_policy(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in rows}


def test_all_policies_are_in_one_ranked_table(trace: Path) -> None:
    found = told(str(trace))
    assert found["schema"] == "headgate/shadow/v1" and found["seconds"] >= SECONDS - 1
    rows = by_policy(found["policies"])
    assert set(rows) == set(SHADOWS) == {RUN, *DECIDERS}
    assert [row["rank"] for row in found["policies"]] == list(range(1, len(SHADOWS) + 1))
    enough = [row["short_share"] <= 0.01 for row in found["policies"]]
    assert enough == sorted(enough, reverse=True), "who carries too little comes last"
    assert rows["static"]["of_static"] == 1.0 and rows["static"]["short_share"] == 0.0
    assert rows["static"]["planned_of_offered"] > rows["bare"]["planned_of_offered"]


def test_while_it_goes_on_the_table_is_that_of_its_trace(trace: Path) -> None:
    live = Shadows(Recording(trace).run, SHADOWS, Delays())
    loop = Loop(settings(), submitted(STEPS))
    world = IdealWorld(loop, IdealAccount(), wall_ns=WALL_NS + 1_000_000_000)
    for number, moment in enumerate(world.moments(SECONDS)):
        live.see(moment)
        if number % 97 == 0:
            live.rows()  # looking changes nothing
    assert live.rows() == told(str(trace))["policies"]


def test_the_row_of_the_controller_is_what_it_did(run: list[Moment], trace: Path) -> None:
    """Counted anew: slots off the desired states that VMs were sent, plans and what they carry off the decisions."""
    row = by_policy(told(str(trace))["policies"])[RUN]
    decisions = [json.loads(line) for line in (trace / "decisions.jsonl").read_text().splitlines()]
    plans = [d for d in decisions if d["action"] == "plan"]
    began_ns = next(
        m.loop.knowledge.durable.schedule.start_ns for m in run if m.loop.knowledge.durable.schedule
    )
    slots: list[tuple[float, int]] = []
    switched: dict[int, float] = {}
    for moment in run:
        at_s = max(0.0, (moment.now.wall_ns - began_ns) / 1e9)
        for instruction in moment.instructions:
            if isinstance(instruction, t.Send) and isinstance(instruction.message, DesiredState):
                desired = instruction.message
                slots.append((at_s, len({thread.slot for thread in desired.threads})))
                if desired.phase == "switched":
                    switched.setdefault(desired.token.epoch, at_s)
    end_s = row["seconds"]
    ends = [at_s for at_s, _ in slots[1:]] + [end_s]
    held = sum(many * (end - at_s) for (at_s, many), end in zip(slots, ends, strict=True))
    assert row["slot_seconds"] == pytest.approx(held, rel=0.02)
    assert row["plans"] == len(plans) - 1 == len(switched) - 1
    carried = [d["plan"]["predicted_tps"] for d in plans]
    up_s = switched[2]
    assert 20 < up_s < 26
    assert row["short_tuples"] == pytest.approx((up_s - 20) * (90 - carried[0]), rel=0.1)
    assert row["moves"] == sum(d["plan"]["moves"] for d in plans[1:])


@pytest.mark.parametrize("cut", [0.1, 0.55, 0.9])
def test_a_run_that_goes_on_is_followed_through_torn_lines_and_parts_put_aside(
    trace: Path, tmp_path: Path, cut: float
) -> None:
    data = (trace / "inputs.jsonl").read_bytes()
    half, more = int(len(data) * cut / 2), int(len(data) * cut)
    (tmp_path / "inputs.jsonl").write_bytes(data[:half])
    part = data[: data.rfind(b"\n", 0, more) + 1]

    def aside() -> None:
        (tmp_path / "inputs.jsonl").rename(tmp_path / "inputs-000001.jsonl")

    def compressed() -> None:
        (tmp_path / "inputs-000001.jsonl.gz").write_bytes(gzip.compress(part))
        (tmp_path / "inputs-000001.jsonl").unlink()
        (tmp_path / "inputs.jsonl").write_bytes(data[len(part) :])

    later: list[Callable[[], Any]] = [
        lambda: (tmp_path / "inputs.jsonl").write_bytes(part), aside, compressed,
    ]  # fmt: skip

    def goes_on() -> bool:
        if later:
            later.pop(0)()
            return True
        return False

    assert list(tailed(tmp_path, goes_on)) == list(Recording(trace).lines())


def test_following_ends_with_the_run(tmp_path: Path) -> None:
    loop = Loop(settings(seconds=10.0), submitted())
    found = write(
        tmp_path, list(IdealWorld(loop, IdealAccount(), wall_ns=WALL_NS + 1_000_000_000).moments(60.0))
    )
    result = CliRunner().invoke(
        shadow, [str(found), "--follow", "--policy", "static,controller"], standalone_mode=False
    )
    assert result.exception is None and "controller" in result.stdout


def test_replayed_lines_make_the_same_moments(trace: Path) -> None:
    recording = Recording(trace)
    seen = [m.now for m in ExactReplay(recording.run).moments(tailed(trace, lambda: False))]
    assert seen == [line.now_ns for line in recording.lines()]


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        (("nowhere",), InvalidInput, "no trace"),
        (("TRACE", "--policy", "statik"), UsageError, "did you mean"),
    ],
)
def test_what_cannot_be_scored_says_why(
    trace: Path, words: tuple[str, ...], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        told(*(str(trace) if word == "TRACE" else word for word in words))
    assert text in "\n".join(caught.value.lines())  # type: ignore[attr-defined]


def test_a_run_that_offered_nothing_has_no_table(tmp_path: Path) -> None:
    found = write(tmp_path, moments(1.0))
    with pytest.raises(InvalidInput, match="nothing was offered"):
        told(str(found))
