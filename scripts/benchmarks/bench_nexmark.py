"""Nexmark (examples/nexmark) on headgate and other stream processors: rows/s of a core, checked row by row.

Every system answers the same query over the same events; what it gave is compared with DuckDB's batch answer over them
(examples/nexmark/sql), and a run whose answer differs has no figure, nor one of less than half a second. Where a peer
has no such query, the table says why (scripts/nexmark_peers/peer_cells.py); if any other run has no such answer, the
command ends with 1. rows_per_core_s: rows that the query reads (of its
kinds of events), by the CPU seconds of all processes of the system, both from when rows may come to when the output
grew last: no start of a process, but what a JVM compiles; with few rows that is most of it. headgate runs as
`headgate up`, with real workers; `columns` and `windows` (event time) where a query has that form. Each peer is pinned
and installed by name, into `.headgate/peers` (`scripts/setup bench-peers`) or else into a folder for the run; it reads
what it reads fastest of generator, CSV and Parquet files.

--kill: once more with state kept, all processes of a system killed (-9) in the middle, and the same command again: how
many rows were lost, and how many are there twice.
"""
# bench: nexmark – Nexmark's queries beside PyFlink, Spark, pathway, bytewax; --kill: rows lost and repeated

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.benchmark_runner import SCRIPTS

ROOT = SCRIPTS.parent
NEXMARK = ROOT / "examples" / "nexmark"
sys.path.insert(0, str(NEXMARK))

from auction_answers import QUERIES, database  # noqa: E402
from auction_events import Auctions  # noqa: E402

from nexmark_peers.nexmark_checks import answer, compared, rows_there  # noqa: E402
from nexmark_peers.nexmark_inputs import write  # noqa: E402
from nexmark_peers.peer_cells import NOT_INSTALLED, kinds_of, reason, unexpected  # noqa: E402
from nexmark_peers.watched_process import EVERY_S, Watched  # noqa: E402

FAST_TPS = 4e6  # above what any of it carries: it runs as fast as it can
MODEL_TASKS = (
    "events store euros chosen told side items local new winning average "
    "counts hot highest sessions statistics bids"
)


@dataclass(frozen=True)
class System:
    """A peer: what pip installs, its file in scripts/nexmark_peers, and how it is given its input (form, files)."""

    packages: tuple[str, ...]
    file: str
    form: str = ""
    files: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    folder: str = ""  # in .headgate/peers
    ends: bool = True  # by itself, where state is kept


SYSTEMS = {
    "bytewax": System(("bytewax==0.21.1",), "bytewax_nexmark.py"),
    "pathway": System(("pathway==0.33.0",), "pathway_nexmark.py", "csv", 40, ends=False),
    "spark": System(("pyspark==4.3.0",), "spark_nexmark.py", "parquet", 40, folder="pyspark"),
    "flink-sql": System(("apache-flink==2.3.0",), "flink_nexmark.py", "plain", folder="flink"),
    "pyflink": System(
        ("apache-flink==2.3.0",), "flink_nexmark.py", "plain", settings={"mode": "udf"}, folder="flink"
    ),
}
OURS = "headgate"
FORMS = {  # of our flows: which queries have it, how a flow's name ends, in which file it is
    OURS: (QUERIES, "", "queries.py"),
    f"{OURS}-columns": (("q0", "q1", "q2", "q13"), "_columns", "queries.py"),
    f"{OURS}-windows": (("q4", "q5", "q7", "q8", "q9", "q11", "q12"), "_windows", "event_queries.py"),
}
ALL = (*FORMS, *SYSTEMS)


