"""A trainer that is made of commands, as the experiment sees it: `trainer: {kind: commands, ...}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.api.counting import ROUNDS, Counting
from diloco_chaos.harness.trainers.api.settings import Evidence, TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import OFTEN, Role, ToldLoss, Trainer, TrainerError, Witness, Workload
from diloco_chaos.harness.trainers.commands.lacking import lacking_here, lacking_in_containers
from diloco_chaos.harness.trainers.commands.lint import lint
from diloco_chaos.harness.trainers.commands.losses import POINTS, curve, curves
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.commands.witness import LogWitness
from diloco_chaos.harness.trainers.core.programs import Program
from diloco_chaos.harness.trainers.core.round_reports import Lint

_OURS = ("learners", "joining", "budget", "step_time", "speeds", "variance", "heartbeat_timeout", "seed")
_NO_ROUNDS = dict.fromkeys(("poison", "lie", "join", "clock_jump", "restart_links", "restart_engine"), "") | {
    "corrupt_memory": "`io` with `corrupt: bit`", "power_loss": "`kill` with `lose_unsynced: true`"}
"""Faults of the built-in trainer's own protocol, memory or files -> what hits commands instead."""
_OF_STATE = frozenset({"corrupt", "truncate", "delete"})
_OF_WRITES: Mapping[str, Mapping[str, Any]] = {
    "full_disk": {"error": "ENOSPC"}, "write_limit": {"error": "EFBIG", "after_bytes": "4kB"}}
"""Faults of the disk that the state lies on -> what becomes of writes into the folder that is named as it."""
_WHEN_AND_WHOM = frozenset({"kind", "targets", "domains", "id", "at", "when", "after", "for"})


