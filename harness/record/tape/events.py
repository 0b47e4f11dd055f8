"""Every event of the log, with its fields: the contract by which a trainer comes under test.

One class a kind; its name in snake case is the event's name. What is written here is checked when a line is read, and
docs/evidence.md's tables are made from it. A field with a default may be missing on a line; all others must be there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from msgspec import Meta, Struct, field

SCHEMA = 3
"""Of the tape. 2 had the rounds of a trainer of commands under the name `syncer`; 1 had other names of events."""

MemoryPart = Literal["weights", "moments"]
MemoryContent = Literal["nan", "bits"]
_LONGEST_S = 1e7
"""Four months: no run is longer."""


def snake(name: str) -> str:
    """`OuterGradient` as `outer_gradient`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def member_name(node: str, rank: str | None) -> str:
    """Return the name of a member of a round: a worker, or `NODE/rank-RANK`, as a fault of that process calls it."""
    return node if rank is None else f"{node}/rank-{rank}"


class Event(Struct, tag_field="event", tag=snake, kw_only=True, omit_defaults=True, gc=False):
    """What every line has. A node records an event without these three; `stamped` adds them."""

    t: Annotated[float, Meta(ge=-_LONGEST_S, le=_LONGEST_S)] = math.nan
    """Seconds since the run began (CLOCK_MONOTONIC, which all processes of one machine share)."""
    node: str = ""
    """The node that the event is from."""
    inc: int = -1
    """Incarnation of the process that wrote it: how many processes this node had before."""

    times: ClassVar[tuple[str, ...]] = ()
    """Fields that are times on the writer's clock, in seconds since the run began."""

    def stamped(self, t: float, node: str, inc: int) -> Self:
        """The same event, with when it was and whose it is."""
        self.t, self.node, self.inc = round(t, 6), node, inc
        return self

    @property
    def whole(self) -> bool:
        """Whether its line said when it was and whose it is."""
        return self.inc >= 0 and self.node != "" and not math.isnan(self.t)

    @classmethod
    def name(cls) -> str:
        """The event's name on the tape."""
        return str(cls.__struct_config__.tag)

    @property
    def event(self) -> str:
        """The event's name on the tape."""
        return str(type(self).__struct_config__.tag)

    def payload(self) -> Iterator[tuple[str, Any]]:
        """Its own fields by the names that they have on the tape, without those that are missing."""
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, self._defaults(), strict=True)
        for attribute, name, default in names:
            value = getattr(self, attribute)
            if attribute not in _ENVELOPE and value is not default:
                yield name, value

    @classmethod
    def _defaults(cls) -> tuple[Any, ...]:
        missing = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
        return (_REQUIRED,) * missing + cls.__struct_defaults__


_ENVELOPE = ("t", "node", "inc")
_REQUIRED = object()


class Custom(Event, tag="custom"):
    """An event that only its own trainer knows."""

    kind: str
    """Its name."""
    fields: Mapping[str, Any]

    @property
    def event(self) -> str:
        """The event's name on the tape."""
        return self.kind

    def payload(self) -> Iterator[tuple[str, Any]]:
        """Its own fields."""
        yield from self.fields.items()


# -- any node --------------------------------------------------------------------------------------------------------

class Start(Event):
    """A process began."""

    role: str = ""
    """`syncer`, `learner`, or `service` for a node of commands that is no worker."""
    pid: int | None = None
    sources: str = ""
    """Digest of the sources that the process runs."""


class Failpoint(Event):
    """A process stands still at a named point, until a fault ends it or lets it go on."""

    point: str
    count: int | None = None
    """How often the node has come to this point since the steady state."""


class FailpointPassed(Event):
    """A process came to a named point at which it is to stop later."""

    point: str
    count: int


class Noticed(Event):
    """A node of commands wrote a line that says that somebody is missed; the first hundred of each process."""

    line: str


class Prepared(Event):
    """A worker of commands wrote a line that says that it is ready to train; the first hundred of each process."""

    line: str


class StaleRound(Event):
    """A process of a command told of a round, though its successor had been started; once that has told of one, too,
    the first twenty."""

    round: int


