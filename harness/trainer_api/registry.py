"""Every trainer by its name, from whichever package provides it, and its settings as a part of other models."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SerializeAsAny, ValidationInfo

from harness.errors import printable
from harness.providers import Provided, ProviderError, Registry
from harness.trainer_api.settings import SimpleSettings, TrainerSettings
from harness.trainer_api.trainer import Trainer

GROUP = "diloco_chaos.trainers"
"""Of entry points; each names a subclass of `Trainer`, under the trainer's own name."""
BUILT_IN = "decoupled-diloco"
"""The trainer that is meant where a scenario names none."""


def _provided(one: Provided) -> list[tuple[str, Trainer]]:
    if not (isinstance(one.content, type) and issubclass(one.content, Trainer)
            and getattr(one.content, "name", None) == one.name):
        raise ProviderError(f"{one.name} of {one.provider} provides no trainer: an entry point of {GROUP} names a "
                            f"subclass of chaos.Trainer whose `name` is {one.name!r}")
    settings = getattr(one.content, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, TrainerSettings)
            and settings.model_fields.keys() >= SimpleSettings.model_fields.keys()):
        raise ProviderError(f"{one.name} of {one.provider} can't be used: its `settings` must be a subclass of "
                            f"chaos.TrainerSettings with the fields {', '.join(SimpleSettings.model_fields)}")
    return [(one.name, one.content())]


TRAINERS = Registry(GROUP, "trainer", _provided)


def _known(name: str) -> str:
    if name in TRAINERS:
        return name
    near = get_close_matches(name, TRAINERS, 1)
    raise ValueError(". ".join([printable(
        f"no trainer {name[:80]!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        + f" There are {', '.join(TRAINERS)}"), *TRAINERS.broken()]))


def _of_the_trainer(given: Any, info: ValidationInfo) -> Any:
    name = info.data.get("trainer")
    if name is None:  # it has no such trainer, which is told at its own place
        return TrainerSettings.model_construct()  # type: ignore[call-arg]
    settings = TRAINERS[name].settings
    return given if isinstance(given, settings) else settings.model_validate(given)


TrainerName = Annotated[str, AfterValidator(_known)]
"""The field `trainer` of a model ..."""
AnySettings = Annotated[SerializeAsAny[TrainerSettings], BeforeValidator(_of_the_trainer)]
"""... and, behind it, the settings of that trainer."""
