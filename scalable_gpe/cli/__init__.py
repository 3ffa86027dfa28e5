"""The command line: `scalable-gpe COMMAND`; each module holds a group of commands."""

from collections.abc import Sequence

import click

from scalable_gpe import __version__
from scalable_gpe.cli.command import PROGRAM, list_examples, say
from scalable_gpe.cli.demo import demo, warm_up
from scalable_gpe.cli.new_run import embed, estimate
from scalable_gpe.cli.stored_run import audit, export, plot, propagate, report, transform
from scalable_gpe.cli.stores import info, repair

COMMANDS = (embed, estimate, info, repair, audit, plot, report, export, transform, propagate, demo, warm_up)

_ENDING = """
Interrupted runs resume: give the same command again.

exit status: 0 done, 1 an error (one line says which), 2 a wrong command line, 130 interrupted"""


class _Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in their own order; click sorts them."""
        return list(self.commands)


program = _Program(
    PROGRAM,
    commands={str(one.name): one for one in COMMANDS},
    help="Gaussian process embeddings: coordinates whose straight-line distances approximate the diffusion distance "
    "of the data.",
    epilog=f"{list_examples([one.examples[0] for one in COMMANDS])}\n{_ENDING}",
    no_args_is_help=False,
    subcommand_metavar="COMMAND ...",
    context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
)
click.version_option(__version__, message="%(prog)s %(version)s")(program)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        return program.main(arguments, prog_name=PROGRAM, standalone_mode=False) or 0
    except click.UsageError as error:
        text = error.format_message()
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            text = f"{error.message} (did you mean {error.possibilities[0]}?)"
        say(f"{error.ctx.get_usage() if error.ctx else ''}\n{PROGRAM}: error: {text}")
        return error.exit_code