class Refused(Event):
    """A message that was not taken."""

    reason: str
    """`late`, `stale`, `forgotten base`, `already merged`, `old incarnation`, `wrong shapes`, `not finite`, `too
    large`, `wrong digest`, `impossible counters`; or `impossible report` or `impossible hello` with the number."""
    learner: str | None = None
    """Whose it was; missing where a learner refuses what the syncer sent."""
    incarnation: int | None = None
    fragment: int | None = None
    round: int | None = None
    first: int | None = None
    """First step that a refused answer stands for."""
    last: int | None = None
    base: int | None = None
    """Version that it was trained from."""
    version: int | None = None
    """The current one."""


class RefusedFrame(Event):
    """Bytes that are no frame, no valid token, or none in time."""

    peer: str
    """`unknown` where the peer has shown no token; of those, 20 in 10 s are recorded one by one."""
    reason: str
    """200 characters at most."""
    more: int | None = None
    """How many there were besides those that were recorded one by one."""


class PartialFrame(Event):
    """A connection ended in the middle of a frame."""

    peer: str
    bytes: int
    expected: int


class Exit(Event):
    """A process ended: its own last word, or what the harness saw of it."""

    told: bool = False
    """Its own word: it was asked to end (SIGTERM)."""
    target: str = ""
    """The harness' word: the node."""
    incarnation: int = -1
    status: int | None = None
    """Exit status; negative: the signal that ended it."""
    killed: bool = False
    """A fault ended it."""
    forced_after: float | None = None
    """It had been asked to end, and had not so many seconds later: SIGKILL followed."""
    again: bool | None = None
    """A command's scheduler is going to start it again."""
    trusted: bool = False
    """So it is, though a fault that follows the node had ended it."""
    oom: bool = False
    """The kernel ended it for want of memory."""
    lost: str = ""
    """Why the place that it ran in is gone. The last moments of its tape may be lost with it, and checks allow for as
    many steps as it can have made in them."""
    heard: float | None = None
    """When its agent had answered last."""
    left: list[str] | None = None
    """Processes of a command that were still there a moment later: pid and command; missing where that is not known."""

    @property
    def process(self) -> tuple[str, int]:
        """The node, and the incarnation of its process."""
        return self.target, self.incarnation


class Failed(Event):
    """The process ends for this reason."""

    reason: str


class RefusedCheckpoint(Event):
    """The process ends, because it can't go on from its checkpoint."""

    reason: str


class Finished(Event):
    """Training is over, as far as this process knows."""

    step: int
    processed: int | None = None
    merged: int | None = None
    tokens: int | None = None
    early: bool = False
    """All workers had ended before the rounds that were asked for."""


class NotSaved(Event):
    """A node's part of a global checkpoint could not be written."""

    checkpoint: int
    reason: str


class Warning(Event):
    """Something that people should know, and that decides nothing."""

    reason: str
    kind: str = ""
    """`buffered`: the node's rounds came in bursts, so that when they were made is not known. Else what a node's log is
    wrong in."""
    change: str = ""
    """What to change, where that is known."""


# -- workers ---------------------------------------------------------------------------------------------------------

class Imported(Event):
    """The process has imported what it needs."""


class Step(Event):
    """An inner step, or a worker's round."""

    step: int
    """The process' own count."""
    tokens: int
    """Tokens, or samples, of this step."""
    began: float
    loss: float | None = None
    lr: float | None = None
    """Learning rate."""
    position: int | None = None
    """Which batch of its shard it was made on."""
    no_number: Literal["nan", "inf", "-inf"] | None = None
    """What was told as its loss, where that is no number; `loss` is missing then."""
    epoch: int | None = None
    """The pass over the data, where it is told."""
    batches: list[tuple[int, int]] | None = None
    """The batches that it was made on, where they are named: first and last number of each run of them."""
    samples: list[tuple[int, int]] | None = None
    """The samples that it was made on, in the same way."""
    digest: str | None = None
    """Of the worker's weights after it, where it tells one."""
    rank: str | None = None
    """Which rank, or actor, of the node tells it, where that is said: each is a member of its own."""

    times = ("began",)

    @property
    def member(self) -> str:
        """Return the name of who made the round: the worker, or a rank of it."""
        return member_name(self.node, self.rank)


