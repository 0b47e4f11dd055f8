"""Calls on a simulated disk fail, wait, or write something else, as a library makes them in real processes."""

from __future__ import annotations

import errno
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.preload.page import Rule
from diloco_chaos.harness.record.storage.checkpoint import saving
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.simulation.disk import MemoryDisk

NAME = "fragment-00.safetensors"
ALL = ("open", "read", "write", "fsync", "rename")


def content(version=1):
    return Content({"w": np.full(64, version, np.float32)}, {"version": version})


def disk(action, calls=("write",), pattern="*/state/*", **settings):
    """A disk for which a rule holds as the fault f1."""
    made = MemoryDisk("/run/state")
    made.faults.arm("f1", Rule(pattern, calls, action, **settings))
    return made


def save(on, version=1):
    for _ in saving(on, NAME, content(version)):
        pass


def hits(on):
    return on.faults.hits("f1")[0]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_call_fails_with_the_error_and_is_counted(call):
    on = disk("error", [call], error="EIO")
    with pytest.raises(OSError, match="Input/output error") as caught:
        save(on)
    assert caught.value.errno == errno.EIO
    assert (hits(on).calls, hits(on).first) == ({call: 1}, f"/run/state/{NAME}.partial")
    on.faults.disarm("f1")
    save(on)
    assert on.read(NAME).meta == {"version": 1}


@pytest.mark.parametrize("call", ["open", "read"])
def test_what_can_not_be_read_is_no_checkpoint(call):
    on = disk("delay", [call], delay_s=0.0)
    save(on)
    on.faults.disarm("f1")
    on.faults.arm("f1", Rule("*", [call], "error", error="EIO"))
    with pytest.raises(CheckpointError, match="can't be read as a checkpoint: Input/output error"):
        on.read(NAME)


@given(st.integers(0, 3000))
def test_what_fits_is_written_before_the_disk_is_full(after):
    size, on = len(content().encoded()), disk("error", error="ENOSPC", after=after)
    try:
        save(on)
    except OSError:
        assert len(on.data(f"{NAME}.partial")) == after < size
        assert hits(on).lost == size - after
    else:
        assert size <= after
        assert hits(on).calls == {}


def test_files_that_a_pattern_does_not_mean_are_told():
    on = disk("error", error="EIO", pattern="*/other.bin")
    save(on)
    assert (hits(on).met, on.faults.hits("f1")[1]) == (0, [f"/run/state/{NAME}.partial"])


def test_a_pattern_means_the_name_that_a_file_will_have():
    on = disk("error", error="EIO", pattern=f"*/{NAME}")
    with pytest.raises(OSError):
        save(on)


def test_calls_that_wait_add_up():
    on = disk("delay", ALL, delay_s=0.25)
    save(on)
    assert on.faults.waited_s() == 4 * 0.25  # open, write, fsync, rename
    assert on.faults.waited_s() == 0.0


def test_a_call_that_hangs_waits_until_the_rule_holds_no_more():
    on = disk("hang", ALL)
    save(on)
    assert on.faults.waited_s() == math.inf
    assert on.faults.hang_lasts
    on.faults.disarm("f1")
    assert not on.faults.hang_lasts


def test_half_of_a_write_is_made_good_by_who_writes():
    on = disk("short")
    save(on)
    assert on.read(NAME).meta == {"version": 1}
    assert hits(on).calls == {"write": 1}


@pytest.mark.parametrize("action", ["bit", "zeros", "sign", "scale", "nan"])
def test_what_is_corrupted_has_its_length_and_is_told_by_its_digest(action):
    on, whole = disk(action, after=1 if action == "zeros" else 0), content().encoded()
    save(on)
    damaged = on.data(NAME)
    differ = [place for place, (one, other) in enumerate(zip(whole, damaged, strict=True)) if one != other]
    assert len(differ) == hits(on).lost > 0
    assert {"bit": len(differ) == 1, "zeros": not any(damaged[1:]), "sign": len(differ) == 1,
            "scale": len(differ) == 1, "nan": len(differ) == 2}[action]
    with pytest.raises(CheckpointError):
        on.read(NAME)


def test_a_share_of_calls_is_hit_the_same_ones_again_for_the_same_seed():
    def which(seed):
        on = disk("delay", delay_s=1.0, share=0.5, seed=seed)
        return [bool(save(on) or on.faults.waited_s()) for _ in range(40)]
    assert which(1) == which(1) != which(2)
    assert 8 < sum(which(1)) < 32


def test_two_rules_hold_at_a_time():
    on = disk("delay", delay_s=1.0)
    on.faults.arm("f2", Rule("*", ["write"], "error", error="ENOSPC"))
    with pytest.raises(OSError):
        save(on)
    assert on.faults.waited_s() == 1.0
    assert on.faults.hits("f2")[0].calls == {"write": 1}
