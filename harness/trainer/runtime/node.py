"""A node's process: `python -m harness.trainer.runtime.node --role learner --name learner-1 ...`; started by a cluster.

Its settings lie in the run's folder (`cluster.json`), its token in the environment (DILOCO_CHAOS_TOKEN). With `--alone`
nobody prepared that folder: the node does so itself, and finds its incarnation, as in `docker compose up`.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.cleanup.parent_death import die_with_parent
from harness.cleanup.processes import TOKEN
from harness.fingerprint import node_digest
from harness.tape import NoTape, TapeWriter, next_incarnation
from harness.trainer.algorithm.tensors import Tensors
from harness.trainer.config.cluster_config import TrainerConfig
from harness.trainer.coordinator import syncer_part
from harness.trainer.coordinator.fragment_state import STATE
from harness.trainer.model.corpus import CorpusError
from harness.trainer.protocol.status import serve_status
from harness.trainer.runtime.cores import learner_core, syncer_core
from harness.trainer.runtime.driver import Driver
from harness.trainer.runtime.failpoints import Failpoints
from harness.trainer.runtime.log import Logged
from harness.trainer.runtime.replica_factory import corpus_for, replicas
from harness.trainer.storage import checkpoint, global_checkpoint
from harness.trainer.storage.disk import Content, FolderDisk

if TYPE_CHECKING:
    from harness.trainer.runtime.client import ClientDriver
    from harness.trainer.runtime.server import ServerDriver

SETTINGS = "cluster.json"
LOOPBACK = "127.0.0.1"


class NodeSettings(BaseModel):
    """What all nodes of a run share, written to the run's folder before they start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trainer: TrainerConfig
    corpus_file: Path | None
    """None for a model that needs none."""
    initial: Path | None = None
    """Checkpoint that the run begins from; None: fresh values from the seed."""
    checkpoint: int = 0
    """Cut that the run goes on from; 0: it begins."""
    elapsed: float = 0.0
    """Seconds that it has lasted by then."""

    def initial_values(self) -> Tensors:
        """The run's start: weights, and AdamW's moments where it goes on from a warm start.

        Raises:
            CheckpointError: the checkpoint can't be trusted.
        """
        if self.initial is None:
            return self.trainer.spec.initial(self.trainer.seed)
        return checkpoint.load(self.initial)[0]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line of a node."""
    parser = argparse.ArgumentParser(prog="python -m harness.trainer.runtime.node", description=__doc__)
    parser.add_argument("--role", choices=["syncer", "learner"], required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--incarnation", type=int, default=0)
    parser.add_argument("--run", type=Path, required=True, help="the run's folder")
    parser.add_argument("--epoch", type=float, default=time.monotonic(),
                        help="the run's beginning on CLOCK_MONOTONIC, seconds; now if not given")
    parser.add_argument("--parent", type=int, help="die with this process")
    parser.add_argument("--alone", type=Path, metavar="CONFIG",
                        help="JSON of the trainer's configuration: prepare the run's folder, find the incarnation")
    parser.add_argument("--host", default=LOOPBACK, help="syncer: address to listen on")
    parser.add_argument("--listen", type=int, default=0, help="syncer: port, 0 for any")
    parser.add_argument("--status", type=int, metavar="PORT", help="answer GET /health and GET /status there")
    parser.add_argument("--log", action="store_true", help="tell on standard output what happens")
    parser.add_argument("--connect", help="learner: host:port of the syncer, or of the link to it")
    parser.add_argument("--no-tape", action="store_true", help="record nothing, to measure what recording costs")
    parser.add_argument("--failpoint", action="append", default=[], metavar="POINT[:N]",
                        help="stop at the N-th time that this point of the protocol is reached")
    return parser.parse_args(arguments)


def holds(options: Sequence[str]) -> dict[str, int]:
    """`upload.half:3` -> {"upload.half": 3}."""
    pairs = [option.partition(":") for option in options]
    return {point: int(times or 1) for point, _, times in pairs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one node until training is over or somebody ends it."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.parent:
        die_with_parent(options.parent)
    faulthandler.register(signal.SIGUSR1)  # a run that misses its deadline leaves every node's stacks in its log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the harness ends its nodes itself
    if options.alone:
        try:
            prepare(options.run, TrainerConfig.model_validate_json(options.alone.read_text()))
        except (CorpusError, OSError, ValidationError) as error:
            print(f"{options.alone}: {error}", file=sys.stderr)
            return 2
        options.incarnation = next_incarnation(options.run / "tape", options.name)
    kind = NoTape if options.no_tape else Logged if options.log else TapeWriter
    tape = kind(options.run / "tape", options.name, options.incarnation, options.epoch)
    tape.record("start", role=options.role, pid=os.getpid(), sources=node_digest())
    settings = NodeSettings.model_validate_json((options.run / SETTINGS).read_text())
    try:
        asyncio.run(_run(options, settings, tape))
    except checkpoint.CheckpointError as error:
        tape.record("refused_checkpoint", reason=str(error))
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        tape.record("failed", reason=str(error))
        print(f"{options.name}: {error}", file=sys.stderr)
        return 1
    tape.record("exit")
    return 0


def prepare(run: Path, config: TrainerConfig) -> None:
    """Make what a run's folder needs, where it is not there yet; several nodes may do so at once.

    Raises:
        CorpusError: the corpus can't be used.
    """
    if not (run / SETTINGS).exists():
        corpus, _ = corpus_for(config, run / "corpora")
        unfinished = run / f"{SETTINGS}.{secrets.token_hex(8)}.partial"  # in containers all pids are alike
        unfinished.write_text(NodeSettings(trainer=config, corpus_file=corpus).model_dump_json(indent=2))
        unfinished.replace(run / SETTINGS)


async def _run(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> None:
    driver: Driver = (_syncer if options.role == "syncer" else _learner)(options, settings, tape)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: driver.feed(None))
    if options.status:
        who = {"node": options.name, "incarnation": options.incarnation}
        await serve_status(options.host, options.status, lambda: {**who, **driver.status()})
    host, _, port = (options.connect or f"{options.host}:{options.listen}").rpartition(":")
    await driver.run(host, int(port))


def _part(options: argparse.Namespace, settings: NodeSettings) -> Content | None:
    """What this very process was at the checkpoint that the run goes on from."""
    part = global_checkpoint.part_of(options.run, settings.checkpoint, options.name) if settings.checkpoint else None
    return global_checkpoint.own(part, options.incarnation)


def _syncer(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> ServerDriver:
    from harness.trainer.runtime.server import ServerDriver
    disk = FolderDisk(options.run / STATE)
    part = _part(options, settings)
    if part is not None:
        syncer_part.put_back_once(options.run, settings.checkpoint, options.name, part, disk)
    core = syncer_core(settings.trainer, disk, settings.initial_values(), options.incarnation)
    points = Failpoints(holds(options.failpoint), part)
    return ServerDriver(core, tape, options.epoch, options.run, points, os.environ[TOKEN])


def _learner(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> ClientDriver:
    from harness.trainer.runtime.client import ClientDriver
    config = settings.trainer
    make = replicas(config, settings.corpus_file, settings.initial_values())
    tape.record("imported")
    part = _part(options, settings)
    core = learner_core(config, options.name, options.incarnation, os.environ[TOKEN],
                        make(config.names.index(options.name)), part)
    return ClientDriver(core, tape, options.epoch, options.run, Failpoints(holds(options.failpoint), part))


if __name__ == "__main__":
    sys.exit(main())
