"""Every check by its name, from whichever package provides it. The decorator `diloco_chaos.check` makes one of a
function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from diloco_chaos.harness.base.registries import Provided, ProviderError, Registry
from diloco_chaos.harness.trainers.api.settings import Evidence

GROUP = "diloco_chaos.checks"
"""Of entry points; each names a check, or several of them in a tuple."""
Need = Evidence | Literal["sound run"]
"""Evidence that a trainer's event log has (`Evidence`): without it the check is out of reach, and left out. `sound
run`: the machine kept its pace and the run came to its end, or the verdict is unknown."""


class Nothing(BaseModel):
    """What a scenario says of a check that has no bound, to have it run."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Check:
    """A pure function from a recorded run to a finding, and what must be known to make a verdict of it."""

    function: Callable[..., Any]
    """(history) or (history, bound) -> Finding; None: nothing in the plan is about this."""
    bound: Any
    """Type of what a scenario says under the check's name; None: it has nothing to say."""
    needs: frozenset[Need]
    unverified: Literal["unknown", "judged"]
    """What becomes of it where a fault had no measurable effect."""
    cumulative: bool
    """Whether it counts what was merged later: where the event log is cut off it can't even fail."""

    @property
    def name(self) -> str:
        """The function's."""
        return self.function.__name__

    def parse(self, content: Any) -> Any:
        """Return what a scenario says under the check's name, as its bound.

        Raises:
            pydantic.ValidationError: it is not one.
        """
        return self._adapter.validate_python({} if content is None else content)

    def schema(self) -> dict[str, Any]:
        """JSON schema of what a scenario may say under the check's name."""
        return self._adapter.json_schema(ref_template="#/$defs/{model}")

    @property
    def _adapter(self) -> TypeAdapter[Any]:
        return _adapter(Nothing if self.bound is None else self.bound)

    def __call__(self, history: Any) -> Any:
        """The finding; None where the plan has no use for it."""
        if self.bound is None:
            return self.function(history)
        bound = history.plan.checks.bound(self.name)
        return None if bound is None else self.function(history, bound)


@cache
def _adapter(bound: Any) -> TypeAdapter[Any]:
    return TypeAdapter(bound)


def _provided(entry: Provided) -> list[tuple[str, Check]]:
    checks = list(entry.content) if isinstance(entry.content, Iterable) else [entry.content]
    if not checks or not all(isinstance(check, Check) for check in checks):
        raise ProviderError(f"{entry.name} of {entry.provider} provides no check: an entry point of {GROUP} names a "
                            f"function with the decorator diloco_chaos.check, or a tuple of such functions")
    return [(check.name, check) for check in checks]


CHECKS = Registry(GROUP, "check", _provided)
