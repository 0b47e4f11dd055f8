"""Faults of state: damaged checkpoints, writes that fail half-way, memory that fails."""

from __future__ import annotations

import random
import signal
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from diloco_chaos.faults.base import Drawn, Fault, FaultContext, Observation, Strain
from diloco_chaos.faults.evidence import Effect, Evidence, Injection, exits, status_words
from diloco_chaos.faults.processes.process import TYPICAL_START_S, Ending
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.storage.checkpoint import PARTIAL
from diloco_chaos.harness.record.tape.events import (
    Corrupted,
    Exit,
    Failed,
    FileRead,
    MemoryContent,
    MemoryPart,
    RefusedCheckpoint,
    Repaired,
    Reset,
    Resumed,
    Spawn,
    Step,
)
from diloco_chaos.harness.trainers.core.memory import Corruption

_SMALL, _SHOWN = 10, 5
_DRAWN = {"restart_after": ("1s", "200ms"), "files": (1, 3, 64)}


class Damage(Ending):
    """Whoever keeps state (the syncer) is killed, and finds a damaged checkpoint when it comes back. There is nothing
    to undo: what it goes on from replaces what was damaged."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart", "state"})
    target_role = "syncer"

    restart_after: Seconds | None = Field(1.0, gt=0)
    files: int = Field(1, ge=1, le=4096)
    """How many of its files are damaged."""
    mirrors: bool = False
    """Damage both copies of each: then there is nothing to go on from."""
    which: str | None = Field(None, min_length=1)
    """Which files: `newest`, `all`, or a pattern of names such as `step-*/model.*`, the newest first. If not given, the
    newest of a trainer of commands, and any of the built-in one's, which are all in use."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Of the choice of files and bytes; a plan's freezing sets it."""

    def inject(self, hit: FaultContext) -> Observation:
        """Kill the node, wait until no process writes any more, and damage the files that it left."""
        node, chance = self.targets[0], random.Random(self.seed)
        hit.cluster.kill(node, self.restart_after)
        hit.cluster.wait_gone(node)
        files = {name: size for name, size in hit.cluster.state_files(node).items() if size}
        which = self.which or ("newest" if hit.spec(node).program else "")
        chosen = self._aimed_at(files, which) if which else self._drawn_from(files, chance)
        if not chosen and which not in ("", "newest", "all"):
            return {"ok": False, "damaged": "", "why": f"no file matches {which!r}; there {_are(files)}"}
        seen = [hit.cluster.alter(node, name, lambda content: self.damaged(content, chance)) for name in chosen]
        nothing_left = self.kind == "delete" and len(chosen) == len(files)  # then nobody can go on from another one
        watched = hit.spec(node).program is not None and bool(seen) and all(seen) and not nothing_left
        return {"damaged": ", ".join(chosen)} | ({"watched": True} if watched else {})

    def _drawn_from(self, files: Mapping[str, int], chance: random.Random) -> list[str]:
        names = sorted(files)
        first = [name for name in names if ".mirror." not in name]
        chosen = chance.sample(first, min(self.files, len(first)))
        if self.mirrors:
            chosen += [name for name in names if name not in first and name.replace(".mirror.", ".") in chosen]
        return chosen

    def _aimed_at(self, files: Mapping[str, int], which: str) -> list[str]:
        """Choose by age; `files` has the newest first. What is small beside the largest only tells of a checkpoint, and
        what has a name for the time being is not finished: neither is one."""
        if which == "all":
            return list(files)
        if which != "newest":
            return [name for name in files if fnmatchcase(name, which)][:self.files]
        whole = [name for name in files if not _unfinished(name)] or list(files)
        most = max((files[name] for name in whole), default=0)
        return [name for name in whole if files[name] * _SMALL >= most][:self.files]

    def damaged(self, content: bytes, chance: random.Random) -> bytes | None:
        """The file's content afterwards; None: it is gone."""
        raise NotImplementedError

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return whether the node was killed and its successor noticed what was damaged; a learner records no repairs,
        and only its kill counts."""
        files = [name for name in str(on.observed.get("damaged", "")).split(", ") if name]
        next_one = next((event for event in run.tape.of(Spawn, node="harness")
                         if event.target == self.targets[0] and event.t > on.began), None)
        gone = [event for event in run.tape.of(Exit, node="harness") if event.target == self.targets[0]
                and (next_one is None or event.t <= next_one.t)]  # another fault may have killed it before
        if not files or not gone or gone[-1].status != -signal.SIGKILL:
            return Effect(False, "no file was damaged" if not files else f"{self.targets[0]} was not killed")
        if self.targets[0] != run.coordinator:
            return self._met(run, on, files, next_one)
        successor = gone[-1].incarnation + 1
        later = [event for event in run.tape.of(Repaired, RefusedCheckpoint, node=self.targets[0])
                 if event.inc == successor]
        if any(isinstance(event, RefusedCheckpoint) for event in later):
            return Effect(True, f"{', '.join(files)} damaged; the syncer refused to go on")
        repaired = {event.file: event.reason for event in later if isinstance(event, Repaired)}
        missed = [name for name in files if name not in repaired]
        if missed and all(name.endswith(PARTIAL) for name in missed):
            return Effect(False, f"{', '.join(missed)} was not finished, and nothing goes on from it")
        if missed:
            went_on = any(event.inc == successor for event in run.tape.of(Resumed, node=self.targets[0]))
            return Effect(went_on, f"the syncer did not notice {', '.join(missed)}", reacted=False)
        return Effect(True, f"{', '.join(files)} damaged, and made good from the other copy")

    def _met(self, run: Evidence, on: Injection, files: Sequence[str], successor: Spawn | None) -> Effect:
        """Return whether the damage was met where the trainer does not record what it found: whether a process read it,
        if that was watched."""
        damaged = f"{', '.join(files)} damaged"
        if not on.observed.get("watched"):
            return Effect(True, damaged)
        since = on.began if successor is None else successor.t
        read = [event.file for event in run.tape.of(FileRead, node="harness")
                if event.target == self.targets[0] and event.t >= since]
        met = [name for name in files if name in read]
        if met:
            what = "another file beside it was" if self.kind == "delete" else f"{', '.join(met)} was"
            return Effect(True, f"{damaged}, and {what} read afterwards")
        if self.kind == "delete" and successor is not None and self._began_anew(run, successor):
            return Effect(True, f"{damaged}, and {self.targets[0]} began anew")
        if successor is None:
            return Effect(False, f"{damaged}, but no process read that: {self.targets[0]} was not started again")
        return Effect(False, f"{damaged}, but no process read that afterwards: {self.targets[0]} does not go on from "
                             f"it; name the file that it reads: `which: PATTERN`")

    def _began_anew(self, run: Evidence, successor: Spawn) -> bool:
        """Return whether its successor's first round is no later than the first one that the node ever made."""
        rounds = list(run.tape.of(Step, node=self.targets[0]))
        mine = [event.step for event in rounds if event.inc == successor.incarnation]
        return bool(mine) and mine[0] <= min(event.step for event in rounds if event.inc < successor.incarnation)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        copies = " and their mirrors" if self.mirrors else ""
        count = "a checkpoint" if self.files == 1 else f"{self.files} checkpoints"
        if self.which:
            count = {"newest": "the newest checkpoint" if self.files == 1 else f"the newest {self.files} files",
                     "all": "all checkpoints"}.get(self.which, f"{count} ({self.which})")
        return f"{self.kind} {count}{copies} of {names(self.targets)}, killed{self.back()}"


    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without `which` where it is not given: older frozen plans lack it."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if (key, value) != ("which", None)}


