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


FELL = window_of(history(lambda s: 100 * min(s, 40) + 30 * max(0, s - 40), 60.0), seconds=10.0)
LACKING, LOST = offered(140, complete=0.2), ("vm2",)
BUSY = Violation(("a", "b"), 100.0, 180.0, {"b": 180.0}, 0.9)
IDLE, TRIED = (
    msgspec.structs.replace(BUSY, **change)
    for change in ({"busiest": 0.3}, {"waits_for": "4 of 4 buffers leave earlier"})
)
KEPT = needed_for(given().window.progress, 170.0, Past(60.0, since_down_s=5.0))
OFF = Residual("cpu", "vm1/0", 0.9, 0.6, 1.5)
SMALL = msgspec.structs.replace(OFF, measured=0.7)
CATCHING = msgspec.structs.replace(
    stability(offered(100), 60.0), verdict="catching_up", text="catching up, 9 s behind"
)
FROZEN = "the controller was stalled for 1.4 s"
UP, WORST = 140 * HEADROOM, 100 * HEADROOM * 1.5  # never more than 1.5 ×
# what it is about; what is known; kind, reason ("": any), rate (0: any); what the text says, and what was rejected
DIAGNOSES: list[tuple[str, DiagnosisInput, str, str, float | None, str, str]] = [
    ("fine", given(), "none", "fine", None, "100.0 rows/s offered",
     "scale down rejected: 115.0 rows/s needed ≥ 0.85 × 125.0 planned"),
    ("fine too", given(), "none", "fine", None, "planned 125.0", ""),
    ("more comes", given(offered(130)), "replan", "rate_changed", 130 * HEADROOM,
     "130.0 rows/s > 125.0 planned: plan for 149.5 rows/s", ""),
    ("too much is planned", given(offered(40)), "replan", "over_provisioned", 40 * HEADROOM, "", ""),
    ("the rate fell", given(FELL), "replan", "rate_changed", 30 * HEADROOM, "", ""),
    ("overloaded", given(offered(100, done=0.3)), "replan", "overloaded", WORST, "unstable", ""),
    ("stuck", given(offered(100, done=0.0)), "replan", "overloaded", WORST, "", ""),
    ("large already", given(offered(100, done=0.9), 190.0), "none", "overloaded", None,
     "190.0 rows/s are planned already", ""),
    ("no more may be read", given(offered(100, done=0.3), capped=True), "none", "fine", None, "",
     "no more may be read, and what is read is done"),
    ("catching up", given(offered(40), stability=CATCHING), "none", "fine", None, "catching up, 9 s behind",
     "rows/s rejected: catching up"),
    ("more than is planned", given(offered(140, done=0.8)), "replan", "rate_changed", UP, "", ""),
    ("at the limit", given(offered(140), limit_tps=PLANNED), "none", "", None, "", "the most that fits"),
    ("overloaded at the limit", given(offered(100, done=0.8), limit_tps=PLANNED), "none", "", None, "",
     "the most that fits"),
    ("a VM is lost", given(LACKING, lost=LOST), "replan", "vm_lost", UP, "", ""),
    ("and a slot", given(LACKING, lost=LOST, quarantined=(Slot("vm1", 3),)), "replan",
     "slot_quarantined", 0, "vm1/3", ""),
    ("the rate stays when the demand has not left it", given(lost=LOST), "replan", "vm_lost", PLANNED, "", ""),
    ("frozen", given(LACKING, lost=LOST, frozen=FROZEN), "none", "frozen", None, "1.4 s", ""),
    ("a VM joins", given(joined=("vm3",)), "none", "fine", None, "", "vm3"),
    ("a VM joins that is lacking", given(offered(140), joined=("vm3",), limit_tps=PLANNED), "replan",
     "vm_joined", UP, "",
     ""),
    ("samples are missing", given(offered(140, complete=0.94)), "none", "unknown", None, "94%", ""),
    ("a plan is being enacted", given(offered(140), in_force_s=None), "none", "", None, "", "being enacted"),
    ("and less comes", given(offered(30), in_force_s=None), "none", "", None, "", "being enacted"),
    ("held back", given(offered(140), held="the circuit is open for 41 s"), "none", "rate_changed", None, "41 s", ""),
    ("late", given(violations=(BUSY,)), "replan", "latency_violated", 1.25 * PLANNED, "180.0 ms", ""),
    ("late and idle", given(violations=(IDLE,)), "none", "", None, "", ""),
    ("late, a young plan", given(violations=(BUSY,), in_force_s=10.0), "none", "", None, "", ""),
    ("late, something is tried", given(violations=(TRIED,)), "none", "", None,
     "first without a plan: 4 of 4 buffers leave earlier", ""),
    ("late, enough is planned", given(violations=(BUSY,), planned_tps=170.0, demand=KEPT), "none", "", None,
     "planned already", ""),
    ("drift is reported only", given(residuals=(Residual("rate", "score", 99.0, 100.0, 0.99), OFF)),
     "none", "drift", None,
     "cpu of vm1/0 is 0.9, predicted 0.6", ""),
    ("small drift", given(residuals=(SMALL,)), "none", "fine", None, "", ""),
    ("the window is older than the plan", given(residuals=(OFF,), in_force_s=15.0), "none", "fine", None, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("known", "kind", "reason", "rate_tps", "text", "rejected"),
                         [pytest.param(*case, id=about) for about, *case in DIAGNOSES])  # fmt: skip
def test_a_diagnosis(
    known: DiagnosisInput, kind: str, reason: str, rate_tps: float | None, text: str, rejected: str
) -> None:
    found = diagnose(known)
    assert (found.kind, found.reason) == (kind, reason or found.reason)
    assert rate_tps == 0 or found.rate_tps == (None if rate_tps is None else pytest.approx(rate_tps))
    assert text in found.text
    assert any(rejected in no for no in found.alternatives) or not rejected


def test_fine_rejects_more_and_less() -> None:
    assert len(diagnose(given()).alternatives) == 2


def test_overload_is_planned_for_with_the_measured_shortfall_after_the_first_eight_seconds() -> None:
    window = offered(100, done=0.9)
    found = diagnose(given(window))
    assert (found.kind, found.reason) == ("replan", "overloaded") and "unstable" in found.text
    assert found.rate_tps == pytest.approx(100 * HEADROOM * 125 / 90, rel=0.02)
    for in_force_s in (None, 7.9):
        found = diagnose(given(window, in_force_s=in_force_s))
        assert found.reason != "overloaded"
        assert any("overloaded rejected" in no for no in found.alternatives)


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
