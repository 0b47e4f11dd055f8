"""train.py with a bug that people make when a driver is started again.

    python planted.py BUG FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import train


class Planted(train.Job):
    """A job that goes on in its own way."""

    bug = ""

    def load(self, folder: Path) -> None:
        """Load as it should, but for one thing."""
        if self.bug == "the driver begins anew":
            return
        super().load(folder)
        if self.bug == "optimizer not restored":
            self.optimizer.state.clear()
        elif self.bug == "weights of an older checkpoint" and self.step > train.EVERY:
            older = folder / f"step-{self.step - train.EVERY:04}.pt"
            self.weights.data = train.torch.load(older, weights_only=True)["weights"]


def main() -> None:
    """See the module."""
    Planted.bug = sys.argv.pop(1)
    train.Job = Planted
    train.main()


if __name__ == "__main__":
    main()
