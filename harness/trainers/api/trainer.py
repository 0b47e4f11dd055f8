"""A trainer, as the experiment sees it: settings, cores, events, baselines; and what it can do beyond that.

A trainer is bound to its settings, and holds nothing else. Its nodes are a coordinator, `syncer`, and workers,
`learner-1` and so on, as cores without I/O (`harness.trainers.core.roles`). `harness.trainers.node.process` drives them
on sockets, and a simulation under virtual time. docs/extending.md shows a whole one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.lines import Line, text
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.disk import Content as Stored
from diloco_chaos.harness.record.storage.disk import Disk
from diloco_chaos.harness.record.tape.events import Event, Exit
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.recovered import RecoveredMerge
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.api.counting import TOKENS, Counting
from diloco_chaos.harness.trainers.api.settings import Evidence, FragmentRules, Pick, TrainerSettings
from diloco_chaos.harness.trainers.core.programs import Program
from diloco_chaos.harness.trainers.core.roles import COORDINATOR, ROUNDS, Coordinator, Worker
from diloco_chaos.harness.trainers.core.round_reports import Lint
from diloco_chaos.harness.trainers.storage.workings import Kept
from diloco_chaos.harness.trainers.wire.impostor import About, Content, Impostor

Role = Literal["syncer", "learner"]
Kind = Literal["synchronous", "fault-free"]
"""Of a baseline."""
ROUND_EVENTS: Mapping[Role, frozenset[str]] = {
    "syncer": frozenset({"hello", "lost", "merge", "steady", "resumed", "refused", "refused_frame", "partial_frame",
                         "traffic"}),
    "learner": frozenset({"step", "ready", "disconnected", "upload", "refused", "refused_frame", "superseded"})}
"""What nodes of a trainer record that exchanges the whole model."""


OFTEN, SELDOM = range(20, 121, 5), (1, 2, 3)
"""Occurrences that a fault may wait for: of what happens all the time, and of what only faults bring about."""


class TrainerError(UserError):
    """A trainer can't be used like this; the message says why and what to do."""


@dataclass(frozen=True)
class Prepared:
    """The input that a run reads beside its settings."""

    file: Path | None = None
    """The data that is trained on; None: there is none."""
    digest: str = ""
    """Of the file (`harness.record.storage.disk.file_digest`): a run that resumes holds the file against it."""
    name: str = ""
    """What people call it."""


class Workload(ABC):
    """One run's training: makes the cores of its nodes."""

    @abstractmethod
    def coordinator(self, disk: Disk, incarnation: int) -> Coordinator:
        """The core of `syncer`, which goes on from what is on its disk.

        Raises:
            CheckpointError: that can't be trusted.
        """

    @abstractmethod
    def worker(self, name: str, incarnation: int, token: str, part: Stored | None = None) -> Worker:
        """The core of a learner. `part`: what it was at the global checkpoint that its run resumes."""

    def put_back(self, part: Stored, disk: Disk) -> None:
        """Make the coordinator's disk what it was at a global checkpoint.

        Raises:
            OSError: a file can't be written.
        """
        raise TrainerError("this trainer makes no global checkpoints")

    def evaluator(self) -> Callable[[Tensors], float]:
        """Return a function that gives the held-out loss of a snapshot."""
        raise TrainerError("this trainer writes no snapshots")


@dataclass
class Replay:
    """The result of doing a run again from its event log: how far that could be done, and whether all was the same."""

    versions: int = 0
    steps: int = 0
    answers: int = 0
    """Outer gradients, and what was carried on top of what was received."""
    difference: Difference | None = None
    missing: str = ""
    """What the tape lacks to go on; empty where it was done to the end."""


@dataclass(frozen=True)
class Difference:
    """The place where a replay first parts from what was recorded."""

    t: float
    what: str | Line

    @property
    def words(self) -> str:
        """Return the difference as text, with moments in seconds since the run began."""
        return text(self.what)


@dataclass
class InnerSteps:
    """The result of computing again the inner steps of which workers told what they were computed from."""

    steps: int = 0
    processes: int = 0
    batches: int = 0
    """Of the steps, how many had their batch read again, from the data itself."""
    wrong: list[Difference] = field(default_factory=list)
    """In the order of time."""


class ToldLoss(NamedTuple):
    """A point of a loss curve that the event log itself tells."""

    number: int
    round: int
    t: float
    loss: float
    error: float = 0.0
    """Standard error, as far as it is known."""


