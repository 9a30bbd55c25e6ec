"""The `headgate` command: a static table name → "module:function", imported when it is called.

The help comes from the table alone, so `headgate --help` imports neither click nor any package of a
command. The table is also the one place that names other packages' modules: by string, never by import
(docs/decisions/0001-a-static-table-of-commands.md).
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    import click

VERSION = "0.1.0"
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143  # 128 + the signal's number, as shells have it

# module below `headgate`: its commands, each with its function and what it does
_TABLE: dict[str, dict[str, tuple[str, str]]] = {
    "dashboards.up.up_command": {
        "up": ("up", "run a topology on this machine"),
    },
    "topology_runtime.commands.new_project": {
        "new": ("new", "a project of your own: a flow, its test, data and a README"),
    },
    "dashboards.terminal.submit_commands": {
        "submit": ("submit", "give a waiting controller its topology"),
        "replace": ("replace", "other code for a running topology, slot by slot"),
    },
    "dashboards.terminal.status_commands": {
        "status": ("status", "what a running controller sees and plans; --watch: again and again"),
        "top": ("top", "the same as a full-screen table: sort, filter, freeze"),
        "events": ("events", "what happened: plans, VMs that join and leave, dead letters"),
    },
    "dashboards.terminal.state_commands": {
        "state get": ("get", "the state of one key of a running task, and who has it"),
    },
    "dashboards.terminal.logs_command": {
        "logs": ("logs", "what tasks print and log, with their task and thread; -f: as it comes"),
    },
    "topology_runtime.commands.profile_cli": {
        "model profile": ("profile", "measure how tasks behave with more threads in a slot"),
    },
    "dashboards.terminal.history_commands": {
        "explain": ("explain", "the decisions of a run with their evidence, or all about one plan"),
        "history": (
            "history",
            "the plans of all runs, what they were predicted to do and did, or all about one",
        ),
    },
    "dashboards.terminal.deadletter_commands": {
        "deadletter list": ("list_letters", "rows that a task failed on, and why"),
        "deadletter show": ("show", "one of them: the row and the traceback"),
        "deadletter replay": ("replay", "process their rows once more, now that the cause is fixed"),
        "deadletter drop": ("drop", "forget some of them"),
    },
    "dashboards.terminal.access_commands": {
        "keys init": ("init", "a folder of keys for controllers off this machine"),
        "keys add": ("add", "a key for an agent, an operator or a viewer"),
        "keys rotate": ("rotate", "a new key in place of somebody's old one"),
        "keys revoke": ("revoke", "withdraw a key; a running controller sees it at once"),
        "keys list": ("list_keys", "the keys there are"),
        "keys export": ("export", "the one file that somebody needs"),
        "context add": ("add_context", "remember a controller and the key to speak to it with"),
        "context use": ("use", "the controller that commands speak to"),
        "context list": ("list_contexts", "the controllers that are remembered"),
    },
    "dashboards.terminal.operate_commands": {
        "rate set": ("set_rate", "change the input rate of a running topology"),
        "apply": ("apply", "bring the plan that waits for approval into force"),
        "drain": ("drain", "move what runs on a VM to others, and plan without it"),
        "cordon": ("cordon", "make no plan with a VM from now on"),
        "uncordon": ("uncordon", "plan with a drained or cordoned VM again"),
        "rollback": ("rollback", "bring back an earlier plan, and hold it until `resume`"),
        "resume": ("resume", "clear alarms and what keeps a controller from planning"),
        "stop": ("stop", "stop a run: sources first, then everything once it is empty"),
    },
    "controller.planning_commands.plan_command": {
        "plan": ("plan", "threads, slots and VMs that a topology needs for a rate, why, and what they carry"),
    },
    "lab.placing.place_command": {
        "lab place": ("place", "groups of tasks onto nodes: little traffic between them"),
    },
    "controller.planning_commands.diff_command": {
        "diff": ("diff", "what changes from one plan to another, files or ids"),
    },
    "controller.replay.replay_command": {
        "replay": ("replay", "a recorded run once more, exactly, or under another policy"),
    },
    "lab.rate_policies.backtest_command": {
        "lab backtest": ("backtest", "try rules for following a rate, in virtual time"),
    },
    "lab.rate_policies.shadow_command": {
        "lab shadow": (
            "shadow",
            "what other policies would have needed and carried beside a run, also while it goes on",
        ),
    },
    "lab.rate_policies.advise_command": {
        "lab advise": ("advise", "what headgate would do with a deployment that it does not run"),
    },
    "lab.rate_policies.season_command": {
        "lab season learn": ("learn", "what comes back in recorded rates, as a file for `up`"),
        "lab season show": ("show", "what such a file says, as a line or a picture"),
    },
    "controller.model_commands.model_commands": {
        "model list": ("list_models", "the models there are, and which are stale"),
        "model show": ("show", "every point of a model, as a table or a picture"),
        "model compare": ("compare", "two sets of models, point by point"),
        "model import": (
            "import_models",
            "check models and copy them into a folder; make them of what Flink or Storm measured",
        ),
    },
    "dashboards.terminal.package_commands": {
        "package build": ("build", "pack task code into one signed file"),
        "package show": ("show", "what is in a package, and whose key signed it"),
        "package verify": ("verify", "check that a package is whole and signed by a trusted key"),
        "package revoke": ("revoke", "stop hosts from starting a package"),
        "package key init": ("init", "make the key that signs packages"),
        "package key passphrase": ("passphrase", "give that key a passphrase, another one, or none"),
    },
    "lab.simulation.sim_command": {
        "lab sim": ("sim", "run everything in virtual time under faults, by the seed: is anything lost?"),
    },
    "topology_runtime.commands.topology_cli": {
        "topology validate": ("validate", "list every fault of a topology"),
        "topology show": ("show", "its tasks and edges with their rates"),
        "topology dot": ("dot", "draw it, as Graphviz text"),
    },
    "dashboards.web.dashboard_command": {
        "dashboard run": ("run", "the live page of a run, or of a trace"),
    },
    "controller.controller_cli": {
        "controller run": ("run", "one controller (`up` starts it for you)"),
    },
    "controller.moving.archive_commands": {
        "controller export": (
            "export",
            "a controller as one file, also while it runs: to move it, or to back it up",
        ),
        "controller import": ("import_controller", "make the controller of such a file in another folder"),
    },
    "controller.moving.checkpoint_commands": {
        "checkpoint create": ("create", "keep state and positions of a run under a name, while it goes on"),
        "checkpoint list": ("list_checkpoints", "the checkpoints there are, and which are whole"),
        "checkpoint inspect": ("inspect", "what is in a checkpoint, and is it whole"),
        "checkpoint export": (
            "export",
            "the state of a task in a checkpoint as a Parquet file, a row per key",
        ),
        "checkpoint delete": ("delete", "remove a checkpoint"),
    },
    "agent.agent_cli": {
        "agent run": ("run", "the agent of one VM (`up` starts them for you)"),
    },
    "dashboards.cluster.cluster_looks": {
        "cluster check": ("check", "are these hosts fit for a cluster, and do they reach each other?"),
        "cluster status": ("status", "what runs on each of these hosts"),
        "cluster logs": ("logs", "the last lines of controller and agents"),
        "cluster forward": ("forward", "hold the forwards of hosts that are reached by ssh alone"),
        "cluster exec": ("execute", "one command on all hosts at once"),
    },
    "dashboards.cluster.cluster_changes": {
        "cluster up": ("up", "install and start a controller and agents on hosts of your own"),
        "cluster add": ("add", "bring up some VMs, leave all others alone"),
        "cluster drain": ("drain", "move what runs on some VMs to the others"),
        "cluster remove": ("remove", "take some VMs away, revoke their keys"),
        "cluster upgrade": ("upgrade", "another version, host after host, each when the last is well"),
        "cluster down": ("down", "take away all that `cluster up` has made"),
    },
    "dashboards.analytics.analyze_command": {
        "analyze": ("analyze", "what runs did, from their traces, with a report"),
    },
    "dashboards.tables.sql_command": {
        "sql": ("sql", "one query over what runs have recorded, as tables"),
    },
    "dashboards.traces.trace_commands": {
        "traces compact": (
            "compact",
            "few large Parquet files in place of many small ones, of runs that are over",
        ),
        "traces expire": ("expire", "remove the oldest runs, by number, size and age"),
    },
    "dashboards.terminal.doctor_command": {
        "doctor": ("doctor", "what this machine offers and what is missing"),
    },
    "dashboards.completion": {
        "completion": ("completion", "print a shell's completion script"),
    },
}
# name: (module:function, what it does)
COMMANDS = {
    name: (f"headgate.{module}:{function}", about)
    for module, commands in _TABLE.items()
    for name, (function, about) in commands.items()
}

# what `history` shows of the prediction ledger, which only the controller reads
PREDICTIONS = {
    name: f"headgate.controller.model_commands.prediction_history:{name}"
    for name in ("show", "of_plan", "print_plan")
}

# What the help shows: commands, and groups of commands as one line each. The rest is under --help-all
SHOWN = {
    "Run": ("up", "submit", "replace", "stop", "resume"),
    "Look": ("status", "top", "events", "explain", "history"),
    "Operate": (
        "rate",
        "drain",
        "cordon",
        "apply",
        "rollback",
        "deadletter",
        "checkpoint",
        "keys",
        "cluster",
    ),
    "Plan": ("plan", "diff", "topology", "model"),
    "Data": ("sql", "analyze", "replay", "traces"),
    "Lab": ("lab",),
    "Other": ("new", "doctor", "dashboard", "package"),
}
GROUPS = {
    "rate": "change the input rate of a running topology",
    "deadletter": "rows that a task failed on",
    "checkpoint": "state and positions of a run under a name, for others",
    "keys": "who may use a controller",
    "cluster": "hosts of your own",
    "topology": "check and draw a topology",
    "model": "measure tasks, look at what was measured",
    "traces": "what runs have recorded, on this disk",
    "lab": "research tools",
    "dashboard": "the live page of a run, or of a trace",
    "package": "task code as one signed file",
}

HELP = """\
Usage: headgate [--debug] COMMAND [OPTIONS]

  Runs stream topologies in slots of real machines; plans threads, slots and
  routes from measured models, and re-plans live when the input rate changes.

