"""Which commands are this user's own: those that were started from this folder before.

A plan's file may come from anybody, and its trainer may be commands. What tells an own plan from another one must be
nothing that can be put into the file, or beside it. So every run leaves a record in the user's state folder, which
comes with no checkout, archive or folder of runs. The record's name is a digest of all that the plan says of its
trainer, and of the folder from which it was started: `python train.py` is another program in another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.record.storage.files import write_whole
from diloco_chaos.harness.record.undo_log import state_folder

_CHANCE = {"seed", "joining"}
"""Of settings, what freezing adds."""


def commands_of(plan: Plan) -> Mapping[str, str]:
    """Return what a run of this plan executes because the plan says so: a name -> a command line that can be printed.
    Empty where the plan is nothing but data."""
    return {printable(name): printable(" ".join(line.split()))
            for name, line in plan.trainer.commands().items()}


def started_before(plan: Plan) -> bool:
    """Return whether this user has started the plan's commands from this folder; true where it has none."""
    if not commands_of(plan):
        return True
    try:
        record = _record(plan).lstat()
    except OSError:
        return False
    return stat.S_ISREG(record.st_mode) and record.st_uid == os.getuid()


def remember(plan: Plan) -> None:
    """Record that the plan's commands are started here.

    Raises:
        OSError: it can't be recorded.
    """
    commands = commands_of(plan)
    if commands and not started_before(plan):
        record = _record(plan)
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(record, json.dumps({"folder": os.getcwd(), "commands": commands}, indent=2) + "\n")


def _record(plan: Plan) -> Path:
    content = {"folder": os.getcwd(), "trainer": plan.trainer.name,
               "settings": plan.cluster.model_dump(mode="json", by_alias=True, exclude=_CHANCE)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return state_folder() / "commands" / f"{digest}.json"
