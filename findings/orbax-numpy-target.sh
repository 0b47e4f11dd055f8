#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: of a NumPy target restore() takes the type, and not the shape.
#
# The guess was: what is restored into a target of another shape is refused, as it is for JAX arrays, and a value that
# the target's type can't hold is refused or keeps its own type. Seen, for NumPy arrays and for jax.ShapeDtypeStruct
# without a sharding: another shape is passed over without a word, so a model that was changed gets arrays of the old
# shape; and values are cast as C does, so a count of 2**40 + 1 tokens that was saved with 64 bits comes back as 1 for a
# target of 32 bits, which is what jax.numpy makes of an integer unless it is told otherwise. A JAX array as the target
# refuses another shape, and casts the count to 1 as well.
#
# Needs 300 MB. Fails if any of that changes.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet orbax-checkpoint==0.12.8 tensorstore==0.1.86 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/restore.py" <<'PYTHON'
import sys
import jax
import numpy
import orbax.checkpoint as ocp

checkpointer = ocp.StandardCheckpointer()
checkpointer.save(sys.argv[1], {"w": numpy.arange(6.0), "tokens": numpy.array(2**40 + 1)})
checkpointer.wait_until_finished()
here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
targets = {
    "NumPy, as saved": {"w": numpy.zeros(6), "tokens": numpy.array(0)},
    "NumPy, other shape": {"w": numpy.zeros((2, 4)), "tokens": numpy.array(0)},
    "NumPy, 32 bits": {"w": numpy.zeros(6, "f4"), "tokens": numpy.array(0, "i4")},
    "abstract, other shape": {"w": jax.ShapeDtypeStruct((2, 4), "f4"), "tokens": jax.ShapeDtypeStruct((), "i4")},
    "JAX, 32 bits": {"w": jax.ShapeDtypeStruct((6,), "f4", sharding=here),
                     "tokens": jax.ShapeDtypeStruct((), "i4", sharding=here)},
    "JAX, other shape": {"w": jax.ShapeDtypeStruct((8,), "f4", sharding=here),
                         "tokens": jax.ShapeDtypeStruct((), "i4", sharding=here)}}
for name, target in targets.items():
    try:
        found = checkpointer.restore(sys.argv[1], target)
        print(f"{name}: w has the shape {found['w'].shape}, {int(found['tokens'])} tokens")
    except ValueError as error:
        print(f"{name}: ValueError: {str(error).split('.')[0]}")
PYTHON
seen=$(JAX_PLATFORMS=cpu "$place/venv/bin/python" "$place/restore.py" "$place/saved" 2>/dev/null)
echo "$seen"
# Output seen with Python 3.11 on Linux:
expected='NumPy, as saved: w has the shape (6,), 1099511627777 tokens
NumPy, other shape: w has the shape (6,), 1099511627777 tokens
NumPy, 32 bits: w has the shape (6,), 1 tokens
abstract, other shape: w has the shape (6,), 1 tokens
JAX, 32 bits: w has the shape (6,), 1 tokens
JAX, other shape: ValueError: Requested shape: (8,) is not compatible with the stored shape: (6,)'
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