class InnerStep(Event):
    """What an inner step of AdamW was computed from, and what came of it, at 8 coordinates of the model that follow
    from the plan's seed. It is told of few steps: the first of a process, those before and after some of what it
    received, and the last before it saves its part of a checkpoint.
    """

    step: int
    """The process' own count, as in its `step`; where gradients are averaged, the training step."""
    count: int
    """AdamW's own count of steps, before it."""
    counted: int
    """The same after it."""
    batch: str
    """Digest of the batch's bytes: all inputs, then all targets."""
    values: str
    """Float32, little endian, in base64, 8 of each: before the step the weights, first and second moments, and the
    gradient that is not clipped yet; after it the weights, first and second moments."""
    norm: float | None = None
    """The gradient's, before it was clipped; missing where it is no number."""


class Skipped(Event):
    """A batch came to nothing: it counts for nothing."""

    step: int
    position: int
    reason: str
    lr: float | None = None
    began: float | None = None

    times = ("began",)


class OuterGradient(Event):
    """An answer to the syncer: what a fragment has learned since its base."""

    round: int
    fragment: int
    base: int
    """Version that it was trained from."""
    first: int
    """First and last (`step`) step that it stands for."""
    step: int
    steps: int
    tokens: int
    digest: str


class Upload(Event):
    """The answer's last byte is in the kernel's hands."""

    bytes: int | None = None
    round: int | None = None
    fragment: int | None = None


class Donated(Event):
    """A learner handed over what it holds to a new process."""

    learner: str
    versions: list[int]


class Received(Event):
    """A fragment's new value was applied."""

    fragment: int
    version: int
    step: int
    """The learner's count of steps then."""
    digest: str
    """Of what the replica holds afterwards."""
    closed: int
    """Steps that end with it."""
    carried: int
    """Steps that are carried on top of it."""
    arrived: bool | None = None
    """Whether the learner's own answer is in it."""


class Ready(Event):
    """The process has everything that it needs to train."""

    step: int | None = None
    position: int | None = None
    """The first batch of its shard that it will train on."""


class Replica(Event):
    """Data parallelism: what a worker goes on from, at the beginning of a group, at every checkpoint, and at the end.
    """

    epoch: int
    """Of the group that it is in."""
    step: int
    """The training step that it stands at."""
    digest: str
    """Of its weights and its inner optimizer's tensors together."""


class Disconnected(Event):
    """The connection to the syncer broke."""

    reason: str = ""
    step: int | None = None


class Superseded(Event):
    """A newer process has its place: it ends."""

    reason: str


class Reset(Event):
    """A learner dropped all that it had, because it can't be right."""

    step: int
    reason: str


class Corrupted(Event):
    """A fault changed values in the learner's memory."""

    step: int
    fault: str
    """Its id in the plan."""
    part: MemoryPart
    """`weights` or `moments`."""
    content: MemoryContent
    """`nan` or `bits`."""
    values: int
    """How many."""
    seed: int


class CheckpointPart(Event):
    """A learner saves its part of a global checkpoint."""

    checkpoint: int
    """Its number."""
    step: int


# -- the coordinator -------------------------------------------------------------------------------------------------

class Listening(Event):
    """It can be connected to."""

    port: int
    host: str = ""


class Versions(Event):
    """From where a coordinator begins."""

    versions: list[int]
    """Of every fragment."""
    digests: list[str]
    """Of every fragment's value, as `digest` of a `merge`."""
    step: int
    processed: int
    states: list[str | None] | None = None
    """Of all that is kept of every fragment, as `state` of a `merge`."""
    contributions: list[list[tuple[str, int, int, int]]] | None = None
    """What went into each version: learner, incarnation, first and last step. A syncer may be killed between a commit
    and its `merge`."""
    outer: list[tuple[float, float] | None] | None = None
    """The outer step that made each version, as in `merge`; null for version 0."""


class Initial(Versions):
    """A coordinator begins with a fresh model."""


class Resumed(Versions):
    """A coordinator goes on from what an earlier one had committed."""


class Repaired(Event):
    """Before `resumed`: a checkpoint was damaged or missing, and its other copy whole."""

    file: str
    reason: str


class Hello(Event):
    """A worker's process is there."""

    learner: str
    incarnation: int
    fresh: bool = False
    """It is a new process that holds nothing."""
    step: int | None = None
    versions: list[int] = []
    """Current ones."""
    versions_held: list[int] | None = None
    """The learner's."""

    @property
    def process(self) -> tuple[str, int]:
        """The learner, and the incarnation of its process."""
        return self.learner, self.incarnation


class Recovering(Event):
    """A new process is brought up to date."""

    learner: str
    from_: str = field(name="from")
    """The learner that gives, or `syncer` where no other is left."""
    versions: list[int]
    incarnation: int | None = None


