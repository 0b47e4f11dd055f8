"""What a contestant is made of: the parts that faults aim at, its settings, and what it is run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Absent:
    """A part that a contestant does not have, or that nothing here can break."""

    why: str
    exists: bool = False
    """It has this part, and the harness can't reach it."""

    @property
    def words(self) -> str:
        """Return what its cell says."""
        return f"{'cannot be tried here' if self.exists else 'does not apply'}: {self.why}"


@dataclass(frozen=True)
class Roles:
    """The parts that the faults aim at: nodes, or processes of nodes, written `NODE/PROCESS`."""

    worker: str
    """One of those that train, and not the leader."""
    leader: str | Absent
    """The one that others follow: rank 0, a driver, the first peer."""
    coordinator: str | Absent
    """The node at which the others meet."""
    link: str | Absent
    """The node whose links are broken."""
    saver: str | Absent
    """The node that writes checkpoints."""
    midway: Mapping[str, Any] = field(default_factory=dict)
    """The moment at which a checkpoint is half written, as a trigger."""
    held: str = ""
    """The files before which a script of commands stands at that moment."""
    files: str = "{run}/state/*"
    """Where it saves."""
    newest: str = "newest"
    """Its newest checkpoint, for faults that damage one."""


@dataclass(frozen=True)
class Variant:
    """A way to set a contestant up."""

    told: str
    """What is set, for the page."""
    source: str
    """Who recommends that."""
    trainer: Mapping[str, Any] = field(default_factory=dict)
    """Settings on top of the example's, at all depths."""
    commands: tuple[tuple[str, str], ...] = ()
    """What stands in the example's commands, and what stands there instead."""
    script: tuple[tuple[str, str], ...] = ()
    """The same in its scripts."""


@dataclass(frozen=True)
class Contestant:
    """A trainer in the league."""

    name: str
    title: str
    example: str
    """The folder below `examples/` with its scripts and its base scenario; empty: the built-in trainer."""
    wanted: tuple[str, ...]
    """What its environment has beside this repository, as pip writes it."""
    shape: str
    """How many of what train, in words."""
    roles: Roles
    variants: Mapping[str, Variant]
    round_s: float = 0.05
    """How long a round takes."""
    saves: str = "train.py"
    """The script that writes checkpoints."""
    base: str = ""
    """The scenario of the league's own that it is made of; empty: the example's `base.yaml`."""
    trainer: Mapping[str, Any] = field(default_factory=dict)
    """Settings on top of the base's, in all variants."""
    commands: tuple[tuple[str, str], ...] = ()
    script: tuple[tuple[str, str], ...] = ()
