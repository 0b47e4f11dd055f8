"""Where on which Kubernetes runs are performed, and as what: a file of the user's."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from harness.cluster.base import ClusterError

Command = Literal["node_power_loss", "node_power_return", "node_partition", "node_partition_heal",
                  "restart_control_plane"]
BACK: dict[Command, Command] = {"node_power_loss": "node_power_return", "node_partition": "node_partition_heal"}
"""What is done -> what undoes it."""
VARIABLE = "DILOCO_CHAOS_KUBERNETES"
"""Environment variable: such a file, where no option names one."""
_QUANTITY = r"^\d+(\.\d+)?(m|[KMGT]i?)?$"
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")


def _is_name(name: str) -> str:
    if name and not _NAME.match(name):
        raise ValueError(f"{name!r} is no name of Kubernetes: small letters, digits and dashes, at most 63")
    return name


class KubernetesSettings(BaseModel):
    """See the module. What is left out is as `docker-compose.yml` has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    context: str = ""
    """Of the kubeconfig. Empty: the command line must name it, or say that the current one may be used."""
    namespace: Annotated[str, AfterValidator(_is_name)] = ""
    """One that is there already; empty: each run makes one of its own, and removes it."""
    image: str = "diloco-chaos:local"
    """Of nodes; it must hold this version of the trainer."""
    links_image: str = "ghcr.io/shopify/toxiproxy:2.12.0"
    pull_policy: Annotated[str, Field(pattern="^(Always|IfNotPresent|Never)$")] = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the namespace."""
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    """As a pod's specification has them."""
    cpu: Annotated[str, Field(pattern=_QUANTITY)] = "1"
    """Processors that a node may use at most; a quarter of that is asked for."""
    memory: Annotated[str, Field(pattern=_QUANTITY)] = "1Gi"
    """Memory that a node may use at most; half of that is asked for."""
    disk: Annotated[str, Field(pattern=_QUANTITY)] = "2Gi"
    """Of a node's own files, on the disk of its machine."""
    patience: Annotated[float, Field(ge=30, le=3600)] = 90.0
    """Seconds without the harness after which a run's pods end by themselves."""
    start_within: Annotated[float, Field(ge=5, le=3600)] = 120.0
    """Seconds that a pod may take to run; longer where images are pulled first."""
    commands: dict[Command, str] = {}
    """What only you can do to your machines: the command that does it. `{machine}` is the name that Kubernetes has for
    the machine that is meant."""

    @model_validator(mode="after")
    def _both_ways(self) -> KubernetesSettings:
        for there, back in BACK.items():
            if (there in self.commands) != (back in self.commands):
                raise ValueError(f"commands: {there} and {back} are needed both: what is done is undone")
        return self

    def command(self, what: Command, machine: str = "") -> list[str]:
        """A command, as its words."""
        return [word.replace("{machine}", machine) for word in shlex.split(self.commands[what])]


def given() -> KubernetesSettings:
    """Those of the file that the environment names, or the usual ones.

    Raises:
        ClusterError: as `read`.
    """
    path = os.environ.get(VARIABLE, "")
    return read(Path(path)) if path else KubernetesSettings()


def read(path: Path) -> KubernetesSettings:
    """The settings in a file.

    Raises:
        ClusterError: it can't be read, or says what is not known.
    """
    try:
        content = YAML(typ="safe").load(path.read_text())
    except (OSError, YAMLError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path}: can't be read: {error}") from error
    try:
        return KubernetesSettings.model_validate({} if content is None else content)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the file'}: {one['msg']}" for one in error.errors())
        raise ClusterError(f"{path}: {wrong}. Known are {', '.join(KubernetesSettings.model_fields)}") from error
