"""References to secrets: read where a task's object is built, told by name when they cannot be, and never shown."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from headgate import Source, testing, topology
from headgate.topology_runtime.api.task_functions import build
from headgate.topology_runtime.api.topology import Task
from headgate.topology_runtime.api.validate import topology_of
from headgate.topology_runtime.connectors.secrets import MOST_BYTES, SecretText, unreadable_here, with_secrets
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import PASSING_MOST, STARS, error_text, hide, one_line, shown, visible
from headgate.topology_runtime.worker.calls.attempts import failure


class Sink:
    """Keeps what it was given."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def __call__(self, row: Any) -> None:
        return None


class Asks(Sink):
    reads_references = ("password", "tls")


def bound(row: str, suffix: str) -> str:
    return row + suffix


class Rows(Source):
    def read(self, position: int, limit: int) -> list[str]:
        return []


def built(**params: Any) -> dict[str, Any]:
    found: dict[str, Any] = build(Task("sink", run=f"{__name__}:Sink", params=params)).params
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("s3same-open\n")
    return path


def test_files_and_variables_are_read_wherever_they_stand_in_params(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_USER", "ada")
    given = {
        "url": f"pg://${{ENV:DB_USER}}:${{FILE:{file}}}@db",
        "nested": {"list": [1, None, f"${{FILE:{file}}}"]},
        "port": 5432,
    }
    assert built(**given) == {
        "url": "pg://ada:s3same-open@db",
        "nested": {"list": [1, None, "s3same-open"]},
        "port": 5432,
    }


def test_functions_have_them_bound(file: Path) -> None:
    run = build(Task("f", run=f"{__name__}:bound", params={"suffix": f"-${{FILE:{file}}}"}))
    assert run("a") == "a-s3same-open"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("$${ENV:NAME}", "${ENV:NAME}"),
        ("$${FILE:/x} and $${ENV:Y}", "${FILE:/x} and ${ENV:Y}"),
        ("${name} $1 $$ ${", "${name} $1 $$ ${"),
        ("$${name}", "$${name}"),
    ],
)
def test_doubled_dollars_and_other_templates_are_text(given: str, meant: str) -> None:
    assert built(text=given) == {"text": meant}


def test_a_value_that_looks_like_a_reference_is_not_read_again(file: Path) -> None:
    file.write_text("${ENV:HOME}")
    assert built(text=f"${{FILE:{file}}}") == {"text": "${ENV:HOME}"}


@pytest.mark.parametrize(
    ("content", "value"), [("a b", "a b"), ("word\n\n", "word\n"), ("word\r\n", "word"), (" word ", " word ")]
)
def test_one_end_of_a_line_is_left_out(file: Path, content: str, value: str) -> None:
    file.write_bytes(content.encode())
    assert built(text=f"${{FILE:{file}}}") == {"text": value}


def test_the_largest_secret_is_read_whole(file: Path) -> None:
    file.write_text("x" * MOST_BYTES + "\n")
    assert built(text=f"${{FILE:{file}}}") == {"text": "x" * MOST_BYTES}


def _make(kind: str, path: Path) -> None:
    if kind == "missing":
        return
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.symlink_to(path)
    else:
        path.write_bytes({"empty": b"\n", "large": b"x" * (MOST_BYTES + 1), "binary": b"geheim\xff"}[kind])


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("missing", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "no plain file"),
        ("unreadable", "Too many levels of symbolic links"),
        ("empty", "it is empty"),
        ("large", "more than 64 KiB"),
        ("binary", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_secret_is_told_by_its_reference(tmp_path: Path, kind: str, cause: str) -> None:
    _make(kind, tmp_path / "it")
    with pytest.raises(InvalidInput) as raised:
        built(text=f"${{FILE:{tmp_path}/it}}")
    assert f"task 'sink': cannot read ${{FILE:{tmp_path}/it}}" in raised.value.what
    assert cause in (raised.value.cause or "") and raised.value.hint
    assert "geheim" not in repr(raised.getrepr(chain=True))


@pytest.mark.parametrize(("value", "cause"), [(None, "not set"), ("", "empty")])
def test_a_variable_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, value: str | None, cause: str
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    if value is not None:
        monkeypatch.setenv("NOT_THERE", value)
    with pytest.raises(InvalidInput) as raised:
        built(text="${ENV:NOT_THERE}")
    assert "${ENV:NOT_THERE}" in raised.value.what and cause in (raised.value.cause or "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("${FILE:relative}", "whole path"),
        ("${ENV:with space}", "A-Z"),
        ("${ENV:1ST}", "A-Z"),
        ("${ENV:OPEN", "has no '}'"),
        ("${env:NAME}", "did you mean 'ENV'"),
        ("${FILES:/x}", "did you mean 'FILE'"),
    ],
)
def test_what_looks_like_a_reference_and_is_none_is_a_fault_of_the_topology(text: str, fault: str) -> None:
    document = {
        "schema": "headgate/topology/v1",
        "name": "t",
        "tasks": [{"name": "a", "kind": "source", "params": {"x": {"y": [text]}}}],
        "edges": [],
    }
    with pytest.raises(InvalidInput) as raised:
        topology_of(document, "t.json")
    [found] = [one for one in raised.value.faults if "params" in one]
    assert "tasks[0].params.x.y[0]" in found and fault in found


def test_what_cannot_be_read_here_is_listed(file: Path) -> None:
    params = {"a": f"${{FILE:{file}}}", "b": ["${FILE:/no/such}", "$${FILE:/not/asked}"]}
    [found] = unreadable_here(params)
    assert found.startswith("cannot read ${FILE:/no/such}: No such file")


# ── asked anew ──────────────────────────────────────────────────────────────────────────────────


