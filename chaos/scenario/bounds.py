"""The `checks:` section of a scenario: what must hold, with defaults for everything that is not named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.profiles import expanded
from diloco_chaos.harness.base.units import Part, Seconds, Share

NEVER_OFF = frozenset({"faults_verified", "all_undone"})
"""Checks that can't be switched off."""


class _Bound(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)
    newer: ClassVar[Mapping[str, Any]] = {}
    """Settings that plans of earlier versions don't have, with their defaults."""

    @model_serializer(mode="wrap")
    def _without_newer(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without newer settings that keep their defaults: older frozen plans lack them."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if key not in self.newer or value != self.newer[key]}


class Stall(_Bound):
    """no_global_stall."""

    max_gap: Seconds = 1.0
    """A gap between two merges up to this is never a stall."""
    max_gap_vs_baseline: float = Field(5.0, gt=0)
    """A longer gap may be this many times the p99 gap of the fault-free baseline."""
    max_gap_vs_start: float = Field(0.0, ge=0)
    """A gap in which a worker's process is started may go on from then for this many times what that worker took at its
    first start; 0: as long as any other."""
    newer: ClassVar[Mapping[str, Any]] = {"max_gap_vs_start": 0.0}


class AtLeast(_Bound):
    """A share that must be reached."""

    at_least: Part


class Within(_Bound):
    """A time in which something must have happened."""

    within: Seconds = 10.0


class LostRounds(_Bound):
    """rounds_never_go_back."""

    rounds: int = Field(0, ge=0)
    """A worker may go back by so many, to a checkpoint say: from round 75 to round 61 by 14."""


class Restarts(_Bound):
    """restarts."""

    most: int | None = Field(None, ge=0)
    """So often may a node's scheduler start it again; None: as often as it likes, unless the same end comes again and
    again."""


class Resumed(_Bound):
    """resumed."""

    rounds: int | None = Field(None, ge=0)
    """So many rounds may be made again; None: any number, as long as it does not begin anew."""
    starts: float = Field(5.0, gt=0)
    """Until its first new round a process may take so many times as long as the first process did until its first."""


class Goodput(_Bound):
    """goodput."""

    at_least: Part | None = None
    """None: 90% of the availability that the plan predicts; of a trainer that tells of rounds, nothing: what is
    predicted needs a pace."""


class RecoveredWithin(_Bound):
    """recovered_within: how long after a fault each phase of the recovery may end."""

    excluded: Seconds | None = None
    restarted: Seconds | None = None
    ready: Seconds | None = None
    first_round: Seconds | None = None
    pace_as_before: Seconds | None = None
    work_made_good: Seconds | None = None

    @property
    def limits(self) -> dict[str, float]:
        """Return phase -> seconds, of the phases that have a bound."""
        return {name.replace("_", " "): seconds for name in type(self).model_fields
                if (seconds := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _some(self) -> RecoveredWithin:
        if not self.limits:
            raise ValueError("name a phase: `first_round: 10s`; there are excluded, restarted, ready, first_round, "
                             "pace_as_before and work_made_good")
        return self


class RoundQuorum(_Bound):
    """round_quorum."""

    at_least: int = Field(ge=1)
    """Members of every round."""


class LossParity(_Bound):
    """loss_parity; margins are relative, one-sided: a lower loss holds, but one that workers told of rounds and that is
    lower than it can be."""

    against_baseline: Share | None = None
    """Against the fault-free run of the same cluster."""
    against_synchronous: Share | None = None
    """Against the synchronous run at its own best learning rate."""
    better_by: Share = 0.2
    """So much lower than the baseline's a loss may be that workers told: below it they trained on something else, or
    told no loss at all."""
    newer: ClassVar[Mapping[str, Any]] = {"better_by": 0.2}

    @model_validator(mode="after")
    def _some(self) -> LossParity:
        if self.against_baseline is None and self.against_synchronous is None:
            raise ValueError("give a margin: `against_baseline: 2%`, `against_synchronous: 4%` or both")
        return self


class LossesAreNumbers(_Bound):
    """losses_are_numbers."""

    in_a_row: int | None = Field(None, ge=0)
    """So many rounds in a row a worker may tell a loss that is no number, if it recovers; None: any number."""


class RoundsRepeat(_Bound):
    """rounds_repeat."""

    tolerance: Share = 0.0
    """By such a share of it the loss of a round that is made again may differ; with one, digests are not compared."""
    after_rounds: int = Field(0, ge=0)
    """So many rounds after going back are not compared."""
    control: bool = False
    """The same nodes train without faults, too. Where the rounds before the first fault differ from theirs, the trainer
    is not deterministic, and a difference proves nothing; else all that a job of one worker makes after its restart is
    held against them."""
    newer: ClassVar[Mapping[str, Any]] = {"control": False}


class MembersAgree(_Bound):
    """members_agree."""

    within: Share = 0.5
    """So far from the others' loss a worker's may be, as a share of it, beyond what was usual before the first fault;
    where that is not known, six times as far."""


class DigestsAgree(_Bound):
    """digests_agree."""


class SameAsUninterrupted(_Bound):
    """same_as_uninterrupted."""

    tolerance: Share = 0.0
    """By such a share of it a round's loss may differ from that of the same nodes without faults; with one, digests
    are not compared."""


class SamplesOnce(_Bound):
    """samples_once."""

    again: int = Field(0, ge=0)
    """So many batches, or samples, may be trained on twice."""
    skipped: int = Field(0, ge=0)
    """So many may be left out."""
    numbered_by: Literal["worker", "all"] | None = None
    """Every worker numbers its own data, or there is one numbering of all; None: batches that workers told alike in the
    same rounds before the first fault are each worker's, anything else is of all."""


class Participation(_Bound):
    """participation: a learner's share of the rounds: while faults that last hit it, or always if none is to."""

    learner: str
    at_least: Part | None = None
    at_most: Part | None = None

    @model_validator(mode="after")
    def _some(self) -> Participation:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give a bound: `at_least: 80%` or `at_most: 20%`")
        return self


_ASKED_FOR = frozenset({"losses_are_numbers", "rounds_repeat", "members_agree", "digests_agree",
                        "samples_once"})
"""Bounds of checks that always run, and are on the plan only where a scenario names them: it then asks for an answer.
"""


def _foreign(named: tuple[str, Any]) -> Any:
    """The bound of another package's check.

    Raises:
        ValidationError: there is no such check, or that is not its bound.
    """
    name, content = named
    check = CHECKS.foreign().get(name)
    if check is None:
        raise ValidationError.from_exception_data("Bounds", [{"type": "extra_forbidden", "loc": (), "input": content}])
    return check.parse(content)


class Bounds(_Bound):
    """The bounds of every check that has one to set. Checks that have none always run: staleness_bounded,
    quorum_respected, exactly_once, replica_consistency, weights_correct, processed_correct, learning_rate_correct,
    arithmetic_correct, inner_steps_correct, fragments_in_turn, nobody_starves, silence_noticed, recovered_from_peers,
    end_correct, no_unplanned_exit, left_behind (where a node says so), faults_verified, all_undone. A check of another
    package runs where it is named here, and its bound is what the package says."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, BeforeValidator(_foreign)]]

    no_global_stall: Stall = Stall()
    uptime: AtLeast = AtLeast(at_least=0.95)
    self_healing: Within = Within()
    reintegration: Within = Within()
    goodput: Goodput = Goodput()
    blast_radius: AtLeast = AtLeast(at_least=0.9)
    noticed_within: Within | None = None
    recovered_within: RecoveredWithin | None = None
    participation: tuple[Participation, ...] = Field((), strict=False)
    loss_parity: LossParity | None = None
    rounds_never_go_back: LostRounds = LostRounds()
    resumed: Resumed | None = None
    round_quorum: RoundQuorum | None = None
    losses_are_numbers: LossesAreNumbers = LossesAreNumbers()
    rounds_repeat: RoundsRepeat = RoundsRepeat()
    members_agree: MembersAgree = MembersAgree()
    digests_agree: DigestsAgree = DigestsAgree()
    samples_once: SamplesOnce = SamplesOnce()
    restarts: Restarts = Restarts()
    none_left_out: Within = Within()
    same_as_uninterrupted: SameAsUninterrupted | None = None
    outages: Literal["counted", "excused"] = "counted"
    """`excused`: what the faults themselves take does not count against the checks of time: while they leave fewer than
    K learners, or no syncer. Explorations judge by this."""

    switched_off: tuple[str, ...] = Field((), strict=False)
    """Checks that are not made, as by `blast_radius: off`."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without the newer bounds that keep their defaults: older frozen plans lack them."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items()
                if (key, value) not in (("outages", "counted"), ("rounds_never_go_back", {"rounds": 0}),
                                        ("round_quorum", None), ("resumed", None), ("restarts", {"most": None}),
                                        ("noticed_within", None), ("recovered_within", None),
                                        *(("none_left_out", {"within": ten}) for ten in (10.0, "10.0s")),
                                        ("switched_off", []), ("switched_off", ()), ("same_as_uninterrupted", None))
                and (key not in _ASKED_FOR or key in self.model_fields_set)}

    @property
    def excuses_outages(self) -> bool:
        """Return whether what the faults take by design is excused."""
        return self.outages == "excused"

    @property
    def foreign(self) -> dict[str, Any]:
        """The checks of other packages that are named here, with their bounds."""
        return self.model_extra or {}

    def cannot_fail(self, name: str) -> bool:
        """Return whether the bound of a check holds whatever is measured."""
        bound = self.bound(name)
        bounds = bound if isinstance(bound, tuple) else (bound,)
        return all(isinstance(one, AtLeast | Goodput | Participation) and one.at_least == 0
                   and getattr(one, "at_most", None) in (None, 1.0) for one in bounds)

    def bound(self, name: str) -> Any:
        """Return what the scenario says of a check; None: nothing."""
        return getattr(self, name) if name in type(self).model_fields else self.foreign.get(name)

    @model_validator(mode="before")
    @classmethod
    def _name_them(cls, value: Any) -> Any:
        """What is under another package's name is that package's to understand: it has to know the name."""
        if not isinstance(value, dict):
            return value
        value = expanded(value)
        off = [name for name, content in value.items() if name in CHECKS and (content == "off" or content is False)]
        if rests := [name for name in off if name in NEVER_OFF]:
            raise ValueError(f"{rests[0]} can't be switched off: what the other checks say rests on it")
        if off:
            value = {name: content for name, content in value.items() if name not in off} | {"switched_off": off}
        return {name: content if name in cls.model_fields else (name, content) for name, content in value.items()}
