"""`headgate lab sim`: what it prints, what it ends with, and that the same seeds say the same whoever runs them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from headgate.dashboards.headgate_command import main
from headgate.lab.simulation import simulated_seeds as coverage
from headgate.lab.simulation import simulated_seeds as runs
from headgate.lab.simulation.simulated_seeds import Sum
from headgate.topology_runtime.worker.sources.source_ledger import Ledger

FEW = ["lab", "sim", "--set", "shape=line", "--first-seed", "1", "--seeds", "3", "-o", "json"]


def test_the_document_has_the_hash_of_all_seeds_whoever_runs_them(capsys):
    assert main([*FEW, "--set", "jobs=1"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*FEW, "--set", "jobs=2"]) == 0
    assert json.loads(capsys.readouterr().out) == alone
    assert alone["schema"] == "headgate/sim/v1" and alone["seeds"] == 3 and alone["violations"] == []
    assert set(coverage.EXPECTED) <= set(alone["coverage"])
    assert main([*FEW[:5], "2", *FEW[6:], "--set", "jobs=1"]) == 0
    assert json.loads(capsys.readouterr().out)["hash"] != alone["hash"]


def test_a_violation_is_told_with_the_command_that_shows_it_again(capsys, monkeypatch):
    monkeypatch.setattr(Ledger, "acked", property(lambda self: self.position))
    assert main([*FEW[:4], "--first-seed", "4", *FEW[6:], "--set", "jobs=1"]) == 8
    told = capsys.readouterr()
    violation = json.loads(told.out)["violations"][0]
    assert "acked" in violation["message"] and violation["shape"] == "line"
    assert (
        violation["again"] == f"headgate lab sim --first-seed {violation['seed']} --set shape='line' --steps"
    )
    assert "error[HG-CHECK]" in told.err and violation["again"] in told.err


def test_the_trace_of_a_seed_tells_what_happened(capsys):
    assert main(["lab", "sim", "--set", "shape=line", "--first-seed", "1", "--steps"]) == 0
    told = capsys.readouterr()
    assert "controller starts" in told.out and "all is as it must be" in told.err


def test_interrupted_it_says_how_far_it_came(capsys, monkeypatch):
    real = runs.run

    def until_three(seed, options):
        if seed == 3:
            raise KeyboardInterrupt
        return real(seed, options)

    monkeypatch.setattr(runs, "run", until_three)
    assert main([*FEW, "--set", "jobs=1"]) == 130
    assert "interrupted after 2 of 3 seeds: 0 violations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "shape=cube"], "there is no topology 'cube'"),
        (["--steps", "--seeds", "2"], "--steps shows one seed only"),
        (["--seeds", "0"], "--seeds"),
        (["--set", "jobs=0"], "--set jobs"),
    ],
)
def test_what_makes_no_sense_is_refused(words, said, capsys):
    assert main(["lab", "sim", *words]) == 2
    assert said in capsys.readouterr().err


def test_what_was_never_met_is_named():
    met = Counter(dict.fromkeys(coverage.EXPECTED, 1))
    assert coverage.missing(met) == []
    del met["marks lost"]
    assert coverage.missing(met) == ["marks lost"]
    assert coverage.missing(Sum().coverage) == list(coverage.EXPECTED)
