"""Prometheus's configuration and alert rules, judged by promtool."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml
from told import ROOT, names, needs_promtool

FOLDER = ROOT / "dashboards" / "prometheus"
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]


@needs_promtool
@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")], ids="_".join
)
def test_promtool_is_content(words):
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_exists_and_says_what_to_do(rule):
    assert set(re.findall(r"\b(?:headgate_\w+|up)\b", rule["expr"])) - {"up"} <= names()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".") and rule["annotations"]["description"].endswith(".")


def test_every_alert_is_seen_firing_in_the_rules_own_tests():
    tests = (FOLDER / "alerts_test.yml").read_text("utf-8")
    assert [rule["alert"] for rule in RULES if rule["alert"] not in tests] == []
