"""Which files of a folder are new and whole, and the order that is kept of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.connectors.lake.file_order import FileOrder, OrderedFile, since, whole
from headgate.topology_runtime.connectors.lake.new_files import NewFiles, matches
from headgate.topology_runtime.connectors.lake.stores import NEW, FolderStore, ListedFile, store_of

ORDER = "_headgate/order"


def seen(mtime_s: float = 0.0, size: int = 1, version: str = "") -> ListedFile:
    return ListedFile(size, mtime_s, version or f"v{mtime_s}")


def names(files: list[OrderedFile]) -> list[str]:
    return [file.name for file in files]


# ── New and whole ───────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_whole_when_it_stays_as_it_is_between_two_looks() -> None:
    new = NewFiles("", 2.0)
    assert new.look({"a": seen(1), "b": seen(1)}, (), 10.0) == []
    assert new.look({"a": seen(1), "b": seen(1, 2)}, (), 11.0) == []
    assert names(new.look({"a": seen(1), "b": seen(1, 2)}, (), 12.0)) == ["a"]
    assert new.waiting == {"b"}
    assert new.look({"a": seen(1), "b": seen(3, 2)}, ("a",), 13.5) == [], "its time changed"
    assert names(new.look({"a": seen(1), "b": seen(3, 2)}, ("a",), 15.5)) == ["b"]


@pytest.mark.parametrize("clock_s", [-1e9, 0.0, 4e9])
def test_the_clock_of_the_store_may_be_off(clock_s: float) -> None:
    new = NewFiles("", 2.0)
    assert not new.look({"a": seen(clock_s)}, (), 10.0)
    assert names(new.look({"a": seen(clock_s)}, (), 12.0)) == ["a"]


def test_those_of_one_look_are_in_order_of_their_times_then_their_names() -> None:
    new = NewFiles("", 0.0)
    assert names(new.look({"a": seen(3), "c": seen(1), "b": seen(1)}, (), 0.0)) == ["b", "c", "a"]
    assert names(new.look({"0": seen(0), "a": seen(3)}, ("a", "b", "c"), 9.0)) == ["0"], "late, and older"


def test_a_marker_beside_them_says_that_files_are_whole() -> None:
    new = NewFiles("", "_SUCCESS")
    listing = {"day=1/a": seen(), "day=1/_SUCCESS": seen(), "day=2/a": seen()}
    assert names(new.look(listing, (), 0.0)) == ["day=1/a"]
    assert names(new.look({"a": seen(), "_SUCCESS": seen()}, (), 0.0)) == ["a"]


def test_hidden_and_unfinished_files_are_left_out() -> None:
    new = NewFiles("", 0.0)
    left_out = [
        "_headgate/commits/00000000",
        ".a",
        "x/.hidden/a",
        "_temporary/0/a",
        "a.TMP",
        "a.csv.part",
        "a~",
    ]
    assert names(new.look(dict.fromkeys([*left_out, "a", "_x=1/b"], seen()), (), 0.0)) == ["_x=1/b", "a"]


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("a.csv", "*.csv", True),
        ("x/a.csv", "*.csv", False),
        ("x/a.csv", "*/*.csv", True),
        ("a.csv", "**/*.csv", True),
        ("x/y/a.csv", "**/*.csv", True),
        ("x/y/a.csv", "x/**", True),
        ("x/a.csv", "[xy]/?.csv", True),
        ("z/a.csv", "[xy]/?.csv", False),
        ("A.csv", "a.csv", False),
    ],
)
def test_patterns(name: str, pattern: str, fits: bool) -> None:
    assert matches(name, pattern) is fits


# ── The order ───────────────────────────────────────────────────────────────────────────────────────


def order_in(folder: Path) -> tuple[FolderStore, FileOrder]:
    store = store_of(str(folder))
    store.prepare(NEW, ORDER)
    return store, FileOrder(store, ORDER)


def file(n: int) -> OrderedFile:
    return OrderedFile(f"f{n}", n, n / 2, f"v{n}")


@given(st.integers(1, 100_000))
def test_few_entries_hold_all_files(entry: int) -> None:
    found = whole(entry)
    assert found[-1] == entry and len(found) <= entry.bit_length()
    assert [since(n) for n in found] == [0, *found[:-1]], "each begins where the one before ends"


def test_whoever_opens_it_finds_the_same_order(tmp_path: Path) -> None:
    store, order = order_in(tmp_path)
    follower = FileOrder(store, ORDER)
    for n in range(0, 60, 2):
        assert order.add([file(n), file(n + 1)])
        opened = FileOrder(store, ORDER)
        opened.catch_up()
        follower.catch_up()
        assert opened.files == follower.files == order.files == [file(k) for k in range(n + 2)]
        assert opened.number_of == order.number_of


def test_readers_that_add_at_the_same_time_agree(tmp_path: Path) -> None:
    store, _ = order_in(tmp_path)
    orders = [FileOrder(store, ORDER) for _ in range(4)]

    def adds(order: FileOrder) -> None:
        for n in range(20):
            order.catch_up()
            while f"f{n}" not in order.number_of and not order.add([file(n)]):
                order.catch_up()

    threads = [threading.Thread(target=adds, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for order in orders:
        order.catch_up()
        assert order.files == orders[0].files
    assert sorted(one.name for one in orders[0].files) == sorted(f"f{n}" for n in range(20))
