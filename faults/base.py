"""What all faults share: targets, a trigger, a duration, and what becomes of one: inject, feel, undo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.triggers import After, When
from diloco_chaos.harness.base.units import Seconds, Written, show_seconds
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import Ability, ClusterError, NodeSpec
from diloco_chaos.harness.trainers.core.programs import ends
from diloco_chaos.harness.trainers.wire.impostor import About, Content, Impostor

if TYPE_CHECKING:  # what a run takes is not needed to look at a scenario
    from diloco_chaos.harness.places.cluster import Cluster

C = TypeVar("C")
"""A capability: one of `diloco_chaos.harness.places.capabilities.CAPABILITIES`."""
Observation = dict[str, float | str | bool]
"""What was measured, by name; `ok` says whether it is what was asked for."""
Strain = Literal["disks", "memory", "processors"]
"""What a machine may be short of."""

AskedBy = Literal["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "XCPU"]
"""Signals by which a process is asked to end."""
DURATIONS = ("500ms", "1s", "1500ms", "2s", "3s")
RETURNS = ("1s", "0s", "200ms", "500ms", "2s", "3s")
"""What `for` and `restart_after` are drawn from."""


class Drawn(NamedTuple):
    """The way in which explorations and property tests draw a fault."""

    order: int
    """Shrinking goes towards faults of a lower number."""
    settings: Mapping[str, Sequence[Any]] = {}
    """A scenario's key -> the values to choose from, the simplest first."""
    at_failpoints: bool = False
    """Whether it may hit a node that holds at a point of the protocol."""
    family: str = ""
    """Faults that do much the same to a node: explorations count which families have followed each other."""
    ways: Sequence[Mapping[str, Any]] = ()
    """Settings that exclude each other, the simplest first: one of these is drawn beside the others."""
    role: Literal["", "learner", "syncer"] = ""
    """Which nodes it is drawn for; empty: all that it may hit."""
    simulated: bool = True
    """Whether it is drawn under virtual time, too, where others may do the same to a node."""
    asked: bool = False
    """Whether it is drawn only where the scenario has such a fault itself, or it is asked for by name."""
    spare: str = ""
    """The setting that holds the node that it brings: the cluster's last learner."""


def unable(reasons: Iterable[str]) -> Observation:
    """Return what was observed where these reasons say why a fault can't take place; nothing where all are empty."""
    why = "; ".join(filter(None, reasons))
    return {"ok": False, "why": why} if why else {}


class AskProbe(Protocol):
    """A question through a link."""

    def __call__(self, link: str, reply_bytes: int = 0, send_bytes: int = 0, watch_close: bool = False) -> Sounding:
        """See `diloco_chaos.harness.trainers.wire.probe.probe`."""
        ...


