"""What `up` is told, checked before anything starts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from headgate.controller import controller_cli
from headgate.dashboards.runs import run_places as places
from headgate.dashboards.runs.run_places import Places
from headgate.dashboards.runs.up_settings import (
    DEMO_SECONDS,
    UpSettings,
    check,
    parse_rate_scale,
    parse_slots,
)
from headgate.dashboards.up.up_preparation import (
    Work,
    check_input,
    check_settings,
    demo_scaled,
    keep,
    latest,
    options_again,
    places_again,
    rates_of,
    resumable,
    settings_now,
    with_input,
)
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology, document_of
from headgate.topology_runtime.errors import (
    Conflict,
    HeadgateError,
    Infeasible,
    InvalidInput,
    UsageError,
)
from headgate.topology_runtime.rates.offered_rates import FIRST_ARRIVALS_TPS, read, words_of
from headgate.topology_runtime.tasks import demo


def reader(*sources: str, **params: str) -> Topology:
    tasks = tuple(Task(name, "source", "x:y", dict(params)) for name in sources)
    return Topology("t", (*tasks, Task("sink")), tuple(Edge(name, "sink") for name in sources))


def test_vms():
    assert [parse_slots(text) for text in ("4", "4,2,1", "256")] == [(4,), (4, 2, 1), (256,)]
    for text in ("", "4,", "x", "0", "-1", "257", "4.5", ",".join(["1"] * 257)):
        with pytest.raises(UsageError):
            parse_slots(text)


def test_rate_scales():
    assert [parse_rate_scale(text) for text in ("auto", None, "0.5")] == ["auto", None, 0.5]
    for text in ("0", "-1", "nan", "inf", "x"):
        with pytest.raises(UsageError):
            parse_rate_scale(text)


def test_everything_that_does_not_go_together_is_listed_at_once():
    wrong = UpSettings(topology="t.json", slots=(4, 4), max_vms=1, slot_cores=2.0, peak_tps=5, rate_scale=1)
    with pytest.raises(UsageError) as refused:
        check(wrong)
    assert len(refused.value.faults) == 3


def test_slots_smaller_than_a_worker_are_refused_before_anything_starts():
    with pytest.raises(Infeasible) as refused:
        check_settings(UpSettings(slot_memory_bytes=32 << 20))
    assert refused.value.what == "a slot has 32 MiB of memory, a worker without tasks takes 34"
    check_settings(UpSettings(slot_memory_bytes=34 << 20))


def test_only_the_demo_may_grow_by_itself():
    assert [vm.vm for vm in UpSettings().all_vms] == ["vm1", "vm2"]
    assert [vm.vm for vm in UpSettings(topology="t.json", rates="5").all_vms] == ["vm1"]
    assert [vm.slots for vm in UpSettings(slots=(4, 2), max_vms=4).all_vms] == [4, 2, 4, 4]


def nothing_known() -> float:
    raise AssertionError("the capacity is asked for by `auto` only")


def test_the_demo_rises_and_falls_in_the_time_that_it_lasts():
    found = rates_of(UpSettings(), lambda: 20_000.0)
    usual = read(demo.RATES_FILE)
    assert found.steps == usual.steps[:-1] and usual.steps[-1][0] == DEMO_SECONDS
    assert found.steps[0][1] < found.max_tps and found.steps[-1][1] < found.max_tps
    seconds = [end - at for (at, _), (end, _) in pairwise(usual.steps)]
    rows = sum(rate * s for (_, rate), s in zip(usual.steps, seconds, strict=False))
    assert rows / DEMO_SECONDS >= 5_000
    assert demo_scaled(UpSettings(), found) == ""


def test_on_a_slow_machine_the_demo_has_what_its_slots_carry():
    found = rates_of(UpSettings(), lambda: 5_000.0)
    assert found.max_tps == pytest.approx(4_000.0)
    assert "at most 4,000 rows/s here, 80% of what these slots carry (elsewhere up to 6,000" in demo_scaled(
        UpSettings(), found
    )
    for asked in (UpSettings(peak_tps=50.0), UpSettings(rate_scale=0.001), UpSettings(rates="25")):
        assert demo_scaled(asked, rates_of(asked, nothing_known)) == "", "as asked for"


def test_rates_are_given_scaled_to_a_peak_or_to_most_of_the_capacity():
    assert rates_of(UpSettings(peak_tps=50.0), nothing_known).max_tps == pytest.approx(50.0)
    assert rates_of(UpSettings(rate_scale="auto"), lambda: 200.0).max_tps == pytest.approx(160.0)
    assert rates_of(UpSettings(rates="25"), nothing_known).steps == ((0.0, 25.0),)


def test_input_goes_to_the_one_source_that_reads_a_file(tmp_path):
    found = with_input(reader("a", path="old"), tmp_path / "new")
    assert found.by_name["a"].params == {"path": str(tmp_path / "new")}
    for other in (reader("a"), reader("a", "b", path="old")):
        with pytest.raises(InvalidInput, match="exactly one source"):
            with_input(other, tmp_path / "new")


def test_input_that_cannot_be_read_is_refused_at_once(tmp_path):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")  # nobody writes: opening it must not wait
    for name in ("absent", "empty", "pipe", "."):
        with pytest.raises(InvalidInput, match="cannot read the events"):
            check_input(tmp_path / name)
    (tmp_path / "events").write_text("one\n")
    check_input(tmp_path / "events")


def flow_of(*arriving: bool) -> Topology:
    tasks = tuple(Task(f"in{n}", "source", arriving=how or None) for n, how in enumerate(arriving))
    return Topology("flow", tasks)


def test_without_rates_all_that_comes_is_taken_and_up_says_so():
    flow = flow_of(True, True)
    found = rates_of(UpSettings(topology="t.json"), nothing_known, flow)
    assert found.uncapped and found.steps == ((0.0, FIRST_ARRIVALS_TPS),)
    assert "the first plan is for 20 rows/s, those after it for what comes" in words_of(found, flow)


def test_rates_are_a_cap_on_what_comes_and_up_says_so():
    flow = flow_of(True, False)
    found = rates_of(UpSettings(topology="t.json", rates="400"), nothing_known, flow)
    assert not found.uncapped
    assert words_of(found, flow) == (
        "rows of in0 are taken as they come: --rates is a cap, at most 400 rows/s are read"
    )
    assert words_of(found, flow_of(False)) == ""


def test_sources_that_are_read_at_a_rate_have_a_usual_one_and_up_says_so():
    flow = flow_of(False, False)
    found = rates_of(UpSettings(topology="t.json"), nothing_known, flow)
    assert found.steps == ((0.0, 1000.0),) and not found.uncapped
    assert words_of(found, flow) == "each source is read at 1,000 rows/s: --rates R for another rate"


def test_a_source_that_is_read_at_a_rate_beside_one_whose_rows_come_needs_one():
    with pytest.raises(UsageError, match="the input rate of flow is missing") as refused:
        rates_of(UpSettings(topology="t.json"), nothing_known, flow_of(True, False))
    assert refused.value.cause and refused.value.cause.startswith("in1:")


# ── The demo ends with its rates; other runs last until Ctrl-C unless told otherwise ─────────────────────


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        (UpSettings(), DEMO_SECONDS),
        (UpSettings(seconds=20.0), 20.0),
        (UpSettings(seconds=float("inf")), None),
        (UpSettings(rates="50"), None),
        (UpSettings(topology="mine.py:flow", rates="50"), None),
        (UpSettings(topology="mine.py:flow", rates="50", seconds=7.0), 7.0),
    ],
)
def test_a_run_lasts(settings: UpSettings, seconds: float | None) -> None:
    assert settings.ends_after_s == seconds


# ── Ports that `up` names before anybody listens on them ────────────────────────────────────────────────


def test_ports_are_apart_from_each_other_and_from_those_of_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A port that the kernel may give to a connection of anybody could be gone before the controller listens."""
    first = int(places.CONNECTIONS.read_text("ascii").split()[0])
    ports = places.free_ports(20)
    assert len(set(ports)) == 20
    assert all(places.LOWEST <= port < first for port in ports)
    for port in ports:
        socket.create_server((places.HOST, port)).close()
    with socket.create_server((places.HOST, 0)) as server, monkeypatch.context() as patched:
        taken: int = server.getsockname()[1]
        patched.setattr(places, "candidates", lambda beyond: iter([taken, taken]))
        assert places.free_ports(1) != [taken]
    monkeypatch.setattr(places, "LOWEST", 1 << 16)
    assert len(set(places.free_ports(3))) == 3, "where none is left below any will do"


