"""The command line: scalable-gpe embed | estimate | info | audit | plot | report | export | demo."""

import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalable_gpe.cli.console import PROGRAM, in_options, plain_warnings, say
from scalable_gpe.cli.options import parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status says how it ended."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = parse(words)
    if given.quiet:
        logging.getLogger("scalable_gpe").setLevel(logging.ERROR)
    try:
        with plain_warnings(given.options):
            given.run(given)
            sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of reads that zarr had under way
        say(f"{PROGRAM}: interrupted. {_what_now(given, words)}")
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if given.debug:
            raise
        known = isinstance(error, ValueError | TypeError | OSError | ImportError) and str(error)
        text = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
        say(f"{PROGRAM}: error: {in_options(text, given.options)}")
        return 1


def _what_now(given: Any, words: list[str]) -> str:
    """What an interrupted command leaves, and how to go on."""
    from scalable_gpe.storage.backends import is_url

    store = getattr(given, "resumes", None)
    if store is None or not (is_url(store) or Path(store).exists()):
        return "Nothing was left behind."
    hint = f"What is finished stays in {store}: give the same command again to go on."
    if getattr(given, "storage_options", None):
        return hint  # they may hold what should not be repeated in a log
    # without --no-resume, which would begin from nothing
    return f"{hint}\n  {PROGRAM} {shlex.join(word for word in words if word != '--no-resume')}"
