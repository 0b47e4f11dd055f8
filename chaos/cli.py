"""The command line, `diloco-chaos COMMAND ...`: each command is imported when it is called.

Commands come from entry points, ours like those of other packages: a function whose annotations typer reads, or a
`typer.Typer` for a command that has subcommands.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from diloco_chaos.chaos.program import PROGRAM
from diloco_chaos.harness.base.errors import UserError, printable
from diloco_chaos.harness.base.registries import ProviderError, one_offer, points

GROUP = "diloco_chaos.commands"
"""Of entry points; each names a command under its own name."""
_HELP = """Breaks a Decoupled DiLoCo training run on purpose, and proves from recorded events whether it healed.

Exit codes: 0 all checks passed, 1 a check failed, 2 the scenario, the folder or the command is wrong, 3 inconclusive,
130 interrupted."""
_INTERRUPTED = 130
_UNREAD = 128 + signal.SIGPIPE
"""The exit status of a program whose output no process reads, as a shell gives it."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
_NOTHING_LEFT = "interrupted; no process of ours is left"


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """The command line with the command that `arguments` call; with every command where they call none, for its help.

    Raises:
        ProviderError: that command can't be imported, or two packages have one of its name.
    """
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False,
                      context_settings={"help_option_names": ["-h", "--help"]})
    app.callback(help=_HELP)(_options)
    for name in _called(arguments):
        provided = one_offer(GROUP, "command", name)
        if isinstance(provided.content, typer.Typer):
            app.add_typer(provided.content, name=name)
        elif callable(provided.content):
            app.command(name)(provided.content)
        else:
            raise ProviderError(f"{name} of {provided.provider} is no command: an entry point of {GROUP} names a "
                                f"function, or a typer.Typer")
    return app


def _called(arguments: Sequence[str]) -> list[str]:
    """Names of the commands that these arguments need, sorted: packages list theirs in any order."""
    if arguments and arguments[0] == "--version":
        return []
    names = [point.name for point in points(GROUP)]
    word = next((argument for argument in arguments if not argument.startswith("-")), "")
    return [word] if word in names else sorted(set(names))


def _version(wanted: bool) -> None:
    if wanted:
        from diloco_chaos import __version__
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


def _options(_: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True,
                                             help="Print the version, and end.")] = False) -> None:
    """Take the options that can be given before any command."""


def main() -> NoReturn:
    """The entry point: every expected error becomes a message and an exit code."""
    if sys.platform != "linux":
        sys.exit("diloco-chaos runs on Linux only: it needs process signals and /proc as they are there")
    completing = f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE" in os.environ
    try:
        app = application(() if completing else sys.argv[1:])
        # without its standalone mode, typer returns what Exit carries, and what it makes of Ctrl-C
        if (code := app(prog_name=PROGRAM, standalone_mode=False) or 0) == _INTERRUPTED:
            _fail(_NOTHING_LEFT, code)
    except UserError as error:
        code = _fail(str(error), error.exit_code)
    except OSError as error:  # the run's folder keeps what was written
        advice = "; free some space or name another place with --runs-dir" if error.errno in _NO_ROOM else ""
        code = _fail(f"{error}{advice}", 3)
    except SystemExit:  # typer and rich end so where no process reads what they print; 1 would be a check that failed
        code = _UNREAD
    except (KeyboardInterrupt, typer.Abort):
        code = _fail(_NOTHING_LEFT, _INTERRUPTED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
        code = _fail(f"{error.format_message()}\nTry `{command} --help`.", 2)
    sys.exit(code)


def _fail(message: str, code: int) -> int:
    print(printable(message), file=sys.stderr)
    return code
