"""Thread counts and mixed slots together: the fewest slots, found in other ways, and never more than MBA and SAM."""

from __future__ import annotations

import itertools
import json
import math
import re

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.optimize import LinearConstraint, milp
from worlds import chain, model_of, vms_of

from headgate.controller.models.plan_data import plan_data, plan_of, read_back
from headgate.controller.models.plans import Share
from headgate.controller.models.task_models import Model, ModelSlot, Point, Spread
from headgate.controller.plan.optimal.fewest_slots import choices_of
from headgate.controller.plan.optimal.slot_mixes import Choice, Fixed, Flexible, SlotKind, fewest
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.verifier import faults_of
from headgate.controller.planning_commands.plan_command import plan as plan_command
from headgate.dashboards import headgate_command as cli
from headgate.lab.experiments.never_more_slots import SIZES, request_of
from headgate.lab.reproduction.paper_tables import LOGIC, PUBLISHED, WHOLE
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.platform.planning_time import clocked

VM_SIZES = tuple(Vm(f"size{n}", n) for n in (4, 2, 1))
PATIENT = ("--search-seconds", "600")  # however busy this machine is, all steps are taken
MINIMA = {  # slots: MBA+SAM, and the fewest with mixed slots (the seed's figures, section 4)
    ("linear", 50): (4, 3), ("linear", 100): (7, 5), ("linear", 200): (15, 10),
    ("diamond", 50): (5, 4), ("diamond", 100): (10, 7), ("diamond", 200): (20, 14),
    ("star", 50): (4, 3), ("star", 100): (8, 6), ("star", 200): (17, 12),
}  # fmt: skip


@pytest.mark.parametrize(("name", "rate"), MINIMA)
def test_the_published_models_need_the_minimum(name, rate):
    asked = PlanRequest(LOGIC[name], PUBLISHED, float(rate), (), allocator="optimal", mapper="optimal")
    found = plan_acquiring(asked, VM_SIZES)
    usual = plan_acquiring(replace(asked, allocator="mba", mapper="sam"), VM_SIZES)
    assert (usual.slots.total, found.slots.total) == MINIMA[name, rate]
    assert found.allocation.gap == 0.0
    assert found.prediction.rate_tps >= rate * (1 - 1e-6)
    assert faults_of(found, LOGIC[name], PUBLISHED) == []


def slots_by_scipy(flexible: list[Flexible], fixed: list[Fixed], most: int) -> int | None:
    """The fewest slots, each thread count and rate of each slot a variable of its own; None: more than `most`."""
    options = [(t, c) for t, one in enumerate(flexible) for c in one.choices]
    width = 2 * len(options) + len(fixed)
    for slots in range(1, most + 1):
        rows, lows, highs = [], [], []

        def add(entries, low, high, size=slots * width, rows=rows, lows=lows, highs=highs):
            row = np.zeros(size)
            for column, value in entries:
                row[column] += value
            rows.append(row)
            lows.append(low)
            highs.append(high)

        for s in range(slots):
            at = s * width
            there = at + len(options)
            for n, (_, c) in enumerate(options):
                add([(at + n, 1.0), (there + n, -c.rate_tps)], -np.inf, 0)
            for t in range(len(flexible)):
                add([(there + n, 1.0) for n, (of, _) in enumerate(options) if of == t], 0, 1)
            held = [(there + len(options) + n, one) for n, one in enumerate(fixed)]
            add([*((at + n, c.cpu / c.rate_tps) for n, (_, c) in enumerate(options)),
                 *((n, one.cpu) for n, one in held)], 0, 1)  # fmt: skip
            add([*((there + n, c.memory) for n, (_, c) in enumerate(options)),
                 *((n, one.memory) for n, one in held)], 0, 1)  # fmt: skip
        for t, one in enumerate(flexible):
            add([(s * width + n, 1.0) for s in range(slots) for n, (of, _) in enumerate(options) if of == t],
                one.rate_tps * (1 - 1e-9), np.inf)  # fmt: skip
        for n, one in enumerate(fixed):
            add([(s * width + 2 * len(options) + n, 1.0) for s in range(slots)], one.count, one.count)
        whole = np.array(([0] * len(options) + [1] * (len(options) + len(fixed))) * slots)
        found = milp(
            np.zeros(slots * width),
            constraints=LinearConstraint(np.array(rows), lows, highs),
            integrality=whole,
            bounds=(0, np.inf),
        )
        if found.status == 0:
            return slots
    return None