def test_processes_that_begin_at_once_do_not_choose_the_same() -> None:
    """Nobody listens on these ports yet, so none sees that they are given."""
    program = "from headgate.dashboards.runs.run_places import free_ports as f; print(*f(3), *f(1))"
    started = [
        subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE) for _ in range(6)
    ]
    ports = [int(port) for one in started for port in one.communicate(timeout=30)[0].split()]
    assert len(ports) == len(set(ports)) == 24


# ── What `up --resume` goes on with, and what it refuses ────────────────────────────────────────────────

WORK = Work(Topology("flow", (Task("in", kind="source", static=Static()),), ()), ("/code",))
OPTIONS = ["--port", "1", "--command-port", "2", "--rate", "5"]


def kept(state: Path, **settings: object) -> UpSettings:
    state.mkdir(parents=True, exist_ok=True)
    made = UpSettings(
        topology="flow.py:flow", models=Path("models"), rate_scale="auto", slots=(4, 2), **settings
    )  # type: ignore[arg-type]
    keep(Places("run", state, Path("traces"), 1, 2, 3), made, OPTIONS, WORK)
    return made


def test_what_is_kept_reads_back(tmp_path: Path) -> None:
    made = kept(tmp_path / "state", state_dir=tmp_path / "state")
    found = resumable(tmp_path / "state")
    assert found.settings == made and (found.topology, found.user_paths) == ("flow", ("/code",))
    places = places_again(found, tmp_path / "state")
    words = options_again(found, places, made)
    assert words[:4] == ["--port", str(places.control_port), "--command-port", str(places.command_port)]