def test_a_class_that_reads_references_is_given_them(file: Path) -> None:
    params = {"password": f"${{FILE:{file}}}", "tls": {"key_password": "plain"}, "host": f"${{FILE:{file}}}"}
    given = build(Task("sink", run=f"{__name__}:Asks", params=params)).params
    assert given["host"] == "s3same-open"
    assert given["password"].text() == "s3same-open"
    assert given["tls"]["key_password"].text() == "plain"
    assert repr(given["password"]) == f"SecretText('${{FILE:{file}}}')"
    assert repr(given["tls"]["key_password"]) == "SecretText('***')"


def test_one_that_reads_references_is_built_before_they_are_there(file: Path) -> None:
    file.unlink()
    params = build(Task("sink", run=f"{__name__}:Asks", params={"password": f"${{FILE:{file}}}"})).params
    with pytest.raises(InvalidInput, match="cannot read"):
        params["password"].text()
    file.write_text("later")
    assert params["password"].text() == "later"


def test_a_file_written_anew_counts_at_once_even_with_its_old_size_and_time(file: Path) -> None:
    reference, before = SecretText(f"${{FILE:{file}}}"), file.stat()
    assert reference.text() == "s3same-open"
    file.write_text("another-one\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reference.text() == "another-one"


def test_a_folder_of_secrets_whose_link_is_changed_counts_at_once(tmp_path: Path) -> None:
    """As Kubernetes does it: password → ..data/password, ..data → ..1, and ..data is renamed over."""
    for version, value in (("..1", "first-value"), ("..2", "second-value")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "password").write_text(value)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "password").symlink_to("..data/password")
    reference = SecretText(f"${{FILE:{tmp_path}/password}}")
    assert reference.text() == "first-value"
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert reference.text() == "second-value"
    for text in ("it was first-value", "it is second-value"):
        assert STARS in visible(text) and "value" not in visible(text)


# ── not shown ───────────────────────────────────────────────────────────────────────────────────


def test_no_text_shows_a_value_that_was_read(file: Path) -> None:
    file.write_text("quo'te\\back\"é/+ \x1bsecret")
    [value] = with_secrets({"x": f"${{FILE:{file}}}"}).values()
    ways = [value, repr(value), dumps(value), quote(value), quote(value, safe=""), quote_plus(value)]
    ways += [repr({"password": value}), ascii(value)[1:-1]]
    for text in ways:
        for way in (visible, one_line, lambda one: error_text(ValueError(one))):
            assert "back" not in way(f"no entry: {text} at all"), text
    for row in (value, [value], {"x": f'it\'s "{value}"'}, "a" * 50 + value):
        assert "back" not in shown(row)


def test_every_line_of_a_key_is_hidden(file: Path) -> None:
    file.write_text("-----BEGIN KEY-----\nMIGHAgEAMBMG\nByqGSM49AgEG\n-----END KEY-----\n")
    with_secrets({"x": f"${{FILE:{file}}}"})
    assert visible("line two is ByqGSM49AgEG") == "line two is ***"


def test_values_of_less_than_four_characters_are_not_hidden(file: Path) -> None:
    file.write_text("qzx")
    with_secrets({"x": f"${{FILE:{file}}}"})
    assert visible("qzx") == "qzx"


def test_values_that_threads_hide_at_once_are_all_hidden() -> None:
    start = threading.Barrier(8)

    def add(thread: int) -> None:
        start.wait()
        for number in range(20):
            hide(f"beside-{thread}-{number}-")
            assert visible(f"beside-{thread}-{number}-") == STARS

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))
    assert all(visible(f"beside-{t}-{n}-") == STARS for t in range(8) for n in range(20))


def test_values_that_are_read_again_and_again_do_not_push_out_those_that_stay(file: Path) -> None:
    with_secrets({"x": f"${{FILE:{file}}}"})
    SecretText(f"${{FILE:{file}}}").text()
    for number in range(PASSING_MOST + 100):
        hide(f"token-{number}-end", passing=True)
    assert visible(f"s3same-open token-{PASSING_MOST}-end") == "*** ***"
    assert visible("token-3-end") == "token-3-end"


def test_the_longer_of_two_secrets_leaves_no_rest() -> None:
    hide("zebra1")
    hide("zebra1-stripes")
    assert visible("zebra1-stripes zebra1") == "*** ***"


def test_a_dead_letter_and_its_traceback_do_not_show_it(file: Path) -> None:
    [value] = with_secrets({"x": f"${{FILE:{file}}}"}).values()
    try:
        try:
            raise KeyError(value)
        except KeyError as first:
            raise RuntimeError(f"login as {value} failed") from first
    except RuntimeError as error:
        found = failure(0, error)
    assert "login as *** failed" in found.error and "KeyError: '***'" in found.traceback
    assert value not in found.error + found.traceback


def test_flows_in_tests_go_the_same_way(file: Path) -> None:
    flow = topology("t")
    rows = flow.source("rows", Rows)
    rows >> flow.task("f", bound, suffix=f"-${{FILE:{file}}}") >> flow.task("g", bound, suffix="$${ENV:X}")
    assert testing.run(flow, {"rows": ["a"]}).rows["g"] == ["a-s3same-open${ENV:X}"]


def test_flows_in_workers_go_the_same_way(file: Path) -> None:
    flow = topology("t")
    rows = flow.source("rows", Rows)
    (
        rows
        >> flow.task("f", bound, suffix="$${ENV:X}")
        >> flow.task("g", bound, suffix=f"$${{ENV:Y}}-${{FILE:{file}}}")
    )
    found = testing.run(flow, {"rows": ["a"]}, workers=1)
    assert found.rows["g"] == ["a${ENV:X}${ENV:Y}-s3same-open"]
