"""Where a plan can run: processes on this machine, or containers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chaos.problems import Problem, ScenarioError
from harness.cluster.base import ABILITIES, ENGINE_RESTART, EVERYWHERE, Ability, Cluster, Recorder
from harness.cluster.local import LocalCluster
from harness.ledger import Ledger

if TYPE_CHECKING:
    from chaos.plan import Plan

PLACES = ("local", "compose")
Name = Literal["local", "compose"]
MakeCluster = Callable[[Path, Recorder, Ledger], Cluster]


@dataclass(frozen=True)
class Place:
    """A place by its name, what it can do, and how clusters are made there."""

    name: Name
    abilities: frozenset[Ability]
    make: MakeCluster

    def refusals(self, plan: Plan) -> list[str]:
        """Why a plan can't run here; empty where it can."""
        missing = {planned.fault.kind: planned.fault.requires() - self.abilities for planned in plan.faults}
        return [f"{kind}: {_advice(lacking)}" for kind, lacking in missing.items() if lacking]

    def refuse(self, plan: Plan) -> None:
        """Before anything starts.

        Raises:
            ScenarioError: the plan needs what this place can't do.
        """
        if found := self.refusals(plan):
            raise ScenarioError(plan.scenario, [Problem(why) for why in found])


def local(links_port: int = 0, toxiproxy: str = "") -> Place:
    """Processes on this machine; `toxiproxy`: the real server's binary, empty for the embedded one."""
    def make(run: Path, record: Recorder, ledger: Ledger) -> Cluster:
        return LocalCluster(run, record, ledger, links_port=links_port, toxiproxy=toxiproxy)
    return Place("local", EVERYWHERE, make)


def compose(links_port: int = 0) -> Place:
    """Containers of docker-compose.yml's services.

    Raises:
        EngineError: there is no engine that can be used, or an image is missing.
    """
    from harness.cluster.compose import ComposeCluster, must_be_ready  # docker-py is not needed elsewhere
    from harness.trainer.sources import node_digest
    must_be_ready()

    def make(run: Path, record: Recorder, ledger: Ledger) -> Cluster:
        return ComposeCluster(run, record, ledger, links_port=links_port, node_digest=node_digest())
    known = frozenset(ABILITIES)
    return Place("compose", known if os.environ.get(ENGINE_RESTART) else known - {"restart_engine"}, make)


def _advice(missing: Collection[Ability]) -> str:
    if missing == {"restart_engine"}:
        return f"nobody said how to restart the engine: set {ENGINE_RESTART} to a command that does"
    return "only containers have that: run it with --on compose"
