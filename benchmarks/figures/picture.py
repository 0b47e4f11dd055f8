"""Draws the README's picture from a real run.

`python -m benchmarks.figures.picture runs/<id>` writes docs/report.svg.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from chaos.evidence.run_folder import RunFolder
from chaos.report.terminal import show
from chaos.runner.run import judged

TARGET = Path(__file__).parents[2] / "docs" / "report.svg"


def main() -> None:
    """Print the report into a recording console and export it, without fonts from elsewhere."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    result = judged(RunFolder.open(Path(sys.argv[1])))
    show(result, console, verbose=True)
    svg = console.export_svg(title=f"diloco-chaos run {result.history.plan.scenario}", theme=SVG_EXPORT_THEME,
                             unique_id="report")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace(str(result.folder.path.parent), "runs").replace("Fira Code", "DejaVu Sans Mono")
    TARGET.write_text(svg.replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    main()
