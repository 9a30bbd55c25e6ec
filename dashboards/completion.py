"""Shell completion: click's own, over a group that imports a command only when it is needed."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class, shell_complete

from headgate.dashboards.cli import COMMANDS, load

VARIABLE = "_HEADGATE_COMPLETE"


class Tree(click.Group):
    """`headgate`, or one of its groups such as `rate`, over the static table."""

    def __init__(self, name: str, prefix: str = "") -> None:
        super().__init__(name)
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        names = [name.removeprefix(self._prefix) for name in COMMANDS if name.startswith(self._prefix)]
        return list(dict.fromkeys(name.split()[0] for name in names))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._prefix + cmd_name
        if name in COMMANDS:
            return load(name)
        if any(known.startswith(name + " ") for known in COMMANDS):
            return Tree(cmd_name, name + " ")
        return None


def complete() -> int:
    """Answer the shell (the variable says what it asks)."""
    return shell_complete(Tree("headgate"), {}, "headgate", VARIABLE, os.environ[VARIABLE])


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    bash: `headgate completion bash > ~/.local/share/bash-completion/completions/headgate`
    """
    found = get_completion_class(shell)
    assert found is not None  # the choice above names only shells that click knows
    click.echo(found(Tree("headgate"), {}, "headgate", VARIABLE).source())
