"""When fragments come due, while H grows or stands. Pure.

The *phase* is the global step as it would be had H been `sync_every` all the time: each step of the global clock takes
it `sync_every` / H further, which is one where H does not change. A fragment is due whenever the phase, modulo
`sync_every`, passes its offset: fragments are as evenly staggered while H is small as they are in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import steps_between_merges


def advanced(phase: float, steps: int, config: TrainerConfig, tokens: int) -> float:
    """The phase after so many more steps of the global clock, at this count of processed tokens."""
    return phase + steps * (config.sync_every / steps_between_merges(config, tokens))


def due(before: float, now: float, offsets: Sequence[int], sync_every: int) -> list[int]:
    """Fragments that came due while the phase went from `before` (exclusive) to `now`, each once, in order.

    `offsets`: of H steps, after how many each fragment is due.
    """
    came = [(offset + _turns(now, offset, sync_every) * sync_every, index) for index, offset in enumerate(offsets)
            if _turns(now, offset, sync_every) > _turns(before, offset, sync_every)]
    return [index for _, index in sorted(came)]


def _turns(phase: float, offset: int, sync_every: int) -> float:
    """Return how often a fragment with this offset has been due."""
    return (phase - offset) // sync_every
