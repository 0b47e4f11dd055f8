"""Where a plan can run: processes on this machine, containers, or virtual time."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.cleanup import cleanup_guard
from diloco_chaos.chaos.runner.runtime import LiveStage, MakeCluster, MakeStage, Stage
from diloco_chaos.chaos.scenario.problems import Problem, ScenarioError
from diloco_chaos.chaos.scenario.step_time import MOST_LOAD
from diloco_chaos.harness.base import units
from diloco_chaos.harness.base.device import missing as unavailable
from diloco_chaos.harness.base.extras import require
from diloco_chaos.harness.base.registries import ProviderError, one_offer, points
from diloco_chaos.harness.places.base import (
    BY_COMMAND,
    CONTAINERS,
    ENGINE_RESTART,
    KUBERNETES,
    LOCAL,
    SIMULATED,
    SLURM,
    Ability,
    Cluster,
    ClusterError,
    Recorder,
)
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.local.cluster import LocalCluster
from diloco_chaos.harness.places.slurm.cluster import SlurmCluster
from diloco_chaos.harness.places.slurm.queue import must_be_ready as slurm_must_be_ready
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.record.undo_log import NoUndoLog, UndoLog
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.trainers.api.registry import BUILT_IN
from diloco_chaos.harness.trainers.core.programs import Program, splittable
from diloco_chaos.harness.trainers.node.settings import NodeSettings

if TYPE_CHECKING:
    from diloco_chaos.chaos.scenario.plan import Plan

_LOAD_OF_PODS = 0.35
"""Of the processors of a machine that is a whole Kubernetes, too: that, agents and forwarded ports need the rest."""
GROUP = "diloco_chaos.backends"
"""Of entry points; each names a function without arguments that returns a `Backend` of the entry point's name."""


_CONTAINED = ("compose", "kubernetes")
"""Where nodes run in images."""


_NOT_IN_PODS: dict[Ability, str] = {
    "disconnect": "nobody can take a pod off its network without ruling the machine: partition the link, or say how a "
                  "machine is cut off (node_partition)",
    "restart_engine": "there is no engine under pods that is a run's to restart: see node_power_loss and "
                      "restart_control_plane",
    "lose_power": "only a simulation can lose what was not on stable storage: see node_power_loss",
    "jump_clock": "only a simulation has a clock for each node",
    "share_links": "only a simulation has links that share a rate",
    "signal_process": "the processes of a node can be told apart on this machine only"}


_NOT_IN_JOBS: dict[Ability, str] = {
    "exhaust_memory": "whether a job has a memory of its own is up to how your Slurm is set up: run it with --on "
                      "compose or kubernetes",
    "restart_links": "the links are beside the harness, as on local: run it with --on compose or kubernetes",
    "restart_engine": "there is no engine under jobs: see requeue and restart_control_plane",
    "lose_power": "only a simulation can lose what was not on stable storage: see node_power_loss",
    "jump_clock": "only a simulation has a clock for each node",
    "share_links": "only a simulation has links that share a rate"}


def _not_in_jobs(program: Program) -> str:
    """Why a command can't run in a job; empty where it can."""
    if program.meets:
        return ("peers: caught: what catches connections is on one machine, and can't be brought into jobs: name the "
                "peers in the command, or run it with --on local")
    if program.image or program.service is not None:
        return "image: jobs run what is on their machines: leave it out, or run it with --on compose or kubernetes"
    return ""


def _not_in_pods(program: Program) -> str:
    """Why a command can't run in a pod; empty where it can."""
    if program.meets:
        return ("peers: caught: what catches connections is on the machine of an engine, and can't be brought into "
                "pods: name the peers in the command, or run it with --on compose")
    if program.service is not None:
        return "service: a compose file says nothing to a Kubernetes: write `image: NAME`"
    return ""


