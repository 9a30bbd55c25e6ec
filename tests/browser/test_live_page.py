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
from pages import TOKEN, Asked, MadeFeed, in_force, large, question, served

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
TIMED = {"watermark": 1_790_000_123.25, "lag_s": 116.7, "held_by": "source partition 0", "late_rows": 1_200,
         "state": "known", "rows_without_time": {"source": 7, "other": 0}}  # fmt: skip
OVERVIEW = ("topology", "charts", "slots")
TABS = ("history", "figures", "whatif", "fidelity", "models", "timeline", "tasks", "vms", "events")
REPLAY = {"at_s": 30.0, "length_s": 120.0, "speed": 2.0}
REPLAYED = {"origin": "trace", "replay": {**REPLAY, "paused": True}}
NOTICED = {"alarms": {"lost": "3 rows are lost", "journal": "the disk is full"}, "held": "mass loss",
           "enacting": {"epoch": 4, "phase": "prepared"}}  # fmt: skip


@contextmanager
def opened(page, asks=True, token=False, document=None, fragment=""):
    feed = MadeFeed(document or plain(example()))
    with served(feed, Asked() if asks else None) as server:
        secret = f"#token={TOKEN}" if token else fragment
        page.goto(server.address + secret)
        page.wait_for_selector("body[data-drawn]")
        yield server, feed


def replayed(page, **more):
    return opened(
        page, asks=False, document={**plain(example()), "origin": "trace", "replay": {**REPLAY, **more}}
    )


def changed(at_s, **parts):
    return {**plain(example(NOW_S + at_s)), **parts}


def snapshot(server):
    with urllib.request.urlopen(f"{server.address}api/snapshot") as answer:
        return json.load(answer)


def open_tab(page, name):
    page.click(f"#tabs a[href='#{name}']")
    page.wait_for_selector(f"#{name}[data-shown]")


def open_overview(page):
    page.click("#tabs a[href='#overview']")
    for name in OVERVIEW:
        page.wait_for_selector(f"#{name}[data-shown]")
    page.wait_for_selector("[data-chart=rates][data-drawn]")


def look_at_everything(page):
    for name in TABS:
        open_tab(page, name)
    open_overview(page)


def all_text(page):
    """Also that of the tabs that are closed."""
    return page.evaluate("document.querySelector('main').textContent")


def findings(page, document):
    """What the page finds of a snapshot: [[level, word, text]]."""
    script = """async given => (await import('/static/overview/health.js')).findings(given)
        .map(({ level, word, text }) => [level, word, text])"""
    return page.evaluate(script, document)


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
        text = all_text(page)
        assert "NaN" not in text and "undefined" not in text and "null" not in text
        assert page.get_attribute("[data-chart=rates]", "data-points") == "121"
        open_tab(page, "history")
        page.wait_for_selector("[data-chart=slope][data-drawn]")
        assert page.locator("#history tbody tr").count() == 121


def timed(**tasks):
    document = plain(example())
    for name, now in tasks.items():
        document["topology"]["tasks"][name]["event_time"] = now
    return document


@pytest.mark.parametrize(
    "more",
    [{}, REPLAYED, NOTICED, {"topology": timed(score=TIMED)["topology"]}],
    ids=["live", "over a trace", "with notices", "with event time"],
)
def test_the_overview_is_one_screen(page, more):
    with opened(page, asks=False, document={**plain(example()), **more}):
        open_overview(page)
        assert page.evaluate("document.documentElement.scrollHeight") <= 900
        for name in (
            "#sentence",
            "#topology svg",
            "[data-chart=rates] .main-svg",
            "#slots [data-slot='vm2/3']",
        ):
            box = page.locator(name).first.bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= 900 and box["width"] > 50, name


