"""The trainer that a scenario or a plan is about, and its settings, as fields of a model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SerializeAsAny, ValidationInfo

from diloco_chaos.harness.base.errors import nearest, printable
from diloco_chaos.harness.trainers.api.registry import TRAINERS
from diloco_chaos.harness.trainers.api.settings import TrainerSettings


def _known(name: str) -> str:
    if name in TRAINERS:
        return name
    there = printable(f"no trainer {name[:80]!r}{nearest(name, list(TRAINERS)) or '.'} There are {', '.join(TRAINERS)}")
    raise ValueError(". ".join([there, *TRAINERS.broken()]))


def _of_the_trainer(given: Any, info: ValidationInfo) -> Any:
    if "trainer" not in info.data:  # there is no such trainer, which is told at its own place
        return TrainerSettings.model_construct()  # type: ignore[call-arg]
    return TRAINERS[info.data["trainer"]].settings.model_validate(given)


TrainerName = Annotated[str, AfterValidator(_known)]
"""The field `trainer` of a model ..."""
AnySettings = Annotated[SerializeAsAny[TrainerSettings], BeforeValidator(_of_the_trainer)]
"""... and, behind it, the settings of that trainer."""
