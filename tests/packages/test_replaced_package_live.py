"""A running topology gets its code from another signed package, then from the one before; not from a stranger's."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_made import digest_of
from shipped_hosts import Hosts, headgate

pytestmark = pytest.mark.live


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


def replaced(hosts: Hosts, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        headgate("replace", "--controller", hosts.state, *words),
        cwd=hosts.elsewhere, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def words_from(hosts: Hosts, since: int) -> set[tuple[str, str]]:
    """(row, the digest of the package that the code of its task lies in)."""
    store = str(hosts.root / "vm1" / "packages")
    found = set()
    for line in hosts.noted()[since:]:
        word, _, path = line.partition(" ")
        assert path.startswith(store), line
        found.add((word, path.removeprefix(store).split("/")[1]))
    return found


def test_other_packages_take_over_where_their_signer_is_trusted(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    first = hosts.packed().rename(hosts.root / "first.package")
    done = hosts.submit("--package", first)
    assert done.returncode == 0, done.stderr
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    one = digest_of(first.read_bytes())

    (hosts.code / "shipped_words.py").write_text("def loud(text):\n    return text.upper() + '!'\n")
    second = hosts.packed()
    two = digest_of(second.read_bytes())
    shutil.rmtree(hosts.code)
    done = replaced(hosts, "--package", second)
    assert done.returncode == 0, done.stderr
    since = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= since + 20)
    assert words_from(hosts, since) == {("ONE!", two), ("TWO!", two)}
    assert hosts.ask("status").data["package"] == two

    done = replaced(hosts, "--back")
    assert done.returncode == 0, done.stderr
    since = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= since + 20)
    assert words_from(hosts, since) == {("ONE", one), ("TWO", one)}


def test_a_strangers_package_changes_nothing(hosts: Hosts) -> None:
    hosts.start_agent("vm1", "--trust-signer", hosts.root / "ann" / "signing.pub")
    hosts.wait(lambda: "vm1" in hosts.vms())
    made = hosts.packed()
    assert hosts.submit("--package", made).returncode == 0
    hosts.wait(lambda: len(hosts.noted()) >= 20)
    assert "what runs already" in replaced(hosts, "--package", made).stderr
    (hosts.code / "shipped_words.py").write_text("def loud(text):\n    return 'eve was here'\n")
    signed = ("--sign", hosts.root / "eve" / "signing.key", "--on-every-host", "note.folder")
    done = replaced(hosts, hosts.code / "shipped_flow.py:flow", "--ship", *signed)
    assert done.returncode == 3 and "vm1 does not take package" in done.stderr, done.stderr
    unsigned = hosts.ask(
        "replace", topology={"name": "shipped", "tasks": [], "edges": []}, user_paths=["/tmp"]
    )
    assert unsigned.error is not None and "signed packages only" in unsigned.error[2]
    before = len(hosts.noted())
    hosts.wait(lambda: len(hosts.noted()) >= before + 20)
    assert hosts.ask("status").data["code"] == {"number": 0, "slots_before": 0}
