"""What the command `diloco-chaos` and `python -m chaos` begin with."""

from __future__ import annotations

import sys
from typing import NoReturn

from chaos.name_clash import hidden


def main() -> NoReturn:
    """The command line, unless Python would take somebody else's folder for one of our packages."""
    if why := hidden():
        print(why, file=sys.stderr)
        sys.exit(2)
    from chaos.cli import main as run  # it imports the other packages
    run()


if __name__ == "__main__":
    main()
