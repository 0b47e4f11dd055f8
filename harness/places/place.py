"""What a place says of itself before a run: what it can do, why it can't do the rest, its settings, and what it needs.

A place is a folder below this one, or another package's. Importing one is cheap: what a run takes beyond that (an
engine's client, links) is imported by the methods that need it. docs/extending.md shows how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.places.base import Ability

if TYPE_CHECKING:  # a place is looked at by commands that run nothing
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.record.undos import Undo
    from diloco_chaos.harness.simulation.parameters import Parameters
    from diloco_chaos.harness.trainers.core.programs import Program

MOST_LOAD = 0.6
"""Share of all processors that the learners' steps together may need: the rest is for everything else."""


Part = Literal["peers: caught", "image", "service", "files", "left_behind: keep", "spare"]
"""What a scenario says of a command that not every place can make something of."""


class OptionError(UserError):
    """An option has a value that the place can't take; the message names the option."""


class Option(NamedTuple):
    """An option of the commands that run something at a place or look at one. Two places that take an option of the
    same name share it."""

    name: str
    """As an argument: `toxiproxy_port` is `--toxiproxy-port`."""
    help: str
    default: Any = ""
    """What stands for "not given"; its type is the option's, a file's where it is None."""
    metavar: str | None = None
    between: tuple[int, int] | None = None
    """The least and the most, of a number."""


PLACE_FILE = Option("place", "YAML with the settings of the place: images, limits, and the commands that only you can "
                             "give. Without it, the file that the place's environment variable names.", None, "FILE")
"""Of places that have settings."""


class Requirement(NamedTuple):
    """Something that runs at a place need, as `diloco-chaos doctor` tells of it."""

    name: str
    state: Literal["ok", "missing", "optional"]
    found: str
    """What is there."""
    advice: str = ""
    """What to do where it is not."""


class Place(ABC):
    """A place where nodes run. An instance has its settings; what can be said without them stands in the class."""

    name: ClassVar[str]
    """What `--on` takes; its entry point's, too."""
    nodes: ClassVar[str]
    """What nodes are there, in a word or two: `pods`."""
    here: ClassVar[bool] = True
    """Its nodes run on this machine."""

    # -- what it can do ------------------------------------------------------------------------------------------------

    can: ClassVar[frozenset[Ability]]
    """What it can do, whatever its settings are."""
    may: ClassVar[frozenset[Ability]] = frozenset()
    """What it can do where its settings say how."""
    unable: ClassVar[str]
    """Why it can't do what no other sentence is about: `a pod can't be made to do that`. Which places can is added."""
    cannot: ClassVar[Mapping[Ability, str]] = {}
    """The same of single abilities; of those that it may have: what its settings must say."""
    alone: ClassVar[Mapping[Ability, str]] = {}
    """What others say of abilities that it has, where they have no sentence of their own: `only Slurm has a queue`."""

    takes: ClassVar[frozenset[Part]] = frozenset()
    """What of a command's description has a meaning here."""
    refuses: ClassVar[Mapping[Part, str]] = {}
    """Why a command can't have that here; which places take it is added. The rest is ignored."""
    in_images: ClassVar[bool] = False
    """Nodes run in images: the built-in trainer's has no other trainer."""
    has_programs: ClassVar[bool] = False
    """What a command runs is found where the place is, and not on this machine."""
    only_cpu: ClassVar[str] = ""
    """Why nodes compute on processors only; empty: on any device that this machine has."""
    not_resumed: ClassVar[str] = ""
    """Why a run that was ended can't go on; empty: from what it left in its folder it can."""
    most_load: ClassVar[float] = MOST_LOAD
    """Share of this machine's processors that learners' steps may need."""

    @property
    def abilities(self) -> frozenset[Ability]:
        """Return what it can do with its settings."""
        return self.can

    # -- its settings --------------------------------------------------------------------------------------------------

    options: ClassVar[tuple[Option, ...]] = ()
    """Of a command line."""
    no_options: ClassVar[Mapping[str, str]] = {}
    """Other places' options, by name -> why it can't have them, where there is a reason to give."""

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """Return this place as the options of a command line say. `given`: those that were given, by name; all of them
        are its own.

        Raises:
            OptionError: one of them has no value that it takes.
            ClusterError, MissingExtraError: it can't be used.
        """
        return cls()

    # -- a run ---------------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> Parameters | None:
        """Return what virtual time is made of; None: time is real, and `site` puts together what nodes run in."""
        return None

    def must_be_ready(self, programs: Collection[Program]) -> None:  # noqa: B027 - some need nothing
        """Tell before anything starts what is missing. `programs`: the commands that are to run; none: nodes of ours.

        Raises:
            ClusterError: something is not there, or too old.
        """

    @abstractmethod
    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Return what one run is made of here; nothing is started yet.

        Args:
            run: the run's folder.
            record: writes to the harness' own tape.
            undo_log: for what lasts, before it is done.
        """

    # -- around runs ---------------------------------------------------------------------------------------------------

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """Return what is there of what runs need, and what is missing. `given`, and errors of options and settings: as
        of `chosen`."""
        return []

    @classmethod
    def undos(cls) -> tuple[type[Undo], ...]:
        """The kinds of undo that its runs write into their undo logs, beside those of the kernel."""
        return ()

    @classmethod
    def orphans_removed(cls) -> list[str]:
        """Remove what dead runs left there whose undo log is gone, too; what was done, in words. Quick where there is
        nothing.

        Raises:
            OSError: something is still there.
        """
        return []
