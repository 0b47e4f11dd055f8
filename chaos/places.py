"""Where a plan can run: processes on this machine, or containers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.cluster.base import EVERYWHERE, Ability, Cluster, Recorder
from harness.cluster.local import LocalCluster
from harness.ledger import Ledger
from harness.trainer.sources import node_digest

PLACES = ("local", "compose")
Name = Literal["local", "compose"]
MakeCluster = Callable[[Path, Recorder, Ledger], Cluster]


@dataclass(frozen=True)
class Place:
    """A place by its name, and how clusters are made there."""

    name: Name
    make: MakeCluster


def local(links_port: int = 0, toxiproxy: str = "") -> Place:
    """Processes on this machine; `toxiproxy`: the real server's binary, empty for the embedded one."""
    def make(run: Path, record: Recorder, ledger: Ledger) -> Cluster:
        return LocalCluster(run, record, ledger, links_port=links_port, toxiproxy=toxiproxy)
    return Place("local", make)


def compose(links_port: int = 0) -> Place:
    """Containers of docker-compose.yml's services.

    Raises:
        EngineError: there is no engine that can be used, or an image is missing.
    """
    from harness.cluster.compose import ComposeCluster, must_be_ready  # docker-py is not needed elsewhere
    must_be_ready()

    def make(run: Path, record: Recorder, ledger: Ledger) -> Cluster:
        return ComposeCluster(run, record, ledger, links_port=links_port, node_digest=node_digest())
    return Place("compose", make)


def advice(missing: Collection[Ability]) -> str:
    """Why a fault can't be done here, and what to do."""
    if missing == {"restart_engine"}:
        return "nobody said how to restart the engine: set DILOCO_CHAOS_ENGINE_RESTART to a command that does"
    if EVERYWHERE.isdisjoint(missing):
        return "only containers have that: run it with --on compose"
    return f"this place can't {', '.join(sorted(missing))}"
