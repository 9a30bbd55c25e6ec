"""The manifests of dashboards/kubernetes, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "dashboards" / "kubernetes"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "headgate.yaml").read_text("utf-8")))


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = named(kind, name)["spec"]["template"]["spec"]
    return found


def words(container: dict[str, Any], **env: str) -> list[str]:
    """What the container runs, as Kubernetes fills its variables in; the image's entry point where it names none."""
    entry = container.get("command", ["headgate"])
    filled = []
    for word in (*entry, *container.get("args", ())):
        for name, value in env.items():
            word = word.replace(f"$({name})", value)
        filled.append(word)
    return filled