class Together(Protocol):
    """A map whose calls all go on at once."""

    def __call__(self, ask: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """The answers, in the order of the items."""
        ...


@dataclass(frozen=True)
class FaultContext:
    """The means that a fault may use."""

    id: str
    """The fault's own, for the names of what it leaves."""
    cluster: Cluster
    probe: AskProbe
    baseline: Callable[[str], float]
    """Seconds of a round trip through a link that nothing was done to."""
    rogue: Callable[[str, Content | About], Impostor]
    """rogue(learner, what): an impostor that sends poison in its name, or lies about this."""
    attack: Callable[[Impostor, str, int, float], int]
    """attack(rogue, learner, count, timeout_s) -> messages that were taken."""
    spec: Callable[[str], NodeSpec]
    """How a node is started, by its name."""
    together: Together
    """Ask about several things at the same time."""
    lasts: Callable[[], bool] = lambda: True
    """Whether the fault still lasts: what is measured later tells nothing of it."""

    def having(self, capability: type[C]) -> C:
        """Return the part of the cluster with this capability, which only some places have.

        Raises:
            ClusterError: this one does not; a plan that needs it is refused before anything starts.
        """
        if (having := self.cluster.having(capability)) is None:
            raise ClusterError(f"this backend has no {capability.__name__}")
        return having

    def links(self, targets: Sequence[str]) -> list[str]:
        """The links of the targets, each once."""
        return list(dict.fromkeys(link for target in targets for link in self.cluster.links_of(target)))


class Fault(BaseModel):
    """One fault of a plan. Everything about it stands in its class: docs/extending.md.

    A subclass that has `kind: Literal["its_name"] = "its_name"` is a fault; one without is what others are made from.

    `inject` and `undo` are called from the harness' main thread and must not take long: other faults wait. What takes
    time to measure is measured by `observe`, in a thread of its own, while the fault lasts.

    Failure semantics: what lasts is in the run's undo log before it is done; `undo` is idempotent, and harmless if the
    fault never took place. All raise only what the cluster raises (LinkError, ClusterError) or OSError.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    needs: ClassVar[frozenset[Ability]] = frozenset()
    reversible: ClassVar[bool] = True
    """Whether it goes on until it is undone."""
    endless: ClassVar[bool] = False
    """Whether it is never undone, and still goes on: an aborted run has it undone."""
    timed: ClassVar[bool] = False
    """Whether it may have a duration although nothing undoes it: it is over by itself."""
    stops_target: ClassVar[bool] = False
    """Whether its target's process is not there while it lasts, or until it is started again."""
    frees: ClassVar[bool] = False
    """Whether a target that holds for it at a point of the protocol ends or goes on by it."""
    on_links: ClassVar[bool] = False
    """Whether it is a fault of its targets' links; else of their processes."""
    heeds_end: ClassVar[bool] = False
    """Whether `observe` itself leaves out what it measured when the fault was over; else all of that is left out."""
    target_role: ClassVar[Literal["any", "learner", "syncer"]] = "any"
    """Which nodes it may hit."""
    halts_target: ClassVar[bool] = False
    """Whether its target's process stands still while it lasts."""
    taken_apart: ClassVar[bool] = False
    """Whether freezing makes single faults of it."""
    spreads_over: ClassVar[str] = ""
    """A setting with which it may hit all of a domain that a target is in: it then has every domain in `domains`."""
    brings_target: ClassVar[bool] = False
    """Whether its targets are not there before."""
    supersedes: ClassVar[bool] = False
    """Whether a successor is started while its target's process still lives."""
    impersonates: ClassVar[bool] = False
    """Whether it speaks to the coordinator in its targets' names. That takes its time: it is over once it was
    observed."""
    corrupts_memory: ClassVar[bool] = False
    """Whether values in its targets' memory change: work that was not merged yet is lost."""
    moves_clock: ClassVar[bool] = False
    """Whether the clock that its targets see jumps."""
    delays: ClassVar[bool] = False
    """Whether everything that its targets send or receive takes longer while it lasts."""
    cuts_off: ClassVar[bool] = False
    """Whether nothing gets through to its targets, or from them, while it lasts."""
    strains: ClassVar[frozenset[Strain]] = frozenset()
    """What its targets' machine is short of by it: that the run has to wait for these is its doing, and no excuse."""
    may_end_target: ClassVar[bool] = False
    """Whether a target may well end by it, of its own accord, and its scheduler start it again."""
    occupies: ClassVar[str] = ""
    """What of a target it takes: two faults that take the same can't be on one target at a time. Empty: its kind."""
    shown_as: ClassVar[Literal["", "slow", "far", "paused", "partitioned"]] = ""
    """How a timeline shows its targets while it lasts; empty: as what they do."""
    drawn: ClassVar[Drawn | None] = None
    """None: only people name it, explorations don't."""

    kind: str
    targets: tuple[str, ...] = Field(min_length=1, strict=False)
    domains: dict[str, tuple[str, ...]] = Field({}, exclude=True, strict=False)
    """The failure domains that the scenario aims it at, with their members: nodes or links. Its targets hold these."""
    id: Annotated[str, Written(r"^([A-Za-z][A-Za-z0-9_-]*)?$", "a fault's id: a letter, and then letters, digits, "
                               "hyphens and underscores")] = ""
    """Another fault may come `after:` it; f1, f2, ... where none is given."""
    at: Seconds | None = None
    """Time since the steady state."""
    when: When | None = None
    after: After | None = None
    duration: Seconds | None = Field(None, alias="for")

    @field_validator("targets", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _when_and_how_long(self) -> Fault:
        if sum(trigger is not None for trigger in (self.at, self.when, self.after)) != 1:
            raise ValueError("say when, in one way: `at: 8s`, `when: {node: ..., event: ..., count: 3}`, "
                             "`when: {loss_below: 2.5}` or `after: f1`")
        if self.reversible and not self.duration:
            raise ValueError("say for how long: `for: 10s`")
        if not (self.reversible or self.timed) and self.duration is not None:
            raise ValueError(f"{self.kind} takes no `for`")
        if len(set(self.targets)) != len(self.targets):
            raise ValueError("a target is named twice")
        return self

    def requires(self) -> frozenset[Ability]:
        """Return what the cluster must be able to do."""
        return self.needs

    def inject(self, hit: FaultContext) -> Observation:
        """Do it, and say what was observed at once."""
        raise NotImplementedError

    def observe(self, hit: FaultContext) -> Observation:
        """Measure what it does, while it lasts; may take a second. Empty: the tape tells."""
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return whether it took effect, judged from the recorded run alone: the figures of what was observed, unless a
        subclass knows events that prove it."""
        figures = {name: value for name, value in on.observed.items() if name not in ("ok", "why", "error")}
        words = ", ".join(f"{name} {value}" for name, value in figures.items())
        return Effect(bool(on.observed.get("ok")), words or "nothing was observed")

    def undo(self, hit: FaultContext) -> None:
        """Take it back."""

    def observe_undone(self, hit: FaultContext) -> Observation:
        """Measure that it is gone; `back` says so."""
        return {}

    def observe_end(self, hit: FaultContext) -> Observation:
        """Measure at the run's end, while its nodes are still there, what shows whether it had taken effect."""
        return {}

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        raise NotImplementedError

    def expected_lost_time(self) -> float:
        """Seconds of nominal learner time that it is expected to cost, per target."""
        return 0.0

    def expected_duration(self) -> float | None:
        """Seconds from its beginning to its end as far as the plan tells; None: it never ends."""
        return self.duration or 0.0

    def affected_nodes(self, learners: Sequence[str]) -> Sequence[str]:
        """Return the nodes that feel it: its targets; of a link the learners at its ends; every learner where there is
        none, as at the links of the syncer."""
        if not self.on_links:
            return self.targets
        felt = [[end for end in ends(target) if end in learners] for target in self.targets]
        return list(dict.fromkeys(name for names in felt for name in names)) if all(felt) else learners

    def is_final(self) -> bool:
        """Return whether its targets' processes end and none is started again."""
        return self.stops_target and self.expected_duration() is None

    def joining(self) -> Sequence[str]:
        """Return the nodes that are not there before it comes, and that it starts."""
        return self.targets if self.brings_target else ()

    def starts_process(self) -> bool:
        """Return whether it has a process of its targets started, at once or later, which then has to be merged
        from."""
        return self.brings_target or self.supersedes

    def starts_beside(self) -> bool:
        """Return whether a successor may be started while its target's process still lives."""
        return self.supersedes

    def mutes_target(self) -> bool:
        """Return whether nothing is heard of its targets while it lasts, and nothing is started in their place."""
        return (self.halts_target or self.cuts_off) and not self.starts_process()

    def ends_connections(self) -> bool:
        """Return whether the peers of its targets see at once that the targets are gone."""
        return self.stops_target

    def describe_trigger(self) -> str:
        """Return when it comes, in words for people."""
        if self.at is not None:
            return f"at {show_seconds(self.at)}"
        return self.after.describe() if self.after else f"when {self.when.describe() if self.when else ''}"

    def describe_duration(self) -> str:
        """Return how long it lasts, in words for people."""
        return f"for {show_seconds(self.duration or 0)}"
