"""The word that a plan needs which brings commands that this user has not started here before."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from diloco_chaos.chaos.commands.common import Failure

if TYPE_CHECKING:
    from diloco_chaos.chaos.scenario.plan import Plan

AllowOption = Annotated[bool, typer.Option(
    "--allow-commands", help="Start the commands that the plan brings, though they were never started from this "
                             "folder. Read them first: without this option they are listed.")]


def must_be_allowed(plan: Plan, source: str, allowed: bool) -> None:
    """Go on only where the plan's commands may be started: it has none, they were started from this folder before, the
    option says so, or the person at the terminal does. `source`: what the plan was read from.

    Raises:
        Failure: they may not.
    """
    from diloco_chaos.chaos.runner.own_commands import commands_of, started_before
    if allowed or started_before(plan):
        return
    listed = "\n".join([f"{source} brings commands that you have never started from {os.getcwd()}:",
                        *(f"  {name}: {line}" for name, line in commands_of(plan).items())])
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(f"{listed}\nNothing was started. Whoever wrote this file chose them: read them, and where you "
                      f"want to start them, add --allow-commands", 2)
    typer.echo(listed, err=True)
    if not typer.confirm("Start them?", err=True):
        raise Failure("nothing was started", 2)
