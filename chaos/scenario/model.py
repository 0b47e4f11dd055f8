"""Scenario files: what to break, and what must hold. docs/scenarios.md explains every key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
)

from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.faults import FAULTS, AbortWhen, AnyEntry, Fault
from diloco_chaos.harness.base.errors import nearest, printable
from diloco_chaos.harness.base.units import Seconds, Size, Written, between
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import Trainer
from diloco_chaos.harness.trainers.core.programs import ends
from diloco_chaos.harness.trainers.core.roles import COORDINATOR as COORDINATOR

_NAME = Written(r"^[a-z0-9][a-z0-9-]*$", "a name: it has small letters, digits and hyphens, and no hyphen is first")
LEARNERS = "learners"
"""As a target: every learner."""
DOMAIN = "domain "
"""As a target, before the name of a failure domain: all that is in it."""
_OWN = ("kind", "targets", "domains")
"""Keys of a fault that no file may have."""


def _names(value: Any) -> Any:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(name, str) for name in listed):
        raise ValueError("a domain is a list of nodes and links that fail together: write `[learner-1, learner-2]`")
    return tuple(listed)


Members = Annotated[tuple[str, ...], BeforeValidator(
    _names, json_schema_input_type=str | Annotated[list[str], Field(min_length=1)])]


def _known(name: str) -> str:
    if name in TRAINERS:
        return name
    message = printable(f"no trainer {name[:80]!r}{nearest(name, list(TRAINERS)) or '.'} "
                        f"There are {', '.join(TRAINERS)}")
    raise ValueError(". ".join([message, *TRAINERS.broken()]))


def _of_the_trainer(given: Any, info: ValidationInfo) -> Any:
    if "trainer_name" not in info.data:  # there is no such trainer, which is reported at its own place
        return TrainerSettings.model_construct()  # type: ignore[call-arg]
    return TRAINERS[info.data["trainer_name"]].settings_type.model_validate(given)


TrainerName = Annotated[str, AfterValidator(_known)]
"""The field `trainer_name` of a model ..."""
AnySettings = Annotated[SerializeAsAny[TrainerSettings], BeforeValidator(_of_the_trainer)]
"""... and, behind it, the settings of that trainer."""


class Scenario(BaseModel):
    """A scenario file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    diloco_chaos: Literal[1]
    name: Annotated[str, _NAME] = Field(max_length=80)
    description: Annotated[str, AfterValidator(printable)] = ""
    extends: str = ""
    """Another scenario, by name or file, whose keys hold where this one says nothing."""
    tier: Literal["ci", "full"] = "full"
    skip: Annotated[str, AfterValidator(printable)] = ""
    """Why pytest leaves it out."""
    xfail: Annotated[str, AfterValidator(printable)] = ""
    """Why a check is expected to fail: pytest tells of it, and is green."""
    trainer_name: TrainerName = Field(BUILT_IN, alias="trainer")
    """Whose settings `cluster` has."""
    cluster: AnySettings = Field(default={}, validate_default=True)
    deadline: Seconds = Field(120.0, gt=0)
    """Wall time after which a run is given up as inconclusive."""
    tape_limit: Annotated[Size, between(1e5, 1e15, "100kB at least")] = 256_000_000
    """Size of the tape, in bytes, at which a run is given up as inconclusive."""
    domains: dict[Annotated[str, _NAME], Members] = Field({}, max_length=200)
    """Failure domains: what fails together, as a rack or a switch, and its nodes or links. A fault's target may be
    `domain rack-1`."""
    faults: tuple[AnyEntry, ...] = Field((), max_length=200)
    abort_when: AbortWhen | None = None
    """When to inject no more, undo everything, and end the run as inconclusive."""
    checks: Bounds = Bounds()

    @field_validator("faults", mode="before")
    @classmethod
    def _by_their_key(cls, value: Any, info: ValidationInfo) -> Any:
        """`{kill: learner-1, at: 3s}` -> `{kind: kill, targets: learner-1, at: 3s}`."""
        if value is None:  # every fault is commented out
            return ()
        if not isinstance(value, (list, tuple)):
            return value
        cluster = info.data.get("cluster")
        everyone: list[str] | str = LEARNERS
        domains = info.data.get("domains", {})
        if not (isinstance(cluster, TrainerSettings) and "trainer_name" in info.data):
            return [named(fault, everyone, domains) if isinstance(fault, dict) else fault for fault in value]
        everyone, domains = cluster.names, members_of(domains, cluster)
        means = TRAINERS[info.data["trainer_name"]](cluster).means
        return [means(named(fault, everyone, domains)) if isinstance(fault, dict) else fault for fault in value]

    @property
    def trainer(self) -> Trainer:
        """Return the trainer with the settings in `cluster`."""
        return TRAINERS[self.trainer_name](self.cluster)

    @property
    def nodes(self) -> list[str]:
        """Return the names of all nodes."""
        return self.cluster.all_nodes