@dataclass
class Job:
    """One query on one system, in a folder."""

    query: str
    system: str
    generator: dict[str, Any]
    folder: Path
    kept: bool = False
    interval_s: float = 1.0
    python: str = sys.executable
    files: int = 0
    most_s: float = 170.0

    @property
    def events(self) -> Auctions:
        return Auctions(**self.generator)

    @property
    def rows(self) -> int:
        return self.events.count(kinds_of(self.query))

    def prepare(self) -> None:
        (self.folder / "out").mkdir(parents=True)
        if self.system.startswith(OURS):
            (self.folder / "models").mkdir()
            for task in MODEL_TASKS.split():
                points = [{"threads": 1, "rate_tps": 2 * FAST_TPS, "cpu": 0.3, "memory": 0.02}]
                text = json.dumps({"schema": "headgate/model/v1", "task": task, "points": points})
                (self.folder / "models" / f"{task}.json").write_text(text)
        elif (spec := SYSTEMS[self.system]).form:
            files = min(spec.files, self.files or spec.files)
            write(self.events, kinds_of(self.query), spec.form, files, self.folder / "in")

    def command(self, again: bool = False) -> tuple[list[str], dict[str, str], Callable[[], bool]]:
        """The words, the environment, and how one sees that rows may come."""
        if self.system.startswith(OURS):
            return self._ours(again)
        late_ms = int(1000 * self.events.lateness_s(kinds_of(self.query))) + 1
        settings = {
            "generator": self.generator, "kept": self.kept, "interval_s": self.interval_s, "lateness_ms": late_ms,
            **SYSTEMS[self.system].settings,
        }  # fmt: skip
        path = os.pathsep.join((str(SCRIPTS), str(NEXMARK)))
        env = {**os.environ, "PYTHONPATH": path, "SETTINGS": json.dumps(settings), "HOME": str(self.folder)}
        file = str(SCRIPTS / "nexmark_peers" / SYSTEMS[self.system].file)
        words = [self.python, "-P", file, self.query, str(self.folder)]
        return words, env, (self.folder / "begun").exists

    def _ours(self, again: bool) -> tuple[list[str], dict[str, str], Callable[[], bool]]:
        _, ending, file = FORMS[self.system]
        words = [sys.executable, "-P", "-m", "headgate", "up", f"{NEXMARK / file}:{self.query}{ending}"]
        words += ["--rates", f"{FAST_TPS:g}", "--mode", "advise", "--models", "models", "--vms", "2"]
        words += ["--slot-cores", "1", "--set", "slot-memory=4000000000", "--state-dir", "state"]
        words += ["--trace-dir", "traces", "-o", "json"]
        if again:
            words = [*words[:5], "--resume", "--state-dir", "state", "-o", "json"]
        env = os.environ | {
            f"NEXMARK_{name.upper()}": str(value)
            for name, value in self.generator.items()
            if "hot" not in name
        }
        env |= {"NEXMARK_OUT": str(self.folder / "out"), "NEXMARK_SINK": "folder" if self.kept else "lines"}
        log = self.folder / "log"
        return words, env, lambda: log.exists() and b"plan 1 is in force" in log.read_bytes()

    def over(self, watched: Watched) -> Callable[[], bool]:
        """How one sees that it is over, but for its end."""
        spec = SYSTEMS.get(self.system)
        return watched.quiet if spec is not None and self.kept and not spec.ends else lambda: False

    def why(self) -> str:
        """The last thing that sounds like an error."""
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if "rror" in line or "xception" in line]
        return (errors or lines or ["it said nothing"])[-1].strip()[:200]


def long(cpu_s: float, span_s: float) -> bool:
    """Can they be told from when a run is looked at? Some have ended before rows are seen to come."""
    return min(cpu_s, span_s) >= 10 * EVERY_S


def run_once(job: Job, tables: Any) -> dict[str, Any]:
    """A run from start to end."""
    job.prepare()
    words, env, begun = job.command()
    began = time.monotonic()
    with Watched(words, env, job.folder, begun) as watched:
        in_time = watched.wait(job.most_s, job.over(watched))
        watched.look()
        code = watched.process.poll()
    took = time.monotonic() - began
    if not in_time or code:
        return {"why": job.why() if in_time else f"not done after {job.most_s:g} s"}
    differs = compared(tables, job.query, job.folder / "out")
    if any(differs.values()):
        return {"why": "another answer than DuckDB's", **differs}
    cpu_s, span_s = watched.grown_cpu_s - watched.begun_cpu_s, watched.grown_s - watched.begun_s
    rates = (
        {"rows_per_core_s": job.rows / cpu_s, "rows_per_s": job.rows / span_s} if long(cpu_s, span_s) else {}
    )
    return rates | {
        "cpu_s": round(cpu_s, 2),
        "span_s": round(span_s, 2),
        "whole_run_s": round(took, 1),
        "out_bytes": watched.size,
    }


def killed(job: Job, tables: Any, whole: dict[str, Any]) -> dict[str, Any]:
    """As `run_once`, all processes killed once half of that run's output is there, and the command given again."""
    job.prepare()
    words, env, begun = job.command()
    with Watched(words, env, job.folder, begun) as watched:
        watched.wait(job.most_s, lambda: watched.size >= whole["out_bytes"] / 2)
        if watched.process.poll() is not None:
            return {"why": "it had ended before half of its output was seen"}
        processes = watched.kill()
        there = rows_there(job.folder / "out")
    (job.folder / "begun").unlink(missing_ok=True)
    words, env, begun = job.command(again=True)
    with Watched(words, env, job.folder, begun) as watched:
        ended = watched.wait(job.most_s, job.over(watched))
        code = watched.process.poll()
    if not ended or code:
        return {"why": job.why() if ended else f"not done after {job.most_s:g} s", "killed": processes}
    return {"killed": processes, "rows_at_kill": there, **compared(tables, job.query, job.folder / "out")}