@st.composite
def mixing_problems(draw):
    part = st.integers(1, 10).map(lambda tenths: tenths / 10)
    flexible = []
    for _ in range(draw(st.integers(1, 3))):
        counts = sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=2)))
        choices = tuple(Choice(n, draw(st.integers(5, 60)) * 1.0, draw(part), draw(part)) for n in counts)
        flexible.append(Flexible(draw(st.integers(1, 80)) * 1.0, choices))
    fixed = [Fixed(draw(st.integers(1, 2)), draw(part), draw(part)) for _ in range(draw(st.integers(0, 1)))]
    return flexible, fixed


@given(mixing_problems())
@examples(40)
def test_nothing_goes_below_the_bound_and_mixes_hold_what_they_say(problem):
    flexible, fixed = problem
    found = fewest([SlotKind(tuple(flexible), tuple(fixed))])
    for mix in found.slots:
        used_cpu = used_memory = 0.0
        for task, (threads, rate_tps) in mix.flexible.items():
            (choice,) = [one for one in flexible[task].choices if one.threads == threads]
            assert rate_tps <= choice.rate_tps * (1 + 1e-6)
            used_cpu += choice.cpu * rate_tps / choice.rate_tps
            used_memory += choice.memory
        for task, count in mix.fixed.items():
            used_cpu += count * fixed[task].cpu
            used_memory += count * fixed[task].memory
        assert used_cpu <= 1 + 1e-5 and used_memory <= 1 + 1e-5
    for task, one in enumerate(flexible):
        carried = sum(mix.flexible[task][1] for mix in found.slots if task in mix.flexible)
        assert carried >= one.rate_tps * (1 - 1e-5)
    for task, one in enumerate(fixed):
        assert sum(mix.fixed.get(task, 0) for mix in found.slots) == one.count
    assert found.least <= len(found.slots) + 1e-6
    if len(found.slots) <= 5:
        truth = slots_by_scipy(flexible, fixed, len(found.slots))
        assert truth is not None and math.ceil(found.least - 1e-6) <= truth <= len(found.slots) <= truth + 1


def test_two_tasks_share_what_one_leaves():
    """a is all CPU, b is all memory: MBA gives each bundle a slot, together they fit into one."""
    topology = chain("a", "b")
    models = {"a": model_of("a", (1, 100, 0.9, 0.1)), "b": model_of("b", (1, 100, 0.1, 0.9))}
    asked = PlanRequest(topology, models, 300.0, vms_of(8), allocator="optimal", mapper="optimal")
    found = make_plan(asked)
    assert found.slots.used == 3 and found.allocation.gap == 0.0
    assert make_plan(replace(asked, allocator="mba", mapper="sam")).slots.used == 6


def test_rows_that_cost_more_when_few_are_carried_nevertheless():
    """Each row alone costs a wake besides, so mixes at half their peaks use more CPU than in proportion."""
    topology = chain("a", "b", "c")
    models = {
        name: replace(model_of(name, (1, 100, 0.5, 0.3), (2, 150, 0.9, 0.4)), more={"wake_cpu": 0.004})
        for name in "abc"
    }
    asked = PlanRequest(topology, models, 130.0, vms_of(8), allocator="optimal", mapper="optimal")
    found = make_plan(asked)
    assert found.prediction.rate_tps >= 130 * (1 - 1e-6)
    assert found.slots.used <= make_plan(replace(asked, allocator="mba", mapper="sam")).slots.used


def test_pinned_threads_of_fixed_size_stay():
    topology = chain("a", ends=True)
    models = {"a": model_of("a", (1, 100, 0.9, 0.1))}
    slot = Slot("vm2", 0)
    asked = PlanRequest(topology, models, 300.0, vms_of(2, 2), pinned={"source": (slot,)},
                        allocator="optimal", mapper="optimal")  # fmt: skip
    found = make_plan(asked)
    assert [b.slot for b in found.placement.bundles if b.task == "source"] == [slot]