class Witness(Protocol):
    """Writes the event log of nodes that write none themselves."""

    def on_event(self, event: Event, t: float) -> None:
        """The harness recorded something; `t`: seconds of the run, just after. What follows from it comes later."""
        ...

    def look(self, t: float, ended: Exit | None = None) -> None:
        """Write what has come up since; `ended`: the end of a process, which the harness records next."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class Recorded(Protocol):
    """A run's events, as far as a replay needs them."""

    @property
    def tape(self) -> Tape:
        """Return all events."""
        ...

    @property
    def recovered_merges(self) -> list[RecoveredMerge]:
        """Merges of which only the successor of the node that made them tells."""
        ...

    @property
    def workings(self) -> Iterable[Kept] | None:
        """Return what nodes computed with; None: nothing was to be kept."""
        ...

    @property
    def data(self) -> Path | None:
        """Return the file that was trained on, where it is still there, and the same; else None."""
        ...


class Trainer(ABC):
    """See the module."""

    name: ClassVar[str]
    """What `trainer:` in a scenario says."""
    settings_type: ClassVar[type[TrainerSettings]]
    """Of the scenario's `cluster:` section."""
    settings: TrainerSettings
    """A subclass narrows it to its `settings_type`."""

    coordinator: ClassVar[str | None] = COORDINATOR
    """The node that merges; None: there is none."""
    ends_by_itself: ClassVar[bool] = True
    """Whether every node ends when training is over; else the harness ends them."""
    own_failpoints: ClassVar[bool] = False
    """Whether its learners' code names failpoints of its own (`diloco_chaos.progress.hold`), which the plan can't
    know."""
    counting: ClassVar[Counting] = TOKENS
    """What its event log counts."""
    all_failpoints: ClassVar[tuple[str, ...]] = ()
    """Named points at which any of its nodes can be stopped."""

    def __init__(self, settings: TrainerSettings) -> None:
        """`settings`: of its `settings_type`."""
        self.settings = settings

    @property
    def path(self) -> str:
        """`module:class`, by which a node's process finds it."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @property
    def algorithm(self) -> str:
        """Return what reports call it, beside the trainer's name; empty: nothing."""
        return ""

    def lacking(self, *, containers: bool = False) -> str:
        """Return what must be there before this can be trained, on this machine or in containers, as a sentence; empty
        where it can."""
        return ""

    @property
    def computes_on(self) -> str:
        """The device."""
        return "cpu"

    # -- what its event log tells --------------------------------------------------------------------------------------

    def role_of(self, node: str) -> Role:
        """Return what a node is here."""
        return "syncer" if node == self.coordinator else "learner"

    @property
    def recorder(self) -> str:
        """Return the name under which the event log has merges, the steady state and the end of training."""
        return self.coordinator or ROUNDS

    @property
    def evidence(self) -> frozenset[Evidence]:
        """Return the kinds of evidence that the event log has."""
        whole: frozenset[Evidence] = frozenset({"tokens", "protocol"})
        if self.settings.exchanges_fragments:
            return whole | {"fragments", "replicas"}
        return whole | {"replicas"} if "replica" in self.events("learner") else whole

    @property
    def evidence_wanting(self) -> Mapping[Evidence, str]:
        """Evidence that its event log has not, and might: what would bring it."""
        return {}

    # -- what is trained -----------------------------------------------------------------------------------------------

    @abstractmethod
    def workload(self, data: Path | None, initial: Tensors, threads: int = 1) -> Workload:
        """One run's training: from these values, on the file that `prepare` found."""

    def prepare(self, cache: Path, undo_log: UndoLog | None = None) -> Prepared:
        """Find, or make in the cache, what is trained on.

        Raises:
            TrainerError: it can't be used.
        """
        return Prepared()

    def imports(self, role: Role) -> tuple[str, ...]:
        """Return the modules that a node of this role imports as it starts: a place may import them once for all nodes
        and fork those. None of them may start a thread when it is imported."""
        return (type(self).__module__,)

    def reads(self) -> tuple[str, ...]:
        """Return what decides which file `prepare` finds: for equal ones it is asked once."""
        return ()

    def initial(self) -> Tensors:
        """Fresh values, from the settings' seed."""
        return {}

    def stored_bytes(self) -> int:
        """Return the bytes that the coordinator's files take, at the most."""
        return 1 << 20

    def cheapest(self) -> TrainerSettings:
        """The same with steps that cost as little as can be: what explorations run."""
        return self.settings

    def varied(self, pick: Pick) -> TrainerSettings:
        """The same training in a cluster of other settings, each chosen by `pick` from what there is, the simplest
        first: explorations draw clusters, too."""
        return self.settings

    def calibrated(self, cores: int) -> float | None:
        """Seconds that an inner step takes on this machine while learners compute on so many cores; None: nothing that
        counts.

        Raises:
            TrainerError: it can't be measured.
        """
        return None

    # -- nodes that are not made of cores ------------------------------------------------------------------------------

    def programs(self) -> Mapping[str, Program]:
        """Node -> the command that it is, in the order of starting; empty: nodes are processes that drive our cores."""
        return {}

    def witness(self, run: Path, epoch: float) -> Witness | None:
        """Return the writer of the event log of a run in this folder, which began at `epoch` on CLOCK_MONOTONIC; None:
        its nodes write it."""
        return None

    @property
    def keepers(self) -> Sequence[str]:
        """Nodes of whose state the files can be damaged."""
        return [COORDINATOR]

    def process_names(self, node: str) -> Sequence[str]:
        """Return what the processes that a node starts are called, without their numbers."""
        return ()

    def may_end_with(self, node: str) -> Sequence[int]:
        """Statuses with which a node may end by itself before training is over."""
        return ()

    def must_leave_nothing(self, node: str) -> bool:
        """Return whether a node has promised to take along, when it ends, what it has started."""
        return False

    @property
    def logs_whom_it_misses(self) -> bool:
        """Return whether lines of its logs are known with which a node says that it misses another (`noticed`)."""
        return False

    @property
    def logs_who_is_ready(self) -> bool:
        """Return whether lines of its logs are known with which a worker says that it can train (`ready`). A trainer
        whose nodes have tapes records that as `ready` itself."""
        return False

    def is_silent(self, node: str) -> bool:
        """Return whether a node trains and tells of no round: what others say of a round's members is about it, too."""
        return False

    def ranks_of(self, node: str) -> int:
        """Return how many processes of a node have a part in rounds, by the scenario's word; 0: it says nothing."""
        return 0

    @property
    def writers(self) -> Sequence[str]:
        """Nodes that write the event log themselves."""
        return self.settings.all_nodes

    def reports_in(self) -> Sequence[str]:
        """Return the files, beside their logs, that nodes write and from which the harness reads their rounds."""
        return ()

    def read_log(self, lines: Sequence[str], node: str, written: datetime) -> Lint:
        """Return what a run would find in a node's log that was last written then, and what is wrong with it. `node`:
        whose it is, or a kind of nodes; empty: any node's.

        Raises:
            TrainerError: its nodes' logs are not read, or nothing is known of this one's.
        """
        raise TrainerError("its nodes write the event log themselves: their logs are not read")

    # -- what scenarios may say ----------------------------------------------------------------------------------------

    def objections(self) -> Iterable[tuple[Any, ...]]:
        """(key, ..., sentence) for each setting that a scenario can't have, although a plan may, by where it stands."""
        return ()

    def commands(self) -> Mapping[str, str]:
        """Return what stands in the settings and is executed, for people to read before they allow it: a name -> a
        command line. A trainer whose code is all that runs has none."""
        return {}

    def idle(self) -> list[str]:
        """Settings that mean nothing beside the others, as sentences."""
        return []

    def events(self, role: Role) -> frozenset[str]:
        """Return the events that a node of this role may record between the steady state and the end."""
        return ROUND_EVENTS[role]

    def most(self, event: str) -> int | None:
        """Return how often a node can record an event, even if all others are dead; None: that is not known."""
        steps = self.settings.budget * self.settings.learners
        return steps if event in ("step", "merge", "upload") else None

    def drawn_events(self, role: Role) -> Mapping[str, Sequence[int]]:
        """Events of a node of this role that explorations let faults wait for, and for which occurrences of each."""
        return {"merge" if role == "syncer" else "step": OFTEN}

    def failpoints(self, role: Role) -> tuple[str, ...]:
        """Named points at which a node of this role can be stopped."""
        return ()

    def absent(self, name: str) -> str:
        """Return why there is no event, or no failpoint, of this name with these settings, as the end of a sentence;
        empty where there never is."""
        return ""

    def means(self, fault: dict[str, Any]) -> dict[str, Any]:
        """Return what a fault of a scenario, with its kind and its targets, means to this trainer: another one where
        that does the same to its nodes."""
        return fault

    def refusal(self, kind: str, part: str = "") -> str:
        """Return why a fault that uses the trainer's own protocol or memory makes no sense here; empty where it
        does."""
        if kind in ("poison", "lie", "corrupt_memory"):
            return f"{kind}: trainer {self.name} does not know it"
        return ""

    def fragment_rules(self) -> FragmentRules | None:
        """Return what is promised of fragments, where these settings exchange some."""
        return None

    # -- what it is held against ---------------------------------------------------------------------------------------

    modes: ClassVar[tuple[str, ...]] = ()
    """Other algorithms that the same settings can be run as, for `compare`."""

    def under(self, mode: str) -> TrainerSettings:
        """The settings in another mode.

        Raises:
            TrainerError: they make no sense there.
        """
        raise TrainerError(f"trainer {self.name} has no other mode")

    def synchronous(self) -> TrainerSettings | None:
        """The run that losses are held against; None: there is none."""
        return None

    def baseline(self) -> TrainerSettings:
        """The run without faults that losses, and gaps between merges, are held against: the same cluster, unless the
        user has another one for it, whose gaps then mean nothing."""
        return self.settings

    def synchronous_loss(self) -> float | None:
        """The held-out loss with which the synchronous run ends, by a computation that shares no code with the trainer;
        None: there is none."""
        return None

    @property
    def baseline_name(self) -> str:
        """Return what `loss_parity: {against_baseline}` is against, for people."""
        return "fault-free"

    @property
    def last_snapshot(self) -> int:
        """Number of the snapshot that ends the loss curve."""
        return 0

    @property
    def loss_unit(self) -> str:
        """Return the unit of the held-out loss."""
        return ""

    @property
    def loss_floor(self) -> float:
        """The least held-out loss that there is, where it is known: losses are compared by what they have beyond it."""
        return 0.0

    tells_losses: ClassVar[bool] = False
    """Whether nodes tell the loss curve with their rounds; else snapshots are evaluated."""

    def told_losses(self, tape: Tape) -> Sequence[ToldLoss]:
        """Return the loss curve that nodes reported; empty where they report none."""
        return ()

    def workers_losses(self, tape: Tape) -> Mapping[str, Sequence[ToldLoss]]:
        """Return the loss curve of every worker that reported one."""
        return {}

    def unfinished(self, processed: int) -> str:
        """Return why a baseline that ended by itself after so many tokens, or rounds, is no whole one; empty where it
        is."""
        return ""

    baselines_are_kept: ClassVar[bool] = True
    """Whether everything that a baseline depends on is known, so that one serves many runs."""

    def decides(self, kind: Kind) -> dict[str, Any]:
        """The settings that a baseline of this kind depends on."""
        return dict(self.settings.model_dump(mode="json"))

    # -- what only some can --------------------------------------------------------------------------------------------

    def impostor(self, token: str, learner: str, incarnation: int, what: Content | About) -> Impostor:
        """Somebody who speaks in a learner's name."""
        raise TrainerError(f"trainer {self.name} has no impostor")

    def replay(self, recorded: Recorded, data: Path | None, initial: Tensors, tell: Callable[[int], None]) -> Replay:
        """Do a recorded run again, and compare it bit for bit; `tell` is called with the number of versions so far.

        Raises:
            TrainerError: it can't be done again here.
        """
        raise TrainerError(f"trainer {self.name} can't be replayed")

    def needs_workings(self) -> bool:
        """Return whether `recomputed` needs what nodes computed with, beside the event log."""
        return False

    def recomputed(self, recorded: Recorded) -> Replay | None:
        """A recorded run computed again by what shares no code with the trainer; None where there is nothing that can.
        """
        return None

    def inner_steps(self, recorded: Recorded) -> InnerSteps | None:
        """The inner steps of which workers told what they were computed from, computed again; None where none did."""
        return None


def at(path: str) -> type[Trainer]:
    """Import and return the trainer at `module:class`; the path must never come from an untrusted folder.

    Raises:
        TrainerError: there is none.
    """
    module, _, name = path.partition(":")
    try:
        trainer = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TrainerError(f"there is no trainer at {path!r}: {error}") from error
    if not (isinstance(trainer, type) and issubclass(trainer, Trainer)):
        raise TrainerError(f"{path!r} is no trainer")
    return trainer
