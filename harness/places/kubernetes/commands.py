"""The command `rbac`: what a user must be allowed on a Kubernetes for runs to take place there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from diloco_chaos.harness.base.extras import require


def rbac(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who is to be allowed to run here: a user's name, or "
                                                             "NAMESPACE:NAME of a service account.")],
    place: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML with the settings of --on kubernetes. "
                                               "Without it, the file that DILOCO_CHAOS_KUBERNETES names.")] = None,
) -> None:
    """Print the manifests that allow somebody what runs need on a Kubernetes, and nothing more.

    Example: `diloco-chaos rbac ci:runner | kubectl apply -f -`
    """
    require("kubernetes", "kubernetes", "printing rules for a Kubernetes")
    from ruamel.yaml import YAML

    from diloco_chaos.harness.places.kubernetes.access import grants
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump_all(grants(KubernetesSettings.given(place), user), sys.stdout)
