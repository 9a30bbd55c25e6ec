"""A small topology with models in files, and the `headgate` command over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headgate.dashboards import headgate_command as cli

FLOW: dict[str, Any] = {
    "schema": "headgate/topology/v1",
    "name": "flow",
    "tasks": [
        {"name": "source", "kind": "source", "static": {"threads": 1, "cpu": 0.1, "memory": 0.1}},
        {"name": "parse"},
        {"name": "count"},
    ],
    "edges": [{"from": "source", "to": "parse"}, {"from": "parse", "to": "count", "selectivity": 2.0}],
}
PARSE = [{"threads": 1, "rate_tps": 50.0, "cpu": 0.3, "memory": 0.1},
         {"threads": 4, "rate_tps": 100.0, "cpu": 0.8, "memory": 0.2}]  # fmt: skip
COUNT = [{"threads": 1, "rate_tps": 400.0, "cpu": 0.5, "memory": 0.1}]
PLACED: list[dict[str, Any]] = [
    {"vm": "vm1", "slot": 0, "threads": {"source": 1, "parse": 1}},
    {"vm": "vm1", "slot": 1, "threads": {"parse": 4}},
    {"vm": "vm2", "slot": 0, "threads": {"count": 1}},
]


class Scene:
    """Files below `folder`; commands run in this process."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self.folder, self.capsys, self.err = folder, capsys, ""
        self.topology(FLOW)
        self.model("parse", PARSE)
        self.model("count", COUNT)

    def topology(self, data: dict[str, Any]) -> None:
        self.write("flow.json", data)

    def model(self, task: str, points: list[dict[str, Any]]) -> None:
        (self.folder / "models").mkdir(exist_ok=True)
        self.write(f"models/{task}.json", {"schema": "headgate/model/v1", "task": task, "points": points})

    def write(self, name: str, data: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(data))
        return str(path)

    def run(self, command: str, *words: str, code: int = 0) -> str:
        """What `headgate COMMAND flow.json --models models WORDS` prints; its errors are in `err`."""
        where = [str(self.folder / "flow.json"), "--models", str(self.folder / "models")]
        return self.headgate(command, *where, *words, code=code)

    def headgate(self, *words: str, code: int = 0) -> str:
        """What this line prints on stdout; it must end with this exit code and without a traceback."""
        ended = cli.main(list(words))
        captured = self.capsys.readouterr()
        self.err = captured.err
        assert ended == code, captured.err
        assert "Traceback" not in captured.err
        if code:
            assert captured.out == "" and "error[HG-" in captured.err, captured.out
        return str(captured.out)

    def plan(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The JSON that `headgate plan` prints for these options."""
        text = self.run("plan", *words, "-o", "json", code=code)
        return json.loads(text) if text else {}
