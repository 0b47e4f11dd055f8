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
RENAMED = 'os.rename("part", "it.ckpt")'
REFUSED = """
def rename(source, name):
    sys.audit("os.rename", source, name, -1, -1)
    raise OSError(errno.EXDEV, "Invalid cross-device link")
os.rename = rename
shutil.move("part", "it.ckpt")"""
OVER_ITSELF = """
pathlib.Path("it.ckpt").write_text("weights")
os.rename("it.ckpt", "it.ckpt")"""


def stands(folder, saves):
    (folder / "sitecustomize.py").write_text(COUNTED)
    (folder / "train.py").write_text("import errno, os, pathlib, shutil, sys\n" + f"""
pathlib.Path("part").write_text("weights")
{saves}
""" * 2)
    done = subprocess.run([sys.executable, HELD, "*.ckpt", "train.py"], cwd=folder, capture_output=True, text=True,
                          check=True, env=os.environ | {"PYTHONPATH": str(folder)})
    return done.stdout.splitlines()


def test_it_stands_once_before_each_file_that_gets_its_name(tmp_path):
    assert stands(tmp_path, RENAMED) == ["checkpoint.write"] * 2


def test_a_file_that_is_copied_since_it_can_not_be_renamed_is_written_once(tmp_path):
    assert stands(tmp_path, REFUSED) == ["checkpoint.write"] * 2


def test_a_file_that_is_written_in_place_after_it_got_its_name_is_written_again(tmp_path):
    assert stands(tmp_path, OVER_ITSELF) == ["checkpoint.write"] * 4
