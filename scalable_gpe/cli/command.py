"""Commands as this program needs them, on click: options of several values, and errors in one line."""

import itertools
import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from scalable_gpe.cli.console import PROGRAM, caution, in_options, say
from scalable_gpe.cli.options import CONSOLE
from scalable_gpe.errors import PYTHON_ONLY

_QUOTED = re.compile(r"^'(\w+)'$")  # a word needs no quotes in a shell


def command(
    *parameters: click.Parameter, examples: Sequence[str], resumes: str = ""
) -> Callable[[Callable[..., None]], "Command"]:
    """Make a command of a function; its docstring is the help.

    `resumes` names the parameter that holds the path of the work which the same command resumes after an interruption.
    """

    def made(function: Callable[..., None]) -> Command:
        result = Command(
            function.__name__.replace("_", "-"),
            callback=lambda **given: function(**{name: value for name, value in given.items() if value is not None}),
            params=[*parameters, *CONSOLE],
            help=function.__doc__,
            short_help=function.__doc__,
            epilog=list_examples(examples),
        )
        result.examples, result.resumes = examples, resumes
        return result

    return made


def list_examples(examples: Sequence[str]) -> str:
    """Return the end of a help text."""
    title = f"example{'s' * (len(examples) > 1)}:"
    return "\n".join(["\b", title, *(f"  {one}" for one in examples)])  # click joins the lines of other paragraphs


class Command(click.Command):
    """A command that prints its errors and warnings in one line each."""

    examples: Sequence[str] = ()
    resumes = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words after the command."""
        flags = {flag for one in self.params if isinstance(one, click.Option) and one.multiple for flag in one.opts}
        return super().parse_args(ctx, list(_one_value_each(args, flags)))

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; exit with 1 after an error, with 130 after Ctrl-C."""
        _log_errors_only(ctx, ctx.meta["quiet"])
        ctx.with_resource(warnings.catch_warnings())
        warnings.showwarning = lambda message, *_, **__: caution(self._explain(message))
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            _silence_zarr()
            say(f"{PROGRAM}: interrupted. {self._how_to_resume(ctx)}")
            ctx.exit(130)
        except BrokenPipeError:  # the reader of our output has gone, as with `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:
            if ctx.meta["debug"]:
                raise
            say(f"{PROGRAM}: error: {self._explain(error)}")
            ctx.exit(1)

    def as_option(self, name: str, value: str | None = None) -> str:
        """Write an argument of the library as this command does: what `Message.render` needs."""
        if name.startswith(PYTHON_ONLY):
            return ""
        if "(" in name:  # of an argument of a reader: read_points(index='name')
            name, value = name.partition("(")[2], (value or "").removesuffix(")")
        context = click.get_current_context(silent=True)
        others = getattr(context.find_root().command, "commands", {}) if context else {}
        # an argument of another command is one of embed
        written = {text: flag for one in (others.get("embed", self), self) for text, flag in _options(one)}
        whole = name if value is None else f"{name}={value}"
        name = {"X": "x", "X_new": "x"}.get(name, name)  # click writes positional arguments in small letters
        if whole in written or name not in written:
            return written.get(whole, whole)
        value = _QUOTED.sub(r"\1", value or "")
        return f"{written[name]} {value}".rstrip()

    def _explain(self, raised: BaseException | str) -> str:
        """The text of an error or a warning; an unexpected error also with its class."""
        text = in_options(raised, self.as_option)
        known = isinstance(raised, ValueError | TypeError | OSError | ImportError | Warning | str)
        return text if known and text else f"{type(raised).__name__}: {text} (--debug shows where)"

    def _how_to_resume(self, ctx: click.Context) -> str:
        """What an interrupted command leaves behind, and the command that resumes it."""
        from scalable_gpe.storage.backends import is_url

        path, words = ctx.params.get(self.resumes), ctx.obj
        if path is None or not (is_url(path) or Path(path).exists()):
            return "Nothing was left behind."
        hint = f"Finished work stays in {path}; give the same command again to resume."
        if "--no-resume" in words:
            hint = (
                f"Give the same command again to start over; without --no-resume, it continues from what {path} holds."
            )
        if ctx.params.get("storage_options"):
            return hint  # they may hold secrets, which a log must not repeat
        return f"{hint}\n  {PROGRAM} {shlex.join(word for word in words if word != '--no-resume')}"


def _one_value_each(words: Iterable[str], flags: set[str]) -> Iterator[str]:
    """Write ``--power 16 64`` as ``--power 16 --power 64``, which click reads."""
    flag, n_values = None, 0
    for word in words:
        if word.startswith("-") and word != "-":
            flag, n_values = word if word in flags else None, -1
        if flag and n_values > 0:
            yield flag
        yield word
        n_values += 1


def _options(command: click.Command) -> Iterator[tuple[str, str]]:
    return itertools.chain.from_iterable(map(_written, command.params))


def _written(parameter: click.Parameter) -> list[tuple[str, str]]:
    """An argument of the library (``name``, or ``name=value`` for a switch), and how the command line writes it."""
    name = str(parameter.name)
    if not isinstance(parameter, click.Option):
        return [(name, str(parameter.metavar).strip("[]"))]
    flag = next(text for text in parameter.opts if text.startswith("--"))
    if parameter.secondary_opts:
        return [(name, flag), (f"{name}=True", flag), (f"{name}=False", parameter.secondary_opts[0])]
    if parameter.is_flag:
        return [(f"{name}={not flag.startswith('--no-')}", flag)]
    return [(name, flag)]


def _log_errors_only(ctx: click.Context, quiet: bool) -> None:
    """Log less, if a command is to be quiet; a program that calls `main` gets its level back."""
    logger = logging.getLogger("scalable_gpe")
    ctx.call_on_close(partial(logger.setLevel, logger.level))
    if quiet:
        logger.setLevel(logging.ERROR)


def _silence_zarr() -> None:
    """Hide what Python prints about zarr's reads that an interruption leaves unfinished."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
