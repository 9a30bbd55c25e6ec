"""From a controller's `status` to what is drawn; what a status lacks is None or empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.terminal.live_view import SlotView, TerminalView, VmView

Status = Mapping[str, Any]


def view_of(status: Status) -> TerminalView:
    """The view of a `headgate/status/v1`."""
    plan = status.get("plan") or {}
    rates = status.get("rates") or {}
    verdict = status.get("verdict") or {}
    latency = (status.get("latency_ms") or {}).get("window") or {}
    tuples = status.get("tuples") or {}
    slots = status.get("slots") or {}
    return TerminalView(
        topology=status.get("topology") or "no topology yet",
        seconds=status.get("seconds") or 0.0,
        phase=status.get("stage") or "unknown",
        epoch=plan.get("epoch") or 0,
        verdict=verdict.get("verdict") or "unknown",
        slots_used=slots.get("used") or 0,
        slots_total=slots.get("total") or 0,
        offered_tps=rates.get("offered_now_tps"),
        arriving=rates.get("source_kind") in ("arriving", "mixed"),
        lag_rows=rates.get("lag_rows"),
        lag_s=rates.get("lag_s"),
        cap_tps=rates.get("cap_tps"),
        measured_tps=rates.get("acked_now_tps"),
        planned_tps=plan.get("rate_tps"),
        predicted_tps=plan.get("predicted_tps"),
        slope=verdict.get("slope"),
        p50_ms=latency.get("p50"),
        p99_ms=latency.get("p99"),
        acked=tuples.get("acked") or 0,
        in_flight=tuples.get("in_flight") or 0,
        dead_lettered=tuples.get("dead_lettered") or 0,
        replayed=tuples.get("replayed") or 0,
        lost=tuples.get("lost") or 0,
        vms=tuple(_vm(vm) for vm in status.get("vms") or () if vm.get("state") != "left"),
        notes=tuple(_notes(status)),
    )


def _vm(vm: Mapping[str, Any]) -> VmView:
    slots = tuple(
        SlotView(
            number=slot["slot"],
            threads=dict(slot.get("threads") or {}),
            state=slot.get("state") or "unknown",
            cpu=slot.get("cpu"),
            predicted_cpu=slot.get("predicted_cpu"),
        )
        for slot in vm.get("slots") or ()
    )
    return VmView(vm["vm"], vm.get("state") or "unknown", slots)


def _notes(status: Status) -> list[str]:
    """What is not as it should be, in words."""
    notes = [
        f"alarm since {alarm['since'][11:19]}: {alarm['text']}"
        if alarm.get("since")
        else f"alarm: {alarm['text']}"
        for alarm in status.get("alarms") or ()
    ]
    if status.get("advice"):
        notes.append(f"advice: {status['advice']}")
    if status.get("held"):
        notes.append(f"no plan is made by itself: {status['held']}")
    plan = status.get("plan") or {}
    if plan.get("degraded"):
        notes.append(f"degraded plan: {plan['degraded']}")
    proposal = status.get("proposal")
    if proposal:
        notes.append(f"plan {proposal['id']} waits for `headgate apply {proposal['id']}`: {proposal['text']}")
    return notes
