"""A node's process: `python -m diloco_chaos.harness.trainers.node.process --role learner --name learner-1 ...`.

A cluster starts it.
Its settings lie in the run's folder (`cluster.json`), its token in the environment (DILOCO_CHAOS_TOKEN). With `--alone`
nobody prepared that folder: the node does so itself, and finds its incarnation, as in `docker compose up`.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from diloco_chaos.harness.base.fingerprint import node_digest
from diloco_chaos.harness.base.parent_death import die_with_parent
from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import STATE, Content, FolderDisk
from diloco_chaos.harness.record.storage.files import write_whole
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.writing import NoTape, TapeWriter, earlier, next_incarnation
from diloco_chaos.harness.trainers.api.trainer import TrainerError, at
from diloco_chaos.harness.trainers.node.driver import Driver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints, passed
from diloco_chaos.harness.trainers.node.log import Logged
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
from diloco_chaos.harness.trainers.storage import global_checkpoint

if TYPE_CHECKING:
    from diloco_chaos.harness.trainers.node.client import ClientDriver
    from diloco_chaos.harness.trainers.node.server import ServerDriver

LOOPBACK = "127.0.0.1"
BUILT_IN = "diloco_chaos.harness.trainer.plugin:DecoupledDiLoCo"
"""Whose node it is, where nobody says."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line of a node."""
    parser = argparse.ArgumentParser(prog="python -m diloco_chaos.harness.trainers.node.process", description=__doc__)
    parser.add_argument("--role", choices=["syncer", "learner"], required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--incarnation", type=int, default=0)
    parser.add_argument("--run", type=Path, required=True, help="the run's folder")
    parser.add_argument("--epoch", type=float, default=time.monotonic(),
                        help="the run's beginning on CLOCK_MONOTONIC, seconds; now if not given")
    parser.add_argument("--parent", type=int, help="die with this process")
    parser.add_argument("--alone", type=Path, metavar="CONFIG",
                        help="JSON of the trainer's settings: prepare the run's folder, find the incarnation")
    parser.add_argument("--trainer", default=BUILT_IN, metavar="MODULE:CLASS", help="with --alone: whose settings")
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
    """Run one node until training is over or SIGTERM ends it, and return the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if options.parent:
        die_with_parent(options.parent)
    faulthandler.register(signal.SIGUSR1)  # a run that misses its deadline leaves every node's stacks in its log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the harness ends its nodes itself
    if options.alone:
        try:
            prepare(options.run, options.trainer, options.alone.read_text())
        except (TrainerError, OSError, ValidationError) as error:
            print(f"{options.alone}: {error}", file=sys.stderr)
            return 2
        options.incarnation = next_incarnation(options.run / "tape", options.name)
    kind = NoTape if options.no_tape else Logged if options.log else TapeWriter
    tape = kind(options.run / "tape", options.name, options.incarnation, options.epoch)
    tape.record(events.Start(role=options.role, pid=os.getpid(), sources=node_digest()))
    settings = NodeSettings.model_validate_json((options.run / SETTINGS).read_text())
    try:
        terminated = asyncio.run(_run(options, settings, tape))
    except checkpoint.CheckpointError as error:
        tape.record(events.RefusedCheckpoint(reason=str(error)))
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        tape.record(events.Failed(reason=str(error)))
        print(f"{options.name}: {error}", file=sys.stderr)
        return 1
    tape.record(events.Exit(told=terminated))
    return 0


def prepare(run: Path, trainer: str, settings: str) -> None:
    """Make what a run's folder needs, where it is missing; several nodes may do so at once.

    Raises:
        TrainerError: there is no such trainer, or what it is trained on can't be used.
        ValidationError: these are no settings of it.
    """
    if not (run / SETTINGS).exists():
        trainer_type = at(trainer)
        config = trainer_type.settings_type.model_validate_json(settings)
        data = trainer_type(config).prepare(run / "corpora").file
        shared = NodeSettings(trainer=trainer, cluster=config, data=data)
        write_whole(run / SETTINGS, shared.model_dump_json(by_alias=True, indent=2))


async def _run(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> bool:
    """Run the node to its end, and return whether SIGTERM ended it."""
    driver: Driver = (_syncer if options.role == "syncer" else _learner)(options, settings, tape)
    terminated = False

    def end() -> None:
        nonlocal terminated
        terminated = True
        driver.feed(None)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    if options.status:
        from diloco_chaos.harness.trainers.node.status import serve_status
        identity = {"node": options.name, "incarnation": options.incarnation}
        await serve_status(options.host, options.status, lambda: {**identity, **driver.status()})
    host, _, port = (options.connect or f"{options.host}:{options.listen}").rpartition(":")
    await driver.run(host, int(port))
    return terminated


def _part(options: argparse.Namespace, settings: NodeSettings) -> Content | None:
    """Return what this very process was at the checkpoint that the run goes on from."""
    part = global_checkpoint.part_of(options.run, settings.checkpoint, options.name) if settings.checkpoint else None
    return global_checkpoint.own(part, options.incarnation)


def _syncer(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> ServerDriver:
    from diloco_chaos.harness.trainers.node.server import ServerDriver
    disk, workload = FolderDisk(options.run / STATE), settings.workload()
    part = _part(options, settings)
    if part is not None:
        global_checkpoint.put_back_once(options.run, settings.checkpoint, options.name,
                                        lambda: workload.put_back(part, disk))
    core = workload.coordinator(disk, options.incarnation)
    return ServerDriver(core, tape, options.epoch, options.run, _failpoints(options, part), os.environ[TOKEN],
                        settings.workings(options.run, options.name, options.incarnation))


def _learner(options: argparse.Namespace, settings: NodeSettings, tape: TapeWriter) -> ClientDriver:
    from diloco_chaos.harness.trainers.node.client import ClientDriver
    part = _part(options, settings)
    core = settings.workload().worker(options.name, options.incarnation, os.environ[TOKEN], part)
    tape.record(events.Imported())
    return ClientDriver(core, tape, options.epoch, options.run, _failpoints(options, part),
                        settings.workings(options.run, options.name, options.incarnation))


def _failpoints(options: argparse.Namespace, part: Content | None) -> Failpoints:
    """Return the failpoints that are asked for, counted on from where the node's processes before this one came to."""
    wanted = holds(options.failpoint)
    before = passed(earlier(options.run / "tape", options.name, options.incarnation)) if wanted else {}
    return Failpoints(wanted, part, before)


if __name__ == "__main__":
    status = main()
    gc.freeze()  # else torch's many objects are looked through once more before the process ends, for a second
    sys.exit(status)
