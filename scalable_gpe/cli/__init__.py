"""The command line: `scalable-gpe COMMAND`; `commands` lists them."""

import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scalable_gpe.cli.commands import make_parser
from scalable_gpe.cli.console import PROGRAM, in_options, plain_warnings, say
from scalable_gpe.cli.options import ConsoleOptions, RemoteOptions
from scalable_gpe.cli.parser import OptionNames, parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how a command line may continue
        import argcomplete

        argcomplete.autocomplete(parser)
    command, options = parse(parser, words)
    names = OptionNames(command.options)
    try:
        with plain_warnings(names), _log_level(quiet=options.quiet):
            command.run(options)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        _silence_zarr()
        say(f"{PROGRAM}: interrupted. {_how_to_resume(options, words)}")
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if options.debug:
            raise
        say(f"{PROGRAM}: error: {_explain(error, names)}")
        return 1


@contextmanager
def _log_level(*, quiet: bool) -> Iterator[None]:
    """Log errors only, if a command is to be quiet; a program that calls `main` gets its level back."""
    logger = logging.getLogger("scalable_gpe")
    level = logger.level
    logger.setLevel(logging.ERROR if quiet else level)
    try:
        yield
    finally:
        logger.setLevel(level)


def _explain(error: Exception, names: OptionNames) -> str:
    """The text of an error; an unexpected one also with its class."""
    if isinstance(error, ValueError | TypeError | OSError | ImportError) and str(error):
        return in_options(error, names)
    return f"{type(error).__name__}: {in_options(error, names)} (--debug shows where)"


def _silence_zarr() -> None:
    """Hide what Python prints about zarr's reads that an interruption leaves unfinished."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def _how_to_resume(options: ConsoleOptions, words: list[str]) -> str:
    """What an interrupted command leaves behind, and the command that resumes it."""
    from scalable_gpe.storage.backends import is_url

    store = options.resumable
    if store is None or not (is_url(store) or Path(store).exists()):
        return "Nothing was left behind."
    hint = f"Finished work stays in {store}; give the same command again to resume."
    if "--no-resume" in words:
        hint = f"Give the same command again to start over; without --no-resume, it continues from what {store} holds."
    if isinstance(options, RemoteOptions) and options.storage_options:
        return hint  # they may hold secrets, which a log must not repeat
    return f"{hint}\n  {PROGRAM} {shlex.join(word for word in words if word != '--no-resume')}"
