"""Where on which Kubernetes runs are performed, and as what: a file of the user's."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from diloco_chaos.harness.places.remote.settings import PlaceSettings

_QUANTITY = r"^\d+(\.\d+)?(m|[KMGT]i?)?$"
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")


def _is_name(name: str) -> str:
    if name and not _NAME.match(name):
        raise ValueError(f"{name!r} is no name of Kubernetes: small letters, digits and dashes, at most 63")
    return name


class KubernetesSettings(PlaceSettings):
    """See the module. What is left out is as `docker-compose.yml` has it."""

    variable: ClassVar[str] = "DILOCO_CHAOS_KUBERNETES"

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
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    """As a pod's specification has them."""
    cpu: Annotated[str, Field(pattern=_QUANTITY)] = "1"
    """Processors that a node may use at most; a quarter of that is asked for."""
    memory: Annotated[str, Field(pattern=_QUANTITY)] = "1Gi"
    """Memory that a node may use at most; half of that is asked for."""
    disk: Annotated[str, Field(pattern=_QUANTITY)] = "2Gi"
    """Of a node's own files, on the disk of its machine."""
