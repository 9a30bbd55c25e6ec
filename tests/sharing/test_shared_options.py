"""Options of shared controllers and agents: what is handed on, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.controller.sharing.shared_cluster import Admitted, ports_from
from headgate.controller.sharing.sharing_process import free_ports
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.commands.rare_settings import without


def test_words_are_handed_on_but_those_that_each_child_has_of_its_own() -> None:
    words = [
        "--port",
        "7311",
        "--slot-cores=0.2",
        "--set",
        "shared=yes",
        "--state-dir=x",
        "--set",
        "mapper=dsm",
    ]
    words += ["--trust-signer", "a.pub", "--set=shared=yes", "--set=gap=2", "--tls"]
    kept = ["--slot-cores=0.2", "--set", "mapper=dsm", "--trust-signer", "a.pub", "--set=gap=2", "--tls"]
    assert without(words, ("--port", "--state-dir"), ("shared",)) == kept
    assert without(["--port"], ("--port",), ()) == []


@pytest.mark.parametrize(
    "setting", ["priority=high", "priority=-1", "quota=0", "weight=0", "weight=1.5", "quota="]
)
def test_shares_that_are_none_end_with_exit_code_2(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["submit", "words.py:flow", "--set", setting]) == 2
    assert setting.split("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize("given", [("--vms", "vm1=4"), ("--max-vms", "3"), ("--rate", "5"), ("--metrics-port", "9100"),
                                   ("--set", "seconds=9")])  # fmt: skip
def test_what_is_of_one_topology_is_refused_of_all(
    given: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["controller", "run", "--set", "shared=yes", "--state-dir", str(tmp_path / "s"), *given])
        == 2
    )
    assert "headgate submit" in capsys.readouterr().err and not (tmp_path / "s").exists()


def test_an_agent_without_a_key_is_refused_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--controller", "tcp://127.0.0.1:9", "--vm", "vm1", "--state-dir", str(tmp_path)]
    assert cli.main(["agent", "run", "--set", "shared=yes", *words]) == 2
    assert "--key" in capsys.readouterr().err


def test_ports_of_topologies_are_counted_from_one_and_go_round() -> None:
    def one(number: int, over: str = "") -> Admitted:
        port = 7500 + 3 * number
        return Admitted(
            f"t{number}", f"r{number}", since=f"{number:04}", ports=(port, port + 1, port + 2), over=over
        )

    assert ports_from(7500, []) == (7500, 7501, 7502)
    assert ports_from(7500, [one(0), one(1, "it ended")]) == (7506, 7507, 7508), (
        "what ended may not be gone yet"
    )
    assert ports_from(7500, [one(0), *(one(n, "it ended") for n in range(1, 64))])[0] == 7503, (
        "after the last: round"
    )
    assert ports_from(9000, [one(3)]) == (9000, 9001, 9002), "they were counted from another port"


def test_ports_of_topologies_go_with_a_shared_controller(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["controller", "run", "--set", "topology-port=7500"]) == 2
    assert "shared=yes" in capsys.readouterr().err


def test_ports_are_free_and_all_different() -> None:
    assert len(set(free_ports("127.0.0.1", 3))) == 3
