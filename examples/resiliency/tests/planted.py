"""train.py with a bug that people make when ranks are started again.

    ft_launcher ... planted.py BUG FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import train
from torch import distributed as dist

load = train.load


class Planted(train.Job):
    """A job that loads all but the optimizer."""

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Load as it should, and begin with fresh moments."""
        fresh = self.optimizer.state_dict()
        super().load_state_dict({**kept, "optimizer": fresh})


def nothing(folder: Path) -> None:
    """No checkpoint is looked for."""


def stale(folder: Path) -> dict[str, Any] | None:
    """Return the checkpoint before the newest one, on one of two ranks, with the newest step."""
    kept, files = load(folder), sorted(folder.glob("step-*.pt"))
    if kept is not None and dist.get_rank() == 1 and len(files) > 1:
        kept["model"] = train.torch.load(files[-2], weights_only=True)["model"]
    return kept


def main() -> None:
    """See the module."""
    bug = sys.argv.pop(1)
    if bug == "optimizer not restored":
        train.Job = Planted
    elif bug == "ranks begin anew":
        train.load = nothing
    elif bug == "one rank has older weights":
        train.load = stale
    train.main()


if __name__ == "__main__":
    main()
