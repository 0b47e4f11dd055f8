"""The cells of the league: a contestant, set up in one way, under one fault; and the scenario that each is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.league.contestants import CONTESTANTS
from benchmarks.league.faults import AT_S, FAULTS, LeagueFault
from benchmarks.league.roles import Absent, Contestant, Variant
from diloco_chaos.chaos.scenario.loading import laid_over

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_BASES = Path(__file__).resolve().parent / "bases"
_WITHIN = "30s"
"""Training must be what it was so soon after the fault's end."""
_STALL = "45s"
_LOST_S = 5.0
"""So much work may be lost."""
_READY = "120s"
"""Imports take long where a machine is slow."""
_SCHEDULER = {"restart": "on-failure", "restart_delay": "2s"}
_DEADLINE_S = 240.0
_SHARED_CHECKS = {
    "no_global_stall": {"max_gap": _STALL}, "self_healing": {"within": _WITHIN}, "reintegration": {"within": _WITHIN},
    "uptime": {"at_least": "0%"}, "blast_radius": {"at_least": "0%"}, "no_unplanned_exit": "off"}
"""Whether a node ends with another one is the trainer's choice: what counts is when training is what it was."""
_OF_ROUNDS = {"none_left_out": {"within": _WITHIN}, "rounds_repeat": "off", "members_agree": "off",
              "losses_are_numbers": "off"}
"""What is asked of those that report rounds; that losses repeat is another question, which docs/resumable.md asks."""


@dataclass(frozen=True)
class Cell:
    """A contestant, set up in one way, under one fault."""

    contestant: Contestant
    variant: str
    fault: LeagueFault

    @property
    def key(self) -> str:
        """Return its name: `torchrun/defaults/kill-worker`."""
        return f"{self.contestant.name}/{self.variant}/{self.fault.name}"

    @property
    def settings(self) -> Variant:
        """Return how the contestant is set up."""
        return self.contestant.variants[self.variant]

    @property
    def absent(self) -> Absent | None:
        """Return why there is nothing to run, if that is so."""
        aimed = self.fault.aimed(self.contestant.roles)
        return aimed if isinstance(aimed, Absent) else None

    @property
    def rounds(self) -> int:
        """Return how many rounds training has."""
        return round((AT_S + self.fault.watched_s) / self.contestant.round_s)

    def scenario(self) -> dict[str, Any]:
        """Return the scenario.

        Raises:
            ValueError: what is to be replaced in the example's commands is not there once.
        """
        faults = self.fault.aimed(self.contestant.roles)
        assert not isinstance(faults, Absent), self.key
        document: dict[str, Any] = {
            "diloco_chaos": 1, "name": f"league-{self.fault.name}", "description": f"{self.key}: {self.fault.told}.",
            "deadline": f"{_DEADLINE_S + self.fault.watched_s:g}s", "faults": faults, "checks": dict(_SHARED_CHECKS)}
        if not self.contestant.example:
            cluster = laid_over(self.contestant.trainer, self.settings.trainer)
            return document | {"cluster": {**cluster, "budget": f"{self.rounds} steps"}}
        lost = max(1, round(_LOST_S / self.contestant.round_s))
        document["checks"] |= _OF_ROUNDS | {"rounds_never_go_back": {"rounds": lost}}
        base = _trainer(_BASES / self.contestant.base if self.contestant.base else
                        EXAMPLES / self.contestant.example / "scenarios" / "base.yaml")
        trainer = laid_over(laid_over(base, self.contestant.trainer), self.settings.trainer)
        for before, after in (*self.contestant.commands, *self.settings.commands):
            _replace_in_commands(trainer, before, after)
        if self.fault.holds and (held := self.contestant.roles.held):
            script = self.contestant.saves
            _replace_in_commands(trainer, f" {script} {{run}}/state", f" held.py {held} {script} {{run}}/state")
        trainer["nodes"] = {name: _scheduled(node) for name, node in trainer["nodes"].items()}
        return document | {"trainer": {**trainer, "rounds": self.rounds}}

    def scripts(self) -> dict[str, str]:
        """Return the contestant's scripts as they are run, by name; none for the built-in trainer.

        Raises:
            ValueError: what is to be replaced in them is not there once.
        """
        if not self.contestant.example:
            return {}
        texts = {path.name: path.read_text() for path in (EXAMPLES / self.contestant.example).glob("*.py")}
        for before, after in (*self.contestant.script, *self.settings.script):
            having = [name for name, text in texts.items() if before in text]
            if len(having) != 1:
                raise ValueError(f"{before!r} stands in {len(having)} scripts")
            texts[having[0]] = _replaced(texts[having[0]], before, after)
        return texts

    def prepare(self, folder: Path) -> Path:
        """Put into a folder all that a run needs, and return the scenario's file."""
        for name, text in (self.scripts() | {"held.py": (EXAMPLES / "held.py").read_text()}).items():
            (folder / name).write_text(text)
        file = folder / "scenario.yaml"
        file.write_text(json.dumps(self.scenario(), indent=1) + "\n")
        return file


def cells(only: str = "") -> Iterator[Cell]:
    """Yield the cells in the page's order: all, or those of a contestant (`torchrun`), of one of its variants or faults
    (`torchrun/best`, `torchrun/kill-worker`), of a fault of all (`kill-worker`), or one (`torchrun/best/pause`)."""
    words = set(filter(None, only.split("/")))
    for contestant in CONTESTANTS:
        for variant in contestant.variants:
            for fault in FAULTS:
                cell = Cell(contestant, variant, fault)
                if words <= set(cell.key.split("/")):
                    yield cell


def _scheduled(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node whose scheduler starts it again, and waits as long as a slow machine needs."""
    ready = {"ready": {**node.get("ready", {"port": True}), "within": _READY}} if node.get("listens") else {}
    return {**node, **ready, **_SCHEDULER}


@cache
def _trainer(file: Path) -> Mapping[str, Any]:
    """Return what a base scenario says of its trainer."""
    trainer: Mapping[str, Any] = YAML(typ="safe").load(file)["trainer"]
    return trainer


def _replace_in_commands(trainer: dict[str, Any], before: str, after: str) -> None:
    commands = [node for node in trainer["nodes"].values() if before in node["run"]]
    if len(commands) != 1:
        raise ValueError(f"{before!r} stands in {len(commands)} commands")
    trainer["nodes"] = {name: {**node, "run": _replaced(node["run"], before, after)} if node is commands[0] else node
                        for name, node in trainer["nodes"].items()}


def _replaced(text: str, before: str, after: str) -> str:
    if text.count(before) != 1:
        raise ValueError(f"{before!r} stands there {text.count(before)} times")
    return text.replace(before, after)
