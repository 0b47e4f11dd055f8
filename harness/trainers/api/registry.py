"""Every trainer by its name, from whichever package provides it."""

from __future__ import annotations

from diloco_chaos.harness.base.registries import Provided, ProviderError, Registry
from diloco_chaos.harness.trainers.api.settings import SimpleSettings, TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import Trainer

GROUP = "diloco_chaos.trainers"
"""Of entry points; each names a subclass of `Trainer`, under the trainer's own name."""
BUILT_IN = "decoupled-diloco"
"""The trainer that is meant where a scenario names none."""


def _provided(entry: Provided) -> list[tuple[str, type[Trainer]]]:
    if not (isinstance(entry.content, type) and issubclass(entry.content, Trainer)
            and getattr(entry.content, "name", None) == entry.name):
        raise ProviderError(f"{entry.name} of {entry.provider} provides no trainer: an entry point of {GROUP} names a "
                            f"subclass of diloco_chaos.Trainer whose `name` is {entry.name!r}")
    settings = getattr(entry.content, "settings_type", None)
    if not (isinstance(settings, type) and issubclass(settings, TrainerSettings)
            and settings.model_fields.keys() >= SimpleSettings.model_fields.keys()):
        raise ProviderError(f"{entry.name} of {entry.provider} can't be used: its `settings_type` must be a subclass "
                            f"of diloco_chaos.TrainerSettings with the fields {', '.join(SimpleSettings.model_fields)}")
    return [(entry.name, entry.content)]


TRAINERS = Registry(GROUP, "trainer", _provided, one_each=True)
