"""Write docs/command-line-options.md from the parser: python docs/command_line_options.py."""

import argparse
import dataclasses
import re
from pathlib import Path

from scalable_gpe.cli.commands import COMMANDS, make_parser
from scalable_gpe.cli.options import ConsoleOptions

PAGE = Path(__file__).parent / "command-line-options.md"
_OPENING = """\
# Options of the command line

<!-- made by docs/command_line_options.py: change scalable_gpe/cli/options.py and run it again -->

Defaults are in parentheses at the end of a line. Long options may be shortened as long as they stay unique, and
`scalable-gpe COMMAND --help` prints the same. What the commands do, what they read and their exit statuses:
[the command line](command-line.md).
"""


def page() -> str:
    """The whole page."""
    (parsers,) = (one.choices for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction))
    return "\n".join([_OPENING, *(_section(one.name, parsers[one.name], one.examples) for one in COMMANDS)])


def _section(name: str, parser: argparse.ArgumentParser, examples: tuple[str, ...]) -> str:
    """One command: what it does, how it is called, its arguments and options."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    positional = [action for action in actions if not action.option_strings]
    call = " ".join(["scalable-gpe", name, *(_positional(action) for action in positional), "[options]"])
    lines = [f"## {name}", "", str(parser.description), "", "```text", call, "", *examples, "```", ""]
    lines += ["| argument or option | meaning |", "|---|---|"]
    of_all = {field.name for field in dataclasses.fields(ConsoleOptions)}  # options of all commands come last
    options = sorted((action for action in actions if action.option_strings), key=lambda one: one.dest in of_all)
    lines += [f"| {_written(action)} | {_meaning(action)} |" for action in [*positional, *options]]
    return "\n".join([*lines, ""])


def _positional(action: argparse.Action) -> str:
    return f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar)


def _written(action: argparse.Action) -> str:
    """All spellings of an option, and the name of its value."""
    if not action.option_strings:
        return f"`{_positional(action)}`"
    return ", ".join(f"`{flag}{_value(action)}`" for flag in action.option_strings)


def _value(action: argparse.Action) -> str:
    """The value of an option as its usage line shows it."""
    if action.nargs == 0:
        return ""
    name = action.metavar or ("{" + ",".join(action.choices) + "}" if action.choices else action.dest.upper())
    return f" {name} ..." if action.nargs == "+" else f" {name}"


def _meaning(action: argparse.Action) -> str:
    text = str(action.help).replace("%%", "%").replace("|", "\\|")
    return re.sub(r"--[a-z][a-z-]*", r"`\g<0>`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