def test_rates_and_latency_share_one_time_axis(page):
    with opened(page):
        open_overview(page)
        lines = page.evaluate(
            "document.querySelector('[data-chart=rates]').data.map(d => [d.name, d.xaxis ?? 'x', d.yaxis])"
        )
        layout = "document.querySelector('[data-chart=rates]')._fullLayout"
        assert page.evaluate(f"[{layout}.yaxis.type, {layout}.yaxis2.type]") == ["linear", "log"]
        assert "log" in page.evaluate(f"{layout}.yaxis2.title.text")
    assert {axis for _, axis, _ in lines} == {"x"}
    assert [name for name, _, axis in lines if axis == "y"] == ["offered", "done", "planned for", "can carry"]
    assert [name for name, _, axis in lines if axis == "y2"] == ["p50", "p95", "p99", "oldest row not done"]


def test_health_is_a_sentence_with_its_reason(page):
    with opened(page):
        for cell in page.locator("#topology g[data-task]").all():
            word = {"easy": "easy", "busy": "busy", "limit": "near its limit", "none": "not measured"}
            assert word[cell.get_attribute("data-level")] in cell.text_content(), "beside its colour"
        sentence = page.locator("h1")
        assert sentence.inner_text().replace("\u00a0", " ") == (
            "✓ Keeps up: latency is steady, 212 of at most 243 rows/s, 99 % of rows within 89 ms."
        )
        assert sentence.get_attribute("data-state") == "good"


def test_red_is_where_somebody_must_act(page):
    falls = {**plain(example()), "stable": {"verdict": "unstable"}, "slope": 0.12}
    falls["topology"]["tasks"]["parse"]["grows"] = True
    with opened(page):
        ((level, word, text),) = findings(page, falls)
        assert (level, word) == ("watch", "▲ Falls behind:"), "the controller plans again"
        assert "latency grows by 120 ms every second; rows pile up before parse; 212 of" in text
        ((level, _, text), *_) = findings(page, {**falls, "held": "mass loss"})
        assert level == "act" and text.endswith("no new plan is made: resume, or lower the rate.")
        ((level, _, text), *_) = findings(page, {**falls, "mode": "approve"})
        assert level == "act" and "approve a plan" in text
        ((level, _, text), *_) = findings(page, {**falls, "enacting": {"epoch": 4, "phase": "prepared"}})
        assert level == "watch" and text.endswith("plan #4 is on its way.")
        several = findings(page, {**falls, "alarms": {"lost": "3 rows are lost"}, "held": "mass loss"})
        assert [level for level, *_ in several] == ["act", "act", "watch"]
        assert several[0][1:] == ["▲ Act:", "3 rows are lost."]


def test_latencies_of_rows_that_had_waited_stand_in_the_sentence(page):
    late = {"verdict": "stable", "text": "stable, p99 12 s of rows that had waited"}
    with opened(page):
        ((level, word, text),) = findings(page, {**plain(example()), "stable": late})
    assert (level, word) == ("watch", "✓ Keeps up:") and text.startswith(
        "p99 12 s of rows that had waited, 212"
    )


def test_a_run_that_cannot_be_judged_says_why(page):
    bare = {**plain(example()), "stable": {"verdict": "unknown"}, "rates": {}, "latency_ms": {}}
    with opened(page):
        ((level, word, text),) = findings(page, bare)
        assert (level, word) == ("none", "? Not yet judged:") and text.startswith(
            "too little has been measured"
        )
        del bare["plan"]
        ((_, word, text),) = findings(page, {**bare, "header": "measuring parse: 3 of about 20 points done"})
        assert (word, text) == ("? No plan yet:", "measuring parse: 3 of about 20 points done.")
        ((_, word, text),) = findings(page, {**plain(example()), "stage": "over"})
        assert (word, text) == ("■ Over:", "48,262 of 48,300 rows are done, 0 lost.")