@dataclass(frozen=True)
class Backend:
    """Where runs are performed: its name, what it can do, and how a run is staged there."""

    name: str
    abilities: frozenset[Ability]
    stage: MakeStage
    virtual: str = ""
    """Digest of what virtual time is made of; empty: time is real."""
    ready: Callable[[Plan], None] = lambda _: None
    """Raises what a plan lacks here, before anything starts."""
    most_load: float = MOST_LOAD
    """Share of this machine's processors that learners' steps may need: the rest is for all that carries them."""

    @property
    def option(self) -> str:
        """What a command line needs to run a plan here, too."""
        return "" if self.name == "local" else f" --on {self.name}"

    def cleanup_guard(self) -> AbstractContextManager[UndoLog]:
        """An undo log, and somebody who watches over it where anything could be left behind."""
        return nullcontext(NoUndoLog("simulated")) if self.virtual else cleanup_guard()

    def refusals(self, plan: Plan) -> list[str]:
        """Why a plan can't run here; empty where it can."""
        missing = {planned.fault.kind: planned.fault.requires() - self.abilities for planned in plan.faults}
        found = [f"{kind}: {self._advice(lacking)}" for kind, lacking in missing.items() if lacking]
        if self.virtual and plan.under_test.programs(plan.cluster):
            found.append(f"trainer {plan.trainer}: commands are processes, and these take real time: they can't run "
                         f"under virtual time; leave --on out, which is --on local")
        contained = self.name in _CONTAINED
        if contained and plan.trainer != BUILT_IN and not plan.under_test.programs(plan.cluster):
            found.append(f"trainer {plan.trainer}: the image of the containers has the built-in trainer only; run it "
                         f"with --on local or --on simulated")
        if refused := {"kubernetes": _not_in_pods, "slurm": _not_in_jobs}.get(self.name):
            found += [f"{name}: {why}" for name, program in plan.under_test.programs(plan.cluster).items()
                      if (why := refused(program))]
        # what a job runs is on the job's machine, and told from there where it is missing
        there = self.name == "slurm" and plan.under_test.programs(plan.cluster)
        why = "" if there else plan.cluster.lacking(containers=contained)
        return found + ([why] if why else self._no_device(plan.cluster.computes_on))

    def _no_device(self, device: str) -> list[str]:
        elsewhere = {"slurm": "jobs were never tried with one"} | dict.fromkeys(_CONTAINED, "containers have none")
        why = elsewhere[self.name] if self.name in elsewhere and device != "cpu" else unavailable(device)
        return [f"device {device}: {why}; run it with --device cpu"] if why else []

    def _advice(self, missing: Collection[Ability]) -> str:
        if "signal_process" in missing:
            return "the processes of a node can be told apart on this machine only: leave --on out, which is --on local"
        if set(missing) & BY_COMMAND and self.name in ("kubernetes", "slurm"):
            return "only you can do that to your machines: say how in `commands` of --place FILE"
        if "requeue" in missing:
            return "only Slurm has a queue: run it with --on slurm"
        if set(missing) <= BY_COMMAND | {"restart"}:
            return "only a cluster of machines has that: run it with --on kubernetes or slurm"
        if set(missing) <= KUBERNETES | BY_COMMAND and set(missing) - CONTAINERS - SIMULATED:
            return "only a cluster of machines has that: run it with --on kubernetes"
        if self.name == "slurm":
            return _NOT_IN_JOBS.get(min(missing), "a job can't be made to do that: run it with --on compose")
        if self.name == "kubernetes":
            return _NOT_IN_PODS.get(min(missing), "a pod can't be made to do that: run it with --on compose")
        if self.virtual:
            return "there is no engine in a simulation: run it with --on compose"
        if missing == {"restart_engine"}:
            return f"nobody said how to restart the engine: set {ENGINE_RESTART} to a command that does"
        if set(missing) & (SIMULATED - CONTAINERS):
            return "only a simulation can do that: run it with --on simulated"
        able = {"kubernetes": KUBERNETES, "simulated": SIMULATED}
        elsewhere = [name for name, abilities in able.items() if set(missing) <= abilities]
        return f"processes alone can't do that: run it with --on {units.names(['compose', *elsewhere], 'or')}"

    def refuse(self, plan: Plan) -> None:
        """Before anything starts.

        Raises:
            ScenarioError: the plan needs what this backend can't do.
            ClusterError: something is not there, or too old.
        """
        if found := self.refusals(plan):
            raise ScenarioError(plan.scenario, [Problem(why) for why in found])
        self.ready(plan)


def names() -> list[str]:
    """All backends, ours first."""
    return [point.name for point in points(GROUP)]


def named(name: str) -> Backend:
    """A backend with its usual settings.

    Raises:
        ProviderError: there is none of this name, or it can't be loaded.
        EngineError, MissingExtraError: it can't be used here.
    """
    found = one_offer(GROUP, "backend", name)
    backend = found.content() if callable(found.content) else None
    if not isinstance(backend, Backend) or backend.name != name:
        raise ProviderError(f"{name} of {found.provider} is no backend: an entry point of {GROUP} names a function "
                            f"without arguments that returns a diloco_chaos.Backend called {name!r}")
    return backend


