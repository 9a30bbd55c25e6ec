"""The report is one whole HTML file: it tells the run's story, needs no network, and believes no name."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
import report_made
from msgspec.structs import replace
from report_made import RUN, tables, write

from headgate.controller.knowledge.diagnoses import Reason
from headgate.dashboards import headgate_command as cli
from headgate.dashboards.analytics.storage import result_tables as r
from headgate.dashboards.report import build
from headgate.dashboards.report.report_facts import REASONS
from headgate.dashboards.report.report_page import asset, safe_json
from headgate.topology_runtime.errors import InvalidInput

EVIL = "</script><img src=x onerror=alert(1)>&\"'"


class Page(HTMLParser):
    """What is in the page: elements with their attributes, ids, text outside scripts, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data
        elif not self._open or self._open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def data(self, name: str) -> Any:
        return json.loads(next(text for attributes, text in self.scripts if attributes.get("id") == name))

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def closed(self) -> bool:
        return self._open == []


def page_of(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(write(tmp_path_factory.mktemp("made") / "analysis"))


@pytest.fixture(scope="module")
def page(made: Path) -> Page:
    return page_of(made)


def test_the_page_is_whole(page: Page) -> None:
    assert page.closed()
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [str(a["href"])[1:] for a in page.all("a")]
    assert targets and set(targets) <= set(ids)


def test_every_plot_has_words_data_and_a_table(page: Page) -> None:
    plots = [a for a in page.all("div") if a.get("class") == "plot"]
    assert len(plots) >= 12
    for plot in plots:
        assert plot["role"] == "img" and len(plot["aria-label"] or "") > 30
        assert page.data(str(plot["data-figure"]))["data"]
    assert len(page.all("details")) >= len(plots)
    assert len(page.all("figcaption")) == len(page.all("figure"))


def test_nothing_is_fetched(made: Path, page: Page) -> None:
    ours = made.read_text("utf-8").replace(page.scripts[0][1], "")
    assert "http:" not in ours and "https:" not in ours and "//cdn" not in ours
    assert [a for tag, a in page.elements if tag == "link" or "src" in a] == []
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv"))
    assert "default-src 'none'" in str(policy) and "connect-src" not in str(policy)


def test_the_summary_is_for_programs(page: Page) -> None:
    summary = page.data("summary")
    assert summary["schema"] == "headgate/report/v1"
    assert summary["runs"] == [RUN] and summary["analysis"]["rate"]["r2"] == 0.981
    assert {plot["name"] for plot in summary["plots"]} >= {
        "timeline",
        "scatter-rate",
        "violins",
        "residual-map",
    }
    assert summary["rows"]["replans"] == 5
    kinds = [sentence["kind"] for sentence in summary["story"][0]["sentences"]]
    assert kinds.count("replan") == 4 and "broke" in kinds


def test_every_reason_for_a_plan_has_words() -> None:
    reasons = {*get_args(Reason), "rolled_back"} - {
        "fine",
        "unknown",
        "frozen",
        "drift",
        "link_slow",
    }  # no plan follows from these
    assert set(REASONS) == reasons


def test_names_are_believed_nowhere(tmp_path: Path) -> None:
    found = tables(("<b>parse</b>", EVIL, "a\u2028b", "javascript:alert(1)"))
    found["replans"] = [replace(row, text=EVIL, reason=EVIL) for row in found["replans"]]
    found["left_out"] = [r.LeftOut(EVIL, EVIL, EVIL, 1)]
    path = build(write(tmp_path / "a", found, models=EVIL))
    page = page_of(path)
    assert page.closed()
    assert page.all("img") == [] and page.all("b") == []
    assert EVIL in page.words
    heat = page.data("figure-residual-map")["data"][0]
    assert "&lt;b&gt;parse&lt;/b&gt;" in heat["y"]
    for plot in sorted((path.parent / "plots").glob("*.html")):
        assert page_of(plot).closed() and "<img" not in plot.read_text("utf-8")


def test_json_cannot_end_its_script() -> None:
    text = safe_json({"a": "</script><!--", "b": [1, None]})
    assert "<" not in text and json.loads(text) == {"a": "</script><!--", "b": [1, None]}
    with pytest.raises(ValueError):
        safe_json(float("nan"))


@pytest.mark.parametrize("gone", [*r.TABLES, "all"])
def test_without_any_table_there_is_a_report(tmp_path: Path, gone: str) -> None:
    found = {name: rows for name, rows in tables().items() if gone not in (name, "all")}
    page = page_of(build(write(tmp_path / "a", found)))
    assert page.closed() and page.data("summary")["story"]
    assert not re.search(r"\b(nan|NaN|inf|None)\b(?! was)", page.words)
    if gone == "all":
        assert [a for a in page.all("div") if a.get("class") == "plot"] == []
        assert "There is nothing to report: no sample was recorded." in page.words
        assert page.words.count("N/A") >= 15


def test_without_any_number_there_is_a_report(tmp_path: Path) -> None:
    """Every number that may be unknown is."""
    found = {
        name: [
            replace(row, **{f: None for f, kind in type(row).__annotations__.items() if "None" in str(kind)})
            for row in rows
        ]
        for name, rows in tables().items()
    }
    folder = write(tmp_path / "a", found, rate={"r2": None}, cpu=None, memory={}, latency_ms=None)
    page = page_of(build(folder))
    assert page.closed() and not re.search(r"\b(nan|NaN|None|inf)\b", page.words)


def test_of_many_runs_each_is_told_and_some_are_drawn(tmp_path: Path) -> None:
    found = tables()
    for name in ("rate_windows", "replans", "cost", "stability", "latency_epochs"):
        found[name] = [replace(row, run=f"demo/run-{n}") for n in range(1, 10) for row in found[name]]
    page = page_of(build(write(tmp_path / "a", found)))
    names = [plot["name"] for plot in page.data("summary")["plots"]]
    assert [name for name in names if name.startswith("timeline")] == [f"timeline-{n}" for n in range(1, 7)]
    assert "Drawn are the first 6 of 9 runs." in page.words
    chapters = page.data("summary")["story"]
    assert [chapter["run"] for chapter in chapters] == [*(f"demo/run-{n}" for n in range(1, 10)), None]
    told = [sentence["text"].split(" ")[0] for sentence in chapters[-1]["sentences"]]
    assert told == ["Where", "Latency", "The", "Left"] and not any(
        "R²" in s["text"] for c in chapters[:-1] for s in c["sentences"]
    )
    assert page.data("figure-stability")["data"][1]["x"] == [f"{n}.3" for n in range(1, 10)]


def test_each_plot_is_also_a_page_and_data_of_its_own(made: Path, page: Page) -> None:
    plots = made.parent / "plots"
    names = {plot["name"] for plot in page.data("summary")["plots"]}
    assert (
        {path.stem for path in plots.glob("*.html")} == names == {path.stem for path in plots.glob("*.json")}
    )
    assert (plots / "plotly.min.js").stat().st_size > 1_000_000
    alone = page_of(plots / "violins.html")
    assert [a["src"] for a in alone.all("script") if "src" in a] == ["plotly.min.js"]
    assert alone.data("figure-violins") == json.loads((plots / "violins.json").read_text("utf-8"))


def test_colours_are_roles_that_both_themes_have(page: Page) -> None:
    used = set(re.findall(r'"@([a-z-]+)"', "".join(text for a, text in page.scripts if "id" in a)))
    script = asset("page.js")
    for theme in (script[script.index("light:") : script.index("dark:")], script[script.index("dark:") :]):
        known = set(re.findall(r'"?([a-z-]+)"?: "(?:#|rgba)', theme))
        assert used and used <= known


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "analysis.json").unlink(), "analysis.json cannot be read"),
        (
            lambda folder: (folder / "analysis.json").write_text('{"schema": "headgate/analysis/v9"}'),
            "this version",
        ),
        (lambda folder: (folder / "analysis.json").write_text('{"rate": NaN}'), "cannot be read"),
        (lambda folder: (folder / "results" / "cost.json").write_text('[{"run": 1}]'), "cannot be read"),
    ],
)
def test_what_is_no_analysis_is_refused(tmp_path: Path, spoil: Any, words: str) -> None:
    folder = write(tmp_path / "a")
    spoil(folder)
    with pytest.raises(InvalidInput, match=words):
        build(folder)


