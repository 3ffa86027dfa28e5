"""Write docs/command-line-options.md from the commands: python docs/command_line_options.py."""

import re
from pathlib import Path

import click

from scalable_gpe.cli import COMMANDS
from scalable_gpe.cli.command import Command

PAGE = Path(__file__).parent / "command-line-options.md"
_OPENING = """\
# Options of the command line

<!-- made by docs/command_line_options.py: change scalable_gpe/cli/ and run it again -->

Defaults are in parentheses at the end of a line. `scalable-gpe COMMAND --help` prints the same. What the commands do,
what they read and their exit statuses: [the command line](command-line.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_OPENING, *(_section(one) for one in COMMANDS)])


def _section(command: Command) -> str:
    """One command: what it does, how it is called, its arguments and options."""
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option)]
    call = " ".join(["scalable-gpe", command.name, *(one.metavar for one in arguments), "[options]"])
    lines = [f"## {command.name}", "", command.help, "", "```text", call, "", *command.examples, "```", ""]
    lines += ["| argument or option | meaning |", "|---|---|"]
    lines += [f"| `{one.metavar}` | {_meaning(one)} |" for one in arguments]
    lines += [f"| {_written(one)} | {_meaning(one)} |" for one in options]
    return "\n".join([*lines, ""])


def _written(option: click.Option) -> str:
    """All spellings of an option, and the name of its value."""
    value = "" if option.is_flag else f" {option.metavar}"
    return ", ".join(f"`{flag}{value}`" for flag in [*option.opts, *option.secondary_opts])


def _meaning(parameter: click.Parameter) -> str:
    return re.sub(r"--[a-z][a-z-]*", r"`\g<0>`", parameter.help.replace("|", "\\|"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
