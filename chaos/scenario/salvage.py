"""What can still be said of a scenario that has mistakes, so that none of them hides another.

What is wrong is left out, and the rest is looked at as if it were the whole. What follows from a part that was left out
is not known: nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from diloco_chaos.chaos.scenario.model import DOMAIN, LEARNERS, Scenario, members_of, named
from diloco_chaos.chaos.scenario.problems import Numbers, fault_names
from diloco_chaos.faults import FAULTS, AnyEntry, Fault
from diloco_chaos.harness.base.errors import close
from diloco_chaos.harness.base.units import LONGEST_S
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

Location = tuple[Any, ...]
"""Of a part of a document: keys and indices, from the outside to the inside."""

_ENTRY: TypeAdapter[Fault] = TypeAdapter(AnyEntry)
_TRIGGERS = ("at", "when", "after")


class KnownCluster(IntEnum):
    """The part of a cluster that is certain."""

    NOTHING = 0
    """Not even which nodes it has."""
    NODES = 1
    """Which nodes it has, and no more."""
    ALL = 2


class Rest(NamedTuple):
    """A scenario without its wrong parts."""

    scenario: Scenario
    numbers: Numbers
    """Where its faults stand in the file."""
    known: KnownCluster = KnownCluster.ALL
    """Of its cluster."""
    outlines: Sequence[tuple[int, Fault]] = ()
    """The faults that are wrong: index in the file, and a fault of the same kind on the same targets."""


def salvaged(document: Mapping[str, Any], wrong: Sequence[Location],
             known: KnownCluster = KnownCluster.ALL) -> Rest | None:
    """Return what is left of a document, of which these parts are wrong; None where that is nothing. `known`: of its
    cluster, at most."""
    trainer, cluster, known = _cluster(document, wrong, known)
    entries = document.get("faults")
    entries = entries if isinstance(entries, list) else []
    bad = {where[1] for where in wrong if len(where) > 1 and where[0] == "faults"}
    domains = _domains(document, wrong)
    astray = {index for index, entry in enumerate(entries) if _aims_beyond(entry, domains, document)}
    kept = [index for index in range(len(entries)) if index not in bad | astray]
    rest = {key: item for key, item in document.items() if key in ("abort_when", "tier") and (key,) not in _tops(wrong)}
    rest |= {"diloco_chaos": 1, "name": "salvaged", "trainer": trainer, "cluster": cluster,
             "deadline": f"{LONGEST_S:.0f}s" if ("deadline",) in wrong else document.get("deadline", "120s"),
             "domains": domains, "faults": [entries[index] for index in kept], "checks": _checks(document, wrong)}
    try:
        scenario = Scenario.model_validate(rest)
    except ValidationError:
        return None
    everyone = scenario.cluster.names if known else LEARNERS
    members = members_of(scenario.domains, scenario.cluster) if known else scenario.domains
    outlines = [(index, fault) for index in sorted(bad - astray) if index < len(entries)
                for fault in _outline(entries[index], [where[2:] for where in wrong if where[:2] == ("faults", index)],
                                      everyone, members)]
    return Rest(scenario, Numbers(kept, fault_names(document)), known, outlines)


def _domains(document: Mapping[str, Any], wrong: Sequence[Location]) -> dict[str, Any]:
    """Return the failure domains that are right."""
    given = document.get("domains")
    if ("domains",) in wrong or not isinstance(given, dict):
        return {}
    return {name: members for name, members in given.items() if ("domains", name) not in {where[:2] for where in wrong}}


def _aims_beyond(entry: Any, right: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Return whether a fault aims at a domain that is wrong, so that its targets are not known."""
    given = document.get("domains")
    targets = named(entry, ())["targets"] if isinstance(entry, dict) else ()
    aimed = {target.removeprefix(DOMAIN) for target in (targets if isinstance(targets, list | tuple) else [targets])
             if isinstance(target, str) and target.startswith(DOMAIN)}
    return any(name not in right and (not isinstance(given, dict) or name in given) for name in aimed)


def _tops(wrong: Sequence[Location]) -> set[Location]:
    return {where[:1] for where in wrong}


def _cluster(document: Mapping[str, Any], wrong: Sequence[Location],
             known: KnownCluster) -> tuple[str, dict[str, Any], KnownCluster]:
    """Trainer and cluster that are valid, and how much of the file's cluster they are."""
    trainer, cluster = document.get("trainer", BUILT_IN), document.get("cluster", {})
    nothing: tuple[str, dict[str, Any], KnownCluster] = BUILT_IN, {}, KnownCluster.NOTHING
    if (known is KnownCluster.NOTHING or ("trainer",) in wrong or trainer not in TRAINERS
            or not isinstance(cluster, dict)):
        return nothing
    settings: type[TrainerSettings] = TRAINERS[trainer].settings_type
    mistakes = [where[1:] for where in wrong if where[:1] == ("cluster",)]
    if not mistakes:
        return trainer, cluster, known
    meant = [(near,) for where in mistakes if len(where) == 1 and where[0] not in settings.model_fields
             for near in close(where[0], settings.model_fields)]  # `lerners: 8` says how many there are
    outline = settings.outline(cluster, [*mistakes, *meant])
    if outline is None or not _valid(settings, outline):
        return nothing
    return trainer, outline, KnownCluster.NODES


def _valid(settings: type[TrainerSettings], cluster: Mapping[str, Any]) -> bool:
    try:
        settings.model_validate(cluster)
    except ValidationError:
        return False
    return True


def _checks(document: Mapping[str, Any], wrong: Sequence[Location]) -> dict[str, Any]:
    checks = document.get("checks", {})
    if ("checks",) in wrong or not isinstance(checks, dict):
        return {}
    return {name: bound for name, bound in checks.items() if ("checks", name) not in {where[:2] for where in wrong}}


def _outline(entry: Any, wrong: Sequence[Location], everyone: Any,
             domains: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    """A valid fault of the kind, and on the targets, that the entry names: with as much of the rest as is right. None
    where kind or targets are wrong."""
    if not isinstance(entry, dict):
        return
    fault = named(entry, everyone, domains)
    right = {key: item for key, item in fault.items() if (key,) not in _tops(wrong)}
    if not {"kind", "targets"} <= right.keys() or fault["kind"] not in FAULTS:
        return
    aimed = {key: right[key] for key in ("kind", "targets", "domains", "process") if key in right}
    trigger = {key: right[key] for key in _TRIGGERS if key in right}
    for more in (right, *(when | lasts for when in (trigger, {"at": "0s"}) for lasts in ({"for": "1s"}, {}))):
        try:
            yield _ENTRY.validate_python(aimed | more)
        except ValidationError:
            continue
        return
