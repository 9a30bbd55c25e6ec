"""Exactly one diagnosis, in the right order, with its reasons."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from analysis_made import history, needed_for, window_of

from headgate.controller.analyze.demand import HEADROOM
from headgate.controller.analyze.diagnosis import DiagnosisInput, diagnose
from headgate.controller.analyze.stability import stability
from headgate.controller.knowledge.diagnoses import Diagnosis, Past, Residual, Stability, Violation
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.topology_runtime.api.cluster import Slot

PLANNED = 125.0


def given(window: MeasuredWindow | None = None, planned_tps: float = PLANNED, **more: Any) -> DiagnosisInput:
    """100 rows/s offered and done for a minute, 125 planned; `more` replaces fields."""
    window = window or window_of(history(lambda s: 100 * s, 60.0), seconds=10.0)
    base = DiagnosisInput(
        window=window,
        stability=stability(window, 60.0),
        demand=needed_for(window.progress, planned_tps, Past(60.0)),
        planned_tps=planned_tps,
        in_force_s=60.0,
    )
    return msgspec.structs.replace(base, **more)


def offered(tps: float, done: float = 1.0, **more: Any) -> MeasuredWindow:
    """`tps` offered for a minute, a share of it done for the last 15 s."""
    return window_of(
        history(lambda s: tps * s, 60.0, lambda s: tps * s - tps * (1 - done) * max(0.0, s - 45)),
        seconds=10.0,
        **more,
    )


def test_fine_says_so_with_numbers_and_what_it_rejected() -> None:
    found = diagnose(given())
    assert (found.kind, found.reason, found.rate_tps) == ("none", "fine", None)
    assert "100.0 rows/s offered" in found.text
    assert "planned 125.0" in found.text
    assert len(found.alternatives) == 2
    assert "scale down rejected: 115.0 rows/s needed ≥ 0.85 × 125.0 planned" in found.alternatives


def test_up_and_down() -> None:
    up = diagnose(given(offered(130), PLANNED))
    assert (up.kind, up.reason, up.rate_tps) == ("replan", "rate_changed", pytest.approx(130 * HEADROOM))
    assert "130.0 rows/s > 125.0 planned: plan for 149.5 rows/s" in up.text
    down = diagnose(given(offered(40), PLANNED))
    assert (down.kind, down.rate_tps) == ("replan", pytest.approx(40 * HEADROOM))


def test_too_much_is_told_apart_from_a_rate_that_fell() -> None:
    assert diagnose(given(offered(40), PLANNED)).reason == "over_provisioned"
    fell = window_of(history(lambda s: 100 * min(s, 40) + 30 * max(0, s - 40), 60.0), seconds=10.0)
    found = diagnose(given(fell, PLANNED))
    assert (found.reason, found.rate_tps) == ("rate_changed", pytest.approx(30 * HEADROOM))


def test_overload_is_planned_for_with_the_measured_shortfall() -> None:
    found = diagnose(given(offered(100, done=0.9)))
    assert (found.kind, found.reason) == ("replan", "overloaded")
    assert found.rate_tps == pytest.approx(100 * HEADROOM * 125 / 90, rel=0.02)
    assert "unstable" in found.text
    worst = diagnose(given(offered(100, done=0.3)))
    assert worst.rate_tps == pytest.approx(100 * HEADROOM * 1.5), "never more than 1.5 ×"
    stuck = diagnose(given(offered(100, done=0.0)))
    assert stuck.rate_tps == pytest.approx(100 * HEADROOM * 1.5)


def test_overload_is_not_confirmed_in_the_first_eight_seconds() -> None:
    window = offered(100, done=0.9)
    for in_force_s in (None, 7.9):
        found = diagnose(given(window, in_force_s=in_force_s))
        assert found.reason != "overloaded"
        assert any("overloaded rejected" in no for no in found.alternatives)


def test_overload_of_a_plan_that_is_large_already_is_only_reported() -> None:
    found = diagnose(given(offered(100, done=0.9), planned_tps=190.0))
    assert (found.kind, found.reason) == ("none", "overloaded")
    assert "190.0 rows/s are planned already" in found.text


def test_more_than_is_planned_is_a_changed_rate_not_an_overload() -> None:
    found = diagnose(given(offered(140, done=0.8)))
    assert (found.reason, found.rate_tps) == ("rate_changed", pytest.approx(140 * HEADROOM))


def test_a_plan_at_the_limit_is_not_asked_to_grow() -> None:
    for window in (offered(140), offered(100, done=0.8)):
        found = diagnose(given(window, limit_tps=PLANNED))
        assert found.kind == "none"
        assert any("the most that fits" in no for no in found.alternatives)


def test_membership_comes_before_everything_but_a_frozen_controller() -> None:
    lacking = offered(140, complete=0.2)
    lost = diagnose(given(lacking, lost=("vm2",)))
    assert (lost.kind, lost.reason, lost.rate_tps) == ("replan", "vm_lost", pytest.approx(140 * HEADROOM))
    both = diagnose(given(lacking, lost=("vm2",), quarantined=(Slot("vm1", 3),)))
    assert (both.reason, "vm1/3" in both.text) == ("slot_quarantined", True)
    calm = diagnose(given(lost=("vm2",)))
    assert calm.rate_tps == PLANNED, "the rate stays when the demand has not left it"
    frozen = diagnose(given(lacking, lost=("vm2",), frozen="the controller was stalled for 1.4 s"))
    assert (frozen.kind, frozen.reason) == ("none", "frozen")
    assert "1.4 s" in frozen.text


def test_a_vm_that_joins_matters_only_when_the_plan_lacks_something() -> None:
    found = diagnose(given(joined=("vm3",)))
    assert found.reason == "fine"
    assert any("vm3" in no for no in found.alternatives)
    lacking = diagnose(given(offered(140), joined=("vm3",), limit_tps=PLANNED))
    assert (lacking.kind, lacking.reason, lacking.rate_tps) == (
        "replan",
        "vm_joined",
        pytest.approx(140 * HEADROOM),
    )


def test_missing_samples_give_no_verdict() -> None:
    found = diagnose(given(offered(140, complete=0.94)))
    assert (found.kind, found.reason) == ("none", "unknown")
    assert "94%" in found.text


def test_nothing_is_planned_for_a_rate_while_a_plan_is_being_enacted() -> None:
    for window in (offered(140), offered(30)):
        found = diagnose(given(window, in_force_s=None))
        assert found.kind == "none"
        assert any("being enacted" in no for no in found.alternatives)


def test_held_back() -> None:
    found = diagnose(given(offered(140), held="the circuit is open for 41 s"))
    assert (found.kind, found.reason, found.rate_tps) == ("none", "rate_changed", None)
    assert "41 s" in found.text


def test_a_violated_latency_constraint() -> None:
    busy = Violation(("a", "b"), 100.0, 180.0, {"b": 180.0}, 0.9)
    found = diagnose(given(violations=(busy,)))
    assert (found.kind, found.reason) == ("replan", "latency_violated")
    assert found.rate_tps == pytest.approx(1.25 * PLANNED)
    assert "180.0 ms" in found.text
    idle = msgspec.structs.replace(busy, busiest=0.3)
    assert diagnose(given(violations=(idle,))).kind == "none"
    assert diagnose(given(violations=(busy,), in_force_s=10.0)).kind == "none"
    tried = diagnose(
        given(violations=(msgspec.structs.replace(busy, waits_for="4 of 4 buffers leave earlier"),))
    )
    assert tried.kind == "none" and "first without a plan: 4 of 4 buffers leave earlier" in tried.text
    kept = needed_for(given().window.progress, 170.0, Past(60.0, since_down_s=5.0))
    enough = diagnose(given(violations=(busy,), planned_tps=170.0, demand=kept))
    assert (enough.kind, "planned already" in enough.text) == ("none", True)


def test_drift_is_reported_only() -> None:
    off = Residual("cpu", "vm1/0", 0.9, 0.6, 1.5)
    found = diagnose(given(residuals=(Residual("rate", "score", 99.0, 100.0, 0.99), off)))
    assert (found.kind, found.reason) == ("none", "drift")
    assert "cpu of vm1/0 is 0.9, predicted 0.6" in found.text
    small = msgspec.structs.replace(off, measured=0.7)
    assert diagnose(given(residuals=(small,))).reason == "fine"
    assert diagnose(given(residuals=(off,), in_force_s=15.0)).reason == "fine", (
        "the window is older than the plan"
    )


def unstable() -> Stability:
    return stability(offered(100, done=0.8), 60.0)


def test_every_combination_gives_one_diagnosis_with_plain_evidence_and_finite_numbers() -> None:
    windows = [
        offered(0.0),
        offered(30),
        offered(100),
        offered(140),
        offered(100, 0.5),
        offered(100, complete=0.5),
    ]
    choices: dict[str, list[Any]] = {
        "in_force_s": [None, 3.0, 100.0],
        "stability": [stability(offered(100), 60.0), unstable()],
        "quarantined": [(), (Slot("vm1", 0),)],
        "lost": [(), ("vm2",)],
        "joined": [(), ("vm3",)],
        "limit_tps": [None, PLANNED],
        "frozen": ["", "stalled"],
        "held": ["", "circuit open"],
    }
    for window in windows:
        base = given(window)
        for values in itertools.product(*choices.values()):
            found = diagnose(msgspec.structs.replace(base, **dict(zip(choices, values, strict=True))))
            assert isinstance(found, Diagnosis)
            assert (found.kind == "replan") == (found.rate_tps is not None)
            assert found.text
            assert found.rate_tps is None or found.rate_tps > 0
            assert b"null" not in msgspec.json.encode(_without_none(found.evidence)), (
                "NaN and infinity are null"
            )


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return value
