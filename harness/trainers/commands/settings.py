"""What a scenario says of a trainer that is made of commands: its nodes, and how their progress is known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from diloco_chaos.harness.base.units import Seconds, is_expression
from diloco_chaos.harness.trainers.api.settings import Coupling, Misfit, MisfitError, SimpleSettings
from diloco_chaos.harness.trainers.commands.node import (
    MOST_NODES,
    NAME,
    InContainer,
    NodeKind,
    Part,
    ReadyWhen,
    as_text,
)
from diloco_chaos.harness.trainers.commands.progress import (
    AN_EPOCH,
    Expression,
    JsonLines,
    Source,
    Unit,
    compiled,
)
from diloco_chaos.harness.trainers.core.programs import (
    LOG,
    WRITTEN,
    PlaceholderError,
    Program,
    ReadyCheck,
    link_name,
    named,
    named_in_file,
    splittable,
    target,
)
from diloco_chaos.harness.trainers.core.roles import ROUNDS
from diloco_chaos.harness.trainers.core.shell import shell_syntax

_TAKEN = {"harness": "the harness' own events", ROUNDS: "the rounds", "links": "the log of the links' server"}
"""Name of a file in a run's folder -> what is in it: no node can have that name."""
_BASELINE = "baseline"
_MOST_CAUGHT = 16
_OF_FILES = ("name", "index", "incarnation", "run", "here")
_OF_STATE = ("name", "index", "run")
_WRITTEN_KEYS = {"batch": "batch", "digest": "digest", "rank": "rank"}
"""What `diloco_chaos.progress.round` writes and a reader of objects has to be asked for."""
_NEWER = (("file", ""), ("unit", "round"))
"""Settings that plans of earlier versions don't have, with their defaults."""


def _expression(text: str) -> str:
    compiled(text)
    return text


class ToldBy(Part):
    """The way in which rounds are known."""

    log: Annotated[str, AfterValidator(_expression)] | None = None
    r"""Regular expression for a line of its log, with a group `(?P<round>\d+)`; and `epoch`, `loss`, `samples`,
    `members`, `time`, `batch`, `digest` and `rank` where it has them. With `\n` in it, it is for as many lines at
    once."""
    file: str = ""
    """Where the lines of `log` are, if not in the node's own output; without `log` as `metrics`. In its path `*` stands
    for any name, `**` for any folders: `{run}/tr/*/attempt_*/0/stdout.log`."""
    metrics: str | None = None
    """A file to which it appends a JSON object a line; `{name}`, `{index}`, `{incarnation}`, `{run}` and `{here}` may
    stand in its path, which begins where the node runs."""
    keys: dict[Literal["round", "loss", "samples", "members", "time", "epoch", "batch",
                       "digest", "rank"], str] = Field({})
    """Of JSON objects: what of a round stands under which key, `{round: step, loss: train.loss}`."""
    unit: Unit = "round"
    """`epoch`: the group `round` tells fractions of an epoch, `0.25`."""
    written: bool = False
    """It calls `diloco_chaos.progress.round`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.log is not None or self.file != "") + (self.metrics is not None) + self.written != 1:
            raise ValueError("say how it is known, in one way: `log: '...(?P<round>\\d+)...'`, `metrics: FILE` or "
                             "`written: true`; with `log`, `file: FILE` says where its lines are")
        if self.keys and not self._has_objects:
            raise ValueError("keys: they are those of a `metrics` file")
        return self

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without newer settings that keep their defaults: older frozen plans lack them."""
        return {key: value for key, value in write(self).items()
                if (key, value) not in _NEWER}

    @property
    def _has_objects(self) -> bool:
        return self.metrics is not None or (self.file != "" and self.log is None)

    @property
    def path(self) -> str:
        """Return where its lines are, if that is a file of its own; else empty."""
        return self.metrics or self.file

    @property
    def tells_loss(self) -> bool:
        """Return whether there may be a loss."""
        return self.log is None or "loss" in compiled(self.log).groupindex

    @property
    def tells_members(self) -> bool:
        """Return whether there may be a number of members."""
        return self.log is None or "members" in compiled(self.log).groupindex

    @property
    def tells_ranks(self) -> bool:
        """Return whether ranks of a node may be told apart."""
        return "rank" in (compiled(self.log).groupindex if self.log is not None else
                          _WRITTEN_KEYS if self.written else self.keys)

    def source(self, nodes: frozenset[str], cwd: str) -> Source:
        """Return the place where these nodes report their rounds."""
        keys = {str(what): key for what, key in self.keys.items()} or (_WRITTEN_KEYS if self.written else {})
        reader = JsonLines(keys, self.unit) if self.log is None else Expression(compiled(self.log), self.unit)
        file = self.path or (LOG if self.log is not None else WRITTEN)
        return Source(nodes, f"{cwd}/{file}" if cwd and not file.startswith(("/", "{run}", "{here}")) else file, reader)


