"""What a user says of a place that is not this machine: a file, of which each such place has a form of its own."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.storage.documents import yaml_of
from diloco_chaos.harness.trainers.core.programs import splittable

Command = Literal["node_power_loss", "node_power_return", "node_partition", "node_partition_heal",
                  "restart_control_plane"]
BACK: dict[Command, Command] = {"node_power_loss": "node_power_return", "node_partition": "node_partition_heal"}
"""What is done -> what undoes it."""


class PlaceSettings(BaseModel):
    """The settings that every such place has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    variable: ClassVar[str]
    """Environment variable that names such a file, where no option does."""

    patience: Annotated[float, Field(ge=30, le=3600)] = 90.0
    """Seconds without the harness after which what runs there ends by itself."""
    start_within: Annotated[float, Field(ge=5, le=3600)] = 120.0
    """Seconds that a node's surroundings (a pod, a job) may take to run."""
    commands: dict[Command, Annotated[str, AfterValidator(splittable)]] = {}
    """What only you can do to your machines: the command that does it. `{machine}` is the name that the place has for
    the machine that is meant."""

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        for command, inverse in BACK.items():
            if (command in self.commands) != (inverse in self.commands):
                raise ValueError(f"commands: {command} and {inverse} are needed both: what is done is undone")
        return self

    def command(self, what: Command, machine: str = "") -> list[str]:
        """A command, as its words."""
        return [word.replace("{machine}", machine) for word in shlex.split(self.commands[what])]

    @classmethod
    def given(cls, path: Path | None = None) -> Self:
        """Return the settings of a file, or of the one that the environment names, or the usual ones.

        Raises:
            ClusterError: as `read`.
        """
        named = path or os.environ.get(cls.variable)
        return cls.read(Path(named)) if named else cls()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the settings in a file.

        Raises:
            ClusterError: it can't be read, or says what is not known.
        """
        try:
            content = yaml_of(path)
        except (OSError, ValueError) as error:
            raise ClusterError(f"{path}: can't be read: {error}") from error
        try:
            return cls.model_validate({} if content is None else content)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
                              for problem in error.errors())
            raise ClusterError(f"{path}: {wrong}. Known are {', '.join(cls.model_fields)}") from error