def test_what_saturates_first_is_named_with_its_place_and_marked(page):
    with opened(page):
        first = page.locator("[data-answer=saturates-first]")
        assert first.get_attribute("data-task") == "parse"
        assert "parse on vm1/3 saturates first, at 243 rows/s" in first.inner_text()
        assert page.locator("#topology g[data-first]").get_attribute("data-task") == "parse"
        assert page.locator("#slots [data-first]").get_attribute("data-slot") == "vm1/3"
    with opened(page, document=large()):  # than its panel: it is in sight all the same
        page.wait_for_selector("#topology g[data-first]")
        parts = (page.locator(f"#topology {part}").bounding_box() for part in ("g[data-first]", ".scroll"))
        node, panel = parts
        assert panel["x"] <= node["x"] and node["x"] + node["width"] <= panel["x"] + panel["width"]
        assert panel["y"] <= node["y"] and node["y"] + node["height"] <= panel["y"] + panel["height"]


def test_a_tab_has_an_address_and_is_opened_by_the_keyboard(page):
    with opened(page, fragment="#tasks"):
        page.wait_for_selector("#tasks tr[data-task=parse]")
        assert not page.is_visible("#topology svg")
        assert page.locator("#tabs [aria-current=page]").all_inner_texts() == ["Tasks"]
        page.locator("#tabs a[href='#events']").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#events [data-event]")
        assert page.evaluate("scrollY") == 0, "the sentence stays in sight"
        page.go_back()
        page.wait_for_selector("#tasks tr[data-task=parse]")


def test_a_search_finds_what_is_in_closed_tabs(page):
    words = ("cpu of vm1/3 is 0.71, predicted 0.52", "vm2 is there: 4 slots", "Alternatives rejected",
             "Memory of each slot", "dead letters 0", "threads in one slot", "cores/slot")  # fmt: skip
    with opened(page):
        page.wait_for_selector("#events[data-loaded]", state="attached")
        page.keyboard.press("Control+f")
        text = all_text(page)
        assert [each for each in words if each not in text] == []
        assert page.locator(".tab[hidden='until-found']").count() == len(TABS)
        page.evaluate("location.hash = 'events-filter'")  # the browser reveals what it finds in the same way
        page.wait_for_selector("#events [data-event]")
        assert page.locator("#tabs [aria-current=page]").all_inner_texts() == ["Events"]


def test_a_print_has_every_tab(page, tmp_path):
    with opened(page):
        look_at_everything(page)
        page.evaluate(
            "addEventListener('beforeprint', () => { globalThis.printed = document.body.innerText; })"
        )
        page.pdf(path=tmp_path / "page.pdf")
        printed = page.evaluate("globalThis.printed")
        for words in ("parse on vm1/3 saturates first", "latency p99", "What would one more slot buy?", "not taken",
                      "Memory of each slot", "threads in one slot", "cores/slot", "vm2 is there: 4 slots"):  # fmt: skip
            assert words in printed
        page.wait_for_selector(".tab[hidden='until-found']", state="attached")
        assert page.locator(".tab:not([hidden])").get_attribute("id") == "overview"


def test_the_slot_map_is_that_of_the_snapshot_also_after_a_change(page):
    with opened(page) as (server, feed):
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
        assert page.wait_for_selector("#slots [data-slot='vm2/2'][data-free]:not([data-bad])")
        assert page.wait_for_selector("#slots [data-slot='vm1/1'][data-bad]:not([data-free])")


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
            feed.tick(changed(n, run=f"tick {n}"))
        page.wait_for_selector("body[data-number='485']")  # what follows a gap comes with the whole alone
        assert missed == [483] + [485] * lost
        assert int(page.get_attribute("body", "data-asked")) > lost, "more often where the machine is slow"
        assert page.inner_text("#run-name").endswith("run tick 4")


@pytest.mark.alone  # after 2.5 s without a word it is stale
def test_a_paused_page_stands_still_and_goes_on_where_the_run_is(page):
    with opened(page) as (_, feed):
        page.click("#pause")
        feed.tick(changed(1, run="it went on"))
        page.wait_for_selector("body[data-heard='482']")
        assert "it went on" not in page.inner_text("#run-name")
        assert page.get_attribute("#pause", "aria-pressed") == "true"
        assert "paused at 14:17:20" in page.inner_text("#feed-state")
        page.click("#pause")
        page.get_by_text("it went on").wait_for()