class Renewed(Event):
    """A learner that has nothing to go on from is sent everything."""

    learner: str
    incarnation: int
    reason: str


class Lost(Event):
    """A worker's connection is gone."""

    learner: str
    reason: str
    incarnation: int | None = None


class MergedPart(Struct, kw_only=True, omit_defaults=True, gc=False):
    """What one worker gave to a merge."""

    learner: str
    incarnation: int
    base: int
    """Version that it was trained from."""
    first: int
    last: int
    steps: int
    tokens: int
    weight: float
    arrived: float
    """When, on the coordinator's clock."""
    digest: str
    members: int | None = None
    """How many workers took part in the round, by this worker's word."""
    rank: str | None = None
    """Which rank, or actor, of the worker's node it is, where that is said."""

    @property
    def member(self) -> str:
        """Return the name of who took part: the worker, or a rank of it."""
        return member_name(self.learner, self.rank)


class Merge(Event):
    """A version of a fragment, or a round of the run, was made. It is written after the commit and before the
    broadcast."""

    round: int
    fragment: int
    version: int
    digest: str
    """Of the value."""
    step: int
    """The global step."""
    processed: int
    """Tokens that all workers have processed."""
    merged: int
    """Tokens that are in the model."""
    opened: float
    quorum_at: float
    """When the quorum was reached."""
    closed: float
    grace: float
    """Seconds."""
    step_time: float
    """Seconds."""
    sync_time: float
    """Seconds from a close to the arrival at the median receiver."""
    asked: list[str]
    declined: list[str]
    contributions: Sequence[MergedPart]
    state: str | None = None
    """Digest of all that is kept of the fragment."""
    outer: tuple[float, float] | None = None
    """Rate and momentum of the outer step."""
    why: str = ""
    """Why the round was closed."""

    times = ("opened", "quorum_at", "closed")


class Steady(Event):
    """The coordinator has merged from every worker; the first one is time zero."""

    step: int
    processed: int | None = None


class Traffic(Event):
    """Bytes of whole frames, running totals of this process by type of message. Recorded at the steady state, whenever
    the model is written down for the loss curve, and at the end."""

    sent: dict[str, int]
    received: dict[str, int]


class Grouped(Event):
    """Data parallelism: these go on together."""

    epoch: int
    step: int
    learners: list[str]


class RolledBack(Event):
    """Data parallelism: back to a checkpoint. Merges before this with a version above `step` are void."""

    step: int
    processed: int
    why: str = ""


class CheckpointBegun(Event):
    """The coordinator saves its part of a global checkpoint."""

    checkpoint: int
    """Its number."""
    step: int
    nodes: list[str]
    """Nodes that are asked for theirs."""


class CheckpointComplete(Event):
    """Every node has saved its part."""

    checkpoint: int


class CheckpointIncomplete(Event):
    """A part will not come."""

    checkpoint: int
    without: str
    """Of which node."""


# -- the harness -----------------------------------------------------------------------------------------------------

class Begin(Event):
    """The run begins."""

    plan: str
    """The plan's digest."""
    scenario: str = ""
    seed: int | None = None


class Planned(Event):
    """A test added a fault, or ended one."""

    plan: str
    """Digest of what `plan.json` holds from here on."""


class Continued(Event):
    """Everything was killed, and the run resumes from a global checkpoint. A process that was there and is no part of
    it has its `exit` here."""

    run: str
    """Name of the folder that it began in."""
    checkpoint: int


class Spawn(Event):
    """A process was started."""

    target: str
    incarnation: int
    pid: int | None = None
    """Missing in containers."""
    host: str | None = None
    """On other machines: the pod, or the job and how often it was requeued."""

    @property
    def process(self) -> tuple[str, int]:
        """The node, and the incarnation of its process."""
        return self.target, self.incarnation


class FileRead(Event):
    """A file of a node's state was read that a fault had damaged, or another one beside it where it is gone."""

    target: str
    """The node."""
    incarnation: int
    """Of its process then."""
    file: str


class Sighted(Event):
    """The line of a log, or the file, that a fault waits for was there."""

    fault: str
    """Its id in the plan."""
    target: str
    """The node whose line or file it is."""
    count: int
    """How many there had been since the steady state."""
    seen: str
    """The line; or the file, and its size."""