def joiners(faults: Sequence[Fault]) -> list[str]:
    """The learners that come later, in the order of the faults that bring them."""
    return [node for fault in faults for node in fault.joining()]


def members_of(domains: Mapping[str, Sequence[str]], cluster: TrainerSettings) -> dict[str, list[str]]:
    """Return the nodes and links of each domain, each once: those of a kind for its name, all for `learners`."""
    several = {LEARNERS: cluster.names, **cluster.groups}
    return {domain: list(dict.fromkeys(name for member in members for name in several.get(member, [member])))
            for domain, members in domains.items()}


def named(fault: dict[str, Any], everyone: Any, domains: Mapping[str, Sequence[str]] = {}) -> dict[str, Any]:
    """A fault as files have it, with its kind and its targets under these names. `everyone`: whom `learners` means;
    `domains`: the nodes and links that `domain NAME` means."""
    kind = next((key for key in fault if key in FAULTS), next(iter(fault), ""))
    rest = {f"{key}_" if key in _OWN else key: item for key, item in fault.items() if key != kind}
    targets = fault.get(kind)
    if isinstance(targets, dict) and "node" in targets:  # `terminate: {node: w, signal: USR1}`
        rest = {key: item for key, item in targets.items() if key != "node"} | rest
        targets = targets["node"]
    nodes, process = _of_processes(targets)
    if process and f"{kind}_process" in FAULTS:
        kind, targets, rest["process"] = f"{kind}_process", nodes, process
    if isinstance(targets, str) and " with " in targets:  # `replace: w-2 with w-5`
        targets, _, rest["with"] = targets.partition(" with ")
    if aimed := domains_in(targets, domains, kind in FAULTS and FAULTS[kind].on_links):
        listed: list[Any] = list(targets) if isinstance(targets, list | tuple) else [targets]
        targets = list(dict.fromkeys(name for target in listed for name in aimed.get(target, [target])))
        rest["domains"] = {target.removeprefix(DOMAIN): members for target, members in aimed.items()}
    if kind in FAULTS and FAULTS[kind].spreads_over in rest:
        every = domains_in([f"{DOMAIN}{domain}" for domain in domains], domains, FAULTS[kind].on_links)
        rest["domains"] = {target.removeprefix(DOMAIN): members for target, members in every.items()}
    return {"kind": kind, "targets": everyone if targets == LEARNERS else targets, **rest}


def domains_in(targets: Any, domains: Mapping[str, Sequence[str]], links: bool) -> dict[str, tuple[str, ...]]:
    """Return the domains that are among targets, as they are written there, with their nodes, and their links where a
    fault is about `links`; one that is not known, or that has none of these, stays a target."""
    listed = targets if isinstance(targets, list | tuple) else [targets]
    if not all(isinstance(target, str) for target in listed):
        return {}
    known = {f"{DOMAIN}{domain}": members for domain, members in domains.items()}
    aimed = {target: tuple(member for member in known[target] if links or len(ends(member)) == 1)
             for target in listed if target in known}
    return {target: members for target, members in aimed.items() if members}


def _of_processes(targets: Any) -> tuple[list[str], str]:
    """`[a-1/rank-3, a-2/rank-3]` -> ([a-1, a-2], rank-3); the second is empty where it is about nodes, or about several
    processes."""
    parts = [str(target).partition("/") for target in (targets if isinstance(targets, list | tuple) else [targets])]
    processes = {process for _, _, process in parts}
    return [node for node, _, _ in parts], processes.pop() if len(processes) == 1 else ""