def test_what_if_asks_the_planner_and_shows_both_pairs_and_what_a_slot_more_buys(page):
    with opened(page):
        open_tab(page, "whatif")
        page.wait_for_selector("[data-answer=one-more-slot][data-buys]")
        told = page.inner_text("[data-answer=one-more-slot]")
        most = re.search(r"(\d+) slots carry at most (\d+) rows/s, and (\d+) carry (\d+) rows/s", told)
        buys = float(re.search(r"(\d+) rows/s more", told)[1])
        slots, rate, more, next_rate = (int(number) for number in most.groups())
        assert more == slots + 1 and abs(next_rate - rate - buys) <= 1
        for count, carried in ((slots, rate), (more, next_rate)):  # by the planner, on just these slots
            assert carries(count, carried * 0.98) and not carries(count, carried * 1.03)
        page.fill("#whatif-rate", "300")
        page.wait_for_selector("#whatif[data-rate='300']")
        rows = page.locator("#whatif tr[data-planner]").all_inner_texts()
        assert [row.split("\t")[0] for row in rows] == ["MBA + SAM", "LSA + RSM"]
        assert "300 rows/s need" in page.inner_text("#whatif .said")
        assert re.search(r"95 of 100 rows take up to [\d.,]+ (ms|s)", page.inner_text("#whatif .said"))
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
        open_tab(page, "whatif")
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


def test_a_forged_token_is_refused_and_changes_nothing(page):
    with opened(page):
        assert page.is_visible("#read-only"), "without a token it only reads"
        assert not page.is_visible("#stop") and not page.is_visible("#set-rate")
    page.goto("about:blank")
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
        assert "+ 300 rows/s offered" in page.inner_text("#order .diff")
        assert server.asked.orders == []
        page.click("#order button[type=submit]")
        page.wait_for_selector("#order[data-step=done]")
        assert server.asked.orders == [("rate_set", {"rate_tps": 300.0})]


def test_a_recorded_run_has_a_scrubber_and_no_orders(page):
    with replayed(page):
        assert page.is_visible("#replay-at") and not page.is_visible("#stop")
        assert "of 2 min 00 s" in page.inner_text("#replay output")
        assert page.input_value("#replay-speed") == "2"
        assert not page.is_visible("#pause")
        open_tab(page, "timeline")
        first = page.inner_text("#timeline [data-trigger=start] summary")
        assert "planned" in first and "re-planned" not in first


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
    with replayed(page, **more):
        page.wait_for_selector(f"#feed-state[data-state={state}]")
        assert words in page.inner_text("#feed-state")


def test_a_recorded_run_whose_server_hangs_is_stale_though_it_is_paused(page):
    with replayed(page, paused=True):
        page.wait_for_selector("#feed-state[data-state=stale]")


def test_a_stable_run_in_full_slots_has_no_task_near_its_limit(page):
    document = plain(example())
    for slot in document["slots"].values():
        slot["cpu"] = 0.97
    with opened(page, document=document):
        levels = {n.get_attribute("data-task"): n.get_attribute("data-level")
                  for n in page.locator("#topology g[data-task]").all()}  # fmt: skip
        assert set(levels) == set(document["topology"]["order"]) and "limit" not in levels.values()


def test_a_task_is_near_its_limit_by_its_models_or_where_rows_pile_up(page):
    document = plain(example())
    document["topology"]["tasks"]["parse"] |= {"busy": 0.07, "load": 0.98, "load_slot": "vm1/3",
                                               "p95_ms": 41.0}  # fmt: skip
    with opened(page, document=document) as (_, feed):
        node = page.locator("#topology g[data-task=parse]")
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
        open_tab(page, "tasks")
        row = page.locator("#tasks tr[data-task=parse]").inner_text()
        assert "its queue grows, on vm1/3" in row and "7\u00a0%" in row and "41 ms" in row


