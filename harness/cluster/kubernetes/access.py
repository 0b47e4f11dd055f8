"""What a user may do on a Kubernetes, what runs need, and the rules that grant it."""

from __future__ import annotations

from harness.cluster.kubernetes.api import Api, KubernetesError, contexts
from harness.cluster.kubernetes.settings import KubernetesSettings


def must_be_ready(settings: KubernetesSettings) -> None:
    """Tell before anything starts what is missing.

    Raises:
        KubernetesError: the cluster can't be used.
    """
    if not settings.context:
        known, current = contexts()
        raise KubernetesError(f"--on kubernetes: which one? The kubeconfig has {', '.join(one.name for one in known)}: "
                              f"name one with --context, or use the current one ({current}) with --yes")
    api = Api(settings.context)
    try:
        api.version()
    finally:
        api.close()
