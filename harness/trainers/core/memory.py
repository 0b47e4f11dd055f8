"""Failing memory: values of one learner's weights, or of AdamW's moments, become NaN or have bits turned over.

It exists for the experiment's sake: a harness writes an order into the run's folder, and the learner's driver carries
it out before the next inner step, as if the memory had failed there.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from diloco_chaos.harness.record.tape.events import Corrupted, MemoryContent, MemoryPart

if TYPE_CHECKING:  # as in harness/base/tensors.py
    import numpy as np
    from numpy.typing import NDArray

ORDERS = "orders"
"""The folder, in the run's."""
_BITS = 32


@dataclass(frozen=True)
class Corruption:
    """The change that a fault makes to a learner's memory; the same seed gives the same values and bits."""

    fault: str
    """The fault's id."""
    part: MemoryPart
    content: MemoryContent
    values: int
    """How many values are hit, at most all of them."""
    seed: int

    @classmethod
    def of(cls, event: Corrupted) -> Corruption:
        """Return the corruption that a learner recorded that it did."""
        return cls(event.fault, event.part, event.content, event.values, event.seed)

    def apply(self, memory: NDArray[np.float32]) -> None:
        """Change a flat float32 array in place."""
        import numpy as np
        chance = np.random.default_rng(self.seed)
        places = chance.choice(memory.size, min(self.values, memory.size), replace=False)
        if self.content == "nan":
            memory[places] = np.nan
        else:
            turned = np.left_shift(np.uint32(1), chance.integers(0, _BITS, places.size, dtype=np.uint32))
            memory[places] = (memory[places].view(np.uint32) ^ turned).view(np.float32)


def written(node: str, incarnation: int, corruption: Corruption) -> tuple[str, bytes]:
    """An order for this process: its file's name in the run's folder, and what stands there."""
    return f"{ORDERS}/{node}.{incarnation}.{corruption.fault}.json", json.dumps(asdict(corruption)).encode()


def order(run: Path, node: str, incarnation: int, corruption: Corruption) -> None:
    """Leave an order for this process; it appears there as a whole.

    Raises:
        OSError: it can't be written.
    """
    name, content = written(node, incarnation, corruption)
    path = run / name
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)


def ordered(run: Path, node: str, incarnation: int) -> list[Corruption]:
    """Take and return the orders for this process; usually there are none, and this takes microseconds."""
    folder = run / ORDERS
    if not os.path.isdir(folder):
        return []
    corruptions = []
    for path in sorted(folder.glob(f"{node}.{incarnation}.*.json")):
        corruptions.append(Corruption(**json.loads(path.read_text())))
        path.unlink()
    return corruptions