def test_latency_is_shown_beside_what_was_predicted(page):
    document = plain(example())
    latency = {
        "p50": 9.8,
        "p95": 14.0,
        "p99": 16.0,
        "predicted_p50": 8.0,
        "predicted_p95": 14.0,
        "predicted_p99": 32.0,
    }
    with opened(page) as (_, feed):
        open_tab(page, "fidelity")
        before = [row.inner_text().split("\t") for row in page.locator("[data-percentile]").all()]
        assert [row[2] for row in before] == ["N/A"] * 3, "nothing was predicted"
        feed.whole({**document, "number": document["number"] + 1, "latency_ms": latency})
        page.wait_for_selector("[data-percentile=p99][data-drift=far]")
        rows = [
            [text.strip() for text in row.inner_text().split("\t")]
            for row in page.locator("[data-percentile]").all()
        ]
        assert rows == [
            ["p50", "9.8 ms", "8.0 ms", "~ +23 %"],
            ["p95", "14 ms", "14 ms", "= ±0 %"],
            ["p99", "16 ms", "32 ms", "≠ −50 %"],
        ]


def test_event_time_is_shown_of_the_tasks_that_have_it(page):
    with opened(page) as (_, feed):
        open_tab(page, "tasks")
        assert page.locator("[data-event-time]").count() == 0
        assert "event time" not in page.inner_text("main").lower()
        document = timed(score=TIMED, lookup={"state": "ended", "late_rows": 0})
        feed.whole({**document, "number": document["number"] + 1})
        page.wait_for_selector("[data-event-time=score]")
        rows = [row.inner_text().split("\t") for row in page.locator("[data-event-time]").all()]
        assert rows == [
            ["score", "2026-09-21 14:15:23 UTC", "117", "source partition 0", "1,200", "7 of source"],
            ["lookup", "ended", "N/A", "N/A", "0", "0"],
        ]
        open_overview(page)
        assert page.inner_text("#topology .event-time") == (
            "Event time of score: watermark 2026-09-21 14:15:23 UTC, 117 s behind now; source partition 0 holds it "
            "back; 1,200 rows late; 7 rows of source without a time. 1 task more with event time."
        )
        feed.whole({**plain(example()), "number": document["number"] + 2})
        page.wait_for_selector("#topology .event-time", state="hidden")


def test_a_planner_that_does_not_answer_is_asked_again_but_not_at_every_tick(browser):
    """In a context of its own: a clock that a test moves is that of all pages of a context, also of later ones."""
    asked = []
    context = browser.browser.new_context()
    page = context.new_page()
    page.route("**/api/whatif", lambda route: (asked.append(1), route.fulfill(status=503, json={}))[1])
    page.clock.install()
    with opened(page) as (_, feed):
        open_tab(page, "whatif")
        page.clock.pause_at(time.time() + 60)  # from now on its time is the test's
        for n in range(8):
            feed.tick(changed(n + 1))
            page.wait_for_selector(f"body[data-heard='{482 + n}']")
            page.clock.run_for(300)
        context.close()
    assert 1 <= len(asked) <= 3


def test_what_is_not_known_is_not_invented(page):
    bare = {**plain(example()), "rates": {}, "latency_ms": {}, "tuples": {}, "models": {}, "history": {},
            "decisions": {}, "events": {}, "stable": {"verdict": "unknown"}}  # fmt: skip
    for name in ("plan", "topology", "slope", "next_bottleneck"):
        del bare[name]
    with opened(page, document=bare):
        look_at_everything(page)
        assert "NaN" not in all_text(page) and "undefined" not in all_text(page)
        open_tab(page, "figures")
        assert page.inner_text("[data-figure=acked_tps] td >> nth=0") == "N/A"


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


def test_a_tab_that_could_not_be_loaded_says_so_and_is_loaded_when_it_is_opened_again(page):
    page.route("**/tabs/timeline.js", lambda route: route.abort("connectionrefused"))
    with opened(page):
        page.click("#tabs a[href='#timeline']")
        page.wait_for_function(
            "document.querySelector('#timeline .view').textContent.includes('reload the page')"
        )
        page.unroute("**/tabs/timeline.js")
        open_overview(page)
        open_tab(page, "timeline")
        assert "reload the page" not in page.inner_text("#timeline")
