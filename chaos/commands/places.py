"""Options and commands about clusters that are somewhere else: which one, what is allowed there, who may allow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from diloco_chaos.chaos.commands.common import Failure
from diloco_chaos.harness.base.extras import require
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.settings import PlaceSettings
from diloco_chaos.harness.places.slurm.settings import SlurmSettings

if TYPE_CHECKING:
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings

Settings = TypeVar("Settings", bound=PlaceSettings)
PlaceOption = Annotated[Path | None, typer.Option(
    "--place", metavar="FILE", help="YAML with the settings of --on kubernetes or slurm: image, namespace, "
                                    "partition, limits, and the commands that only you can give. Without it, the file "
                                    "that DILOCO_CHAOS_KUBERNETES or DILOCO_CHAOS_SLURM names.")]
ContextOption = Annotated[str, typer.Option(
    "--context", metavar="NAME", help="Of the kubeconfig, for --on kubernetes.")]
YesOption = Annotated[bool, typer.Option(
    "--yes", help="The kubeconfig's current context is the one that is meant.")]


def kubernetes_settings(place: Path | None, context: str, yes: bool) -> KubernetesSettings:
    """As the options say.

    Raises:
        Failure: they name no cluster, or none that is known.
        MissingExtraError: the official client is not installed.
    """
    require("kubernetes", "kubernetes", "--on kubernetes")
    from diloco_chaos.harness.places.kubernetes.access import named
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    try:
        return named(_said(KubernetesSettings, place), context, current=yes)
    except ClusterError as error:
        raise Failure(f"--on kubernetes: {error}", 2) from error


def slurm_settings(place: Path | None) -> SlurmSettings:
    """As the option says.

    Raises:
        Failure: there is no such file, or it says what is not known.
    """
    try:
        return _said(SlurmSettings, place)
    except ClusterError as error:
        raise Failure(f"--on slurm: {error}", 2) from error


def rbac(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who is to be allowed to run here: a user's name, or "
                                                             "NAMESPACE:NAME of a service account.")],
    place: PlaceOption = None,
) -> None:
    """Print the manifests that allow somebody what runs need on a Kubernetes, and nothing more.

    Example: `diloco-chaos rbac ci:runner | kubectl apply -f -`
    """
    require("kubernetes", "kubernetes", "printing rules for a Kubernetes")
    import sys

    from ruamel.yaml import YAML

    from diloco_chaos.harness.places.kubernetes.access import grants
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump_all(grants(_said(KubernetesSettings, place), user), sys.stdout)


def _said(settings: type[Settings], place: Path | None) -> Settings:
    """In the file of the option, or of the environment."""
    return settings.read(place) if place else settings.given()
