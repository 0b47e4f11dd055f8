"""Slurm, through its own commands: every job that is made carries the run's name, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.place import Requirement
from diloco_chaos.harness.places.remote import by_command
from diloco_chaos.harness.places.remote.hosts import AwayError
from diloco_chaos.harness.places.slurm.settings import SlurmSettings

_ASK_S, _LOOK_S = 20.0, 0.5
_FIELDS = ("JobID", "Name", "State", "RestartCnt", "NodeList", "exit_code", "Reason")
_AWAY = ("Unable to contact slurm controller", "Connection refused", "Socket timed out", "Zero Bytes were transmitted",
         "controller not responding")
_NO_SLURM = ". Set SLURM_CONF to your Slurm's slurm.conf, or run this on a machine from which jobs are submitted"
_FINAL = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
          "REVOKED", "TIMEOUT"}
_PREFIX = "diloco-chaos"


class SlurmError(ClusterError):
    """Slurm can't be used, or refused."""


class SlurmAwayError(SlurmError, AwayError):
    """Slurm's controller does not answer now."""


class Job(NamedTuple):
    """A job, as Slurm reports it."""

    number: int
    name: str
    state: str
    """As squeue(1) names it: `RUNNING`, `PENDING`, `COMPLETING`."""
    restarts: int
    """How often it was requeued."""
    machine: str
    """Empty: none yet."""
    exit_code: str
    reason: str
    """Why it waits, or why it ended."""

    @property
    def over(self) -> bool:
        """It will not run any more, as long as nobody requeues it."""
        return self.state.partition(" ")[0] in _FINAL


def job_name(run: str, node: str) -> str:
    """Return the name of a node's job. `run`: the run's label."""
    return f"{_PREFIX}.{run}.{node}"


class SlurmQueue:
    """The cluster that Slurm's commands talk to; may be used from any thread."""

    def __init__(self, config: str | None = None) -> None:
        """`config`: the file that SLURM_CONF names, empty: none; None: as the environment has it. What else the
        environment says of Slurm is of the job that the harness runs in, and concerns no other."""
        known = os.environ.get("SLURM_CONF", "") if config is None else config
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        self._env |= {"SLURM_CONF": known} if known else {}

    def version(self) -> str:
        """Return the version of its commands.

        Raises:
            SlurmError: they are not installed.
        """
        return self._said(["sinfo", "--version"]).strip()

    def machines(self, partition: str = "") -> dict[str, str]:
        """Return every machine's state by its name; of all partitions, or of one."""
        of = [f"--partition={partition}"] if partition else []
        output = self._said(["sinfo", "--noheader", "--Node", "--Format=NodeList:|,StateLong:|", *of])
        return {fields[0]: fields[1] for line in output.splitlines() if len(fields := line.split("|")) > 1}

    def answers(self) -> bool:
        """Return whether its controller answers now."""
        try:
            return " is UP" in self._said(["scontrol", "ping"])
        except SlurmError:
            return False

    def submit(self, name: str, script: str, options: Sequence[str], env: Mapping[str, str]) -> int:
        """A batch job; its number. `env`: of the job, on top of ours.

        Raises:
            SlurmError: Slurm refused it, with what it says.
        """
        argv = ["sbatch", "--parsable", f"--job-name={name}", "--nodes=1", "--ntasks=1", "--requeue", "--export=ALL",
                "--output=/dev/null", *options]
        return int(self._said(argv, script, env).strip().partition(";")[0])

    def jobs(self, run: str) -> dict[int, Job]:
        """Return a run's jobs by their numbers; Slurm forgets those that ended after a while."""
        output = self._said(["squeue", "--noheader", "--states=all", f"--user={os.getuid()}",
                             f"--Format={','.join(f'{field}:|' for field in _FIELDS)}"])
        jobs: dict[int, Job] = {}
        for line in output.splitlines():
            number, name, state, restarts, machine, code, reason, *_ = [*line.split("|"), *[""] * len(_FIELDS)]
            if name.startswith(job_name(run, "")) and number.isdigit():
                jobs[int(number)] = Job(int(number), name, state, int(restarts or 0), machine, code, reason)
        return jobs

    def address(self, machine: str) -> str:
        """Return the address at which other machines reach this one.

        Raises:
            SlurmError: Slurm does not say.
        """
        output = self._said(["scontrol", "--oneliner", "show", "node", machine])
        addresses = [word.partition("=")[2] for word in output.split() if word.startswith("NodeAddr=")]
        if not addresses:
            raise SlurmError(f"Slurm does not say where {machine} is found")
        return addresses[0]

    def signal(self, step: str, number: signal.Signals) -> None:
        """Signal every process of a job's step (JOB.STEP); nothing happens where it is gone."""
        self._scancel([f"--signal={number.name.removeprefix('SIG')}", step])

    def cancel(self, jobs: Sequence[int]) -> None:
        """End jobs."""
        if jobs:
            self._scancel([str(job) for job in jobs])

    def requeue(self, job: int) -> None:
        """End a job, and let it start again when its turn comes."""
        self._said(["scontrol", "requeue", str(job)])

    def _scancel(self, argv: Sequence[str]) -> None:
        try:
            self._said(["scancel", *argv])
        except AwayError:
            raise
        except SlurmError as error:
            if "already completing or completed" not in str(error) and "Invalid job id" not in str(error):
                raise

    def in_step(self, job: int, argv: Sequence[str], stdin: int) -> subprocess.Popen[bytes]:
        """A process in a job, with standard input and output both at this descriptor; it takes nothing of the job."""
        step = ["srun", f"--jobid={job}", *BESIDE, *argv]
        return subprocess.Popen(step, stdin=stdin, stdout=stdin, stderr=subprocess.DEVNULL, env=self._env,
                                start_new_session=True)

    def _said(self, argv: Sequence[str], stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=_ASK_S, check=False,
                                  env={**self._env, **(env or {})})
        except FileNotFoundError as error:
            raise SlurmError(f"{argv[0]} is not there: run this on a machine from which jobs are submitted") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmAwayError(f"{argv[0]} did not answer within {_ASK_S:g} s: is SLURM_CONF right, and its "
                                 f"controller up?") from error
        if done.returncode:
            why = _reason(argv[0], done.stderr)
            away = any(words in done.stderr for words in _AWAY)
            remedy = _NO_SLURM if "configuration source" in done.stderr else ""
            raise (SlurmAwayError if away else SlurmError)(
                f"{argv[0]}: {why or f'exit status {done.returncode}'}{remedy}")
        return done.stdout