class Commands(Trainer):
    """See the module."""

    name: ClassVar[str] = "commands"
    settings_type: ClassVar[type[TrainerSettings]] = CommandSettings
    settings: CommandSettings
    baselines_are_kept: ClassVar[bool] = False  # nobody knows what commands read
    tells_losses: ClassVar[bool] = True
    own_failpoints: ClassVar[bool] = True
    counting: ClassVar[Counting] = ROUNDS
    evidence: ClassVar[frozenset[Evidence]] = frozenset({"rounds"})
    evidence_wanting: ClassVar[Mapping[Evidence, str]] = {
        "tokens": "what became of every step", "fragments": "versions of what is merged",
        "replicas": "digests of what is merged, and of what its receivers took",
        "protocol": "its word on who is gone and when training is over"}
    writers: ClassVar[Sequence[str]] = ()
    coordinator: ClassVar[str | None] = None
    ends_by_itself: ClassVar[bool] = False
    loss_unit: ClassVar[str] = "as the trainer tells it"

    @property
    def algorithm(self) -> str:
        """Whatever the commands do."""
        return f"{len(self.settings.names)} workers, {len(self.settings.all_nodes)} nodes"

    def lacking(self, *, containers: bool = False) -> str:
        """Programs and folders that are not there; in containers: what can't be done there."""
        return "; ".join((lacking_in_containers if containers else lacking_here)(self.settings))

    @property
    def keepers(self) -> Sequence[str]:
        """Return the nodes whose state folder the settings name."""
        return [name for kind, spec in self.settings.nodes.items() if spec.state for name in spec.names(kind)]

    def process_names(self, node: str) -> Sequence[str]:
        """Return the names that the node's kind states."""
        return list(spec.processes) if (spec := self.settings.kind_of(node)) else ()

    def may_end_with(self, node: str) -> Sequence[int]:
        """Return the exit statuses that the node's kind allows."""
        return spec.exits if (spec := self.settings.kind_of(node)) else ()

    def must_leave_nothing(self, node: str) -> bool:
        """Return whether the node's kind says `left_behind: fail`."""
        spec = self.settings.kind_of(node)
        return spec is not None and spec.left_behind == "fail"

    @property
    def logs_whom_it_misses(self) -> bool:
        """Return whether the settings have an expression for such lines."""
        return self.settings.noticed is not None

    @property
    def logs_who_is_ready(self) -> bool:
        """Return whether the settings have an expression for such lines."""
        return self.settings.ready is not None

    def is_silent(self, node: str) -> bool:
        """Return whether the node's kind says `worker: silent`."""
        return node in self.settings.silent

    def ranks_of(self, node: str) -> int:
        """Return the `ranks` of the node's kind."""
        return spec.ranks if (spec := self.settings.kind_of(node)) else 0

    def workload(self, data: Path | None, initial: Tensors, threads: int = 1) -> Workload:
        """There is none."""
        raise TrainerError("a trainer of commands has no cores of ours: it can't be simulated")

    def programs(self) -> Mapping[str, Program]:
        """Return the programs of all its nodes."""
        return self.settings.programs

    def witness(self, run: Path, epoch: float) -> Witness | None:
        """It reads logs."""
        return LogWitness(self.settings, run, epoch)

    def reports_in(self) -> Sequence[str]:
        """Return the paths that `progress` names."""
        return [entry.path for entry in self.settings.progress if entry.path]

    def read_log(self, lines: Sequence[str], node: str, written: datetime) -> Lint:
        """Check lines of a log with the readers that `progress` has for this node."""
        sources = self.settings.sources(node)
        if not sources:
            known = dict.fromkeys(entry.node for entry in self.settings.progress)
            raise TrainerError(f"`progress` has nothing for {node!r}: it has something for "
                               f"{', '.join(known) or 'nobody'}")
        return lint(lines, [source.reader for source in sources], written)

    def commands(self) -> Mapping[str, str]:
        """Return the command lines of all nodes, and of the baseline."""
        return self.settings.commands

    def objections(self) -> Iterable[tuple[Any, ...]]:
        """Yield what can't work."""
        for key in _OURS:
            if key in self.settings.model_fields_set and key not in ("learners", "joining", "seed"):
                yield key, f"{key}: commands have no such setting: it is whatever they do"
        for place, why in self.settings.mistakes():
            yield (*place, why)

    def baseline(self) -> TrainerSettings:
        """The command that a scenario has for it; else the same nodes."""
        return self.settings.alone or self.settings

    @property
    def baseline_name(self) -> str:
        """A command of its own, or the same nodes."""
        return "baseline" if self.settings.baseline else super().baseline_name

    @property
    def last_snapshot(self) -> int:
        """Return the number of the last point of the curve of losses, if there is one; else 0."""
        return POINTS if self.settings.tells_losses else 0

    def told_losses(self, tape: Tape) -> Sequence[ToldLoss]:
        """Return the loss curve of the `step` events; empty where the number of rounds is not given."""
        return curve(tape.of(Step), self.settings.target) if self.settings.rounds else ()

    def workers_losses(self, tape: Tape) -> Mapping[str, Sequence[ToldLoss]]:
        """Return the loss curve of every worker, from its `step` events."""
        return curves(tape.of(Step), self.settings.target) if self.settings.rounds else {}

    def unfinished(self, processed: int) -> str:
        """It made fewer rounds than are wanted."""
        wanted = self.settings.budget_tokens
        return f"ended with round {processed} of {wanted}" if processed < wanted else ""

    def events(self, role: Role) -> frozenset[str]:
        """A `step` is a round that a worker told of."""
        return frozenset({"step", "start"}) if role == "learner" else frozenset({"hello", "lost", "merge", "steady"})

    def most(self, event: str) -> int | None:
        """Return as many rounds as are wanted."""
        return self.settings.target * len(self.settings.names) or None if event == "step" else None

    def drawn_events(self, role: Role) -> Mapping[str, Sequence[int]]:
        """Rounds."""
        return {"step": OFTEN}

    def means(self, fault: dict[str, Any]) -> dict[str, Any]:
        """Return `io` on the state of its targets for what else befalls the disk of that; itself where they don't have
        one alike."""
        if fault["kind"] not in _OF_WRITES or fault.keys() - _WHEN_AND_WHOM:
            return fault
        listed = fault["targets"] if isinstance(fault["targets"], list | tuple) else [fault["targets"]]
        states = {spec.state if (spec := self.settings.kind_of(str(name))) else "" for name in listed}
        if len(states) != 1 or not (state := states.pop()):
            return fault
        return {**fault, **_OF_WRITES[fault["kind"]], "kind": "io", "path": f"{state}/*", "calls": "write"}

    def refusal(self, kind: str, part: str = "") -> str:
        """Return why a fault makes no sense that needs the trainer's own protocol, memory or files; empty where it
        does."""
        if kind in _OF_STATE and not self.keepers:
            return f"{kind}: nobody knows what these nodes keep: write `state: \"{{run}}/state/{{name}}\"` where it is"
        if kind in _OF_WRITES:
            return (f"{kind}: commands come back by their `restart`, and write where nobody knows: leave "
                    f"`restart_after` out, write `state: \"{{run}}/state/{{name}}\"` at the node, and one fault for "
                    f"each kind of nodes, or take `io` with `error: ENOSPC`")
        if kind not in _NO_ROUNDS:
            return ""
        instead = f"; take {_NO_ROUNDS[kind]}" if _NO_ROUNDS[kind] else ""
        return f"{kind}: nothing is known of what commands keep, or speak{instead}"
