"""The claims, `benchmarks/claims/claims.yaml`: what is said, where, and how this project holds something against it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from ruamel.yaml import YAML

Topic = Literal["speed", "goodput", "uptime", "bandwidth", "loss", "number of learners", "hardware mix", "scavenging",
                "experts", "merging", "recovery", "replay"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
Agrees = Literal["yes", "partly", "no", "not shown"]
How = Literal["predicted", "simulated", "measured", "computed", "tested"]
"""`predicted`: by the fleet's simulation; `simulated`: the trainer under virtual time; `measured`: in processes or
containers; `computed`: from a formula; `tested`: a property that tests hold, which has no number."""


class Claim(BaseModel):
    """A row."""

    model_config = ConfigDict(extra="forbid")

    topic: Topic
    claim: str = Field(min_length=1)
    published: str = Field(min_length=1)
    """The number, or the word, that stands there."""
    source: str = Field(min_length=1)
    """Letters of docs/sources.md."""
    agrees: Agrees
    ours: str = ""
    """A template: `cell(figure, row, column)` is a cell of the docs, `recorded` what was measured for this page."""
    how: tuple[How, ...] = ()
    again: str = ""
    """The command that measures it again."""
    remark: str = ""
    """What stands between the two numbers, or what can't be shown here and why."""

    @model_validator(mode="after")
    def _tells(self) -> Claim:
        if self.agrees == "not shown":
            if self.ours or not self.remark:
                raise ValueError(f"{self.claim!r} is not shown: it has a remark that says why, and nothing of ours")
        elif not (self.ours and self.how and self.again):
            raise ValueError(f"{self.claim!r}: it must say what is ours, how that was found, and by which command")
        if self.agrees in ("partly", "no") and not self.remark:
            raise ValueError(f"{self.claim!r}: a remark must say where the two differ")
        return self


def load(path: Path) -> list[Claim]:
    """Read them, in the order of the topics.

    Raises:
        ValueError: one is malformed, or a topic has none.
    """
    claims = [Claim.model_validate(given) for given in YAML(typ="safe").load(path.read_text())]
    if missing := set(TOPICS) - {claim.topic for claim in claims}:
        raise ValueError(f"{path}: nothing is said about {', '.join(sorted(missing))}")
    return sorted(claims, key=lambda claim: TOPICS.index(claim.topic))


def counted(claims: Sequence[Claim]) -> dict[Agrees, int]:
    """How many agree, and how many don't."""
    return {agrees: sum(claim.agrees == agrees for claim in claims) for agrees in get_args(Agrees)}
