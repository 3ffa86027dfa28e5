"""Commands as this program needs them, on click: options of several values, and errors in one line."""

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from scalable_gpe.cli.options import CONSOLE

_READING = re.compile(r"(?<!\.)read_points\((\w+=[^)]*)\)")  # of an argument of a reader: read_points(index='name')
# name=value, or a name alone where it cannot be another word; no part of a path
_ARGUMENT = re.compile(r"(?<![\w/.'\"-])(?:(?P<name>\w+)=(?P<value>'\w*'|\w+(?:\.\w+)*|)|\w+_\w+|^\w+(?=:| must\b))")
PROGRAM = "scalable-gpe"


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

    def in_options(self, text: str) -> str:
        """Write arguments of the library as this command does: n_jobs as --n-jobs, resume=False as --no-resume."""
        context = click.get_current_context(silent=True)
        others = getattr(context.find_root().command, "commands", {}) if context else {}
        # an argument of another command is one of embed
        known = [*others.get("embed", self).params, *self.params]
        written = {name: flag for parameter in known for name, flag in _written(parameter)}

        def as_option(found: re.Match[str]) -> str:
            name, value = found["name"] or found[0], (found["value"] or "").strip("'")
            name = {"X": "x", "X_new": "x"}.get(name, name)  # click writes positional arguments in small letters
            if name not in written:
                return written.get(f"{name}={value}", found[0])
            return written.get(f"{name}={value}") or f"{written[name]} {value}".rstrip()

        return _ARGUMENT.sub(as_option, _READING.sub(r"\1", text))

    def _explain(self, raised: BaseException | str) -> str:
        """The text of an error or a warning; an unexpected error also with its class."""
        raw = raised.args[0] if isinstance(raised, KeyError) and raised.args else raised
        text = self.in_options(one_line(str(raw)))
        known = isinstance(raised, ValueError | TypeError | OSError | ImportError | Warning | str)
        return text if known and text else f"{type(raised).__name__}: {text} (--debug shows where)"

    def _how_to_resume(self, ctx: click.Context) -> str:
        """What an interrupted command leaves behind."""
        from scalable_gpe.storage.backends import is_url

        path = ctx.params.get(self.resumes)
        if path is None or not (is_url(path) or Path(path).exists()):
            return "Nothing was left behind."
        return f"Finished work stays in {path}: the same command, without --no-resume, resumes."


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


# --- console --------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    """Replace control characters: texts of a store or a file must not steer the terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def show(text: str, data: object) -> None:
    """Print a result: a text, or with --json its data for other programs."""
    print(_printable(json.dumps(data, indent=2) if is_given("json") else text), flush=True)


def table(title: str, pairs: list[tuple[str, str]]) -> str:
    """Return a small table, with an empty line after it."""
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in pairs), ""])


def is_given(switch: str) -> bool:
    """Whether the command has this switch: quiet, json or debug."""
    return bool(click.get_current_context().meta[switch])


def progress() -> bool | None:
    """The `progress` argument of the library."""
    return False if is_given("quiet") else None


def tell(text: str, data: object = None) -> None:
    """Print about the work, unless --quiet; with --json, print only the data."""
    wanted = data is not None if is_given("json") else not is_given("quiet")
    if wanted:
        show(text, data)


def say(text: str) -> None:
    """Print a line to standard error."""
    print(_printable(text), file=sys.stderr, flush=True)


def caution(text: str) -> None:
    """Print a warning as one line."""
    say(f"{PROGRAM}: warning: {one_line(text)}")


def one_line(text: str) -> str:
    """Words with one space between them."""
    return " ".join(text.split())