# ── all of them ─────────────────────────────────────────────────────────────────────────────────


def python_of(system: str, folder: Path) -> tuple[str, str]:
    """An interpreter that has it, or why there is none."""
    if system.startswith(OURS):
        return sys.executable, ""
    spec = SYSTEMS[system]
    name = spec.folder or system
    for there in (ROOT / ".headgate/peers" / name, folder / name):
        if (there / "bin/python").exists():
            return str(there / "bin/python"), ""
    say(f"{system}: installing {' '.join(spec.packages)}")
    venv.create(folder / name, with_pip=True)
    python = str(folder / name / "bin/python")
    more = ["numpy", *(["pandas", "pyarrow"] if name == "pyspark" else [])]
    words = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *spec.packages, *more]
    installed = subprocess.run(words, capture_output=True, text=True)
    return python, installed.stderr.strip().splitlines()[-1] if installed.returncode else ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def nexmark(
    queries: str = "q0,q3",
    peers: str = ",".join(ALL),
    rows: float = 500_000.0,
    rate: float = 5_000.0,
    disorder: int = 1,
    seed: int = 0,
    kill: bool = False,
    keep: str = "",
    files: int = 0,
    most_s: float = 170.0,
) -> dict[str, Any]:
    """queries: q0,q5,… or all; peers: which systems; rows: events of all kinds; rate: events a second of event time;
    disorder: within how many rows they come in another order; keep: a folder for what runs leave; files: in how many
    files of each kind Spark and pathway get their rows (0: 40); most_s: no run takes longer."""
    asked = QUERIES if queries == "all" else queries.split(",")
    if unknown := [name for name in asked if name not in QUERIES] + [
        p for p in peers.split(",") if p not in ALL
    ]:
        sys.exit(f"error[HG-USAGE]: there is no {unknown[0]!r}\ntry: {', '.join([*QUERIES, *ALL])}")
    generator = {"events": int(rows), "rate": rate, "disorder": disorder, "seed": seed}
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headgate-nexmark-", ignore_cleanup_errors=True) as name:
        folder = Path(keep or name).resolve()
        tables = database(Auctions(**generator))
        for query in asked:
            answer_rows = answer(tables, query)
            for system in peers.split(","):
                if system in FORMS and query not in FORMS[system][0]:
                    continue
                line = {"query": query, "system": system, "answer_rows": answer_rows}
                job = Job(query, system, generator, folder / f"{query}-{system}", files=files, most_s=most_s)
                line |= row_of(job, tables, folder, kill)
                lines.append(line)
                say("  ".join(f"{key} {shown(value)}" for key, value in line.items()))
    return {**generator, "whole": not any(map(unexpected, lines)), "runs": lines}


def row_of(job: Job, tables: Any, folder: Path, kill: bool) -> dict[str, Any]:
    if why := reason(job.system, job.query):
        return {"why": why}
    job.python, why = python_of(job.system, folder)
    if why:
        return {"why": f"{NOT_INSTALLED}{why}"}
    if not kill:
        return run_once(job, tables)
    job.kept = True
    job.folder = job.folder.with_name(job.folder.name + "-whole")
    first = run_once(job, tables)
    if "why" in first:
        return first
    job.folder = job.folder.with_name(job.folder.name + "-killed")
    return killed(job, tables, first)


def shown(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value >= 100 else str(value)


def table(found: dict[str, Any]) -> str:
    """A line a query and system, each with headgate's best figure by its own."""
    out = [f"{found['events']:,} events, {found['rate']:,.0f} a second, disorder {found['disorder']}", ""]
    best: dict[str, float] = {}
    for line in found["runs"]:
        if line["system"].startswith(OURS):
            best[line["query"]] = max(best.get(line["query"], 0.0), line.get("rows_per_core_s", 0.0))
    for line in found["runs"]:
        figures = {
            key: shown(v) for key, v in line.items() if key not in ("query", "system", "why", "out_bytes")
        }
        if (rate := line.get("rows_per_core_s")) and (ours := best.get(line["query"])):
            figures["headgate_by_it"] = f"{ours / rate:.2f}"
        told_of = "  ".join(f"{key} {value}" for key, value in figures.items())
        out.append(f"{line['query']:4} {line['system']:17} {told_of}  {line.get('why', '')}".rstrip())
    return "\n".join(out)


BENCHMARKS = {"nexmark": nexmark}