def test_only_how_it_is_looked_at_may_differ(tmp_path: Path) -> None:
    kept(tmp_path)
    found = resumable(tmp_path)
    assert settings_now(found, {"dashboard": True, "metrics_port": 9100, "state_dir": tmp_path}).dashboard
    with pytest.raises(HeadgateError) as refused:
        settings_now(found, {"slots": "4", "topology": "other.py:flow"})
    assert "--slots, TOPOLOGY cannot be given" in refused.value.what


def test_the_latest_unfinished_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="no run to resume"):
        latest()
    for name in ("a", "b", "c"):
        kept(Path(".headgate") / name)
    summary = Path(".headgate") / "c" / "summary.json"
    summary.write_text(json.dumps({"tuples": {"left": 0}, "lag": {"rows": 0}}))
    for at, name in enumerate("ab"):
        os.utime(Path(".headgate") / name / "up.json", (1000 - at, 1000 - at))
    assert latest() == Path(".headgate") / "a"
    for left, lag in ((7, 0), (0, 7)):  # rows that were read and not done, or came and were not read
        summary.write_text(json.dumps({"tuples": {"left": left}, "lag": {"rows": lag}}))
        assert latest() == Path(".headgate") / "c"


def test_a_damaged_note_or_one_of_another_version_or_of_a_run_that_is_over_is_told(tmp_path: Path) -> None:
    kept(tmp_path)
    note = json.loads((tmp_path / "up.json").read_text())
    other = json.dumps(note | {"schema": "headgate/up/v9"}).encode()
    for damage in (b"", b"{", b'{"schema": 3}', b"\xff\xfe", b"[]", other):
        (tmp_path / "up.json").write_bytes(damage)
        with pytest.raises(InvalidInput, match="another version" if damage == other else "damaged"):
            resumable(tmp_path)
    kept(tmp_path)
    (tmp_path / "summary.json").touch()
    with pytest.raises(Conflict, match="has ended"):
        resumable(tmp_path)


def test_the_controller_reads_the_topology_that_up_writes(tmp_path: Path) -> None:
    """With every field that has another name on the wire."""
    tasks = (Task("a", "source", "m:A", static=Static()), Task("b", run="m:b", side_effects=True))
    topology = Topology("t", tasks, (Edge("a", "b"),))
    file = tmp_path / "topology.json"
    file.write_bytes(msgspec.json.encode(document_of(topology)))
    assert controller_cli.read_topology(file) == topology
    file.write_text('{"name": "t", "tasks": 3}')
    with pytest.raises(InvalidInput, match=r"invalid topology .*topology\.json"):
        controller_cli.read_topology(file)
