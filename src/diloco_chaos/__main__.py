"""`python -m diloco_chaos` is the command `diloco-chaos`."""

from __future__ import annotations

from diloco_chaos.chaos.cli import main

if __name__ == "__main__":
    main()