def _unfinished(name: str) -> bool:
    """Return whether a file has a name that it bears until it is whole."""
    last = name.rpartition("/")[2].lower()
    return last.startswith(".") or last.endswith(("~", ".tmp", ".temp", ".part", ".partial", ".incomplete"))


def _are(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"are {shown}" if shown else "is none"


class Corrupt(Damage):
    """Bits turn over, of a safetensors file those of its tensors: a header that can't be read needs no digest to be
    noticed, and of a small file it is most."""

    drawn = Drawn(190, _DRAWN, family="damage")

    kind: Literal["corrupt"] = "corrupt"

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        """One byte in a thousand is another one, at least one of them."""
        changed, start = bytearray(content), _values_from(content)
        for _ in range(max(1, len(changed) // 1000)):
            place = chance.randrange(start, len(changed))
            changed[place] ^= chance.randrange(1, 256)
        if bytes(changed) == content:  # two turns of one byte may cancel each other
            changed[-1] ^= 1
        return bytes(changed)


def _values_from(content: bytes) -> int:
    """Return where the tensors of a safetensors file begin: eight bytes tell the length of the header, which is JSON.
    Of any other file, and of one without tensors, 0."""
    begin = 8 + int.from_bytes(content[:8], "little")
    return begin if content[8:9] == b"{" and begin < len(content) else 0


class Truncate(Damage):
    """The end is missing."""

    drawn = Drawn(200, _DRAWN, family="damage")

    kind: Literal["truncate"] = "truncate"

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        """Somewhere between nothing and all but a byte is left."""
        return content[:chance.randrange(len(content))]


class Delete(Damage):
    """The file is gone."""

    drawn = Drawn(210, _DRAWN, family="damage")

    kind: Literal["delete"] = "delete"

    def damaged(self, content: bytes, chance: random.Random) -> None:
        """Nothing is left."""
        return


class FailingWrites(Fault):
    """What the syncer wants to save can't be written. It ends rather than go on without what it could not save, and
    comes back when it can."""

    target_role = "syncer"
    stops_target: ClassVar[bool] = True
    strains: ClassVar[frozenset[Strain]] = frozenset({"disks"})

    restart_after: Seconds = 1.0

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """A write of each target failed, and it ended for that reason."""
        gone, felt = exits(run, self.targets, on), []
        for node in self.targets:
            failed = next((event for event in run.tape.of(Failed, node=node) if event.t > on.began), None)
            if failed is None:
                return Effect(False, f"no write of {node} failed" if len(self.targets) > 1 else "no write failed")
            if node not in gone:
                return Effect(False, f"the {node} did not end")
            felt.append(self._failed(failed.reason, status_words(gone[node].status), on))
        return next((each for each in felt if not each.ok), Effect(True, "; ".join(each.observed for each in felt)))

    def _failed(self, reason: str, status: str, on: Injection) -> Effect:
        raise NotImplementedError

    def starts_process(self) -> bool:
        """Once it can write again."""
        return True

    def expected_lost_time(self) -> float:
        """Return the time until the target is back, in seconds."""
        return self.restart_after + TYPICAL_START_S


class WriteLimit(FailingWrites):
    """A file size limit set from outside on the process: its next large write fails half-way, as on a full disk."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"limit_writes", "restart", "state"})

    drawn = Drawn(250, {"for": ("2s", "1s", "4s"), "restart_after": ("1s", "200ms")}, family="disk")

    kind: Literal["write_limit"] = "write_limit"

    @model_validator(mode="after")
    def _one_by_one(self) -> WriteLimit:
        if len(self.targets) != 1:
            raise ValueError(f"one node at a time, for each has a limit of its own: write one write_limit for each of "
                             f"{names(self.targets)}")
        return self

    def _failed(self, reason: str, status: str, on: Injection) -> Effect:
        return Effect(True, f"a write beyond {on.observed.get('limit_bytes')} bytes failed ({reason}), "
                            f"exit status {status}")

    def inject(self, hit: FaultContext) -> Observation:
        """Limit writes to a size between that of its tape, which must go on, and that of its largest checkpoint."""
        node = self.targets[0]
        largest, tape = max(hit.cluster.state_files(node).values(), default=0), hit.cluster.tape_size(node)
        if largest < 2 * tape:
            return {"ok": False, "why": f"its tape ({tape} bytes) is too large beside its largest checkpoint "
                                        f"({largest} bytes): hit earlier, or use fewer fragments"}
        size = (largest + tape) // 2
        hit.cluster.limit_writes(node, size, self.restart_after)
        return {"limit_bytes": size}

    def undo(self, hit: FaultContext) -> None:
        """No limit any more; a process that died of it is not concerned."""
        for target in self.targets:
            hit.cluster.unlimit_writes(target)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return (f"writes of {names(self.targets)} fail half-way {self.describe_duration()}, "
                f"back after {show_seconds(self.restart_after)}")


class CorruptMemory(Fault):
    """Values in one learner's memory become NaN, or have bits turned over. There is nothing to undo: a learner whose
    weights can't be right drops all that it has, and is sent everything."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"corrupt_memory", "pause"})
    reversible: ClassVar[bool] = False
    corrupts_memory: ClassVar[bool] = True
    frees: ClassVar[bool] = True
    target_role = "learner"
    drawn = Drawn(170, {"content": ("nan", "bits"), "values": (16, 1, 256)}, family="values")

    kind: Literal["corrupt_memory"] = "corrupt_memory"
    part: MemoryPart = "weights"
    """`weights`, or `moments` of AdamW."""
    content: MemoryContent = "nan"
    """`nan`, or `bits`: one bit of each value is turned over."""
    values: int = Field(16, ge=1, le=1_000_000)
    """How many values are hit, in each target."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Of the choice of values and bits; a plan's freezing sets it."""

    def inject(self, hit: FaultContext) -> Observation:
        """It happens before the targets' next inner steps; one that holds for it goes on."""
        for target in self.targets:
            hit.cluster.corrupt_memory(target, Corruption(hit.id, self.part, self.content, self.values, self.seed))
            if self.when is not None and self.when.failpoint is not None:
                hit.cluster.pause(target)
                hit.cluster.resume(target)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target says what happened to its memory, and what came of it."""
        words = []
        for target in self.targets:
            hit = next((event for event in run.tape.of(Corrupted, node=target) if event.fault == on.id), None)
            if hit is None:
                return Effect(False, f"{target} went on before its memory could fail")
            reset = next((event for event in run.tape.of(Reset, node=target)
                          if event.t >= hit.t and event.inc == hit.inc), None)
            what = ("went on with it" if reset is None else
                    f"dropped all that it had after {show_seconds(reset.t - hit.t)}")
            words.append(f"{target} {what}" + (f" ({reset.reason})" if reset else ""))
        return Effect(True, f"{self.values} {self.part} hit; " + "; ".join(words))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        what = "become NaN" if self.content == "nan" else "have a bit turned over"
        return f"{self.values} of the {self.part} of {names(self.targets)} {what}"
