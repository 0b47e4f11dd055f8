"""Draws the README's picture from a real run, one that fails.

    diloco-chaos run benchmarks/figures/failing.yaml --on simulated
    python -m benchmarks.figures.picture runs/<id>       writes docs/report.svg
"""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.terminal import show
from diloco_chaos.chaos.runner.run import judged

_WIDTH = 100
"""Columns: commands are not broken."""
TARGET = Path(__file__).resolve().parents[2] / "docs" / "report.svg"


def main() -> None:
    """Print the report into a recording console and export it, without fonts from elsewhere."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    run = RunFolder.open(Path(sys.argv[1]))
    os.chdir(run.path.parents[1])  # so that paths are short
    show(replace(judged(run), folder=RunFolder(Path(*run.path.parts[-2:]))), console)
    svg = console.export_svg(title=f"diloco-chaos run {run.plan().scenario}", theme=SVG_EXPORT_THEME,
                             unique_id="report")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    TARGET.write_text(svg.replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    main()
