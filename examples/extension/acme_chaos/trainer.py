"""A trainer: learners walk towards a number, and after every step they all go on from where they are on average."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from diloco_chaos import Coupling, RoundTrainer, SimpleSettings, Tensors


class WalkSettings(SimpleSettings):
    """What a scenario says under `cluster:`, beside what every trainer has."""

    target: float = 1.0
    """Where they walk to."""
    stride: float = 0.1
    """The share of the way that a step takes."""

    @property
    def coupling(self) -> Coupling:
        """Whoever is gone is left out of the round, at once where its connection ends."""
        return Coupling("group", ahead=1.0, unseen_s=self.heartbeat_timeout)


class Walk(RoundTrainer):
    """What `trainer: acme-walk` means."""

    name = "acme-walk"
    settings_type = WalkSettings
    settings: WalkSettings

    def initial(self) -> Tensors:
        """They begin at nought."""
        return {"place": np.zeros(1, np.float32)}

    def step(self, learner: int, round_: int, state: Tensors) -> tuple[Tensors, float]:
        """Not quite straight: where the target seems to be is drawn from the learner and the round."""
        chance = np.random.default_rng((self.settings.seed, learner, round_))
        seems = np.float32(self.settings.target + 0.1 * chance.standard_normal())
        place = state["place"] + np.float32(self.settings.stride) * (seems - state["place"])
        return {"place": place}, float(abs(place[0] - self.settings.target))

    def merge(self, state: Tensors, contributions: Mapping[str, Tensors]) -> Tensors:
        """The mean of all who are there."""
        return {"place": np.mean([one["place"] for one in contributions.values()], axis=0, dtype=np.float32)}
