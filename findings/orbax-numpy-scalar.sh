#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: a tree with a NumPy scalar can be saved, and can't be restored into itself.
#
# The guess was: whatever save() takes, restore() takes as the target. Seen: `numpy.int64(7)` is saved without a word, as an
# array without dimensions. As a part of the target it is refused with ValueError, so a job finds that out when it
# resumes. Without a target the value comes back as an array; a Python int as the target gives a Python int.
#
# Needs 300 MB. Fails if any of that changes.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet orbax-checkpoint==0.12.8 tensorstore==0.1.86 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/restore.py" <<'PYTHON'
import sys
import numpy
import orbax.checkpoint as ocp

checkpointer, tree = ocp.StandardCheckpointer(), {"w": numpy.zeros(3), "step": numpy.int64(7)}
checkpointer.save(sys.argv[1], tree)
checkpointer.wait_until_finished()
for name, target in {"itself": tree, "nothing": None, "a Python int": tree | {"step": 0}}.items():
    try:
        print(f"into {name}: {checkpointer.restore(sys.argv[1], target)['step']!r}")
    except ValueError as error:
        print(f"into {name}: ValueError: {error}")
PYTHON
seen=$(JAX_PLATFORMS=cpu "$place/venv/bin/python" "$place/restore.py" "$place/saved" 2>/dev/null)
echo "$seen"
# Output seen with Python 3.11 on Linux:
expected="into itself: ValueError: Unsupported type: <class 'numpy.int64'> for key: ('step',).
into nothing: array(7)
into a Python int: 7"
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
