"""What a scenario says of a node that runs a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from diloco_chaos.harness.base.units import Seconds, Written, expression, is_expression
from diloco_chaos.harness.trainers.core.programs import Restart, Service, splittable

NAME = Written(r"^[a-z][a-z0-9-]*$", "a name: it has small letters, digits and hyphens, and a letter is first")
MOST_NODES = 64
_NEWER_OF_NODES = ("files", "left_behind", "spare", "ranks")
"""Settings of a node that older plans lack: they stand in a plan only where something is said."""
_LONGEST_FILE, _LONGEST_PATH = 1 << 20, 200


def _within_the_run(text: str) -> str:
    if text and (not text.startswith("{run}/") or ".." in text.split("/")):
        raise ValueError("it must be within the run's folder, so that nothing else is ever damaged: "
                         "'{run}/state/{name}'")
    return text


def _with_a_group_at_most(text: str) -> str:
    if expression(text).groups > 1:
        raise ValueError(f"{text!r} has several groups; one says which process it is, 'RANK=(\\d+)', and without any "
                         f"they are numbered")
    return text


def _path_below(text: str) -> str:
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", text) or len(text) > _LONGEST_PATH:
        raise ValueError(f"{text!r} must be a path within the node's folder, {{run}}/files/{{name}}: `config.json`, or "
                         f"`configs/ds.json`")
    return text


def as_text(value: Any) -> Any:
    """A number is what it looks like: `OMP_NUM_THREADS: 1`."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Part(BaseModel):
    """Part of a scenario; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReadyWhen(Part):
    """The conditions under which a node counts as started."""

    port: bool = False
    """As soon as its port takes connections."""
    log: Annotated[str, AfterValidator(is_expression)] = ""
    """As soon as a line of its log matches this expression."""
    url: Annotated[str, Written(r"^(https?://.*)?$", "an address: it begins with http:// or https://")] = ""
    """As soon as this answers with a status below 400: `http://{host}:{port}/health`."""
    within: Seconds = 30.0
    """Seconds that it may take."""


class ServiceOf(Part):
    """A service of a compose file."""

    file: str = Field(min_length=1)
    """From where the harness runs."""
    name: str = Field(min_length=1)


class InContainer(Part):
    """The parts of which a command's container is made, with `--on compose`."""

    image: str = ""
    """The container's image."""
    service: ServiceOf | None = None
    """A service that says the image, and what else the container may use."""

    def command(self, run: str, env: Mapping[str, str], cwd: str, asks: str = "",
                files: Mapping[str, str] | None = None) -> str:
        """Return the command as one line for people. `asks`: an address that the harness asks whether it is ready.
        `files`: written before it is started."""
        written = [f"{name} of {len(text)} characters" for name, text in (files or {}).items()]
        around = {"in": cwd, "finds": " and ".join(written), "image": self.image, "asks": asks,
                  "service": f"{self.service.name} of {self.service.file}" if self.service else ""}
        details = ", ".join(f"{what} {value}" for what, value in around.items() if value)
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in env.items()), run,
                         *([f"({details})"] if details else [])])

    @model_serializer(mode="wrap")
    def _said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A plan that says nothing of containers, or of files, has the digest that it had before there were any."""
        return {key: value for key, value in write(self).items()
                if value or key not in (*InContainer.model_fields, *_NEWER_OF_NODES)
                if key not in _NEWER_OF_NODES or value != type(self).model_fields[key].default}

    @property
    def stated(self) -> Service | None:
        """The service."""
        return Service(self.service.file, self.service.name) if self.service else None


class NodeKind(InContainer):
    """One node, or `count` that are alike."""

    run: Annotated[str, AfterValidator(splittable)]
    """The command. `{...}` stands for something: docs/any-trainer.md."""
    count: int | None = Field(None, ge=1, le=MOST_NODES)
    """So many, called NAME-1, NAME-2, ...; one of the kind's own name where nothing is said."""
    worker: bool | Literal["silent"] = False
    """It trains: its rounds are counted. `silent`: it tells of none, and what others say of `members` counts."""
    ranks: int = Field(0, ge=0, le=4096)
    """So many of its processes have a part in every round; 0: as many as are seen."""
    listens: bool = False
    """It has a port, `{port}`, and others may name it."""
    port: int = Field(0, ge=0, le=65535)
    """Which; 0: one that is free. Of several that are alike, the first one's."""
    env: dict[str, Annotated[str, BeforeValidator(as_text)]] = {}
    """Added to the harness' own environment."""
    cwd: str = ""
    """Where it runs; where the harness does, if not given."""
    ready: ReadyWhen | None = None
    """When the next ones may start. Of a node that listens and does not train: as soon as it takes connections."""
    restart: Restart = "never"
    """What its scheduler does when it ends by itself."""
    restart_delay: Seconds = 1.0
    state: Annotated[str, AfterValidator(_within_the_run)] = ""
    """The folder, within the run's, in which it keeps what it goes on from: `{run}/state/{name}`. Faults of state
    damage files there."""
    exits: tuple[Annotated[int, Field(ge=-64, le=255)], ...] = Field((), strict=False)
    """Statuses with which it may end by itself before training is over, as a step that prepares something does: `[0]`;
    negative: by a signal."""
    processes: dict[Annotated[str, NAME], Annotated[str, AfterValidator(_with_a_group_at_most)]] = {}
    r"""What the processes that it starts are called: `{rank: 'RANK=(\d+)'}`, and `replica-1/rank-3` is one of them. The
    expression is for a word of the command line, `NAME=VALUE` of the environment, or what it calls itself
    (`/proc/PID/comm`); without a group they are numbered from 1, in the order in which they began."""
    files: dict[Annotated[str, AfterValidator(_path_below)], Annotated[str, Field(max_length=_LONGEST_FILE)]] = {}
    """Path -> text of a file that is written to `{run}/files/{name}/PATH` before each start; with placeholders."""
    left_behind: Literal["fail", "end", "keep"] = "end"
    """Processes that it has started and that are still there when it has ended: they are ended, and that fails a check
    or not; or they live until the run is over."""
    spare: bool = False
    """A worker that is not there from the beginning: a fault, `replace`, starts it in another one's place."""
    peers: Literal["caught", "direct"] = "direct"
    """Connections to nodes that it does not name: they go through links, too, or they are not seen."""

    def names(self, kind: str) -> list[str]:
        """Return the names of the nodes of this kind."""
        return [kind] if self.count is None else [f"{kind}-{number}" for number in range(1, self.count + 1)]