REPORT = ("analyze", "--report-only")


def test_the_command_says_where_the_report_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "a")
    assert cli.main([*REPORT, str(folder), "--report", str(tmp_path / "out" / "run.html"), "-o", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"schema": "headgate/report/v1", "report": str(tmp_path / "out" / "run.html")}
    assert (tmp_path / "out" / "run-plots" / "timeline.html").exists()


@pytest.mark.parametrize("there", [False, True])
def test_the_command_refuses_what_is_neither_run_nor_analysis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    if there:
        (tmp_path / "no" / "demo" / "r1").mkdir(parents=True)
        (tmp_path / "no" / "demo" / "r1" / "run.json").write_text("{}")
    assert cli.main([*REPORT, str(tmp_path / "no")]) == 3
    said = capsys.readouterr().err
    assert "for example" in said and "r1" in said if there else "does not exist" in said


def test_a_run_analysed_since_it_ended_is_not_analysed_again(tmp_path: Path) -> None:
    run = tmp_path / "traces" / "demo" / "r1"
    (run / "samples").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "samples" / "1.parquet").write_bytes(b"")
    write(run.parent / "analysis" / "r1", runs=["demo/r1"])
    assert cli.main([*REPORT, str(run)]) == 0
    assert (run.parent / "analysis" / "r1" / "report.html").exists()


def test_a_run_that_was_not_analysed_has_no_report_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "traces" / "demo" / "r1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert cli.main([*REPORT, str(run)]) == 3
    assert f"run `headgate analyze {run}`" in capsys.readouterr().err


def test_a_report_is_of_one_analysis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*REPORT, str(tmp_path), str(tmp_path)]) == 2
    assert "--report-only takes one TRACE" in capsys.readouterr().err


@pytest.mark.live
def test_plotly_takes_every_figure(page: Page) -> None:
    """As strictly as its own checks; a colour's role stands for a colour."""
    import plotly.graph_objects as go

    for plot in page.data("summary")["plots"]:
        figure = page.data(f"figure-{plot['name']}")
        text = re.sub(r'"@[a-z-]+"', '"red"', json.dumps(figure))
        go.Figure(json.loads(text))


def test_what_is_made_up_here_names_every_table() -> None:
    assert set(report_made.tables()) == set(r.TABLES) and all(report_made.tables().values())
