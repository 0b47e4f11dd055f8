"""Which Kubernetes a run goes to, and what is allowed there."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.places.kubernetes import access
from diloco_chaos.harness.places.kubernetes.access import grants, lacking, named, rights, too_old
from diloco_chaos.harness.places.kubernetes.api import KubernetesError
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings


@pytest.fixture(autouse=True)
def kubeconfig(monkeypatch):
    monkeypatch.setattr(access, "contexts", lambda: (["production", "lab"], "production"))


def test_a_run_goes_nowhere_unless_somebody_says_so():
    with pytest.raises(KubernetesError, match=r"The kubeconfig has production, lab: name one with --context, or use "
                                              r"the current one \(production\) with --yes"):
        named(KubernetesSettings())


def test_it_goes_where_somebody_says():
    assert named(KubernetesSettings(), "lab").context == "lab"
    assert named(KubernetesSettings(context="lab")).context == "lab"
    assert named(KubernetesSettings(context="lab"), "production").context == "production"
    assert named(KubernetesSettings(), current=True).context == "production"
    assert named(KubernetesSettings(context="lab"), current=True).context == "lab"


def test_a_context_that_is_not_there_is_told():
    with pytest.raises(KubernetesError, match="no context labb; there are production, lab"):
        named(KubernetesSettings(), "labb")


class Allowing:
    """An API server that allows some things."""

    def __init__(self, refused):
        self.refused, self.asked = refused, []

    def allows(self, what):
        self.asked.append(what)
        return (what["resource"], what["subresource"], what["verb"]) not in self.refused


def test_what_is_not_allowed_is_named_with_its_verbs():
    api = Allowing({("pods", None, "list"), ("pods", "eviction", "create"), ("jobs", None, "patch")})
    assert [words for _, words in lacking(api, KubernetesSettings())] == [
        "list pods", "create pods/eviction", "patch jobs.batch"]


def test_it_is_asked_of_the_namespace_that_is_meant():
    api = Allowing(set())
    assert lacking(api, KubernetesSettings(namespace="team")) == []
    assert {what["namespace"] for what in api.asked} == {"team", None}


@pytest.mark.parametrize(("version", "old"), [("v1.34.4", False), ("v1.33.0", False), ("v1.32.9", True),
                                              ("v2.0.0", False), ("v1.33+", False)])
def test_pods_must_be_resizable(version, old):
    assert bool(too_old(version)) is old


@pytest.mark.parametrize("namespace", ["", "team"])
def test_the_rules_allow_what_is_asked_for_and_nothing_else(namespace):
    settings = KubernetesSettings(namespace=namespace)
    allowed = {(group, resource, verb) for one in grants(settings, "somebody") if "rules" in one
               for rule in one["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
               for verb in rule["verbs"]}
    assert allowed == {(right.group, right.resource, verb) for right in rights(settings) for verb in right.verbs}
    assert not any("*" in words for words in allowed)


@pytest.mark.parametrize(("user", "kind"), [("ann", "User"), ("ci:runner", "ServiceAccount")])
def test_they_allow_it_to_who_is_named(user, kind):
    bindings = [one for one in grants(KubernetesSettings(), user) if "subjects" in one]
    assert [subject["kind"] for one in bindings for subject in one["subjects"]] == [kind]
