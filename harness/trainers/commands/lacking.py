"""What must be there before commands can be started, on this machine or in containers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from diloco_chaos.harness.preload.library import compiler, no_compiler
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.core.programs import LINKS, named, program_file, taken

_NO_COMPILER = no_compiler("peers: caught")


def lacking_here(settings: CommandSettings) -> Iterator[str]:
    """Programs and folders that are not there, as sentences."""
    for name, program in settings.programs.items():
        if not named([program.cwd]) and program.cwd and not Path(program.cwd).is_dir():
            yield f"{name}: there is no folder {program.cwd!r} to run in"
        first = shlex.split(program.run)[0]
        if not named([first]) and not program_file(program):
            yield f"{name}: there is no program {first!r}: is it installed, and on the PATH?"
        if program.port and (why := taken(program.port)):
            yield f"{name}: {why}"
    if any(program.meets for program in settings.programs.values()) and not compiler():
        yield _NO_COMPILER
    if settings.alone is not None:
        yield from lacking_here(settings.alone)


def lacking_in_containers(settings: CommandSettings) -> Iterator[str]:
    """Yield a sentence for every setting that can't work in containers."""
    if LINKS in settings.all_nodes:
        yield f"{LINKS}: the links' container has that name there: choose another one"
    for kind, spec in settings.nodes.items():
        if not (spec.image or spec.service):
            yield (f"{kind}: which image does its container have? Write `image: NAME`, or `service: {{file: "
                   f"compose.yml, name: SERVICE}}`")
        if spec.peers == "caught" and not compiler():
            yield f"{kind}: {_NO_COMPILER}"
        if "here" in named([spec.run, *spec.env.values(), spec.cwd]):
            yield (f"{kind}: {{here}} is a folder of this machine: write where the files are in the container, which "
                   f"may mount them by `service`")
        if spec.cwd and not named([spec.cwd]) and not spec.cwd.startswith("/"):
            yield f"{kind}: cwd: {spec.cwd!r} must be a whole path: it is one in the container"
    for number, entry in enumerate(settings.progress):
        if entry.path and not entry.path.startswith("{run}/"):
            yield (f"progress {number + 1}: {entry.path!r} is in a container: write "
                   f"`{'metrics' if entry.metrics else 'file'}: '{{run}}/state/...'`, which the harness sees, too")
    if settings.alone is not None:
        yield from lacking_in_containers(settings.alone)
