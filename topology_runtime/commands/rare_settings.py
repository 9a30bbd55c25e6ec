"""Options that few people need: `--set NAME=VALUE` gives them, `--help-all` lists them.

A command takes them like any option:

    @click.command(cls=SettingsCommand)
    @setting("--gap", type=float, default=1.0, help="Milliseconds that rows wait at most.")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click

from headgate.topology_runtime.wording import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

ALL_WORDS = "--help-all"
SET = "set_words"
WORDS = "headgate.words"  # in a context's `meta`: the command line as it was given
UNSET = getattr(click.core, "UNSET", None)  # what click 8.3 has where nothing was given; None before


class Setting(click.Option):
    """An option that is given as `--set NAME=VALUE`."""

    @property
    def key(self) -> str:
        return max(self.opts, key=len).removeprefix("--")

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"--set {self.key}"


def setting(*names: str, **about: Any) -> Callable[[F], F]:
    return click.option(*names, cls=Setting, **about)


class SettingsCommand(click.Command):
    """usual: the names of the options that `--help` shows; all of them when nothing is said."""

    def __init__(self, *args: Any, usual: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = [one for one in self.params if isinstance(one, Setting)]
        self.params = [one for one in self.params if not isinstance(one, Setting)]
        self.rare = [
            one
            for one in self.params
            if usual and isinstance(one, click.Option) and one.name not in usual and not one.hidden
        ]
        for one in self.rare:
            one.hidden = True
        if self.settings:
            self.params.append(
                click.Option(
                    ["--set", SET],
                    multiple=True,
                    metavar="NAME=VALUE",
                    help=f"A setting that few need; {ALL_WORDS} lists them. Repeat it.",
                )
            )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        found = super().get_params(ctx)
        more = click.Option(
            [ALL_WORDS],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=self._print_all,
            help="Show this and every other option and setting.",
        )
        return [*found[:-1], more, *found[-1:]]

    def _print_all(self, ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if not asked:
            return
        for one in self.rare:
            one.hidden = False
        text = self.get_help(ctx)
        for one in self.rare:
            one.hidden = True
        click.echo(text)
        if self.settings:
            click.echo(self._settings_help(ctx))
        ctx.exit()

    def _settings_help(self, ctx: click.Context) -> str:
        formatter = ctx.make_formatter()
        rows = [one.get_help_record(ctx) for one in self.settings]
        with formatter.section("Settings (--set NAME=VALUE)"):
            formatter.write_dl([(row[0].removeprefix("--"), row[1]) for row in rows if row is not None])
        return "\n" + formatter.getvalue()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        try:
            left = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.removeprefix("--")
            if any(one.key == name for one in self.settings):
                raise click.UsageError(f"{name} is a setting: write --set {name}=VALUE", ctx) from error
            raise
        if self.settings:
            self._take(ctx, ctx.params.pop(SET, ()))
        return left

    def _take(self, ctx: click.Context, words: Sequence[str]) -> None:
        """Each setting becomes a parameter, as an option does. Raises click.UsageError."""
        known = {one.key: one for one in self.settings}
        given: dict[str, list[str]] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if name not in known:
                raise click.UsageError(
                    f"unknown setting {name!r}{did_you_mean(name, tuple(known))}; {ALL_WORDS} lists them", ctx
                )
            if not equals:
                raise click.UsageError(f"no value for setting {name!r}: write --set {name}=VALUE", ctx)
            given.setdefault(name, []).append(value)
        for name, one in known.items():
            told = given.get(name)
            as_parsed = {} if told is None else {str(one.name): tuple(told) if one.multiple else told[-1]}
            taken, _ = one.handle_parse_result(ctx, as_parsed, [])
            if taken is UNSET:  # as click does at the end of its own parsing
                ctx.params[str(one.name)] = None


def setting_words(values: dict[str, Any]) -> list[str]:
    """`{"gap": 2.0}` as the words `--set gap=2.0`. Those that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    return [word for name, value in given.items() for word in ("--set", f"{name}={value}")]


def without(words: Sequence[str], options: Collection[str], settings: Collection[str]) -> list[str]:
    """What is handed on of a command line: `words` without these options, which have a value, and these settings.

    >>> without(["--port", "7311", "--slots=4", "--set", "shared=yes"], ["--port"], ["shared"])
    ['--slots=4']
    """
    kept, left = [], list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in options or name == "--set":
            more = [] if equals or not left else [left.pop(0)]
            told = value if equals else "".join(more)
            if name == "--set" and told.partition("=")[0] not in settings:
                kept += [word, *more]
        else:
            kept.append(word)
    return kept
