"""What the experiment asks the `cluster:` section of a scenario, whichever trainer it is for: who there is, how quick
they are, how far they depend on each other. Everything else it asks the trainer (`harness.trainers.api.trainer`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.harness.base.tensors import Numbers
from diloco_chaos.harness.base.units import Seconds, Share, Steps
from diloco_chaos.harness.trainers.core.roles import COORDINATOR

Evidence = Literal["fragments", "replicas", "tokens", "rounds", "protocol"]
"""What a trainer's event log tells, beside who was there and when work was merged. `fragments`: pieces of the model,
and what was merged of each. `tokens`: the fate of every inner step. `rounds`: numbers of a worker's rounds, which must
not go back. `protocol`: who is taken for gone, and when everybody was told that training is over."""
_QUICKEST_S = 1e-3
"""No inner step is quicker."""
_SIGNS = 3
"""Signs of life of a learner that stands, within the time after which silence counts as gone."""
_LONGEST_SIGN_S = 1.0


@dataclass(frozen=True)
class Misfit:
    """A setting that does not go together with the others."""

    key: str
    """Where it stands below `cluster`."""
    message: str


class MisfitError(ValueError):
    """The error that a validator of whole settings raises, with all that is wrong: each is reported at its own key."""

    def __init__(self, *misfits: Misfit) -> None:
        super().__init__("\n".join(misfit.message for misfit in misfits))
        self.misfits = misfits


class Pick(Protocol):
    """Chance, or Hypothesis."""

    def __call__(self, options: Sequence[Any]) -> Any:
        """One of them; the simplest stands first."""
        ...


class ModelPiece(Protocol):
    """A part of the model that is exchanged at a time; where there is one only, it is the whole model."""

    @property
    def index(self) -> int:
        """Its number."""
        ...

    @property
    def size(self) -> int:
        """Values in it."""
        ...


class WholeModel:
    """The one piece of a trainer that exchanges no fragments. Implements `Piece`."""

    index, size = 0, 1


@dataclass(frozen=True)
class FragmentRules:
    """The promises that a trainer makes of every merge if it exchanges fragments; the checks of the protocol hold it to
    them."""

    quorum: int
    """K, distinct learners at least."""
    max_staleness: int
    """S, versions that a merged base is older than the newest, at most."""
    overlap: float
    """tau, inner steps that an exchange may overlap with."""
    grace: float
    """gamma, the share of the measured slack that the grace window may use."""
    carries: bool
    """Steps made during an exchange are added on top of what is received, and belong to the next contribution."""
    begins_with: int
    """Tokens that count as processed from the beginning."""
    ends_with: int
    """Tokens with which training is over."""
    turn: float
    """Steps of the global clock from one merge of a fragment to the next, at the most, while nobody is hit."""
    outer_step: Callable[[float], tuple[float, float]]
    """(processed tokens) -> outer rate and momentum there."""
    inner_rates: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]
    """(at least, at most so many processed tokens) -> the lowest and the highest inner rate of a step begun there."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Worker -> tokens of one of its steps; of one that is missing here its own word counts."""
    most_steps: float = math.inf
    """Steps on a version of a fragment with which a worker stands still until the next one is merged."""
    steps_behind: int = 0
    """Steps by which the place of a worker on the global clock may be behind it."""
    sizes: Sequence[int] = ()
    """Values of each fragment; empty: not known."""
    from_peers: bool = False
    """Whether a worker that has nothing is brought up to date by another one, and not by the coordinator."""


@dataclass(frozen=True)
class Coupling:
    """The degree to which learners depend on each other: what a fault of one costs the others."""

    waits: Literal["nobody", "all", "group"] = "nobody"
    """`all`: nobody goes on while anybody is gone. `group`: those who are left go on once they have formed a new one.
    """
    ahead: float = math.inf
    """How many times as quick as the slowest anybody can be."""
    again_s: float = 0.0
    """Seconds of work that are done twice for every loss."""
    regroup_s: float = 0.0
    """Seconds for which a group stands still when somebody goes or comes."""
    unseen_s: float = 0.0
    """Seconds until somebody is missed whose connection stands."""


