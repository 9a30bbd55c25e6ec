"""What the report says in sentences, by `sentences.jinja`, over the figures of `report_facts.py`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from headgate.dashboards.report.analysis_files import Analysis
from headgate.dashboards.report.report_charts import RUNS_DRAWN
from headgate.dashboards.report.report_facts import REASONS, Facts, load, run_facts, whole_facts
from headgate.dashboards.report.report_wording import (
    count,
    duration,
    listed,
    number,
    percent,
    points,
    seen,
    span,
)
from headgate.topology_runtime.stability.trial_evidence import UNSTABLE_SLOPE

Said = tuple[str, str]  # its kind, the sentence
Told = dict[str, list[Said]]  # by topic: a question, `story`, `findings`, or a section of the page

TOLD_MOST = 12  # of a kind that are told one by one
HELP_MOST = 6
GOOD_R2, GOOD_ERROR = 0.95, 0.05  # the error: of the slot, or of the rate
GOOD_LATENCY = {"p50": 0.2, "p95": 0.35, "p99": 0.35}


@dataclass(frozen=True)
class Sentences:
    """Of each run, and of all together."""

    runs: dict[str, Told]
    whole: Told

    def answers(self, run: str) -> dict[str, tuple[str, list[str]]]:
        """Question → (kind, lines), in the order in which they are asked."""
        found = {}
        for topic, said in self.runs[run].items():
            if topic.endswith("?"):
                most = HELP_MOST if "helped" in topic else len(said)
                found[topic] = said[0][0], [text for _, text in said[:most]]
        return found

    @property
    def story(self) -> list[tuple[str, list[Said]]]:
        """A chapter per run; one without a name of what concerns all, if there is any."""
        chapters = [(run, told["story"]) for run, told in self.runs.items()]
        whole = self.whole.get("story", [])
        return [*chapters, ("", whole)] if whole else chapters


def sentences(analysis: Analysis) -> Sentences:
    whole = whole_facts(analysis)
    told = {run: _told("of_run", run_facts(analysis, run), whole) for run in analysis.runs}
    return Sentences(told, _told("of_all", whole, whole))


def _told(macro: str, facts: Facts, whole: Facts) -> Told:
    told: Told = defaultdict(list)

    def say(topic: str, kind: str = "plain", *, caller: Callable[[], str]) -> str:
        text = " ".join(caller().split())
        told[topic].append((kind, re.sub(r" ([,.;:)])(?=\s|[).,;:]|$)", r"\1", text)))
        return ""

    module = _template().make_module({"say": say, "told": told, "all": whole})
    getattr(module, macro)(facts)
    return told


@cache
def _template() -> jinja2.Template:
    here = jinja2.FileSystemLoader(Path(__file__).parent)
    known = jinja2.Environment(
        loader=here, undefined=jinja2.StrictUndefined, finalize=seen, extensions=["jinja2.ext.do"]
    )
    known.filters |= {
        word.__name__: word for word in (count, duration, listed, load, number, percent, points, span)
    }
    known.filters |= {"reason": _reason, "at_times": _at_times, "most_common": _most_common}
    known.globals |= {"RUNS_DRAWN": RUNS_DRAWN, "TOLD_MOST": TOLD_MOST, "UNSTABLE_SLOPE": UNSTABLE_SLOPE}
    known.globals |= {"GOOD_R2": GOOD_R2, "GOOD_ERROR": GOOD_ERROR, "GOOD_LATENCY": GOOD_LATENCY}
    return known.get_template("sentences.jinja")


def _reason(reason: str) -> str:
    return REASONS.get(reason, f"for {reason}")


def _at_times(near: Sequence[tuple[float, str]], most: int) -> str:
    return listed([f"at {duration(at_s)} {text}" for at_s, text in near], most)


def _most_common(names: Sequence[str]) -> Any:
    return Counter(names).most_common(1)[0][0]
