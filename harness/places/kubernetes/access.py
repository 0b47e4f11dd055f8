"""What a user may do on a Kubernetes, what runs need, and the rules that grant it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from diloco_chaos.harness.places.kubernetes.api import KubernetesApi, KubernetesError, contexts
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.place import Requirement
from diloco_chaos.harness.places.remote import by_command

_OLDEST = (1, 33)
"""The first that resizes pods in place without being asked for it."""
_AT_ONCE = 8
_ROLE = "diloco-chaos"


class Right(NamedTuple):
    """Something that runs do."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    of_cluster: bool = False
    """It is no part of a namespace."""


_MADE = ("create", "deletecollection")
RIGHTS = (
    Right("", "pods", ("create", "delete", "deletecollection", "list")),
    Right("", "pods/portforward", ("create", "get")),
    Right("", "pods/eviction", ("create",)),
    Right("", "pods/resize", ("patch",)),
    Right("", "services", ("create", "delete", "list")),
    Right("", "configmaps", _MADE),
    Right("", "secrets", _MADE),
    Right("batch", "jobs", (*_MADE, "patch")))
"""In the run's namespace."""
NAMESPACES = Right("", "namespaces", ("create", "delete", "get", "list"), of_cluster=True)
"""Where each run makes a namespace of its own."""
_ONE_NAMESPACE = Right("", "namespaces", ("get", "list"), of_cluster=True)


def rights(settings: KubernetesSettings) -> tuple[Right, ...]:
    """Return the rights that runs with these settings need."""
    return (*RIGHTS, _ONE_NAMESPACE if settings.namespace else NAMESPACES)


def named(settings: KubernetesSettings, context: str = "", *, current: bool = False) -> KubernetesSettings:
    """The settings with a context that somebody has named. `current`: the kubeconfig's own may be used.

    Raises:
        KubernetesError: nobody has, or there is none of that name.
    """
    names, now = contexts()
    chosen = context or settings.context or (now if current else "")
    if not chosen:
        raise KubernetesError(f"which one? A run goes only where somebody says so. The kubeconfig has "
                              f"{', '.join(names)}: name one with --context" + (
                                  f", or use the current one ({now}) with --yes" if now else ""))
    if chosen not in names:
        raise KubernetesError(f"the kubeconfig has no context {chosen}; there are {', '.join(names)}")
    return settings.model_copy(update={"context": chosen})


def must_be_ready(settings: KubernetesSettings) -> None:
    """Tell before anything starts what is missing.

    Raises:
        KubernetesError: the cluster can't be used, is too old, or does not allow what runs need.
    """
    api = KubernetesApi(named(settings).context)
    try:
        if old := too_old(api.version()):
            raise KubernetesError(old)
        if missing := [words for _, words in lacking(api, settings)]:
            raise KubernetesError(f"{settings.context} does not allow: {'; '.join(missing)}. Whoever rules it can: "
                                  f"diloco-chaos rbac USER | kubectl apply -f -")
    finally:
        api.close()


def requirements(settings: KubernetesSettings) -> list[Requirement]:
    """Return what runs on this cluster need, for the doctor."""
    try:
        api = KubernetesApi(settings.context)
        version = api.version()
    except KubernetesError as error:
        return [Requirement("context", "missing", settings.context, str(error))]
    old = too_old(version)
    lines = [Requirement("context", "ok", settings.context),
             Requirement("version", "missing" if old else "ok", version, old),
             Requirement("namespace", "ok", settings.namespace or "one of its own for each run"),
             Requirement("images", "optional", f"{settings.image}, {settings.links_image}", "nobody can tell before a "
                         f"run whether its machines have them (pull_policy: {settings.pull_policy})")]
    missing = dict(lacking(api, settings))
    for right in rights(settings):
        words = f"{right.resource}: {', '.join(right.verbs)}"
        lines.append(Requirement("allowed", "missing" if right in missing else "ok", words,
                                 "not allowed; diloco-chaos rbac prints what allows it" if right in missing else ""))
    api.close()
    return lines + by_command.requirements(settings)


def too_old(version: str) -> str:
    """Return why a Kubernetes of this version can't be used; empty where it can."""
    parts = version.lstrip("v").split(".")
    if tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts[:2]) >= _OLDEST:
        return ""
    return f"Kubernetes {version} is too old: it must be {'.'.join(map(str, _OLDEST))} or newer, which resizes pods"


def lacking(api: KubernetesApi, settings: KubernetesSettings) -> list[tuple[Right, str]]:
    """Return what runs need and the user may not do (SelfSubjectAccessReview): each right with the verbs, in words.

    Raises:
        KubernetesError: Kubernetes does not answer.
    """
    asked = [(right, verb) for right in rights(settings) for verb in right.verbs]
    where = settings.namespace or "default"

    def allowed(asked_for: tuple[Right, str]) -> bool:
        right, verb = asked_for
        resource, _, sub = right.resource.partition("/")
        return api.allows({"group": right.group, "resource": resource, "subresource": sub or None, "verb": verb,
                           "namespace": None if right.of_cluster else where})
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(allowed, asked))
    missing: dict[Right, list[str]] = {}
    for (right, verb), good in zip(asked, answers, strict=True):
        if not good:
            missing.setdefault(right, []).append(verb)
    return [(right, f"{', '.join(verbs)} {right.resource}" + (f".{right.group}" if right.group else ""))
            for right, verbs in missing.items()]


def grants(settings: KubernetesSettings, user: str) -> Iterator[dict[str, Any]]:
    """Manifests that allow somebody what runs need. `user`: a user's name, or NAMESPACE:NAME of a service account."""
    rules = [{"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
             for right in rights(settings)]
    inside = rules[:-1] if settings.namespace else rules
    space, _, account = user.rpartition(":")
    subject = ({"kind": "ServiceAccount", "name": account, "namespace": space} if space else
               {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"})
    for kind, namespace, allowed in (("Role" if settings.namespace else "ClusterRole", settings.namespace, inside),
                                     *([("ClusterRole", "", rules[-1:])] if settings.namespace else [])):
        about = {"name": _ROLE, **({"namespace": namespace} if namespace else {})}
        yield {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": about, "rules": allowed}
        yield {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": f"{kind}Binding", "metadata": about,
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": _ROLE},
               "subjects": [subject]}
