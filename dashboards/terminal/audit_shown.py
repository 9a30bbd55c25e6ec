"""The audit log as `headgate events --audit` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headgate.dashboards.runs.connection import asked
from headgate.topology_runtime.commands.output import Format, emit
from headgate.topology_runtime.errors import CheckFailed, InvalidInput, Unreachable
from headgate.topology_runtime.keys import audit_lines
from headgate.topology_runtime.wording import counted, visible

KEY_SHOWN = 8  # characters of a public key


def audited(where: str | None) -> dict[str, Any]:
    """Of the controller, or of the file of one that is no more. Raises HeadgateError."""
    try:
        found: dict[str, Any] = asked(where, "audit")
        return found
    except Unreachable:
        file = Path(where or "") / "controller" / audit_lines.FILE
        if where is None or not file.exists():
            raise
        try:
            return audit_lines.document(file.read_bytes())
        except OSError as error:
            raise InvalidInput(f"{file} cannot be read", cause=error.strerror) from error


def show_audit(found: dict[str, Any], since: int, output: Format) -> None:
    """Raises CheckFailed when the log is not as it was written."""
    rows = [row for row in found["commands"] if row["n"] > since]
    if output == "table":
        for row in rows:
            click.echo(visible(audit_words(row)))
        click.echo(f"{counted(found['lines'], 'line')}, the last one {found['head'] or 'none'}", err=True)
    else:
        emit(output, {**found, "commands": rows}, rows)
    if found["fault"]:
        hint = "who may write to the controller's folder can change it: compare with a copy"
        raise CheckFailed("the audit log was changed", cause=found["fault"], hint=hint)


def audit_words(row: dict[str, Any]) -> str:
    words = " ".join(f"{name}={_short(value)}" for name, value in row["arguments"].items())
    who = f"{row['who']} ({row['key'][:KEY_SHOWN]})" if row["key"] else row["who"]
    return f"{row['time']}  {row['n']:>5}  {who}: {row['command']} {words}".rstrip() + f"  → {row['result']}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("name") or f"{value.get('bytes', 0):,} bytes")
    return str(value)
