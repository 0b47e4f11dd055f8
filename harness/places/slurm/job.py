"""The script of a node's job, and how an incarnation is started in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from string import Template

from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.slurm.queue import BESIDE
from diloco_chaos.harness.places.slurm.settings import SlurmSettings

STEPS = "steps"
"""Folder with a file for each incarnation: its pid there, and the number of its step."""
NO_FOLDER = 71
"""Exit status of a job that could not make its folder."""
PORT_FILE = "agent.port"
_END = "END_OF_THE_AGENT"
_SCRIPT = Template("""#!/bin/sh
umask 077
run=$folder-$$SLURM_JOB_ID-$${SLURM_RESTART_COUNT:-0}
mkdir "$$run" || exit $no_folder   # a new one, which is nobody else's
trap : TERM                # the agent is told, too, and ends
cat >"$$run/agent.py" <<'$end'
$source
$end
$python "$$run/agent.py" --run "$$run" --port-file "$$run/$port_file" --patience $patience --shared &
agent=$$!
wait $$agent; status=$$?
while kill -0 $$agent 2>/dev/null; do wait $$agent; status=$$?; done   # it was only this shell that was waked
rm -rf "$$run"
exit $$status
""")
_TRIES = 20
_PERSIST = f'n=0; while :; do srun "$@"; s=$?; if [ -e "$0" ] || [ $n -ge {_TRIES} ]; then exit $s; fi; ' \
    'n=$((n + 1)); sleep 1; done'
"""A step that never began, because the controller was away, is asked for again."""
_LAUNCH = 'echo "$$ $SLURM_STEP_ID" >"$0.partial" && mv "$0.partial" "$0" && exec "$@"'


def folder(settings: SlurmSettings, name: str, number: int, restarts: int) -> str:
    """Return the folder that a job writes to, after it was requeued so many times."""
    return f"{_start_of_folder(settings, name)}-{number}-{restarts}"


def _start_of_folder(settings: SlurmSettings, name: str) -> str:
    return f"{settings.folder.rstrip('/')}/{name}"


def script(settings: SlurmSettings, name: str) -> str:
    """Return the script of a node's job: an agent, in a folder that ends with it."""
    source = Path(agent.__file__).read_text()
    return _SCRIPT.substitute(folder=shlex.quote(_start_of_folder(settings, name)), no_folder=NO_FOLDER, end=_END,
                              source=source, python=shlex.quote(settings.python), port_file=PORT_FILE,
                              patience=f"{settings.patience:g}")


def submitted_with(settings: SlurmSettings, avoided: Sequence[str]) -> list[str]:
    """Return the options of `sbatch`. `avoided`: machines."""
    named = {"partition": settings.partition, "account": settings.account, "exclude": ",".join(avoided)}
    return [*(f"--{name}={value}" for name, value in named.items() if value), f"--cpus-per-task={settings.cpus}",
            f"--mem={settings.memory}", *settings.options]


def launched(folder: str, process: str, cpus: int, argv: Sequence[str]) -> tuple[list[str], str]:
    """An incarnation as a step of its own, so that Slurm can signal it; and the file that tells where it is."""
    file = f"{folder}/{STEPS}/{process}"
    options = [*BESIDE, f"--cpus-per-task={cpus}", "--input=none", f"--job-name={process}"]
    return ["sh", "-c", _PERSIST, file, *options, "sh", "-c", _LAUNCH, file, *argv], file