class TrainerSettings(BaseModel):
    """Base of every trainer's settings. What is said here without a value is a field of each; what has one may be
    said otherwise. `SimpleSettings` has the fields, and nothing else."""

    if TYPE_CHECKING:
        learners: int
        """M: how many there are."""
        joining: int
        """Of these, so many that are not there from the beginning: the last ones. Set when a plan is frozen."""
        budget: int
        """Inner steps of each learner."""
        step_time: float
        """Nominal seconds of an inner step; 0: no pace."""
        speeds: tuple[float, ...]
        """Of every learner, as a share of nominal; empty: all alike."""
        variance: float
        """By up to so much, as a share, a step takes more or less."""
        heartbeat_timeout: float
        """Seconds without a word, after which somebody counts as gone."""
        seed: int

    # -- who there is --------------------------------------------------------------------------------------------------

    @classmethod
    def outline(cls, given: Mapping[str, Any], wrong: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
        """The part of a scenario's `cluster` that says which nodes there are, so that faults can be held against them
        though other parts are wrong; None where this one is. `wrong`: locations of what is wrong; an empty one is the
        whole."""
        decisive = {key: given[key] for key in ("learners",) if key in given}
        return None if any(where and where[0] == "learners" for where in wrong) else decisive

    @property
    def names(self) -> list[str]:
        """learner-1 ... learner-M."""
        return [f"learner-{index}" for index in range(1, self.learners + 1)]

    @property
    def starters(self) -> list[str]:
        """The learners that are there from the beginning."""
        return self.names[:self.learners - self.joining]

    def later(self, count: int) -> Sequence[str]:
        """Return the workers that are not there from the beginning, where so many come later: the last ones."""
        return self.names[-count:] if count else []

    @property
    def all_nodes(self) -> list[str]:
        """Return every node, in the order of starting: here, a coordinator and the learners."""
        return [COORDINATOR, *self.names]

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Nodes that are alike, by the name that they have together."""
        return {}

    @property
    def link_names(self) -> list[str]:
        """Links that faults may name, where they have names of their own; here each bears its learner's."""
        return []

    # -- pace ----------------------------------------------------------------------------------------------------------

    def speed_of(self, learner: str) -> float:
        """Return how many times as quick as its pace this learner is."""
        if not self.speeds:
            return 1.0  # as mostly, and it is asked all the time
        return dict(zip(self.names, self.speeds, strict=False)).get(learner, 1.0)

    def step_time_of(self, learner: str) -> float:
        """Nominal seconds of this learner's inner steps; 0 without pace."""
        return self.step_time / self.speed_of(learner)

    def quickest_step(self, learner: str) -> float:
        """Seconds that an inner step of this learner takes at the least."""
        return max(_QUICKEST_S, self.step_time_of(learner) * (1 - self.variance))

    def merging_speed(self, living: Collection[str]) -> float:
        """Return how quick merges are while these learners live, as a share of nominal: as the last of those that a
        merge needs; 0 where they are too few."""
        speeds = sorted(map(self.speed_of, living), reverse=True)
        needed = self.contributors_needed(len(speeds))
        return speeds[needed - 1] if 0 < needed <= len(speeds) else 0.0

    def merges_per_s(self, living: Collection[str]) -> float:
        """Return how many merges in a second their pace makes, while these learners live; infinite where no pace says
        it."""
        return math.inf

    @property
    def merges_at_once(self) -> int:
        """Return how many merges, at the most, are due at one moment."""
        return 1

    @property
    def nominal_s(self) -> float:
        """Seconds that training takes, where nobody is ever out; 0 without pace."""
        mean_speed = sum(self.speeds) / self.learners if self.speeds else 1.0
        return (self.budget - self.first_position) * self.step_time / mean_speed

    @property
    def sign_s(self) -> float:
        """Seconds between two signs of life of a learner that stands, and at most between those of the syncer. With a
        long timeout no less often than with a usual one: a report that found its link busy is told by the next."""
        return min(self.heartbeat_timeout / _SIGNS, _LONGEST_SIGN_S)

    @property
    def ends_within_s(self) -> float:
        """Seconds within which everybody who was told that training is over has ended: by then silence counts as gone,
        and a process, or its container, is down some seconds later."""
        return self.heartbeat_timeout + 5.0

    # -- rounds and tokens ---------------------------------------------------------------------------------------------

    def contributors_needed(self, live: int) -> int:
        """Return how many distinct learners a merge needs, of so many live ones."""
        return live

    @property
    def merges_from_all(self) -> bool:
        """Return whether every merge has every learner's work while no fault hits one."""
        return True

    @property
    def waits_for_nobody(self) -> bool:
        """Return whether a learner as quick as the others may be late in every round."""
        return False

    @property
    def learners_needed(self) -> int:
        """Without so many learners nothing is ever merged."""
        return self.learners if self.coupling.waits == "all" else 1

    @property
    def coupling(self) -> Coupling:
        """Return how far learners depend on each other."""
        return Coupling("all")

    @property
    def blocking(self) -> bool:
        """Return whether learners stand while they wait for others, so that their pace is not theirs alone."""
        return self.coupling.waits != "nobody"

    @property
    def exchanges_fragments(self) -> bool:
        """Return whether the model travels in pieces; else every merge is one of the whole."""
        return False

    @property
    def longest_grace_s(self) -> float:
        """Seconds for which a merge waits, at the most, for those who come after the last that it needs; infinite: for
        as long as they are there."""
        return math.inf

    def longest_gap_s(self, living: Collection[str]) -> float:
        """Seconds from one merge to the next, at the most, while these live and nobody goes or comes; infinite: it is
        not known."""
        return math.inf

    def at_stake_s(self, learner: str) -> float:
        """Seconds of work that this learner loses, at the most, with its process or its connection."""
        return 0.0

    def fragment_table(self) -> Sequence[ModelPiece]:
        """The pieces of the model that are exchanged one at a time."""
        return [WholeModel()]

    @property
    def donates(self) -> bool:
        """Return whether learners bring others up to date."""
        return False

    def tokens_per_step_of(self, learner: str) -> int:
        """Tokens that one inner step of this learner processes; where a trainer counts none, a step is one."""
        return 1

    @property
    def budget_tokens(self) -> int:
        """Tokens of the whole run, over all learners."""
        return self.budget * sum(map(self.tokens_per_step_of, self.names))

    @property
    def begun_tokens(self) -> int:
        """Return how many of the `budget_tokens` were processed before the run began."""
        return 0

    @property
    def first_position(self) -> int:
        """Steps of the budget, and batches of each learner's shard, that were used before the run began."""
        return 0

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints that the group goes back to; 0: it never does."""
        return 0

    def checkpointed(self, losses: int) -> Self:
        """The same with an interval of checkpoints, where there are any and none was given, for so many losses."""
        return self


class SimpleSettings(TrainerSettings):
    """The fields that every trainer has, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    learners: int = Field(4, ge=1, le=64)
    """M, the number of learners."""
    joining: int = Field(0, ge=0)
    """Of these, so many that are not there from the beginning: the last ones. Set when a plan is frozen."""
    budget: Steps = 400
    """Inner steps of each learner."""
    step_time: Seconds = 0.06
    """Nominal wall time of an inner step; a step that computes faster waits. 0s: no pace."""
    speeds: tuple[Annotated[float, Field(gt=0, le=4)], ...] = Field((), strict=False)
    """Of every learner, as a share of nominal. Empty: all alike."""
    variance: Share = 0.0
    """By up to so much, as a share, each step takes more or less than its learner's time."""
    heartbeat_timeout: Seconds = 3.0
    """A peer that says nothing for so long counts as gone."""
    seed: int = Field(0, ge=0, le=2**63 - 1)
