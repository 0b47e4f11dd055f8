"""Jobs of Slurm."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from diloco_chaos.harness.places.base import EVERYWHERE, Ability
from diloco_chaos.harness.places.place import PLACE_FILE, Part, Requirement
from diloco_chaos.harness.places.remote import by_command

if TYPE_CHECKING:
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.places.slurm.settings import SlurmSettings
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.record.undos import Undo
    from diloco_chaos.harness.trainers.core.programs import Program


class Slurm(by_command.OfMachines):
    """See the module."""

    name = "slurm"
    nodes = "jobs"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | {"requeue", "corrupt_links"}
    unable = "a job can't be made to do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "exhaust_memory": "whether a job has a memory of its own is up to how your Slurm is set up",
        "restart_links": "the links are beside the harness, as on local",
        "restart_engine": "there is no engine under jobs: see requeue and restart_control_plane",
        "lose_power": "only a simulation can lose what was not on stable storage: see node_power_loss",
        "jump_clock": "only a simulation has a clock for each node",
        "share_links": "only a simulation has links that share a rate",
        **by_command.SAY_HOW}
    alone: ClassVar[Mapping[Ability, str]] = {"requeue": "only Slurm has a queue", **by_command.ALONE}
    takes: ClassVar[frozenset[Part]] = frozenset({"files"})
    refuses: ClassVar[Mapping[Part, str]] = {
        "peers: caught": "what catches connections is on one machine, and can't be brought into jobs: name the peers "
                         "in the command",
        "image": "jobs run what is on their machines: leave it out",
        "left_behind: keep": "a job ends with all that runs in it",
        "spare": "no job can be added to a run of commands"}
    has_programs = True
    only_cpu = "jobs were never tried with one"
    not_resumed = "it ran in jobs, and what these kept is gone with them"
    options = (PLACE_FILE,)

    settings: SlurmSettings

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        """`settings`: those of the file that DILOCO_CHAOS_SLURM names, if not given.

        Raises:
            ClusterError: there is no such file.
        """
        self.settings = settings or chosen({})

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """Return this place with the settings that the options name."""
        return cls(chosen(given))

    def must_be_ready(self, programs: Collection[Program]) -> None:
        """Some machine must take jobs."""
        from diloco_chaos.harness.places.slurm.queue import must_be_ready
        must_be_ready(self.settings.partition)

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Jobs with the run's name."""
        from diloco_chaos.harness.places.slurm.site import SlurmSite
        return SlurmSite(run, record, undo_log, self.settings)

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """Return whether Slurm is there, and any machine takes jobs."""
        settings = chosen(given)
        from diloco_chaos.harness.places.slurm.queue import requirements
        return requirements(settings)

    @classmethod
    def undos(cls) -> tuple[type[Undo], ...]:
        """Return what cancels every job with the run's name; what is done to links is undone as on local."""
        from diloco_chaos.harness.places.slurm.undos import SlurmJobs
        return (SlurmJobs,)


def chosen(given: Mapping[str, Any]) -> SlurmSettings:
    """The settings that an option, or the environment, names."""
    from diloco_chaos.harness.places.slurm.settings import SlurmSettings
    return SlurmSettings.given(given.get("place"))
