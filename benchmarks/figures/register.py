"""The register of figures, `benchmarks/figures.json`: where each stands, what measures it again, and which canonical
runs it rests on with the digests that they had when it was measured.

Beside that stands the behaviour that the docs' marks were last made for, so that whether they are true to the register
can be told without a run, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmarks.figures.behaviour import NAMES, comparable, differ
from diloco_chaos.harness.base.errors import first, nearest

FILE = Path("benchmarks") / "figures.json"
ALL = "all"
"""Stands for every figure."""


class FiguresError(Exception):
    """Something is wrong with the register, the docs or what was asked for: one sentence, with what to do."""


class Figure(BaseModel):
    """A table or a paragraph of the docs."""

    model_config = ConfigDict(extra="forbid")

    about: str = Field(min_length=1)
    docs: str
    """The file that it stands in, below `<!-- figure: ID -->`."""
    again: str = Field(min_length=1)
    """What measures it again."""
    rests_on: dict[str, str | None] = {}
    """Canonical run, or its course -> its digest when the figure was measured; null: nobody noted it."""
    never_stale: str = ""
    """Why it rests on none."""

    @model_validator(mode="after")
    def _whole(self) -> Figure:
        if strange := sorted(set(self.rests_on) - set(NAMES)):
            raise ValueError(f"there is no canonical run {strange[0]!r}{nearest(strange[0], NAMES)}")
        if bool(self.rests_on) == bool(self.never_stale):
            raise ValueError("give either the canonical runs that it rests on, or why it is never stale")
        return self

    def changed(self, behaviour: Mapping[str, str]) -> list[str]:
        """The runs that it rests on and that are not what they were."""
        return [run for run, before in self.rests_on.items()
                if before is None or (run in behaviour and differ(before, behaviour[run]))]


class Register(BaseModel):
    """All of them."""

    model_config = ConfigDict(extra="forbid")

    behaviour: dict[str, str] = {}
    """Canonical run, or its course -> its digest when the marks were made."""
    figures: dict[str, Figure]

    def stale(self, behaviour: Mapping[str, str]) -> dict[str, list[str]]:
        """Figures that were measured with another behaviour than this, and the runs that tell so."""
        return {name: runs for name, figure in self.figures.items() if (runs := figure.changed(behaviour))}

    def marked(self, docs: str) -> list[str]:
        """The figures of this file that must bear a mark."""
        return [name for name in self.stale(self.behaviour) if self.figures[name].docs == docs]

    def outdated(self, live: Mapping[str, str]) -> list[str]:
        """Runs that are not what they were when the marks were made, as far as that can be told here."""
        return [run for run, now in live.items() if differ(self.behaviour.get(run), now)]

    def elsewhere(self, live: Mapping[str, str]) -> list[str]:
        """Runs whose digests are of another build of torch."""
        return [run for run, now in live.items() if not comparable(self.behaviour.get(run), now)]

    def take(self, live: Mapping[str, str]) -> None:
        """This is the behaviour from now on. Where it can't be compared with what stands there, a figure that was up to
        date stays so, and of one that was not nobody knows."""
        for run in self.elsewhere(live):
            for figure in self.figures.values():
                if run in figure.rests_on:
                    figure.rests_on[run] = None if run in figure.changed(self.behaviour) else live[run]
        self.behaviour = dict(live)

    def named(self, names: Sequence[str]) -> list[str]:
        """The figures of these names; `all` stands for every one.

        Raises:
            FiguresError: there is no such figure.
        """
        for name in names:
            if name not in self.figures and name != ALL:
                raise FiguresError(f"there is no figure {name!r}{nearest(name, list(self.figures))}: give one of "
                                   f"{', '.join(self.figures)}, or {ALL}")
        return list(self.figures) if ALL in names else list(names)

    def measured(self, names: Sequence[str]) -> None:
        """These were measured with the behaviour that stands there."""
        for name in names:
            figure = self.figures[name]
            figure.rests_on = {run: self.behaviour[run] for run in figure.rests_on}


def load(path: Path) -> Register:
    """Read it.

    Raises:
        FiguresError: it is not there, or it is malformed.
    """
    try:
        return Register.model_validate_json(path.read_text())
    except OSError as error:
        raise FiguresError(f"{path} can't be read ({error.strerror}): take it from the repository") from error
    except ValidationError as error:
        raise FiguresError(f"{path} is malformed ({first(error)}): correct it, or take it from the repository"
                           ) from error


def save(register: Register, path: Path) -> None:
    """Write it."""
    path.write_text(register.model_dump_json(indent=2, exclude_defaults=True) + "\n")
