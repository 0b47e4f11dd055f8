"""A script that stands still before it writes a file."""

import os
import subprocess
import sys
from pathlib import Path

HELD = Path(__file__).parents[1] / "held.py"
COUNTED = """
from diloco_chaos import progress
progress.hold = print
"""
SAVES = """
import os, pathlib
for step in (1, 2):
    pathlib.Path("part").write_text("weights")
    try:
        {rename}
    except OSError:
        pathlib.Path("it.ckpt").write_text("weights")
"""


def stands(folder, rename):
    (folder / "sitecustomize.py").write_text(COUNTED)
    (folder / "train.py").write_text(SAVES.format(rename=rename))
    done = subprocess.run([sys.executable, HELD, "*.ckpt", "train.py"], cwd=folder, capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(folder)})
    return done.stdout.splitlines()


def test_it_stands_once_before_each_file_that_gets_its_name(tmp_path):
    assert stands(tmp_path, 'os.rename("part", "it.ckpt")') == ["checkpoint.write"] * 2


def test_a_file_that_is_copied_since_it_can_not_be_renamed_is_written_once(tmp_path):
    assert stands(tmp_path, 'os.rename("not there", "it.ckpt")') == ["checkpoint.write"] * 2