def test_the_gap_is_in_the_answer_and_read_back(capsys):
    assert cli.main(["plan", "linear", "--rate", "100", "--planner", "optimal", *PATIENT, "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["gap"], data["allocator"], data["mapper"]) == (0.0, "optimal", "optimal")
    read = plan_of(data)
    del data["latency"]  # worked out anew each time
    assert read.allocation.gap == 0.0 and plan_data(*read_back(data)) == data
    assert isinstance(read.prediction.shares[0], Share)
    assert cli.main(["plan", "linear", "--rate", "100", "--planner", "optimal", "--mapper", "sam"]) == 2
    assert "planner" in {param.name for param in plan_command.params}


def test_mixes_are_not_looked_for_where_there_would_be_thousands():
    models = {"a": model_of("a", (1, 1, 1.0, 0.1))}
    asked = PlanRequest(chain("a"), models, 5000.0, (), allocator="optimal", mapper="optimal")
    with pytest.raises(Infeasible, match="at most 2,000 slots"):
        plan_acquiring(asked, VM_SIZES)


def test_of_many_tasks_neighbours_share_slots():
    names = [f"t{n}" for n in range(60)]
    models = {
        name: model_of(name, (1, 100, 0.8, 0.1) if n % 2 else (1, 100, 0.1, 0.8))
        for n, name in enumerate(names)
    }
    topology = chain(*names)
    asked = PlanRequest(topology, models, 100.0, vms_of(*[4] * 20), allocator="optimal", mapper="optimal")
    found = make_plan(asked)
    assert (
        found.slots.used <= 35 and make_plan(replace(asked, allocator="mba", mapper="sam")).slots.used >= 60
    )
    assert faults_of(found, topology, models) == [] and found.allocation.gap < 0.2
    assert found.prediction.rate_tps >= 100 * (1 - 1e-6)


def hard(rate_tps: float) -> PlanRequest:
    """Whose mixes are not found at the first look."""
    topology, vms = WHOLE["traffic"], vms_of(*[4] * 20)
    return PlanRequest(topology, PUBLISHED, rate_tps, vms, allocator="optimal", mapper="optimal")


def test_whoever_waits_gets_the_best_so_far_in_time_and_is_told_so():
    """By a clock that takes a second from one look to the next."""
    asked = hard(100.0)
    whole = make_plan(asked)
    assert (whole.allocation.gap, whole.allocation.gap_words) == (0.0, "")
    ticks = itertools.count()
    with clocked(lambda: float(next(ticks))):
        hurried = make_plan(asked)
    assert faults_of(hurried, asked.topology, PUBLISHED) == []
    assert (
        whole.slots.used
        <= hurried.slots.used
        <= make_plan(replace(asked, allocator="mba", mapper="sam")).slots.used
    )
    gap, slots = hurried.allocation.gap, hurried.slots.used
    assert gap is not None and slots * (1 - gap) <= whole.slots.used, "so many fewer are possible, at most"
    if gap:
        fewer = round(gap * slots)
        told = re.fullmatch(
            r"the search was ended after \d+\.\d s; at most (\d+) slots? fewer (is|are) possible",
            hurried.allocation.gap_words,
        )
        assert told is not None and int(told[1]) == fewer
    assert next(ticks) < 200


def test_a_search_is_ended_by_the_clock_alone():
    """The same problem with as many steps, and nobody who waits, is searched to its end."""
    choices = tuple(Choice(n, 10.0 * n, 0.21 * n, 0.17 * n) for n in (1, 2, 3, 4))
    kinds = [SlotKind(tuple(Flexible(50.0 + 7 * n, choices) for n in range(2)), ())]
    assert not fewest(kinds, 5.0).late
    ticks = itertools.count()
    with clocked(lambda: float(next(ticks))):
        assert fewest(kinds, 5.0).late


def test_a_gap_says_why_it_is_left_in_the_plan_and_beside_what_is_compared(capsys):
    line = ["traffic", "--vm-sizes", "4", *PATIENT]
    assert cli.main(["plan", *line, "--rate", "50", "--planner", "optimal", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["gap"] == pytest.approx(0.2)
    assert data["gap_words"].endswith("; at most 1 slot fewer is possible")
    del data["latency"]
    assert plan_data(*read_back(data)) == data
    assert cli.main(["plan", *line, "--rates", "50", "--compare", "optimal+optimal"]) == 0
    assert f"optimal+optimal: {data['gap_words']}" in capsys.readouterr().out
    assert cli.main(["plan", *line, "--rate", "50", "--planner", "optimal"]) == 0
    assert (
        "At most 1" not in (told := capsys.readouterr().out) and "; at most 1 slot fewer is possible." in told
    )


def test_of_many_tasks_those_that_nothing_was_looked_for_are_packed_as_usual():
    """A second from one look at the clock to the next: a few groups of neighbours are done in time."""
    names = [f"t{n}" for n in range(250)]
    models = {n: model_of(n, (1, 100, 0.8, 0.1) if int(n[1:]) % 2 else (1, 100, 0.1, 0.8)) for n in names}
    asked = PlanRequest(
        chain(*names), models, 100.0, vms_of(*[4] * 70), allocator="optimal", mapper="optimal"
    )
    ticks = itertools.count()
    with clocked(lambda: next(ticks) / 10):
        found = make_plan(asked)
    assert faults_of(found, asked.topology, models) == []
    assert make_plan(asked).slots.used < found.slots.used < 250
    assert found.allocation.ended.startswith("the search was ended after ")


# ── Of numbers of threads that a model's spread does not tell apart, mixes hold the fewest ──────────────


def model(*points: tuple[int, float, float, float | None]) -> Model:
    """(threads, rows/s, CPU, half-width of the rows/s)"""
    made = (
        Point(n, tps, cpu, 0.01, None if half is None else Spread(rate_tps=half))
        for n, tps, cpu, half in points
    )
    return Model("task", ModelSlot(), tuple(made))


def threads(of: Model) -> list[int]:
    return [choice.threads for choice in choices_of(of)]


def test_as_recorded_of_tasks_that_compute_and_that_wait() -> None:
    """Measured on one day: π takes no more with four threads, and as if 1.5 % less CPU; a look-up twice as much."""
    assert threads(model((1, 76.08, 0.9985, 8.3), (2, 75.56, 0.9984, 11.1), (4, 76.08, 0.9835, 5.0))) == [1]
    assert threads(model((1, 230.1, 1.0, 7.4), (2, 243.7, 0.9924, 11.1), (4, 243.7, 0.9597, 10.7))) == [1, 2]
    assert threads(model((1, 5.0, 0.02, 0.1), (2, 10.0, 0.027, 0.2), (4, 19.9, 0.032, 1.0))) == [1, 2, 4]


def test_what_says_nothing_of_its_spread_is_believed() -> None:
    assert threads(model((1, 100.0, 1.0, None), (2, 100.5, 1.0, None))) == [1, 2]


def test_fewer_threads_at_much_more_cpu_are_another_choice() -> None:
    """They take as much with the slot to themselves, and leave less of it to others."""
    assert threads(model((1, 100.0, 1.0, 1.0), (4, 100.0, 0.5, 1.0))) == [1, 4]


@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.01, 1.2), st.floats(0, 0.5)), min_size=1, max_size=6)
)
def test_for_each_that_is_left_out_there_is_one_as_good(found: list[tuple[float, float, float]]) -> None:
    of = model(*((2**n, tps, cpu, part * tps) for n, (tps, cpu, part) in enumerate(found)))
    kept = {choice.threads for choice in choices_of(of)}
    assert of.points[0].threads in kept
    for point in of.points:
        assert point.spread is not None and point.spread.rate_tps is not None
        least_tps = point.rate_tps - point.spread.rate_tps
        assert point.threads in kept or any(
            fewer.rate_tps >= least_tps
            and fewer.cpu / fewer.rate_tps <= point.cpu / max(least_tps, 1e-9) * (1 + 1e-9)
            for fewer in of.points
            if fewer.threads in kept and fewer.threads < point.threads
        )


# ── The optimal planner takes no more slots than MBA+SAM on seeded random requests, and every plan of it is
# verified


@pytest.mark.parametrize("hundred", range(3))
def test_never_more_slots_on_random_requests(hundred):
    for seed in range(20_001 + 100 * hundred, 20_101 + 100 * hundred):
        request = request_of(seed, 4)
        usual = plan_acquiring(request, SIZES)
        found = plan_acquiring(replace(request, allocator="optimal", mapper="optimal"), SIZES)
        assert found.slots.total <= usual.slots.total, seed
        assert faults_of(found, request.topology, request.models) == [], seed
