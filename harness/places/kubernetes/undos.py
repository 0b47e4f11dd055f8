"""What a run leaves on a Kubernetes, and how it is removed once its harness is dead."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.record.undos import Undo

_GONE_S = 20.0


class Namespace(Undo):
    """Remove everything in a namespace of a Kubernetes that is labelled with the run, and the namespace if it is."""

    entry: Literal["namespace"] = "namespace"
    context: str
    namespace: str
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """Say for people what was removed."""
        return f"everything of {self.run} in namespace {self.namespace} of {self.context} removed"

    def heal(self, token: str) -> bool:
        """Remove everything of the run, and wait until it is gone."""
        if why := lacking("kubernetes", "kubernetes", f"removing namespace {self.namespace}"):
            raise OSError(why)
        from diloco_chaos.harness.places.kubernetes.api import KubernetesApi, KubernetesError
        try:
            api = KubernetesApi(self.context)
            try:
                removed = api.remove(self.namespace, self.run)
                if left := api.wait_removed(self.namespace, self.run, _GONE_S):
                    raise OSError(f"still there: {', '.join(left)}")
                return removed
            finally:
                api.close()
        except KubernetesError as error:
            raise OSError(str(error)) from error