def local(links_port: int = 0, toxiproxy: str = "") -> Backend:
    """Processes on this machine; `toxiproxy`: the real server's binary, empty for the embedded one."""
    def make(run: Path, record: Recorder, undo_log: UndoLog) -> Cluster:
        return LocalCluster(run, record, undo_log, links_port=links_port, toxiproxy=toxiproxy)
    return Backend("local", LOCAL, _live(make))


def compose(links_port: int = 0) -> Backend:
    """Containers of docker-compose.yml's services.

    Raises:
        EngineError: there is no engine that can be used.
        ClusterError: what restarts it is no command.
        MissingExtraError: docker-py is not installed.
    """
    require("docker", "compose", "--on compose")
    from diloco_chaos.harness.places.compose.cluster import (  # docker-py is not needed elsewhere
        ComposeCluster,
        must_be_ready,
    )
    from diloco_chaos.harness.places.compose.engine import Engine
    Engine().close()
    ours_must_be_ready = cache(must_be_ready)  # looking into an image takes a container

    def ready(plan: Plan) -> None:
        trainer = plan.under_test
        programs = [program for cluster in (plan.cluster, trainer.baseline(plan.cluster))
                    for program in trainer.programs(cluster).values()]
        if programs:
            must_be_ready(programs=programs)
        else:
            ours_must_be_ready()

    def make(run: Path, record: Recorder, undo_log: UndoLog) -> Cluster:
        return ComposeCluster(run, record, undo_log, links_port=links_port)
    able = CONTAINERS if _restarts_engine() else CONTAINERS - {"restart_engine"}
    return Backend("compose", able, _live(make), ready=ready)


def _restarts_engine() -> bool:
    """Whether somebody said how."""
    command = os.environ.get(ENGINE_RESTART, "")
    try:
        return bool(command and splittable(command))
    except ValueError as error:
        raise ClusterError(f"{ENGINE_RESTART}: {error}") from error


def kubernetes(settings: KubernetesSettings | None = None) -> Backend:
    """Pods of a Kubernetes; `settings`: the file's that DILOCO_CHAOS_KUBERNETES names, if not given.

    Raises:
        ClusterError: there is no such file, or it names no context.
        MissingExtraError: the official client is not installed.
    """
    require("kubernetes", "kubernetes", "--on kubernetes")
    from diloco_chaos.harness.places.kubernetes.access import (  # the client is not needed elsewhere
        must_be_ready,
        named,
    )
    from diloco_chaos.harness.places.kubernetes.cluster import KubernetesCluster
    used = settings or named(KubernetesSettings.given())

    def make(run: Path, record: Recorder, undo_log: UndoLog) -> Cluster:
        return KubernetesCluster(run, record, undo_log, used)
    able = KUBERNETES | {what for what in BY_COMMAND if what in used.commands}
    return Backend("kubernetes", able, _live(make), ready=lambda plan: must_be_ready(used), most_load=_LOAD_OF_PODS)


def slurm(settings: SlurmSettings | None = None) -> Backend:
    """Jobs of Slurm; `settings`: the file's that DILOCO_CHAOS_SLURM names, if not given.

    Raises:
        ClusterError: there is no such file.
    """
    used = settings or SlurmSettings.given()

    def make(run: Path, record: Recorder, undo_log: UndoLog) -> Cluster:
        return SlurmCluster(run, record, undo_log, used)

    def ready(plan: Plan) -> None:
        slurm_must_be_ready(used.partition)
    able = SLURM | {what for what in BY_COMMAND if what in used.commands}
    return Backend("slurm", able, _live(make), ready=ready)


def simulated(parameters: Parameters | None = None) -> Backend:
    """Virtual time; `parameters`: of machines and links, the usual ones if not given."""
    used = parameters or Parameters()

    def stage(plan: Plan, folder: RunFolder, settings: NodeSettings, undo_log: UndoLog) -> Stage:
        from diloco_chaos.chaos.runner.virtual_runtime import (
            FolderStage,  # the trainer's cores are not needed elsewhere
        )
        return FolderStage(plan, used, settings, folder)
    return Backend("simulated", SIMULATED, stage, used.digest)


def _live(make: MakeCluster) -> MakeStage:
    return lambda plan, folder, settings, undo_log: LiveStage(plan, folder, settings, make, undo_log)