class Unsighted(Event):
    """The run ended, and a fault still waited for a line of a log, or for a file."""

    fault: str
    count: int
    """How many there had been since the steady state."""
    nearest: list[str]
    """Lines, or files, that come near to what was waited for."""
    looked_in: str
    """Where was looked."""


class Injecting(Event):
    """A fault is about to come."""

    fault: str
    """Its id in the plan."""
    kind: str
    targets: list[str]
    description: str
    due: float | None = None
    """When it was to come."""


class Observation(Event):
    """What is known of a fault."""

    fault: str
    observed: dict[str, Any]


class Injected(Observation):
    """A fault came: what was known at once."""


class Observed(Observation):
    """What probes measured while a fault lasted."""


class Healed(Observation):
    """A fault was undone."""


class Verified(Observation):
    """What probes measured after a fault was undone."""


class NotHealed(Event):
    """An undo failed."""

    fault: str
    reason: str


class Raised(Event):
    """An exception that nothing expected; the run ends. With `fault`: it came from that fault's own code."""

    error: str
    traceback: list[str]
    fault: str | None = None


class Aborted(Event):
    """The scenario's condition to abort holds."""

    why: str


class Ending(Event):
    """Training is over: the harness leaves these nodes the time to end by themselves."""

    awaited: list[str]
    within: float
    """Seconds."""


class End(Event):
    """The run is over."""

    outcome: Literal["finished", "deadline", "aborted", "interrupted", "broken"]
    """`finished`, `deadline`, `aborted`, `interrupted` or `broken`."""
    message: str


class Residue(Event):
    """What of any fault was left after all was undone."""

    left: list[str]
    unknown: str = ""
    """Why that can't be known; empty where it is."""


class Clock(Event):
    """On other machines, every 2 s for each node: how its clock compares. Times of two nodes may differ by the sum of
    both for both."""

    target: str
    ahead: float
    """Seconds by which its machine's clock is ahead of what its tape was begun with."""
    error: float
    """Seconds by which that can be wrong."""
    incarnation: int | None = None


class Machine(Event):
    """What went on on a machine in the seconds before, once a second. Left out under virtual time, and in seconds in
    which a container came or went."""

    seconds: float
    cores: int
    idle: float
    """Processors, on average, that were idle."""
    ours: float
    """Processors that the harness, all nodes, and whatever carries the run's token used."""
    others: float
    """Processors that any other process used."""
    stolen: float
    """Processors that the host of a virtual machine kept."""
    late: float
    """Longest time for which the harness wanted to run and could not, seconds."""
    cpu: float
    """Share of the time in which something waited for a processor, from /proc/pressure."""
    io: float
    """The same for a disk."""
    memory: float
    """The same for memory."""
    disk_ours: float = 0.0
    """MB a second between disks and this run."""
    disk_all: float = 0.0
    """MB a second between disks and everything."""
    memory_ours: float = 0.0
    """Share of the memory that the run holds."""
    memory_left: float = 0.0
    """Share of the memory that can be had."""
    sync: float = 0.0
    """Longest time that a byte of the harness' own took to be on the run's disk, tried four times a second, seconds."""
    waited: float | None = None
    """Run delay: for how long that thread of the run's nodes waited for a processor that waited longest, seconds. It
    may have begun before. Missing where it is not known."""
    machine: str = ""
    """Which one; empty: the harness' own."""


AnyEvent = (
    Start | Failpoint | FailpointPassed | Noticed | Prepared | StaleRound | Refused | RefusedFrame | PartialFrame | Exit
    | Failed | RefusedCheckpoint | Finished | NotSaved | Warning
    | Imported | Step | InnerStep | Skipped | OuterGradient | Upload | Donated | Received | Ready | Disconnected
    | Superseded | Reset | Replica | Corrupted | CheckpointPart
    | Listening | Initial | Resumed | Repaired | Hello | Recovering | Renewed | Lost | Merge | Steady | Traffic
    | Grouped | RolledBack | CheckpointBegun | CheckpointComplete | CheckpointIncomplete
    | Begin | Planned | Continued | Spawn | FileRead | Sighted | Unsighted | Injecting | Injected | Observed | Healed
    | Verified | NotHealed | Raised | Aborted | Ending | End | Residue | Clock | Machine)
KINDS: Mapping[str, type[Event]] = {kind.name(): kind for kind in get_args(AnyEvent)}
"""Every kind by its name on the tape."""
