"""Runs benchmarks by name; what `scripts/bench` calls.

A file bench_*.py names its benchmarks in a line `# bench: NAME… – what they measure`; its `BENCHMARKS` says which
function each of them is. The function's parameters are the command's options, `repeats` as `-n` too; `*more` takes
what is left. It returns figures by name, or several such dicts; a list of dicts among them is a table. Where `whole`
is false, the command ends with 1. SIGTERM ends what a benchmark has started, too.
"""

from __future__ import annotations

import argparse
import inspect
import json
import signal
import statistics
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]
MARK = "# bench: "


def listed() -> dict[str, tuple[Path, str]]:
    """name → (its file, what is said of it)."""
    found: dict[str, tuple[Path, str]] = {}
    for file in sorted(Path(__file__).parent.rglob("bench_*.py")):
        for line in file.read_text("utf-8").splitlines():
            if line.startswith(MARK):
                names, _, about = line.removeprefix(MARK).partition(" – ")
                found |= dict.fromkeys(names.split(), (file, about))
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        "n": len(values),
        "median": statistics.median(values),
        "min": ordered[0],
        "p95": p95,
        "max": ordered[-1],
    }


def options_of(bench: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Its parameters that a word can give."""
    plain = (int, float, str, tuple, Path, type(None))
    return {
        name: p for name, p in inspect.signature(bench).parameters.items() if isinstance(p.default, plain)
    }


def add_option(parser: argparse.ArgumentParser, one: inspect.Parameter, hint: Any) -> None:
    flags = [f"--{one.name.replace('_', '-')}", *(["-n"] if one.name == "repeats" else [])]
    if one.default is False:
        parser.add_argument(*flags, action="store_true")
    elif isinstance(one.default, tuple):
        parser.add_argument(*flags, nargs="+", default=one.default)
    else:
        kinds = [kind for kind in (*typing.get_args(hint), type(one.default)) if kind is not type(None)]
        parser.add_argument(*flags, type=kinds[0], default=one.default)


def asked(
    benches: Sequence[Callable[..., Any]], about: str | None, words: list[str]
) -> tuple[str, list[Any]]:
    """(the form of the output, what each of them found)."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="\n".join(filter(None, (about, *(bench.__doc__ for bench in benches)))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("json", "table"), default="table")
    known: set[str] = set()
    for bench in benches:
        hints = typing.get_type_hints(bench.func if isinstance(bench, partial) else bench)
        for name, one in options_of(bench).items():
            if name not in known:
                add_option(parser, one, hints.get(name))
                known.add(name)
    takes_more = any("more" in inspect.signature(bench).parameters for bench in benches)
    given, more = parser.parse_known_args(words) if takes_more else (parser.parse_args(words), [])
    options = vars(given)
    return options.pop("output"), [
        bench(*more, **{name: value for name, value in options.items() if name in options_of(bench)})
        for bench in benches
    ]


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(found: dict[str, Any]) -> str:
    """A line for each figure, and for each row of a table."""

    def lines() -> Iterator[str]:
        for name, value in found.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                yield f"{name}:"
                yield from (
                    "  " + "  ".join(f"{k} {shown(v)}" for k, v in row.items() if v is not None)
                    for row in value
                )
            else:
                yield f"{name}: {shown(value)}"

    return "\n".join(lines())


def main(words: list[str]) -> int:
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    there = listed()
    if not names:
        print("usage: scripts/bench NAME… [-o json] [options of the benchmark]")
        for file, about in dict.fromkeys(there.values()):
            print(f"  {' '.join(name for name, (its, _) in there.items() if its == file)} – {about}")
        return 2
    if unknown := [name for name in names if name not in there]:
        tell = f"error[HG-USAGE]: there is no benchmark `{unknown[0]}`\ntry: one of {' '.join(there)}"
        print(tell, file=sys.stderr)
        return 2
    sys.path.insert(0, str(SCRIPTS))
    results: list[dict[str, Any]] = []
    for file in dict.fromkeys(there[name][0] for name in names):
        module = import_module(".".join(file.relative_to(SCRIPTS).with_suffix("").parts))
        chosen = [name for name in names if there[name][0] == file]
        output, found = asked(
            [module.BENCHMARKS[name] for name in chosen], module.__doc__, words[len(names) :]
        )
        for name, one in zip(chosen, found, strict=True):
            several = one if isinstance(one, list) else [one]
            results += [{"benchmark": name, **figures} for figures in several]
            if output == "table":
                print("\n".join(map(getattr(module, "table", table), results[-len(several) :])))
    if output == "json":
        print(json.dumps({"schema": "headgate/bench/v1", "results": results}, indent=2, allow_nan=False))
    return 0 if all(one.get("whole", True) for one in results) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