_USABLE = ("idle", "mixed", "allocated", "completing", "planned")


def must_be_ready(partition: str = "") -> dict[str, str]:
    """Check before anything starts that Slurm can take jobs; return every machine's state by its name.

    Raises:
        SlurmError: Slurm can't be used, or has no machine that could take a job.
    """
    slurm = SlurmQueue()
    slurm.jobs("")
    machines = slurm.machines(partition)
    if not any(state.startswith(_USABLE) and not state.endswith("*") for state in machines.values()):
        states = ", ".join(f"{name} is {state}" for name, state in machines.items())
        raise SlurmError(f"no machine{f' of partition {partition}' if partition else ''} takes jobs"
                         f"{f': {states}' if states else ''}; see sinfo")
    return machines


def requirements(settings: SlurmSettings) -> list[Requirement]:
    """Return what runs in this Slurm need, for the doctor."""
    try:
        version = SlurmQueue().version()
        machines = must_be_ready(settings.partition)
    except SlurmError as error:
        return [Requirement("slurm", "missing", settings.partition or "the default partition", str(error))]
    states = Counter(machines.values())
    return [Requirement("slurm", "ok", version),
            Requirement("machines", "ok", ", ".join(f"{count} {state}" for state, count in sorted(states.items()))),
            Requirement("python", "optional", settings.python, "nobody can tell before a run whether the machines have "
                                                               "it, and the trainer with it"),
            *by_command.requirements(settings)]


def wait_over(slurm: SlurmQueue, run: str, within: float) -> bool:
    """Cancel all jobs of a run and wait until they are over; return whether there were any.

    Raises:
        SlurmError: Slurm does not answer, or the jobs are not over within so many seconds.
    """
    until, any_left = time.monotonic() + within, False
    while left := [job for job in slurm.jobs(run).values() if not job.over]:
        any_left = True
        if time.monotonic() > until:
            raise SlurmError(f"jobs that are not over yet: {', '.join(f'{job.number} ({job.state})' for job in left)}")
        slurm.cancel([job.number for job in left if job.state != "COMPLETING"])
        time.sleep(_LOOK_S)
    return any_left


BESIDE = ("--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--mem=0", "--export=ALL")
"""Options of `srun` for a step that shares what its job has with the job's others."""


def _reason(command: str, stderr: str) -> str:
    """The lines of a command that say why, as one."""
    lines = [line.strip().removeprefix(f"{command}: ").removeprefix("error: ").removeprefix("fatal: ")
             for line in stderr.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines))[:500]