class ProgressOf(ToldBy):
    """The place where rounds are read from."""

    node: str
    """A kind of nodes, or one."""


class BaselineRun(ToldBy, InContainer):
    """A run that the loss is held against, of a command of its own: alone, and without faults."""

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document as each of both does."""
        return {key: value for key, value in write(self).items()
                if (key, value) not in _NEWER and (value or key not in InContainer.model_fields)}

    run: Annotated[str, AfterValidator(splittable)]
    """The command; placeholders as of a node that is called `baseline`."""
    env: dict[str, Annotated[str, BeforeValidator(as_text)]] = Field({})
    cwd: str = ""


class CommandSettings(SimpleSettings):
    """See the module."""

    nodes: dict[Annotated[str, NAME, Field(max_length=40)], NodeKind] = Field(min_length=1)
    """Kind -> how it is started, in the order of starting."""
    progress: tuple[ProgressOf, ...] = Field((), strict=False)
    noticed: Annotated[str, AfterValidator(is_expression)] | None = None
    """Regular expression for lines with which any node says that it misses another one: `heartbeat .* timed out`."""
    ready: Annotated[str, AfterValidator(is_expression)] | None = None
    """Regular expression for lines with which a worker says that it has all that it needs to train: `resumed at`."""
    baseline: BaselineRun | None = None
    """What `loss_parity: {against_baseline}` is against; the same nodes without faults where nothing is said."""
    rounds: int = Field(0, ge=0, le=10**9)
    """With this round training is over; 0: when every worker has ended by itself."""
    shared: bool = True
    """Workers finish a round together, as in data parallelism; else each counts its own."""
    step_time: Seconds = 0.0
    """Nothing is paced."""
    here: str = ""
    """The folder of the scenario's file, for `{here}`: it is filled in where that is used."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without newer settings that keep their defaults: older frozen plans lack them."""
        newer = (("here", ""), ("noticed", None), ("ready", None))
        return {key: value for key, value in write(self).items() if (key, value) not in newer}

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, given: Any) -> Any:
        """M follows from the nodes."""
        if not isinstance(given, dict) or not isinstance(given.get("nodes"), dict):
            return given
        kinds = [kind for kind in given["nodes"].values() if isinstance(kind, dict)]
        workers = sum(_count(kind) for kind in kinds if kind.get("worker") is True)
        workers = max(1, min(workers, MOST_NODES))
        if given.get("learners", workers) != workers:
            raise MisfitError(Misfit("learners", "learners: there are as many as nodes with `worker: true`, "
                                                 f"{workers} here: leave it out"))
        return given | {"learners": workers}

    @model_validator(mode="after")
    def _sound(self) -> Self:
        names = [name for kind, spec in self.nodes.items() for name in spec.names(kind)]
        for name in names:
            if names.count(name) > 1:
                raise MisfitError(Misfit("nodes", f"nodes: two nodes are called {name!r}"))
            if name in _TAKEN:
                raise MisfitError(Misfit("nodes", f"nodes: a node can't be called {name!r}, because the run's folder "
                                                  f"has {_TAKEN[name]} under that name: choose another one"))
        if len(names) > MOST_NODES:
            raise MisfitError(Misfit("nodes", f"nodes: {len(names)} of them, and {MOST_NODES} are the most"))
        if len(names) > _MOST_CAUGHT and any(spec.peers == "caught" for spec in self.nodes.values()):
            raise MisfitError(Misfit("nodes", f"nodes: {len(names)} of them, and {_MOST_CAUGHT} are the most where "
                                              f"peers are caught: each has a link to each"))
        return self

    # -- who there is --------------------------------------------------------------------------------------------------

    @classmethod
    def outline(cls, given: Mapping[str, Any], wrong: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
        """Return all nodes with those of their settings that are right, and `true` for a command that is wrong; None
        where the set of nodes, or of those that listen, is itself wrong."""
        nodes = given.get("nodes")
        mistakes = [where[1:] for where in wrong if where and where[0] == "nodes"]
        if not isinstance(nodes, Mapping) or any(
                len(where) < 2 or where[1] not in NodeKind.model_fields or where[1] in ("count", "listens")
                for where in mistakes):
            return None
        spoilt = {tuple(where[:2]) for where in mistakes}
        return {"nodes": {kind: {"run": "true"} | {key: item for key, item in spec.items() if (kind, key) not in spoilt}
                          for kind, spec in nodes.items()}}

    @property
    def names(self) -> list[str]:
        """Return the names of the workers."""
        return [name for kind, spec in self.nodes.items() if spec.worker is True for name in spec.names(kind)]

    @property
    def starters(self) -> list[str]:
        """Return the workers that are no spares."""
        return [name for name in self.names if name not in self.later(0)]

    def later(self, count: int) -> Sequence[str]:
        """Return the spares, however many come."""
        return [name for kind, spec in self.nodes.items() if spec.spare for name in spec.names(kind)]

    @property
    def silent(self) -> list[str]:
        """Return the names of the workers that tell of no round."""
        return [name for kind, spec in self.nodes.items() if spec.worker == "silent" for name in spec.names(kind)]

    @property
    def all_nodes(self) -> list[str]:
        """Return the names of all nodes, in the order of starting."""
        return [name for kind, spec in self.nodes.items() for name in spec.names(kind)]

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """Return kind -> names of its nodes, for kinds with a `count`."""
        return {kind: spec.names(kind) for kind, spec in self.nodes.items() if spec.count is not None}

    @property
    def link_names(self) -> list[str]:
        """Return the names of the links of every node that names another."""
        try:
            return [link for node in self.all_nodes for link in self.links(node)]
        except PlaceholderError:
            return []  # which is told where it stands

    @property
    def listening(self) -> list[str]:
        """Return the names of the nodes that listen: others may name them."""
        return [name for kind, spec in self.nodes.items() if spec.listens for name in spec.names(kind)]

    @cached_property
    def programs(self) -> dict[str, Program]:
        """Return node -> how it is started, in the order of starting.

        Raises:
            PlaceholderError: `objections` would have told.
        """
        return {name: self._program(spec, name, index) for kind, spec in self.nodes.items()
                for index, name in enumerate(spec.names(kind))}

    def links(self, node: str) -> list[str]:
        """The links that a node's command declares, and those of its peers where they are caught."""
        program = self.programs[node]
        return [link_name(node, to) for to in (*program.talks_to, *program.meets)]

    def sources(self, node: str = "") -> list[Source]:
        """Return the sources of reported rounds: all of them, or those of a node or a kind of nodes."""
        wanted = set(self._of(node))
        return [entry.source(frozenset(self._of(entry.node)), self._cwd(entry.node)) for entry in self.progress
                if not node or wanted & set(self._of(entry.node))]

    def _cwd(self, node: str) -> str:
        """Return the working folder of a node or a kind of nodes; empty where none is given."""
        spec = self.nodes.get(node) or self.kind_of(node)
        return spec.cwd if spec else ""

    def kind_of(self, node: str) -> NodeKind | None:
        """Return the kind of the node with this name; None where no kind has it."""
        return next((spec for kind, spec in self.nodes.items() if node in spec.names(kind)), None)

    def _of(self, node: str) -> list[str]:
        """The nodes that a kind, or a node, stands for."""
        if node in self.nodes:
            return self.nodes[node].names(node)
        return [node] if node in self.all_nodes else []

    def _program(self, spec: NodeKind, name: str, index: int) -> Program:
        strings = [spec.run, *spec.env.values(), spec.cwd]
        links = [to for text in named(strings) if (to := target(text, self.listening)) is not None and to != name]
        links += [to for text in spec.files.values() for to in named_in_file(text, self.listening) if to != name]
        talks_to = tuple(dict.fromkeys(links))
        meets = tuple(to for to in self.all_nodes if to not in (name, *talks_to)) if spec.peers == "caught" else ()
        waits = spec.ready or ReadyWhen(port=spec.listens and not spec.worker)
        return Program(spec.run, spec.listens, spec.port + index if spec.port else 0, index, spec.env, spec.cwd,
                       ReadyCheck(waits.port, waits.log, waits.url, waits.within), spec.restart, spec.restart_delay,
                       talks_to, meets, spec.processes, spec.state, spec.files, spec.image, spec.stated, self.here,
                       spec.left_behind == "keep", spec.spare)

    @cached_property
    def alone(self) -> CommandSettings | None:
        """Return the cluster that runs the baseline's command; None where there is no baseline."""
        if self.baseline is None:
            return None
        progress = self.baseline.model_dump(include=set(ToldBy.model_fields))
        return CommandSettings.model_validate({
            "nodes": {_BASELINE: {"worker": True, "run": self.baseline.run, "env": self.baseline.env,
                                  "cwd": self.baseline.cwd, "image": self.baseline.image,
                                  "service": self.baseline.service}},
            "progress": [{"node": _BASELINE, **progress}], "rounds": self.rounds, "seed": self.seed,
            "here": self.here})

    @property
    def commands(self) -> Mapping[str, str]:
        """Return kind of node -> its command as one line, with the folder that `{here}` is, since that decides what is
        executed; the baseline's is under `(baseline)`."""
        lines = {kind: spec.command(spec.run, spec.env, spec.cwd, spec.ready.url if spec.ready else "", spec.files)
                 for kind, spec in self.nodes.items()}
        if self.baseline:
            lines[f"({_BASELINE})"] = self.baseline.command(self.baseline.run, self.baseline.env, self.baseline.cwd)
        return {kind: text.replace("{here}", self.here) if self.here else text for kind, text in lines.items()}

    # -- what is promised of it ----------------------------------------------------------------------------------------

    @property
    def coupling(self) -> Coupling:
        """Workers of shared rounds may go on without those who are gone."""
        return Coupling("group" if self.shared else "nobody")

    @property
    def budget_tokens(self) -> int:
        """Return the rounds, as no node counts tokens."""
        return self.target

    @property
    def target(self) -> int:
        """Return the round with which training is over; 0: when every worker has ended."""
        return self.rounds * (AN_EPOCH if any(entry.unit == "epoch" for entry in self.progress) else 1)

    def contributors_needed(self, live: int) -> int:
        """Return 1, as a round of one worker counts; 0 where none is live."""
        return 1 if live else 0

    def merging_speed(self, living: Collection[str]) -> float:
        """Return as of every trainer; where each worker makes rounds of its own, as many are made as there are workers.
        """
        return super().merging_speed(living) if self.shared else float(len(living))

    @property
    def tells_losses(self) -> bool:
        """Return whether there will be a curve of losses."""
        return bool(self.rounds) and any(entry.tells_loss for entry in self.progress)

    def mistakes(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Yield (place below `trainer`, sentence) for everything that can't work."""
        yield from self._wrong_commands()
        yield from self._wrong_states()
        yield from self._wrong_spares()
        yield from self._wrong_ranks()
        if not self.names:
            yield ("nodes",), "no node trains: write `worker: true` where rounds are made"
        known = list(dict.fromkeys([*self.nodes, *self.all_nodes]))
        for index, entry in enumerate(self.progress):
            if not self._of(entry.node):
                yield (("progress", index, "node"), f"there is no node {entry.node!r}: nodes are {', '.join(known)}")
            for placeholder in named([entry.path]):
                if placeholder not in _OF_FILES:
                    those = ", ".join(f"{{{name}}}" for name in _OF_FILES)
                    yield (("progress", index, "metrics" if entry.metrics else "file"),
                           f"{{{placeholder}}} stands for nothing here: there are {those}")
        if len({entry.unit for entry in self.progress}) > 1:
            yield ("progress",), "unit: all workers count in rounds, or all in epochs: write the same for each"
        if self.alone is not None and not self.alone.tells_losses:
            yield (_BASELINE,), ("baseline: it tells no loss: add a group `(?P<loss>...)`" if self.rounds else
                                 "baseline: losses are compared at equal rounds: say how many there are, `rounds: 500`")
        for place, why in self.alone.mistakes() if self.alone is not None else ():
            yield (_BASELINE, *place[2:]), f"baseline: {why}"
        if self.silent and not any(entry.tells_members for entry in self.progress if self._of(entry.node)):
            yield ("progress",) if self.progress else ("nodes",), (
                f"nobody says how many take part in a round, so {', '.join(self.silent)} can't be judged: add a group "
                f"`(?P<members>\\d+)` to a `log` of the others")
        reporting = {node for entry in self.progress for node in self._of(entry.node)}
        if silent := [name for name in self.names if name not in reporting]:
            yield (("progress",) if self.progress else ("nodes",),
                   f"nothing tells the rounds of {', '.join(silent)}: add `progress: [{{node: ..., log: '...'}}]`")

    def _wrong_spares(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        for kind, spec in self.nodes.items():
            if spec.spare and (spec.worker is not True or spec.listens or spec.ready or spec.peers == "caught"):
                yield (("nodes", kind, "spare"),
                       "spare: only a worker can come later (`worker: true`), and no other node may need it before: "
                       "leave out `listens`, `ready` and `peers: caught`")

    def _wrong_ranks(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        for kind, spec in self.nodes.items():
            own = {kind, *spec.names(kind)}
            if spec.ranks and (spec.worker is not True or not all(
                    entry.tells_ranks for entry in self.progress if own.intersection([entry.node]))):
                yield (("nodes", kind, "ranks"),
                       "ranks: they are counted by their lines: write `worker: true`, and add a group "
                       "`(?P<rank>\\d+)` to the `log` of the node's progress, or `rank` to its `keys`")

    def _wrong_states(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        for kind, spec in self.nodes.items():
            for placeholder in named([spec.state]):
                if placeholder not in _OF_STATE:
                    yield (("nodes", kind, "state"), f"{{{placeholder}}} stands for nothing here: there are "
                                                     f"{', '.join(f'{{{name}}}' for name in _OF_STATE)}")

    def _wrong_commands(self) -> Iterator[tuple[tuple[Any, ...], str]]:
        for kind, spec in self.nodes.items():
            places: list[tuple[tuple[Any, ...], str]] = [
                (("run",), spec.run), *((("env", key), text) for key, text in spec.env.items()), (("cwd",), spec.cwd),
                (("ready", "url"), spec.ready.url if spec.ready else "")]
            for place, text in places:
                if place == ("run",) and (why := shell_syntax(text)):
                    yield ("nodes", kind, *place), why
                for placeholder in named([text]):
                    if f"${{{placeholder}}}" in text:
                        continue  # a shell's variable, which is told
                    try:
                        to = target(placeholder, self.listening)
                    except PlaceholderError as error:
                        yield ("nodes", kind, *place), self._explained(placeholder, str(error))
                        continue
                    if to is not None and place[0] == "ready":
                        yield ("nodes", kind, *place), f"{{{placeholder}}}: here {kind} can name itself only: {{host}}"
                    if to is None and placeholder in ("host", "port") and not spec.listens:
                        yield (("nodes", kind, *place), f"{{{placeholder}}}: {kind} has no port: write `listens: true`")

    def _explained(self, placeholder: str, why: str) -> str:
        node = placeholder.removesuffix(".host").removesuffix(".port")
        if node in self.all_nodes:
            return f"{{{placeholder}}}: nobody can connect to {node}: write `listens: true` at it"
        if node in self.nodes:
            names = self.nodes[node].names(node)
            return f"{{{placeholder}}}: which one? There are {', '.join(f'{{{name}}}' for name in names)}"
        return why


def _count(kind: dict[str, Any]) -> int:
    count = kind.get("count")
    return count if isinstance(count, int) and not isinstance(count, bool) else 1


