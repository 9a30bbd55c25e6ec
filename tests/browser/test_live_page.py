"""The page in a real browser: what it shows is what the server says, and it says so when it is not."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.request
from contextlib import contextmanager

import pytest
from feed_made import NOW_S, example, plain
from msgspec.structs import replace
from pages import TOKEN, Asked, MadeFeed, in_force, question, served

from headgate.controller.models.plan_data import plan_data
from headgate.controller.plan.planner import make_plan
from headgate.controller.plan.schedulers import each_once
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Infeasible

pytestmark = pytest.mark.live
PRICES = """
schema = "headgate/prices/v1"
[[size]]
name = "size"
slots = {slots}
usd_per_hour = {usd}
"""
VIEWS = ("topology", "slots", "charts", "whatif", "fidelity", "models", "timeline", "tasks", "vms", "events")


@contextmanager
def opened(page, asks=True, token=False, document=None, fragment=""):
    feed = MadeFeed(document or plain(example()))
    with served(feed, Asked() if asks else None) as server:
        secret = f"#token={TOKEN}" if token else fragment
        page.goto(server.address + secret)
        page.wait_for_selector("body[data-drawn]")
        yield server, feed


def changed(at_s, **parts):
    return {**plain(example(NOW_S + at_s)), **parts}


def snapshot(server):
    with urllib.request.urlopen(f"{server.address}api/snapshot") as answer:
        return json.load(answer)


def look_at_everything(page):
    for view in VIEWS:
        page.locator(f"#{view}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#{view}[data-shown]", state="attached")
    page.wait_for_selector("[data-chart=slope][data-drawn]", state="attached")


def slot_map(page):
    return page.eval_on_selector_all(
        "#slots [data-slot]",
        "cells => Object.fromEntries(cells.map(c => [c.dataset.slot, [c.dataset.state, c.dataset.threads,"
        " c.hasAttribute('data-full')]]))",
    )


def slots_of(document):
    return {
        name: [
            slot["state"],
            ",".join(f"{t}:{n}" for t, n in slot["threads"].items()),
            slot.get("full", False),
        ]
        for name, slot in document["slots"].items()
    }


def test_every_view_is_drawn_without_an_error_or_a_request_elsewhere(page):
    with opened(page):
        look_at_everything(page)
        text = page.inner_text("body")
        assert "NaN" not in text and "undefined" not in text and "null" not in text
        assert page.get_attribute("[data-chart=rate]", "data-points") == "121"


def test_the_header_is_a_sentence_and_the_first_to_saturate_is_named_with_its_place(page):
    with opened(page) as (server, _):
        assert page.inner_text("h1") == snapshot(server)["header"]
        first = page.locator("[data-answer=saturates-first]")
        assert first.get_attribute("data-task") == "parse"
        assert "parse on vm1/3, at 243 t/s" in first.inner_text()
        assert page.locator("#topology [data-first]").get_attribute("data-task") == "parse"


def test_the_slot_map_is_that_of_the_snapshot_also_after_a_change(page):
    with opened(page) as (server, feed):
        page.locator("#slots").scroll_into_view_if_needed()
        page.wait_for_selector("#slots [data-slot]")
        assert slot_map(page) == slots_of(snapshot(server))
        slots = {name: dict(slot) for name, slot in feed.document["slots"].items()}
        slots["vm2/2"] = {**slots["vm2/1"], "slot": 2, "threads": {"score": 3}, "full": True}
        del slots["vm1/2"]
        feed.tick(changed(1, slots=slots))
        page.wait_for_selector("#slots [data-slot='vm2/2'][data-full]")
        assert slot_map(page) == slots_of(snapshot(server))


def test_a_worker_that_is_not_needed_any_more_leaves_a_free_slot(page):
    document = plain(example())
    document["slots"]["vm2/2"]["state"] = document["slots"]["vm1/1"]["state"] = "exited"
    with opened(page, document=document):
        page.locator("#slots").scroll_into_view_if_needed()
        assert page.wait_for_selector("#slots [data-slot='vm2/2'][data-free]:not([data-bad])")
        assert page.wait_for_selector("#slots [data-slot='vm1/1'][data-bad]:not([data-free])")


def test_levels_have_a_word_beside_their_colour(page):
    with opened(page):
        for cell in page.locator("#topology [data-task]").all():
            word = {"easy": "easy", "busy": "busy", "limit": "near its limit", "none": "not measured"}
            assert word[cell.get_attribute("data-level")] in cell.text_content()


@pytest.mark.alone  # it is timed
def test_a_dead_server_is_shown_within_three_seconds_and_a_new_one_is_found(page):
    with opened(page) as (server, _):
        page.wait_for_selector("#feed-state[data-state=live]")
        port, began = server.port, time.monotonic()
    page.wait_for_selector("#feed-state[data-state=stale]", timeout=3000)
    assert time.monotonic() - began < 5  # the server's own end counts in
    with served(MadeFeed(changed(9, number=7, boot=2)), Asked(), port) as again:
        page.wait_for_selector("#feed-state[data-state=live]")
        page.wait_for_selector("body[data-number='7']")
        assert snapshot(again)["boot"] == 2


def test_a_run_that_is_over_is_not_stale_nor_tried_again(page):
    with opened(page) as (_, feed):
        feed.tick(changed(1, stage="over"))
        page.wait_for_selector("#feed-state[data-state=over]")
    page.wait_for_timeout(3000)  # its server is gone, too
    assert page.get_attribute("body", "data-state") == "over"
    assert "the run's last moment" in page.inner_text("#feed-state")
    assert "trying" not in page.inner_text("body")


def test_the_axis_of_latency_says_that_it_is_logarithmic(page):
    with opened(page):
        look_at_everything(page)
        kinds = page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('[data-chart]')].map("
            "plot => [plot.dataset.chart, plot._fullLayout.yaxis.type]))"
        )
        titles = page.locator("#charts figcaption").all_inner_texts()
        assert kinds == {"rate": "linear", "latency": "log", "slope": "linear"}
        assert ["logarithmic" in title for title in titles] == [kind == "log" for kind in kinds.values()]


def test_over_a_trace_the_first_plan_is_no_re_plan(page):
    replay = {"at_s": 30.0, "length_s": 120.0, "speed": 2.0}
    with opened(page, asks=False, document={**plain(example()), "origin": "trace", "replay": replay}):
        look_at_everything(page)
        first = page.inner_text("#timeline [data-trigger=start] summary")
        assert "planned" in first and "re-planned" not in first


@pytest.mark.alone  # it is timed
def test_silence_is_stale_too(page):
    with opened(page) as (_, feed):
        feed.tick()
        page.wait_for_selector("body[data-heard='482']")
        page.wait_for_selector("#feed-state[data-state=stale]", timeout=3500)
        assert "stale" in page.inner_text("#feed-state")
        feed.tick()
        page.wait_for_selector("#feed-state[data-state=live]")


@pytest.mark.parametrize("lost", [0, 1], ids=["at once", "and again where it does not come"])
def test_a_gap_asks_for_a_new_snapshot(page, lost):
    missed = []

    def forward(socket):
        upstream = socket.connect_to_server()

        def downward(message):
            told = json.loads(message)
            gap = told["number"] == 483 and not missed
            answer = told["schema"] == "headgate/snapshot/v1" and 0 < len(missed) <= lost
            if gap or answer:
                missed.append(told["number"])
            else:
                socket.send(message)

        upstream.on_message(downward)

    page.route_web_socket("**/api/stream", forward)
    with opened(page) as (_, feed):
        for n in range(1, 5):
            feed.tick(changed(n, header=f"tick {n}"))
        page.wait_for_selector("body[data-number='485']")  # what follows a gap comes with the whole alone
        assert missed == [483] + [485] * lost
        assert int(page.get_attribute("body", "data-asked")) > lost, "more often where the machine is slow"
        assert page.inner_text("h1") == "tick 4"


@pytest.mark.alone  # after 2.5 s without a word it is stale
def test_a_paused_page_stands_still_and_goes_on_where_the_run_is(page):
    with opened(page) as (_, feed):
        page.click("#pause")
        feed.tick(changed(1, header="it went on"))
        page.wait_for_selector("body[data-heard='482']")
        assert page.inner_text("h1") == plain(example())["header"]
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        assert "paused at 14:17:20" in page.inner_text("#feed-state")
        page.click("#pause")
        page.get_by_role("heading", name="it went on").wait_for()


def test_what_if_asks_the_planner_and_shows_both_pairs_and_what_a_slot_more_buys(page):
    with opened(page):
        page.wait_for_selector("[data-answer=one-more-slot][data-buys]")
        told = page.inner_text("[data-answer=one-more-slot]")
        most = re.search(r"(\d+) slots carry at most (\d+) t/s, and (\d+) carry (\d+) t/s", told)
        buys = float(re.search(r"(\d+) t/s more", told)[1])
        slots, rate, more, next_rate = (int(number) for number in most.groups())
        assert more == slots + 1 and abs(next_rate - rate - buys) <= 1
        for count, carried in ((slots, rate), (more, next_rate)):  # by the planner, on just these slots
            assert carries(count, carried * 0.98) and not carries(count, carried * 1.03)
        page.locator("#whatif").scroll_into_view_if_needed()
        page.fill("#whatif-rate", "300")
        page.wait_for_selector("#whatif[data-rate='300']")
        rows = page.locator("#whatif tr[data-planner]").all_inner_texts()
        assert [row.split("\t")[0] for row in rows] == ["MBA + SAM", "LSA + RSM"]
        assert "300 t/s need" in page.inner_text("#whatif .said")
        page.locator("#whatif-slider").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#whatif[data-rate]:not([data-rate='300'])")


def test_every_scheduler_is_compared_as_the_command_compares_it(page, tmp_path, capsys):
    asked = question()
    write_question(asked, tmp_path)
    (tmp_path / "base.json").write_text(json.dumps(plan_data(in_force())))
    words = [
        "topology.json",
        "--models",
        "models",
        "--prices",
        "prices.toml",
        "--rates",
        "300",
        "--compare",
        "all",
    ]
    words += ["--base", "base.json", "--search-seconds", "600", "-o", "json"]
    with contextlib.chdir(tmp_path):
        assert cli.main(["plan", *words]) == 0
    told = {row["pair"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    with opened(page):
        page.locator("#whatif").scroll_into_view_if_needed()
        page.fill("#whatif-rate", "300")
        page.wait_for_selector("#whatif[data-rate='300']")
        page.click("#whatif-compare")
        page.wait_for_selector("#whatif[data-compared='300']")
        rows = [text.split("\t") for text in page.locator("#whatif-every tbody tr").all_inner_texts()]
    shown = {row[0].lower().replace(" ", ""): row[1:] for row in rows}
    assert list(shown) == list(dict.fromkeys(("mba+sam", *each_once())))
    for pair, (slots, cost, weighted, shuffled, leave_slot, leave_vm, moved, time_to_plan) in shown.items():
        row = told[pair]
        assert int(slots) == row["slots"]["used"], pair
        assert float(cost.split()[0].removeprefix("$")) == pytest.approx(row["usd_per_hour"], abs=0.005)
        for text, name in ((weighted, "weighted_tps"), (shuffled, "shuffle_tps")):
            assert float(text.split()[0].replace(",", "")) == pytest.approx(row[name], abs=0.51), (pair, name)
        for text, name in ((leave_slot, "between_slots_tps"), (leave_vm, "between_vms_tps")):
            part = 100 * row[name] / row["rows_tps"]
            assert float(text.rstrip("%").strip()) == pytest.approx(part, abs=0.51), (pair, name)
        assert int(moved.replace(",", "")) == row["moves"], pair
        assert re.fullmatch(r"[\d.,]+ m?s", time_to_plan)


def write_question(asked, folder):
    """The question of the page as files for a command: VMs of the same size and price are acquired."""
    (vm, *_), topology = asked.vms, asked.topology
    tasks = [
        {"name": task.name}
        | ({"kind": "source"} if task in topology.sources else {})
        | (
            {"static": {"threads": 1, "cpu": task.static.cpu, "memory": task.static.memory}}
            if task.static
            else {}
        )
        for task in topology.tasks
    ]
    edges = [{"from": e.source, "to": e.target, "selectivity": e.selectivity} for e in topology.edges]
    document = {"schema": "headgate/topology/v1", "name": topology.name, "tasks": tasks, "edges": edges}
    (folder / "topology.json").write_text(json.dumps(document))
    (folder / "models").mkdir()
    for name, model in asked.models.items():
        slot = {"cores": 1.0, "memory_bytes": model.slot.memory_bytes, "machine": "any"}
        points = [{n: getattr(p, n) for n in ("threads", "rate_tps", "cpu", "memory")} for p in model.points]
        data = {"schema": "headgate/model/v1", "task": name, "slot": slot, "points": points}
        (folder / "models" / f"{name}.json").write_text(json.dumps(data))
    (folder / "prices.toml").write_text(PRICES.format(slots=vm.slots, usd=vm.usd_per_hour))


def carries(slots, rate_tps):
    try:
        plan = make_plan(replace(question(), rate_tps=rate_tps, vms=(Vm("vm1", slots),), fixed=True))
    except Infeasible:
        return False
    return plan.prediction.rate_tps >= rate_tps


def test_without_the_token_the_page_only_reads(page):
    with opened(page):
        assert page.is_visible("#read-only")
        assert not page.is_visible("#stop") and not page.is_visible("#set-rate")


def test_a_forged_token_is_refused_and_changes_nothing(page):
    with opened(page, fragment="#token=forged-forged-forged") as (server, _):
        page.click("#stop")
        page.wait_for_selector("#order[data-step=refused]")
        assert "token" in page.inner_text("#order")
        assert server.asked.orders == []
        page.faults[:] = [fault for fault in page.faults if "401" not in fault]


def test_a_rate_is_proposed_shown_as_a_diff_and_only_then_applied(page):
    with opened(page, token=True) as (server, _):
        assert TOKEN not in page.url
        page.click("#set-rate")
        page.fill("#new-rate", "300")
        page.click("#order button[type=submit]")
        page.wait_for_selector("#order[data-step=diff]")
        assert "+ 300 t/s offered" in page.inner_text("#order .diff")
        assert server.asked.orders == []
        page.click("#order button[type=submit]")
        page.wait_for_selector("#order[data-step=done]")
        assert server.asked.orders == [("rate_set", {"rate_tps": 300.0})]


def test_a_recorded_run_has_a_scrubber_and_no_orders(page):
    replay = {"at_s": 30.0, "length_s": 120.0, "speed": 2.0}
    with opened(page, asks=False, document={**plain(example()), "origin": "trace", "replay": replay}):
        assert page.is_visible("#replay-at") and not page.is_visible("#stop")
        assert "of 2 min 00 s" in page.inner_text("#replay output")
        assert page.input_value("#replay-speed") == "2"
        assert not page.is_visible("#pause")


@pytest.mark.alone  # after 2.5 s without a word it is stale
@pytest.mark.parametrize(
    ("more", "state", "words"),
    [
        ({}, "replay", "recorded run"),
        ({"paused": True}, "paused", "paused at 30 s"),
        ({"ended": True}, "ended", "ended"),
    ],
)
def test_a_recorded_run_says_whether_it_goes_on(page, more, state, words):
    replay = {"at_s": 30.0, "length_s": 120.0, "speed": 2.0, **more}
    with opened(page, asks=False, document={**plain(example()), "origin": "trace", "replay": replay}):
        page.wait_for_selector(f"#feed-state[data-state={state}]")
        assert words in page.inner_text("#feed-state")


def test_a_recorded_run_whose_server_hangs_is_stale_though_it_is_paused(page):
    replay = {"at_s": 30.0, "length_s": 120.0, "speed": 2.0, "paused": True}
    with opened(page, asks=False, document={**plain(example()), "origin": "trace", "replay": replay}):
        page.wait_for_selector("#feed-state[data-state=stale]")


def test_a_stable_run_in_full_slots_has_no_task_near_its_limit(page):
    document = plain(example())
    for slot in document["slots"].values():
        slot["cpu"] = 0.97
    with opened(page, document=document):
        levels = {n.get_attribute("data-task"): n.get_attribute("data-level")
                  for n in page.locator("#topology [data-task]").all()}  # fmt: skip
        assert set(levels) == set(document["topology"]["order"]) and "limit" not in levels.values()


def test_a_task_is_near_its_limit_by_its_models_or_where_rows_pile_up(page):
    document = plain(example())
    document["topology"]["tasks"]["parse"] |= {"busy": 0.07, "load": 0.98, "load_slot": "vm1/3",
                                               "p95_ms": 41.0}  # fmt: skip
    with opened(page, document=document) as (_, feed):
        node = page.locator("#topology [data-task=parse]")
        assert node.get_attribute("data-level") == "limit"
        assert "98\u00a0% near its limit" in node.text_content() and "on vm1/3" in node.text_content()
        assert "pile up" not in page.inner_text("[data-answer=saturates-first]")
        document["topology"]["tasks"]["parse"] |= {"load": 0.4, "grows": True}
        document["next_bottleneck"] = {"task": "score", "slot": "vm2/1", "at_tps": 243.0}
        feed.whole({**document, "number": document["number"] + 1})
        page.wait_for_selector("[data-answer=saturates-first][data-task=score]")
        said = page.inner_text("[data-answer=saturates-first]")
        assert "rows pile up before parse" in said
        assert node.get_attribute("data-level") == "limit" and "its queue grows" in node.text_content()
        look_at_everything(page)
        row = page.locator("#tasks tr[data-task=parse]").inner_text()
        assert "its queue grows, on vm1/3" in row and "7\u00a0%" in row and "41 ms" in row


def test_a_planner_that_does_not_answer_is_asked_again_but_not_at_every_tick(page):
    asked = []
    page.route("**/api/whatif", lambda route: (asked.append(1), route.fulfill(status=503, json={}))[1])
    with opened(page) as (_, feed):
        for n in range(8):
            feed.tick(changed(n + 1))
            page.wait_for_timeout(300)
        page.goto("about:blank")  # it asks no more: each refusal is a line on the console, and meant
        page.wait_for_timeout(100)
        page.faults.clear()
        assert 1 <= len(asked) <= 3


def test_what_is_not_known_is_not_invented(page):
    bare = {**plain(example()), "rates": {}, "latency_ms": {}, "tuples": {}, "models": {}, "history": {},
            "decisions": {}, "events": {}, "stable": {"verdict": "unknown"}}  # fmt: skip
    for name in ("plan", "topology", "slope", "next_bottleneck"):
        del bare[name]
    with opened(page, document=bare):
        look_at_everything(page)
        assert "NaN" not in page.inner_text("body") and "undefined" not in page.inner_text("body")
        assert page.inner_text("[data-tile=acked_tps] .value") == "N/A"


def test_every_part_is_reached_by_the_keyboard_with_a_visible_focus(page):
    with opened(page):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "pause"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"


def test_a_narrow_screen_needs_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 360, "height": 740})
    with opened(page):
        look_at_everything(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