{commands}

Options:
  --debug     on an error, show the traceback too
  --version   show the version
  --help      show this; `headgate COMMAND --help` explains one command
  --help-all  list every command

Start with `headgate up` (the built-in demo; Ctrl-C stops it) or `headgate doctor`.
"""


def listing(names: list[str]) -> str:
    width = max(len(name) for name in names)
    return "\n".join(f"  {name:<{width}}  {COMMANDS[name][1]}" for name in names)


def below(group: str) -> list[str]:
    return [name for name in COMMANDS if name.startswith(group + " ")]


def overview() -> str:
    """What the help shows: one line per command or group, under the headings of SHOWN."""
    lines = []
    for heading, names in SHOWN.items():
        lines.append(f"{heading}:")
        for name in names:
            about = COMMANDS[name][1] if name in COMMANDS else f"{GROUPS[name]}: {_words_below(name)}"
            lines.append(f"  {name + ' …' * (name not in COMMANDS):<12}  {about}")
    return "\n".join(lines)


def _words_below(group: str) -> str:
    words = (name.removeprefix(group + " ").split()[0] for name in below(group))
    return ", ".join(dict.fromkeys(words))


def everything() -> str:
    """Every command, under the same headings; at the end those that the help does not show."""
    first = {word: heading for heading, words in SHOWN.items() for word in words}
    found: dict[str, list[str]] = {heading: [] for heading in (*SHOWN, "Not in the short list")}
    for name in COMMANDS:
        found[first.get(name.split()[0], "Not in the short list")].append(name)
    return "\n".join(f"{heading}:\n{listing(names)}" for heading, names in found.items() if names)


def load(name: str) -> click.Command:
    command: click.Command = imported(COMMANDS[name][0])
    return command


def imported(target: str) -> Any:
    """What "module:name" names."""
    from importlib import import_module

    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def choose(arguments: list[str]) -> tuple[str, list[str]]:
    """(name in the table, the rest of the line). Raises UsageError for an unknown command."""
    for words in (3, 2, 1):
        name = " ".join(arguments[:words])
        if len(arguments) >= words and name in COMMANDS:
            return name, arguments[words:]
    from difflib import get_close_matches

    from headgate.topology_runtime.errors import UsageError

    tried = " ".join(word for word in arguments[:3] if not word.startswith("-"))
    near = get_close_matches(tried, COMMANDS, 1, 0.5) or get_close_matches(arguments[0], COMMANDS, 1, 0.5)
    hint = f"use `headgate {near[0]}`" if near else "see `headgate --help`"
    raise UsageError(f"unknown command `{tried or arguments[0]}`", hint=hint)


def static_answer(arguments: list[str]) -> str | None:
    """Help and version: what needs no import at all."""
    first = arguments[0] if arguments else "--help"
    if first in ("--help", "-h", "help"):
        return HELP.format(commands=overview())
    if first == "--help-all":
        return HELP.format(commands=everything())
    if first == "--version":
        return f"headgate {VERSION}\n"
    asks = arguments[-1] in ("--help", "-h")
    group = " ".join(arguments[:-1] if asks else arguments)
    found = below(group)
    if found and group not in COMMANDS:
        return f"Usage: headgate {group} COMMAND [OPTIONS]\n\nCommands:\n{listing(found)}\n"
    return None


def run(arguments: list[str]) -> int:
    """One command to its exit code; errors headgate knows are raised as HeadgateError."""
    if "_HEADGATE_COMPLETE" in os.environ:
        from headgate.dashboards.completion import complete

        return complete()
    answer = static_answer(arguments)
    if answer is not None:
        sys.stdout.write(answer)
        return 0
    name, rest = choose(arguments)
    return _call(name, rest)


def _call(name: str, rest: list[str]) -> int:
    import signal

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(number, lambda *_: None)  # the tidying up is not to be cut off by a second one
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        return _invoked(name, rest)
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _invoked(name: str, rest: list[str]) -> int:
    import click

    from headgate.topology_runtime.errors import UsageError

    try:
        command = load(name)
        with command.make_context(
            f"headgate {name}", list(rest)
        ) as context:  # `main` of click ends closed pipes with 1
            result = command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stdout.write(error.format_message() + "\n")
        return 0
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else f"headgate {name}"
        raise UsageError(error.format_message(), hint=f"`{path} --help`") from error
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error
    return result if isinstance(result, int) else 0


def main(arguments: list[str] | None = None) -> int:
    """The process's entry point: prints errors in the contract's form and gives the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no locale is a reason to end
    try:
        code = _ended([word for word in words if word != "--debug"], debug)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _say_no_more()
        return PIPE_CLOSED


class Terminated(KeyboardInterrupt):
    """SIGTERM came: a command that does nothing else about it tidies up as after Ctrl-C."""


def _ended(words: list[str], debug: bool) -> int:
    """The command's exit code. Raises BrokenPipeError when whoever read what it says is gone."""
    try:
        return run(words)
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich ends with 1 then
            raise end.__context__ from None
        raise
    except Exception as error:
        return _failed(error, debug)


def _say_no_more() -> None:
    """Else the last flush of a stream that nobody reads complains."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _failed(error: Exception, debug: bool) -> int:
    from headgate.topology_runtime.errors import HeadgateError

    if debug:
        import traceback

        traceback.print_exc()
    aborted = type(error).__name__ == "Abort" and type(error).__module__ == "click.exceptions"
    if aborted:  # click's form of Ctrl-C
        return INTERRUPTED
    if not isinstance(error, HeadgateError):
        error = HeadgateError(
            f"unexpected failure: {type(error).__name__}",
            cause=str(error) or None,
            hint="run it again with --debug and report what it prints",
        )
    sys.stderr.write("\n".join(error.lines()) + "\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
