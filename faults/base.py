"""What all faults share: targets, a trigger, a duration, and the pair of inject and undo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.cluster.base import Ability, Cluster
from harness.units import Seconds, show_seconds

FAULTS: dict[str, type[Fault]] = {}
"""Every kind of fault by the key that names it in a scenario; a subclass registers itself."""

Felt = dict[str, float | str | bool]
"""What was measured, by name; `ok` says whether it is what was asked for."""


@dataclass(frozen=True)
class Hit:
    """What a fault may use: the cluster, and a question through a link."""

    cluster: Cluster
    probe: Callable[[str, int], float]
    """probe(link, reply_bytes) -> seconds until the answer was there; raises OSError where none comes."""


class When(BaseModel):
    """A logical trigger: the `count`-th event of this name at this node since the steady state, or a hold point."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    event: str = ""
    """Name of an event on the node's tape (docs/tape.md)."""
    hold: str = ""
    """A named point of the protocol at which the node stands still for the fault."""
    count: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _one(self) -> When:
        if bool(self.event) == bool(self.hold):
            raise ValueError("name either an event or a hold point")
        if self.hold and self.hold not in HOLD_POINTS:
            raise ValueError(f"no hold point {self.hold!r}: there are {', '.join(HOLD_POINTS)}")
        return self

    def words(self) -> str:
        """For people."""
        what = f"holds at {self.hold}" if self.hold else self.event
        return f"{self.node} {what} (number {self.count})"


HOLD_POINTS = ("upload.half", "merge.before_commit", "checkpoint.before_rename", "commit.before_broadcast")


class Fault(BaseModel):
    """One fault of a plan. `inject` and `undo` are called from the harness' main thread.

    Failure semantics: `undo` is idempotent, and harmless if the fault never took place. Both raise only what the
    cluster raises (LinkError, ClusterError).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    needs: ClassVar[frozenset[Ability]] = frozenset()
    lasts: ClassVar[bool] = True
    """Whether it goes on until it is undone."""

    kind: str
    targets: tuple[str, ...] = Field(min_length=1)
    at: Seconds | None = None
    """Time since the steady state."""
    when: When | None = None
    duration: Seconds | None = Field(None, alias="for")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        FAULTS[cls.__name__.lower()] = cls

    @field_validator("targets", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _when_and_how_long(self) -> Fault:
        if (self.at is None) == (self.when is None):
            raise ValueError("say when: either `at: 8s` or `when: {node: ..., event: ..., count: 3}`")
        if self.lasts and not self.duration:
            raise ValueError("say for how long: `for: 10s`")
        if not self.lasts and self.duration is not None:
            raise ValueError(f"{self.kind} takes no `for`")
        if len(set(self.targets)) != len(self.targets):
            raise ValueError("a target is named twice")
        return self

    def inject(self, hit: Hit) -> Felt:
        """Do it, and say what was felt at once."""
        raise NotImplementedError

    def undo(self, hit: Hit) -> Felt:
        """Take it back, and say what was felt while it lasted."""
        return {}

    def words(self) -> str:
        """What it does, for people."""
        raise NotImplementedError

    def downtime(self) -> float:
        """Seconds of nominal learner time that it is expected to cost, per target."""
        raise NotImplementedError

    def trigger_words(self) -> str:
        """When it comes, for people."""
        return f"at {show_seconds(self.at)}" if self.at is not None else f"when {self.when and self.when.words()}"


def names(targets: Sequence[str]) -> str:
    """`learner-1, learner-2 and learner-3`."""
    return " and ".join(filter(None, [", ".join(targets[:-1]), targets[-1]]))
